"""Kernels and buffers on the host: NumPy arrays, and one shared library for a list of kernels, built by the C++
compiler and kept by content.

A kernel has two forms. `plain` is the emitted text, unchanged: what is to be checked. `lanes` is printed from the
kernel's tree for the host's vector units: what is to be quick.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hlo_opt.codegen.host_plain import plain_unit
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.codegen.lanes import has_lanes, lanes_unit, launcher_name
from hlo_opt.diag import BackendError, CheckError
from hlo_opt.diag.kept import kept_folder
from hlo_opt.evaluate.threads import bounded_libraries
from hlo_opt.ir import Shape
from hlo_opt.ir.values import Array
from hlo_opt.runtime.numpy import WORD, Reference, empty_memory, from_memory, held_dtype, to_memory
from hlo_opt.runtime.schedule.ops import CallOp
from hlo_opt.runtime.schedule.stretch import NOTHING, Memory

FLAGS = (
    "-O3",
    "-std=c++17",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",  # one operation is one rounding
    "-fwrapv",  # HLO's integers wrap
    "-fno-math-errno",
    "-fno-trapping-math",  # nobody looks at floating-point flags, and vector code raises others
    "-fopenmp-simd",
    "-fno-exceptions",
    "-fno-rtti",
    "-w",
)

GCC_FLAGS = (
    "-fno-thread-jumps",
    "-fno-tree-pre",
    "-fno-tree-loop-distribute-patterns",
)
"""Keep what is selected between a selection: paths that jump over a second test of the same condition meet again in
selections of conditions, of which GCC makes no vector code. And keep loops that copy what lanes have: as calls of
memcpy they are written in pieces of 16 bytes, and a vector that is read right after that waits until all have reached
the cache."""

LONG = 200_000
LONG_FLAGS = ("-fno-gcse", "-fno-gcse-after-reload", "--param=sccvn-max-alias-queries-per-access=50")
"""Units of more characters do without passes of GCC that take four fifths of the time of long kernels (a scan that is a
tree, 660 kB of text) and make none quicker. Nor does each load ask about as many stores before it as it may (1,000),
which takes up to half of the rest. Short units keep all: without, GCC 12 has mixed up the conditions of threads that
leave before others."""

FAULTS = ("internal compiler error", "PLEASE submit a bug report")
"""What GCC and clang say where they stop by a fault of their own."""
PLAINER = (("-fno-tree-loop-if-convert",), ("-fno-tree-vectorize", "-fno-openmp-simd"))
"""Flags for units at which a compiler stopped so: no vector code of what stands under a condition (GCC 12 makes
instructions that no processor has of the larger of two bytes under one), then none at all."""

CALLS = "-fsanitize=thread"
"""Has the compiler call a function at each access to memory. Units bring these functions, so the linker must not take
those of the compiler's library."""


def find_compiler() -> tuple[str, ...]:
    """The command of the C++ compiler: `$CXX` when it is set, else g++ or clang++. Raises BackendError when there is
    none."""
    wish = os.environ.get("CXX", "").strip()
    for command in [shlex.split(wish)] if wish else [["g++"], ["clang++"]]:
        path = shutil.which(command[0]) if command else None
        if path is not None:
            return (path, *command[1:])
    missing = f"$CXX ({wish})" if wish else "g++ or clang++"
    raise BackendError(
        f"the host backend needs a C++ compiler, and {missing} was not found",
        code="HLO510",
        hint="install g++ or clang++, set CXX to a compiler, or use --backend numpy",
    )


def has_compiler() -> bool:
    """Whether kernels can be built on this machine."""
    try:
        find_compiler()
    except BackendError:
        return False
    return True


@dataclass(frozen=True)
class Processor:
    """Flags for the processor at hand, and what the compiler then knows of it: a part of the cache's key, as a library
    may only run on what it was built for."""

    flags: tuple[str, ...]
    macros: str


NATIVE, PORTABLE = "native", "x86-64-v3"
"""The processor at hand, and what those of Intel and AMD since about 2015 are: for what is carried elsewhere."""


def portable(command: tuple[str, ...]) -> str:
    """`PORTABLE` where the compiler makes code for it, else nothing: the least that its architecture has."""
    return PORTABLE if asked(command, f"-march={PORTABLE}", "-x", "c++", "-E", "-").returncode == 0 else ""


@cache
def processor_called(command: tuple[str, ...], name: str) -> Processor:
    """What the compiler makes of `-march=NAME`; of an empty name the least that its architecture has. Raises
    BackendError (HLO511) for a name that it does not know."""
    if name == NATIVE:
        return processor(command)
    flags = (f"-march={name}",) if name else ()
    done = asked(command, *flags, "-x", "c++", "-dM", "-E", "-")
    if done.returncode:
        raise BackendError(f"the C++ compiler knows no processor called {name!r}", code="HLO511")
    return Processor((*flags, *(() if "__clang__" in done.stdout else GCC_FLAGS)), done.stdout)


@cache
def processor(command: tuple[str, ...]) -> Processor:
    """What the compiler makes of `-march=native`; where it does not take it, kernels use the least that the
    architecture has.

    Vectors of 64 bytes where the processor has them, unless it is one of the first that had: those clock down (the ones
    since then have VBMI2).
    """
    for flags in (("-march=native",), ("-mcpu=native",)):
        done = asked(command, *flags, "-x", "c++", "-dM", "-E", "-")
        if done.returncode == 0:
            width = 512 if "__AVX512VBMI2__" in done.stdout else 256
            wish = (f"-mprefer-vector-width={width}",) if "__AVX512F__" in done.stdout else ()
            more = () if "__clang__" in done.stdout else GCC_FLAGS
            return Processor((*flags, *wish, *more), done.stdout)
    return Processor((), "")


@cache
def takes(flag: str) -> bool:
    """Whether the compiler knows a flag. Raises BackendError as `find_compiler`."""
    return asked(find_compiler(), flag, "-x", "c++", "-E", "-").returncode == 0


@cache
def _version(command: tuple[str, ...]) -> str:
    return asked(command, "--version").stdout


ANSWER_SECONDS = 60.0
"""The time that the compiler has for an empty file."""


def asked(command: Sequence[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """What the compiler answers, given an empty file. Raises BackendError where it does not start (HLO510), and where
    it does not end (HLO511)."""
    try:
        return subprocess.run(
            [*command, *arguments],
            input="",
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=ANSWER_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise BackendError(
            f"the C++ compiler {command[0]} takes more than {ANSWER_SECONDS:g} s for an empty file", code="HLO511"
        ) from None
    except OSError as fault:
        raise BackendError(f"the C++ compiler {command[0]} does not start: {fault.strerror}", code="HLO510") from fault


def built(units: Sequence[str], more: Sequence[str] = ()) -> Path:
    """The shared library of translation units, from the cache where it is there. `more` are further flags.

    The key is everything that the library depends on: texts, flags, the compiler and its version, and the processor.
    A folder for this process alone stands in for a cache whose disk is full.
    Raises BackendError without a compiler (HLO510), for a text that it refuses (HLO511), and where nothing can be
    written (HLO517).
    """
    command = find_compiler()
    native = processor(command)
    flags = (*FLAGS, *native.flags, *more)
    content = "\0".join((*command, _version(command), *flags, native.macros, *units))
    name = f"{hashlib.sha256(content.encode()).hexdigest()[:40]}.so"
    kept = kept_library(name)
    if kept is not None:
        return kept
    folder = cache_directory()
    try:
        _build((*command, *flags), units, folder / name)
    except (OSError, BackendError):
        if has_room(folder):
            raise
        try:
            folder = Path(_own_folder().name)  # which a full disk refuses, too
            _build((*command, *flags), units, folder / name)
        except OSError as fault:
            raise BackendError(f"no kernels can be kept in {folder}: {fault.strerror}", code="HLO517") from fault
    return folder / name


def kept_library(name: str) -> Path | None:
    """The file of a library that was built, in the cache or the folder that stands in for it; None if there is none, or
    only a damaged one."""
    folders = [cache_directory()]
    if _own_folder.cache_info().currsize:
        folders.append(Path(_own_folder().name))
    return next((folder / name for folder in folders if _is_whole(folder / name)), None)


def seal(path: Path) -> None:
    """Ends a library with the digest of its bytes: a process that loads a file that was cut off is killed."""
    digest = hashlib.sha256(path.read_bytes()).digest()
    with path.open("ab") as file:
        file.write(digest)


def _is_whole(path: Path) -> bool:
    """Whether there is a library that ends with the digest of its bytes."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    size = hashlib.sha256().digest_size
    return hashlib.sha256(content[:-size]).digest() == content[-size:]


def build(
    parts: Sequence[tuple[Sequence[str], Sequence[str]]], path: Path, more: Sequence[str] = (), march: str = NATIVE
) -> None:
    """Put one shared library of translation units at a path, whole or not at all. Each part is units and the flags that
    they need; `more` is for the linker, `march` says for which processor, as `processor_called` has it. Raises
    BackendError as `built` and `processor_called`, and OSError."""
    command = find_compiler()
    base = (*command, *FLAGS, *processor_called(command, march).flags)
    with tempfile.TemporaryDirectory(prefix="build-", dir=path.parent) as name:
        folder, runs, objects = Path(name), list[subprocess.Popen[str]](), list[str]()
        for units, flags in parts:
            for text in units:
                source = folder / f"unit{len(objects)}.cpp"
                source.write_text(text, encoding="utf-8")
                objects.append(str(source.with_suffix(".o")))
                runs.append(_start([*base, *flags, *_for_text(base, text), str(source), "-c", "-o", objects[-1]]))
        for run in runs:
            _finish(run, folder)
        _finish(_start([*base, "-shared", *objects, *more, "-o", str(folder / "all.so")]), folder)
        os.replace(folder / "all.so", path)


def has_room(folder: Path) -> bool:
    """Whether a file of a megabyte can be written there. A compiler that finds a disk full says so in words of its own,
    if at all."""
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(1 << 20))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError:
        return False
    return True


def _build(command: tuple[str, ...], units: Sequence[str], path: Path) -> None:
    in_steps = len(units) > 1 or CALLS in command
    with tempfile.TemporaryDirectory(prefix="build-", dir=path.parent) as name:
        folder = Path(name)
        runs = []
        for number, text in enumerate(units):
            source = folder / f"unit{number}.cpp"
            source.write_text(text, encoding="utf-8")
            last = [str(source), "-shared", "-o", str(folder / "all.so")]
            if in_steps:
                last = [str(source), "-c", "-o", str(folder / f"unit{number}.o")]
            runs.append(_start([*command, *_for_text(command, text), *last]))
        for run in runs:
            _finish(run, folder)
        if in_steps:
            objects = [str(folder / f"unit{number}.o") for number in range(len(units))]
            linked = [flag for flag in command if flag != CALLS]
            _finish(_start([*linked, "-shared", *objects, "-o", str(folder / "all.so")]), folder)
        if not (folder / "all.so").exists():
            raise BackendError(f"the C++ compiler {command[0]} writes no library", code="HLO511")
        seal(folder / "all.so")
        os.replace(folder / "all.so", path)  # whole or not at all, also with other processes at it


def _for_text(command: Sequence[str], text: str) -> tuple[str, ...]:
    """Flags of a compiler's command for a unit of so much text."""
    return LONG_FLAGS if len(text) > LONG and GCC_FLAGS[0] in command else ()


NICENESS = 15
"""How much a compiler gives way, of 19."""

_most_seconds: ContextVar[int | None] = ContextVar("most_seconds", default=None)


@contextmanager
def bounded_compiler(seconds: int) -> Iterator[None]:
    """Limits the processor time of each run of the C++ compiler in this thread: builds that take longer raise
    BackendError (HLO511)."""
    before = _most_seconds.set(seconds)
    try:
        yield
    finally:
        _most_seconds.reset(before)


_gives_way: ContextVar[bool] = ContextVar("gives_way", default=False)


@contextmanager
def compiler_that_gives_way() -> Iterator[None]:
    """Lets what else runs have the processors first while the C++ compiler is started in this thread: work in the
    background must not slow down the program that it is for."""
    before = _gives_way.set(True)
    try:
        yield
    finally:
        _gives_way.reset(before)


def _start(arguments: list[str]) -> subprocess.Popen[str]:
    if _gives_way.get():
        arguments = ["nice", "-n", str(NICENESS), *arguments]
    limit = _most_seconds.get()
    if limit is not None:  # the limit holds for what the compiler starts as well, and it cannot be set in this process
        arguments = ["/bin/sh", "-c", f'ulimit -S -t {limit}; exec "$@"', "sh", *arguments]
    return subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, "LC_ALL": "C"},
    )


def _finish(run: subprocess.Popen[str], folder: Path) -> None:
    """Wait for a compiler's run, and run it again with other flags where it stopped by a fault of its own."""
    command = list(run.args) if isinstance(run.args, list | tuple) else []
    _, messages = run.communicate()
    for flags in PLAINER:
        if run.returncode and any(fault in messages for fault in FAULTS):
            run = _start([*map(str, command), *flags])
            _, messages = run.communicate()
    if run.returncode == -signal.SIGINT:  # Ctrl-C goes to the compiler as well
        raise KeyboardInterrupt
    if run.returncode == -signal.SIGXCPU or (run.returncode and "CPU time limit" in messages):
        raise BackendError(f"the C++ compiler takes more than {_most_seconds.get()} s for a kernel", code="HLO511")
    if run.returncode:
        lines = [line.strip() for line in messages.replace(f"{folder}{os.sep}", "").splitlines() if line.strip()]
        first = next((line for line in lines if "error" in line), lines[0] if lines else f"exit {run.returncode}")
        raise BackendError(f"the C++ compiler refused a kernel: {first}", code="HLO511", hint=_refused(first, folder))


_PLACE = re.compile(r"(unit\d+\.cpp):(\d+):")
_SYMBOL = re.compile(r"\b(\w+_[0-9a-f]{16})\(")
_UNKNOWN_HELPER = re.compile(r"'(hlo_\w+)' was not declared|undeclared identifier '(hlo_\w+)'")
LONGEST_LINE = 120


def _refused(message: str, folder: Path) -> str | None:
    """The kernel, and the line of its text, that a compiler's message is about; for an unknown helper, where helpers
    are defined. None where the message names neither."""
    unknown = _UNKNOWN_HELPER.search(message)
    if unknown is not None:
        return f"helpers of kernels are in hlo_opt/codegen/device; none is called {unknown[1] or unknown[2]}"
    place = _PLACE.search(message)
    try:
        lines = [] if place is None else (folder / place[1]).read_text(encoding="utf-8").splitlines()[: int(place[2])]
    except OSError:
        return None
    if not lines:
        return None
    symbols = (match[1] for line in reversed(lines) if (match := _SYMBOL.search(line)) is not None)
    symbol = next(symbols, "")
    return (f"in kernel {symbol}: " if symbol else "the line: ") + lines[-1].strip()[:LONGEST_LINE]


def cache_directory() -> Path:
    """Where built libraries are kept: `$HLO_OPT_CACHE`, else `hlo-opt` in `$XDG_CACHE_HOME` or `~/.cache`.

    Code is loaded from there, so the folder must be ours and writable by nobody else; a folder for this process alone
    stands in for one that is not. Raises BackendError (HLO517) where neither can be made.
    """
    kept = kept_folder()
    if kept is not None:
        return kept
    try:
        return Path(_own_folder().name)
    except OSError as fault:
        raise BackendError(
            f"no folder for kernels can be made: {fault.strerror}",
            code="HLO517",
            hint="HLO_OPT_CACHE names a folder for them that you alone can write",
        ) from fault


@cache
def _own_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="hlo-opt-")


__all__ = [
    "HostLibrary",
    "bounded_compiler",
    "cache_directory",
    "compiler_that_gives_way",
    "find_compiler",
    "has_compiler",
    "load",
    "units",
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
        failed = self._launchers[kernel.symbol](packed, kernel.size, kernel.launch.grid)
        if failed:
            raise self.fault(kernel)

    def fault(self, kernel: Kernel) -> BackendError | CheckError:
        """Why the last launch of a kernel failed: it did what CUDA does not allow, or there was no memory."""
        finding = b"" if self._finding is None else self._finding()
        if finding:
            return CheckError(f"the kernel {kernel.symbol}: {finding.decode()}", code="HLO721")
        return BackendError(f"no memory for the threads of {kernel.symbol}", code="HLO512")


def _address(array: Array, byte_size: int, written: bool) -> int:
    if not array.flags.c_contiguous or array.nbytes < byte_size or (written and not array.flags.writeable):
        raise BackendError(f"a kernel's array must be contiguous and hold {byte_size} bytes", code="HLO513")
    return array.ctypes.data


def loadable(texts: Sequence[str], more: Sequence[str] = ()) -> Path:
    """As `built`; a damaged file in the cache is built again."""
    path = built(texts, more)
    try:
        ctypes.CDLL(str(path))
    except OSError:
        path.unlink(missing_ok=True)
        return built(texts, more)
    return path


def load(texts: Sequence[str], more: Sequence[str] = ()) -> ctypes.CDLL:
    """The shared library of translation units, built with further flags. Raises BackendError as `built`."""
    return ctypes.CDLL(str(loadable(texts, more)))


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
    return [unit(group) for group in groups]


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
