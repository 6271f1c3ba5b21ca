"""The C++ compiler, and a cache of what it built."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hlo_opt.diag import BackendError

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

CALLS = "-fsanitize=thread"
"""Has the compiler call a function at each access to memory. Units bring these functions, so the linker must not take those of the compiler's library."""


def find_compiler() -> tuple[str, ...]:
    """The command of the C++ compiler: `$CXX` when it is set, else g++ or clang++. Raises BackendError when there is none."""
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
    """Flags for the processor at hand, and what the compiler then knows of it: a part of the cache's key, as a library may only run on what it was built for."""

    flags: tuple[str, ...]
    macros: str


@cache
def processor(command: tuple[str, ...]) -> Processor:
    """What the compiler makes of `-march=native`; where it does not take it, kernels use the least that the architecture has.

    Vectors of 64 bytes where the processor has them, unless it is one of the first that had: those clock down (the ones since then have VBMI2).
    """
    for flags in (("-march=native",), ("-mcpu=native",)):
        done = asked(command, *flags, "-x", "c++", "-dM", "-E", "-")
        if done.returncode == 0:
            width = 512 if "__AVX512VBMI2__" in done.stdout else 256
            wish = (f"-mprefer-vector-width={width}",) if "__AVX512F__" in done.stdout else ()
            return Processor((*flags, *wish), done.stdout)
    return Processor((), "")


@cache
def takes(flag: str) -> bool:
    """Whether the compiler knows a flag. Raises BackendError as `find_compiler`."""
    return asked(find_compiler(), flag, "-x", "c++", "-E", "-").returncode == 0


@cache
def _version(command: tuple[str, ...]) -> str:
    return asked(command, "--version").stdout


def asked(command: Sequence[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """What the compiler answers, given an empty file. Raises BackendError (HLO510) where it does not start."""
    try:
        return subprocess.run(
            [*command, *arguments], input="", capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as fault:
        raise BackendError(f"the C++ compiler {command[0]} does not start: {fault.strerror}", code="HLO510") from fault


def built(units: Sequence[str], more: Sequence[str] = ()) -> Path:
    """The shared library of translation units, from the cache where it is there. `more` are further flags.

    The key is everything that the library depends on: texts, flags, the compiler and its version, and the processor.
    A folder for this process alone stands in for a cache whose disk is full.
    Raises BackendError without a compiler (HLO510), for a text that it refuses (HLO511), and where nothing can be written (HLO517).
    """
    command = find_compiler()
    native = processor(command)
    flags = (*FLAGS, *native.flags, *more)
    content = "\0".join((*command, _version(command), *flags, native.macros, *units))
    name = f"{hashlib.sha256(content.encode()).hexdigest()[:40]}.so"
    folder = cache_directory()
    folders = [folder, Path(_own_folder().name)] if _own_folder.cache_info().currsize else [folder]
    for known in folders:
        if (known / name).exists():
            return known / name
    try:
        _build((*command, *flags), units, folder / name)
    except (OSError, BackendError):
        if has_room(folder):
            raise
        folder = Path(_own_folder().name)
        try:
            _build((*command, *flags), units, folder / name)
        except OSError as fault:
            raise BackendError(f"no kernels can be kept in {folder}: {fault.strerror}", code="HLO517") from fault
    return folder / name


def has_room(folder: Path) -> bool:
    """Whether a file of a megabyte can be written there. A compiler that finds a disk full says so in words of its own, if at all."""
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
            runs.append(_start([*command, *last]))
        for run in runs:
            _finish(run, folder)
        if in_steps:
            objects = [str(folder / f"unit{number}.o") for number in range(len(units))]
            linked = [flag for flag in command if flag != CALLS]
            _finish(_start([*linked, "-shared", *objects, "-o", str(folder / "all.so")]), folder)
        os.replace(folder / "all.so", path)  # whole or not at all, also with other processes at it


def _start(arguments: list[str]) -> subprocess.Popen[str]:
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
    _, messages = run.communicate()
    if run.returncode:
        lines = [line.strip() for line in messages.replace(f"{folder}{os.sep}", "").splitlines() if line.strip()]
        first = next((line for line in lines if "error" in line), lines[0] if lines else f"exit {run.returncode}")
        raise BackendError(f"the C++ compiler refused a kernel: {first}", code="HLO511")


def cache_directory() -> Path:
    """Where built libraries are kept: `$HLO_OPT_CACHE`, else `hlo-opt` in `$XDG_CACHE_HOME` or `~/.cache`.

    Code is loaded from there, so the folder must be ours and writable by nobody else; a folder for this process alone stands in for one that is not.
    """
    chosen = os.environ.get("HLO_OPT_CACHE")
    if chosen:
        wish = Path(chosen)
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")
        wish = (Path(base) if os.path.isabs(base) else Path(os.path.expanduser("~/.cache"))) / "hlo-opt"
    try:
        wish.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = wish.stat()
        private = not hasattr(os, "getuid") or (
            found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        )
        if private and os.access(wish, os.W_OK | os.X_OK):
            return wish.resolve()
    except OSError:
        pass
    return Path(_own_folder().name)


@cache
def _own_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="hlo-opt-")
