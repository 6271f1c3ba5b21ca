"""Kernels and buffers on the host: NumPy arrays, and one shared library for a list of kernels.

A kernel has two forms. `plain` is the emitted text, unchanged: what is to be checked. `lanes` is printed from the
kernel's tree for the host's vector units: what is to be quick.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hlo_opt.codegen.host_plain import plain_unit
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.codegen.lanes import has_lanes, lanes_unit, launcher_name
from hlo_opt.diag import BackendError, CheckError
from hlo_opt.diag.time_limit import check_time
from hlo_opt.evaluate.threads import bounded_libraries
from hlo_opt.ir import Shape
from hlo_opt.ir.values import Array
from hlo_opt.runtime.host.compiler import (
    built,
    cache_directory,
    find_compiler,
    has_compiler,
    load,
    loadable,
    takes,
)
from hlo_opt.runtime.host.crashes import STATUS, crash, launched
from hlo_opt.runtime.numpy import WORD, Reference, empty_memory, from_memory, held_dtype, to_memory
from hlo_opt.runtime.schedule import Schedule
from hlo_opt.runtime.schedule.ops import CallOp, LaunchOp
from hlo_opt.runtime.schedule.stretch import NOTHING, Memory

__all__ = [
    "FILLED",
    "PLAIN_FLAGS",
    "HostDevice",
    "HostLibrary",
    "KernelForm",
    "built",
    "cache_directory",
    "find_compiler",
    "flags_of",
    "has_compiler",
    "load",
    "loadable",
    "takes",
    "units",
    "units_of",
]

KernelForm = Literal["plain", "lanes"]

PLAIN_FLAGS = ("-O1", "-fno-threadsafe-statics")
"""Quick to build; one thread plays all of a kernel's, so nothing guards the memory that these share."""
FILLED = "-ftrivial-auto-var-init=pattern"
"""A variable that nothing was assigned to holds no luckily chosen value."""

_PER_UNIT = 24  # kernels of one translation unit, when there is more than one
_OF_UNIT = 150_000  # characters of its kernels
_MOST_UNITS = 8


class HostLibrary:
    """The given kernels, compiled and loaded. Kernels of equal symbols must be equal; each is built once.

    Raises BackendError when there is no compiler (HLO510) or when it refuses a kernel (HLO511).
    """

    def __init__(self, kernels: Sequence[Kernel], path: str | None = None, form: KernelForm = "lanes") -> None:
        """`path` is a library that holds the kernels already.

        path  the library's file; empty without kernels
        """
        self.path = path or ""
        self._kernels = list({kernel.symbol: kernel for kernel in kernels}.values())
        self._launchers: dict[str, Any] = {}
        self._finding: Any = None
        if not self._kernels:
            return
        self._form = form
        self.path = path or str(loadable(units_of(self._kernels, form), flags_of(form)))
        library = _loaded(self.path)
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
        """Run a kernel on arrays that hold the physical memory: contiguous, one per pointer, at least as large as the
        shape.

        Raises BackendError for arrays that do not fit, and (HLO721) CheckError where the plain form does what CUDA does
        not allow.
        """
        pointers = [
            *(_address(a, s.stored_bytes, False) for a, s in zip(inputs, kernel.inputs, strict=True)),
            *(_address(a, s.stored_bytes, True) for a, s in zip(outputs, kernel.outputs, strict=True)),
        ]
        if not kernel.launch.grid:
            return
        packed = (ctypes.c_void_p * len(pointers))(*pointers)
        failed = launched(self._launchers[kernel.symbol], packed, kernel.size, kernel.launch.grid)
        if failed > STATUS:
            raise self.crashed(failed, kernel)
        if failed:
            raise self.fault(kernel)

    def fault(self, kernel: Kernel) -> BackendError | CheckError:
        """Why the last launch of a kernel failed: it did what CUDA does not allow, or there was no memory."""
        finding = b"" if self._finding is None else self._finding()
        if finding:
            return CheckError(f"the kernel {kernel.symbol}: {finding.decode()}", code="HLO721")
        return BackendError(f"no memory for the threads of {kernel.symbol}", code="HLO512")

    def crashed(self, status: int, kernel: Kernel, schedule: Schedule | None = None, where: str = "") -> BackendError:
        """The error of a kernel that crashed; with its schedule, what it computes is named. What the library keeps
        between launches is no longer sound, so the next who wants it gets a copy."""
        _unsound.add(self.path)
        launches = () if schedule is None else (op for _, op in schedule.ops() if isinstance(op, LaunchOp))
        computed = [op.instruction for op in launches if op.kernel.symbol == kernel.symbol]
        names = f", which computes {', '.join(dict.fromkeys(i.name for i in computed))}," if computed else ""
        span = schedule.module.span(computed[0]) if schedule is not None and computed else None
        return crash(status, f"the kernel {kernel.symbol}{names}", f" in the {self._form} form{where}", span)


_unsound: set[str] = set()
"""Libraries of which a kernel crashed."""


def _loaded(path: str) -> ctypes.CDLL:
    """A library; a copy of its own where it is not sound."""
    if path not in _unsound:
        return ctypes.CDLL(path)
    with tempfile.NamedTemporaryFile(prefix="hlo-opt-", suffix=".so") as copy:
        copy.write(Path(path).read_bytes())
        copy.flush()
        return ctypes.CDLL(copy.name)


def _address(array: Array, byte_size: int, written: bool) -> int:
    if not array.flags.c_contiguous or array.nbytes < byte_size or (written and not array.flags.writeable):
        raise BackendError(f"a kernel's array must be contiguous and hold {byte_size} bytes", code="HLO513")
    return array.ctypes.data


def flags_of(form: KernelForm) -> tuple[str, ...]:
    """What a form is built with, besides what all are."""
    if form == "lanes":
        return ()
    return (*PLAIN_FLAGS, FILLED) if takes(FILLED) else PLAIN_FLAGS


def units_of(kernels: Sequence[Kernel], form: KernelForm) -> list[str]:
    """Translation units of kernels in a form. What has no form as lanes has its plain one."""
    quick: list[Kernel] = []
    rest: list[Kernel] = []
    for kernel in kernels:
        (quick if form == "lanes" and has_lanes(kernel) else rest).append(kernel)
    return [*(units(quick, lanes_unit) if quick else []), *(units(rest, plain_unit) if rest else [])]


def units(kernels: Sequence[Kernel], unit: Callable[[Sequence[Kernel]], str]) -> list[str]:
    """Translation units of about the same length of text, enough of them to keep the processors busy; `unit` writes
    one."""
    wanted = max(-(-len(kernels) // _PER_UNIT), -(-sum(len(k.source) for k in kernels) // _OF_UNIT))
    count = min(wanted, len(kernels), os.cpu_count() or 1, _MOST_UNITS)
    groups: list[list[Kernel]] = [[] for _ in range(count)]
    sizes = [0] * count
    for kernel in sorted(kernels, key=lambda k: (-len(k.source), k.symbol)):
        smallest = sizes.index(min(sizes))
        groups[smallest].append(kernel)
        sizes[smallest] += len(kernel.source)
    written = []
    for group in groups:
        check_time()
        written.append(unit(group))
    return written


class HostDevice:
    """Memory is a flat NumPy array, each buffer in one of its own. Library calls are evaluated in NumPy, by the op
    table.

    Runs under the sanitizers use it; `HostProgram` is for all others.
    """

    def __init__(self, library: HostLibrary, reference: Reference) -> None:
        self._library = library
        self._reference = reference

    def upload(self, array: Array, shape: Shape) -> Array:
        return to_memory(array, shape)

    def download(self, memory: Array, shape: Shape) -> Array:
        return np.array(from_memory(memory, shape), order="C")

    def allocate(self, shape: Shape) -> Array:
        return empty_memory(shape)

    def copy(self, memory: Array) -> Array:
        aligned = np.empty(-(-memory.nbytes // WORD) * WORD, np.uint8)[: memory.nbytes].view(memory.dtype)
        aligned[:] = memory
        return aligned

    def view(self, memory: Array, shape: Shape) -> Array:
        return memory.view(held_dtype(shape))

    def relayout(self, memory: Array, shape: Shape, target: Shape) -> Array:
        return to_memory(from_memory(memory, shape), target)

    def launch(self, kernel: Kernel, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        self._library.launch(kernel, inputs, outputs)

    def call(self, op: CallOp, inputs: Sequence[Array], shapes: Sequence[Shape]) -> list[Memory]:
        arrays = [from_memory(m, s) if s.is_array else None for m, s in zip(inputs, shapes, strict=True)]
        with bounded_libraries():
            results = self._reference.leaves_of(op.instruction, arrays)
        leaves = op.instruction.shape.leaves()
        return [NOTHING if a is None else to_memory(a, s) for a, s in zip(results, leaves, strict=True)]
