"""Kernels on the host: one shared library for a list of kernels, built by the C++ compiler and kept by content."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hlo_opt.codegen.host_source import host_unit, launcher_name
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.diag import BackendError
from hlo_opt.runtime.compiler import built, cache_directory, find_compiler, has_compiler

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

__all__ = ["HostLibrary", "cache_directory", "find_compiler", "has_compiler", "load", "units"]

_PER_UNIT = 24  # kernels of one translation unit, when there is more than one
_MOST_UNITS = 8


class HostLibrary:
    """The given kernels, compiled and loaded. Kernels of equal symbols must be equal; each is built once.

    Raises BackendError when there is no compiler (HLO510) or when it refuses a kernel (HLO511).
    """

    def __init__(self, kernels: Sequence[Kernel], path: str | None = None) -> None:
        """`path` is a library that holds the kernels already."""
        self._kernels = list({kernel.symbol: kernel for kernel in kernels}.values())
        self._launchers: dict[str, Any] = {}
        if not self._kernels:
            return
        library = load(units(self._kernels)) if path is None else ctypes.CDLL(path)
        for kernel in self._kernels:
            launcher = library[launcher_name(kernel)]
            launcher.argtypes = [ctypes.c_void_p, ctypes.c_longlong, ctypes.c_longlong]
            launcher.restype = ctypes.c_int
            self._launchers[kernel.symbol] = launcher

    def address(self, kernel: Kernel) -> int:
        """Where the kernel's launcher is."""
        return ctypes.cast(self._launchers[kernel.symbol], ctypes.c_void_p).value or 0

    def launch(self, kernel: Kernel, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run a kernel on arrays that hold the physical memory: contiguous, one per pointer, at least as large as the shape.

        Raises BackendError for arrays that do not fit.
        """
        pointers = [
            *(_address(a, s.stored_bytes, False) for a, s in zip(inputs, kernel.inputs, strict=True)),
            *(_address(a, s.stored_bytes, True) for a, s in zip(outputs, kernel.outputs, strict=True)),
        ]
        if not kernel.launch.grid:
            return
        packed = (ctypes.c_void_p * len(pointers))(*pointers)
        failed = self._launchers[kernel.symbol](packed, 0, kernel.launch.grid)
        if failed:
            raise BackendError(f"no memory for the threads of {kernel.symbol}", code="HLO512")


def _address(array: Array, byte_size: int, written: bool) -> int:
    if not array.flags.c_contiguous or array.nbytes < byte_size or (written and not array.flags.writeable):
        raise BackendError(f"a kernel's array must be contiguous and hold {byte_size} bytes", code="HLO513")
    return array.ctypes.data


def load(texts: Sequence[str], more: Sequence[str] = ()) -> ctypes.CDLL:
    """The shared library of translation units, built with further flags."""
    path = built(texts, more)
    try:
        return ctypes.CDLL(str(path))
    except OSError:  # a damaged file: build it again
        path.unlink(missing_ok=True)
        return ctypes.CDLL(str(built(texts, more)))


def units(kernels: Sequence[Kernel], unit: Callable[[Sequence[Kernel]], str] = host_unit) -> list[str]:
    """Translation units of about the same length of text, enough of them to keep the processors busy; `unit` writes one."""
    count = min(-(-len(kernels) // _PER_UNIT), os.cpu_count() or 1, _MOST_UNITS)
    groups: list[list[Kernel]] = [[] for _ in range(count)]
    sizes = [0] * count
    for kernel in sorted(kernels, key=lambda k: (-len(k.source), k.symbol)):
        smallest = sizes.index(min(sizes))
        groups[smallest].append(kernel)
        sizes[smallest] += len(kernel.source)
    return [unit(group) for group in groups]
