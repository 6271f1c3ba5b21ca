"""Shared libraries of C++ texts, built by the compiler and kept by content.

Nothing of the compiler is imported here, so that a process that finds its kernels in the cache starts quickly.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hlo_opt.diag import BackendError
from hlo_opt.diag.kept import kept_folder
from hlo_opt.diag.time_limit import TimeUpError, time_left
from hlo_opt.runtime.host.build_folders import build_folder, take_away_stale

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

NO_MMX = ("-mno-mmx",)
"""Vectors of 8 bytes go through vector registers alone. GCC 12 may load one by way of an MMX register, which shares its
state with the x87 unit, and never gives it back: after such a kernel, whatever computes with x87 in the same thread
(norms of OpenBLAS, and so `numpy.linalg.qr`) gets NaN."""

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

SAVED, SHORT = "-save-temps=obj", "-mno-avx512vl"
"""GCC (12 to 14 at least) makes a blend with memory of a load under a mask, where the mask is a constant and the vector
has 32 bytes or fewer: `vblendps $15, 32(%rsi), ...`. That reads all of the vector, also behind the end of an array,
where the next page may be missing. So the assembler's text is kept and looked at, and a unit with such an instruction
is built again, without masks for short vectors."""
_BLEND = re.compile(r"\tv(?:blendp[sd]|pblend[dw])\t\$\d+, [^,(%]*\((?!%rip)")

OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
"""Signals that a compiler does not end by itself with: a system without memory ends what it likes, as does who shuts a
machine down."""
_ENDED = "|".join(filter(None, map(signal.strsignal, OUTSIDE)))
_ENDED_INSIDE = re.compile(
    rf"({_ENDED}) (?:signal terminated|\(program) |terminated with signal \d+ \[({_ENDED})\]"
    rf"|unable to execute command: ({_ENDED})|(out of memory|virtual memory exhausted|Cannot allocate memory)",
    re.IGNORECASE,
)
"""What GCC, its linker and clang say where a program that they started ended so, or got no memory."""

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
    return Processor((*flags, *_more(done.stdout)), done.stdout)


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
            return Processor((*flags, *wish, *_more(done.stdout)), done.stdout)
    return Processor((), "")


def _more(macros: str) -> tuple[str, ...]:
    """The flags for a compiler and a processor, by the macros that it sets."""
    gcc = () if "__clang__" in macros else (*GCC_FLAGS, *([SAVED] if "__AVX512VL__" in macros else []))
    return (*(NO_MMX if "__MMX__" in macros else ()), *gcc)


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
    it does not end (HLO511): TimeUpError where the caller has no time left. HLO518 as `_check_ended`."""
    left = time_left()
    try:
        done = subprocess.run(
            [*command, *arguments],
            input="",
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=max(0.0, min(ANSWER_SECONDS, left)),
        )
    except subprocess.TimeoutExpired:
        if left < ANSWER_SECONDS:
            raise TimeUpError(f"the C++ compiler {command[0]} was ended: no time is left for it") from None
        raise BackendError(
            f"the C++ compiler {command[0]} takes more than {ANSWER_SECONDS:g} s for an empty file", code="HLO511"
        ) from None
    except OSError as fault:
        raise BackendError(f"the C++ compiler {command[0]} does not start: {fault.strerror}", code="HLO510") from fault
    _check_ended(done.returncode, done.stderr)
    return done


def _check_ended(status: int, messages: str) -> None:
    """Raises BackendError (HLO518) where a run was ended from outside, which says nothing of its text."""
    inside = _ENDED_INSIDE.search(messages) if status else None
    if -status in OUTSIDE or inside is not None:
        why = signal.strsignal(-status) if inside is None else next(filter(None, inside.groups()))
        raise BackendError(f"the C++ compiler was ended from outside: {why}", code="HLO518")


def built(units: Sequence[str], more: Sequence[str] = ()) -> Path:
    """The shared library of translation units, from the cache where it is there. `more` are further flags.

    The key is everything that the library depends on: texts, flags, the compiler and its version, and the processor.
    A folder for this process alone stands in for a cache whose disk is full.
    Raises BackendError without a compiler (HLO510), for a text that it refuses (HLO511), where nothing can be written
    (HLO517), and where the compiler is ended from outside (HLO518).
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
    with build_folder(path.parent) as folder:
        commands, objects = list[list[str]](), list[str]()
        for units, flags in parts:
            for text in units:
                source = folder / f"unit{len(objects)}.cpp"
                source.write_text(text, encoding="utf-8")
                objects.append(str(source.with_suffix(".o")))
                commands.append([*base, *flags, *_for_text(base, text), str(source), "-c", "-o", objects[-1]])
        _run(commands, folder)
        _run([[*base, "-shared", *objects, *more, "-o", str(folder / "all.so")]], folder)
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
    take_away_stale(path.parent)
    with build_folder(path.parent) as folder:
        commands = []
        for number, text in enumerate(units):
            source = folder / f"unit{number}.cpp"
            source.write_text(text, encoding="utf-8")
            last = [str(source), "-shared", "-o", str(folder / "all.so")]
            if in_steps:
                last = [str(source), "-c", "-o", str(folder / f"unit{number}.o")]
            commands.append([*command, *_for_text(command, text), *last])
        _run(commands, folder)
        if in_steps:
            objects = [str(folder / f"unit{number}.o") for number in range(len(units))]
            linked = [flag for flag in command if flag != CALLS]
            _run([[*linked, "-shared", *objects, "-o", str(folder / "all.so")]], folder)
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


def _run(commands: Sequence[list[str]], folder: Path) -> None:
    """Run the compiler with several commands at once. None still runs afterwards, whatever one of them raises."""
    runs: list[subprocess.Popen[str]] = []
    try:
        for command in commands:
            runs.append(_start(command, folder))
        for run in runs:
            _finish(run, folder)
    finally:
        for run in runs:
            _end(run)


def _start(arguments: list[str], folder: Path) -> subprocess.Popen[str]:
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
        env={**os.environ, "LC_ALL": "C", "TMPDIR": str(folder)},  # a compiler that is ended leaves files there
    )


def _messages(run: subprocess.Popen[str]) -> str:
    """Wait for a compiler's run. Returns what it says. Raises TimeUpError where the time is up before."""
    left = time_left()
    try:
        return run.communicate(timeout=None if math.isinf(left) else max(0.0, left))[1]
    except subprocess.TimeoutExpired:
        raise TimeUpError("the C++ compiler was ended: no time is left for its kernel") from None


def _end(run: subprocess.Popen[str]) -> None:
    """End a compiler's run, and what it started, if it still runs. It is in the group of this process, because Ctrl-C
    must reach it, so the group cannot be ended. Without /proc, what it started ends by its limit of processor time."""
    if run.stderr is not None:
        run.stderr.close()
    if run.poll() is not None:
        return
    started: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            parent = path.read_text(errors="replace").rpartition(")")[2].split()[1]
            started.setdefault(int(parent), []).append(int(path.parent.name))
    ended = [run.pid]
    for process in ended:
        ended += started.get(process, [])
    for process in ended:
        with suppress(OSError):
            os.kill(process, signal.SIGKILL)
    run.wait()


def _check_stopped(status: int, messages: str) -> None:
    """Raises BackendError where a run of the compiler took too long (HLO511), or as `_check_ended`, and
    KeyboardInterrupt."""
    if status == -signal.SIGINT:  # Ctrl-C goes to the compiler as well
        raise KeyboardInterrupt
    if status == -signal.SIGXCPU or (status and "CPU time limit" in messages):
        raise BackendError(f"the C++ compiler takes more than {_most_seconds.get()} s for a kernel", code="HLO511")
    _check_ended(status, messages)


def _finish(run: subprocess.Popen[str], folder: Path) -> None:
    """Wait for a compiler's run, and run it again with other flags where it stopped by a fault of its own, or made code
    that reads too far."""
    command = [str(word) for word in run.args] if isinstance(run.args, list | tuple) else []
    messages = _messages(run)
    _check_stopped(run.returncode, messages)

    def again(*flags: str) -> None:
        nonlocal run, messages
        run = _start([*command, *flags], folder)
        try:
            messages = _messages(run)
        finally:
            _end(run)
        _check_stopped(run.returncode, messages)

    for flags in PLAINER:
        if run.returncode and any(fault in messages for fault in FAULTS):
            again(*flags)
    if not run.returncode and SAVED in command and _reads_too_far(command, folder):
        again(SHORT)
    if run.returncode:
        lines = [line.strip() for line in messages.replace(f"{folder}{os.sep}", "").splitlines() if line.strip()]
        first = next((line for line in lines if "error" in line), lines[0] if lines else f"exit {run.returncode}")
        raise BackendError(f"the C++ compiler refused a kernel: {first}", code="HLO511", hint=_refused(first, folder))


def _reads_too_far(command: Sequence[str], folder: Path) -> bool:
    """Whether the code of a unit may read behind the end of an array, as at `SAVED`."""
    units = (Path(word).stem for word in command if word.endswith(".cpp"))
    texts = (path for unit in units for path in folder.glob(f"*{unit}.s"))
    return any(_BLEND.search(path.read_text(errors="replace")) for path in texts)


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
