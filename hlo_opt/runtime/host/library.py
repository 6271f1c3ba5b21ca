"""Kernels on the host: one shared library for a list of kernels, built by the C++ compiler and kept by content.

A kernel has two forms. `plain` is the emitted text, unchanged: what is to be checked. `lanes` is printed from the kernel's tree for the host's vector units: what is to be quick.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal

from hlo_opt.codegen.host_plain import plain_unit
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.codegen.lanes import has_lanes, lanes_unit, launcher_name
from hlo_opt.diag import BackendError, CheckError
from hlo_opt.ir.values import Array
from hlo_opt.runtime.host.compiler import built, cache_directory, find_compiler, has_compiler, takes

__all__ = ["HostLibrary", "cache_directory", "find_compiler", "has_compiler", "load", "units"]

Form = Literal["plain", "lanes"]

PLAIN_FLAGS = ("-O1", "-fno-threadsafe-statics")
"""Quick to build; one thread plays all of a kernel's, so nothing guards the memory that these share."""
FILLED = "-ftrivial-auto-var-init=pattern"
"""A variable that nothing was assigned to holds no luckily chosen value."""

_PER_UNIT = 24  # kernels of one translation unit, when there is more than one
_MOST_UNITS = 8


class HostLibrary:
    """The given kernels, compiled and loaded. Kernels of equal symbols must be equal; each is built once.

    Raises BackendError when there is no compiler (HLO510) or when it refuses a kernel (HLO511).
    """

    def __init__(self, kernels: Sequence[Kernel], path: str | None = None, form: Form = "lanes") -> None:
        """`path` is a library that holds the kernels already."""
        self._kernels = list({kernel.symbol: kernel for kernel in kernels}.values())
        self._launchers: dict[str, Any] = {}
        self._finding: Any = None
        if not self._kernels:
            return
        library = ctypes.CDLL(path) if path else load(units_of(self._kernels, form), flags_of(form))
        for kernel in self._kernels:
            launcher = library[launcher_name(kernel)]
            launcher.argtypes = [ctypes.c_void_p, ctypes.c_longlong, ctypes.c_longlong]
            launcher.restype = ctypes.c_int
            self._launchers[kernel.symbol] = launcher
        self._finding = getattr(library, "hlo_finding", None)
        if self._finding is not None:
            self._finding.restype = ctypes.c_char_p

    def address(self, kernel: Kernel) -> int:
        """Where the kernel's launcher is."""
        return ctypes.cast(self._launchers[kernel.symbol], ctypes.c_void_p).value or 0

    def launch(self, kernel: Kernel, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run a kernel on arrays that hold the physical memory: contiguous, one per pointer, at least as large as the shape.

        Raises BackendError for arrays that do not fit, and (HLO721) CheckError where the plain form does what CUDA does not allow.
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
            raise self.fault(kernel)

    def fault(self, kernel: Kernel) -> BackendError | CheckError:
        """Why the last launch of a kernel failed: it did what CUDA does not allow, or there was no memory."""
        found = b"" if self._finding is None else self._finding()
        if found:
            return CheckError(f"the kernel {kernel.symbol}: {found.decode()}", code="HLO721")
        return BackendError(f"no memory for the threads of {kernel.symbol}", code="HLO512")


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


def flags_of(form: Form) -> tuple[str, ...]:
    """What a form is built with, besides what all are."""
    if form == "lanes":
        return ()
    return (*PLAIN_FLAGS, FILLED) if takes(FILLED) else PLAIN_FLAGS


def units_of(kernels: Sequence[Kernel], form: Form) -> list[str]:
    """Translation units of kernels in a form. What has no form as lanes has its plain one."""
    quick: list[Kernel] = []
    rest: list[Kernel] = []
    for kernel in kernels:
        (quick if form == "lanes" and has_lanes(kernel) else rest).append(kernel)
    return [*(units(quick, lanes_unit) if quick else []), *(units(rest, plain_unit) if rest else [])]


def units(kernels: Sequence[Kernel], unit: Callable[[Sequence[Kernel]], str]) -> list[str]:
    """Translation units of about the same length of text, enough of them to keep the processors busy; `unit` writes one."""
    count = min(-(-len(kernels) // _PER_UNIT), os.cpu_count() or 1, _MOST_UNITS)
    groups: list[list[Kernel]] = [[] for _ in range(count)]
    sizes = [0] * count
    for kernel in sorted(kernels, key=lambda k: (-len(k.source), k.symbol)):
        smallest = sizes.index(min(sizes))
        groups[smallest].append(kernel)
        sizes[smallest] += len(kernel.source)
    return [unit(group) for group in groups]
