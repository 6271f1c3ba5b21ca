"""NVRTC without CuPy, from the library that `jax[cuda12]` and `jax[cuda13]` install: the functions that
`hlo_opt.runtime.cupy.device.compiled` calls, under CuPy's names."""

# ruff: noqa: N802

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from hlo_opt.diag import BackendError

_POINTER = ctypes.c_void_p


class NVRTCError(RuntimeError):
    """The message of a failed call."""


class Nvrtc:
    """A loaded library, with CuPy's names. Raises OSError if the file is not NVRTC."""

    NVRTCError = NVRTCError

    def __init__(self, path: str) -> None:
        self.path = path
        self._library = ctypes.CDLL(path)
        try:
            self._text = self._library.nvrtcGetErrorString
        except AttributeError as fault:
            raise OSError(f"{path} is no NVRTC") from fault
        self._text.restype = ctypes.c_char_p

    def _check(self, status: int) -> None:
        if status:
            raise NVRTCError(self._text(status).decode())

    def getVersion(self) -> tuple[int, int]:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        return major.value, minor.value

    def getSupportedArchs(self) -> list[int]:
        count = ctypes.c_int()
        self._check(self._library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        archs = (ctypes.c_int * count.value)()
        self._check(self._library.nvrtcGetSupportedArchs(archs))
        return list(archs)

    def createProgram(self, source: str, name: str, headers: Sequence[str], includes: Sequence[str]) -> int:
        """Returns a handle. Kernels have no includes."""
        assert not headers and not includes
        program = _POINTER()
        self._check(
            self._library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
        )
        return program.value or 0

    def compileProgram(self, program: int, options: Sequence[str]) -> None:
        arguments = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        self._check(self._library.nvrtcCompileProgram(_POINTER(program), len(options), arguments))

    def getProgramLog(self, program: int) -> str:
        return self._bytes("ProgramLog", program).rstrip(b"\0").decode(errors="replace")

    def getCUBIN(self, program: int) -> bytes:
        return self._bytes("CUBIN", program)

    def getPTX(self, program: int) -> bytes:
        return self._bytes("PTX", program)

    def destroyProgram(self, program: int) -> None:
        self._check(self._library.nvrtcDestroyProgram(ctypes.byref(_POINTER(program))))

    def _bytes(self, what: str, program: int) -> bytes:
        size = ctypes.c_size_t()
        self._check(self._library[f"nvrtcGet{what}Size"](_POINTER(program), ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(self._library[f"nvrtcGet{what}"](_POINTER(program), buffer))
        return buffer.raw


def _paths() -> list[str]:
    """Candidates for the library: in the packages of NVIDIA, the newest first, then names for the system's loader, then
    in toolkits."""
    spec = importlib.util.find_spec("nvidia")
    roots = [] if spec is None else [Path(p) for p in spec.submodule_search_locations or ()]
    packaged = [p for root in roots for p in root.glob("*/lib/libnvrtc.so.*") if "alt" not in p.name]
    by_version = sorted(packaged, key=lambda p: int(p.suffix[1:]) if p.suffix[1:].isdigit() else 0, reverse=True)
    homes = (os.environ.get(name, "") for name in ("CUDA_PATH", "CUDA_HOME"))
    toolkits = [f"{home}/lib64/libnvrtc.so" for home in (*homes, "/usr/local/cuda") if home]
    return [*map(str, by_version), "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", *toolkits]


@cache
def nvrtc() -> Nvrtc:
    """The NVRTC of this machine. Raises BackendError (HLO520) if there is none."""
    for path in _paths():
        try:
            return Nvrtc(path)
        except OSError:
            continue
    raise BackendError(
        "backend cuda: NVRTC was not found", code="HLO520", hint="pip install 'jax[cuda13]', which includes it"
    )
