"""Kernels on the host: one shared library for a list of kernels, built by the C++ compiler and kept by content."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hlo_opt.codegen.host_source import host_unit, launcher_name
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.diag import BackendError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

FLAGS = (
    "-O2",
    "-std=c++17",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",  # one operation is one rounding
    "-fwrapv",  # HLO's integers wrap
    "-fno-math-errno",
    "-fno-exceptions",
    "-fno-rtti",
    "-w",
)
_PER_UNIT = 24  # kernels of one translation unit, when there is more than one
_MOST_UNITS = 8


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


@cache
def _version(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, errors="replace", check=False)
    except OSError as fault:
        raise BackendError(f"the C++ compiler {command[0]} does not start: {fault.strerror}", code="HLO510") from fault
    return done.stdout


class HostLibrary:
    """The given kernels, compiled and loaded. Kernels of equal symbols must be equal; each is built once.

    Raises BackendError when there is no compiler (HLO510) or when it refuses a kernel (HLO511).
    """

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self._kernels = list({kernel.symbol: kernel for kernel in kernels}.values())
        self._lock = threading.Lock()  # launchers keep the thread's index in a variable of the library
        self._launchers: dict[str, Any] = {}
        if not self._kernels:
            return
        library = _load(self._kernels)
        for kernel in self._kernels:
            launcher = library[launcher_name(kernel)]
            launcher.argtypes = [ctypes.c_void_p, ctypes.c_longlong, ctypes.c_int]
            launcher.restype = ctypes.c_int
            self._launchers[kernel.symbol] = launcher

    def launch(self, kernel: Kernel, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run a kernel on arrays that hold the physical memory: contiguous, one per pointer, at least as large as the shape.

        Raises BackendError for arrays that do not fit.
        """
        pointers = [
            *(_address(a, s.byte_size, False) for a, s in zip(inputs, kernel.inputs, strict=True)),
            *(_address(a, s.byte_size, True) for a, s in zip(outputs, kernel.outputs, strict=True)),
        ]
        if not kernel.launch.grid:
            return
        packed = (ctypes.c_void_p * len(pointers))(*pointers)
        with self._lock:
            failed = self._launchers[kernel.symbol](packed, kernel.launch.grid, kernel.launch.block)
        if failed:
            raise BackendError(f"no memory for the threads of {kernel.symbol}", code="HLO512")


def _address(array: Array, byte_size: int, written: bool) -> int:
    if not array.flags.c_contiguous or array.nbytes < byte_size or (written and not array.flags.writeable):
        raise BackendError(f"a kernel's array must be contiguous and hold {byte_size} bytes", code="HLO513")
    return array.ctypes.data


def _load(kernels: Sequence[Kernel]) -> ctypes.CDLL:
    command = find_compiler()
    units = _units(kernels)
    key = hashlib.sha256("\0".join((*command, _version(command), *FLAGS, *units)).encode()).hexdigest()[:40]
    folder = cache_directory()
    path = folder / f"{key}.so"
    if path.exists():
        try:
            return ctypes.CDLL(str(path))
        except OSError:  # a damaged file: build it again
            path.unlink(missing_ok=True)
    _build(command, units, path)
    return ctypes.CDLL(str(path))


def _units(kernels: Sequence[Kernel]) -> list[str]:
    """Translation units of about the same length of text, enough of them to keep the processors busy."""
    count = min(-(-len(kernels) // _PER_UNIT), os.cpu_count() or 1, _MOST_UNITS)
    groups: list[list[Kernel]] = [[] for _ in range(count)]
    sizes = [0] * count
    for kernel in sorted(kernels, key=lambda k: (-len(k.source), k.symbol)):
        smallest = sizes.index(min(sizes))
        groups[smallest].append(kernel)
        sizes[smallest] += len(kernel.source)
    return [host_unit(group) for group in groups]


def _build(command: tuple[str, ...], units: Sequence[str], path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="build-", dir=path.parent) as name:
        folder = Path(name)
        runs = []
        for number, text in enumerate(units):
            source = folder / f"unit{number}.cpp"
            source.write_text(text, encoding="utf-8")
            last = [str(source), "-shared", "-o", str(folder / "all.so")]
            if len(units) > 1:
                last = [str(source), "-c", "-o", str(folder / f"unit{number}.o")]
            runs.append(_start([*command, *FLAGS, *last]))
        for run in runs:
            _finish(run, folder)
        if len(units) > 1:
            objects = [str(folder / f"unit{number}.o") for number in range(len(units))]
            _finish(_start([*command, "-shared", *objects, "-o", str(folder / "all.so")]), folder)
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
