"""Kernels compiled by NVRTC, kept on disk by text, options, device and version of NVRTC.

An entry is a machine-code file with its own hash in front: one that is damaged or cut short is compiled again. The folder is the user's own
(`hlo_opt.runtime.host.library.cache_directory`), files are renamed into place when they are complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.diag import BackendError

NVRTC_OPTIONS = ("-fmad=false", "--std=c++17")
"""No contraction into fused multiply-adds: a sum of a product rounds twice on every backend, as in XLA's evaluator."""

_SHOWN = 200  # characters of NVRTC's first complaint


def architecture(nvrtc: Any, capability: str) -> str:
    """`sm_90` and the like: the newest that NVRTC knows and the device runs. `capability` is the device's, without a dot: `90`. Machine code runs on devices of its
    own major version only (CUDA C++ Programming Guide, "Binary Compatibility"); for newer ones, `compute_90` gives PTX, which the driver translates.

    Raises BackendError (HLO524) for a device that is older than anything this NVRTC compiles for.
    """
    known = sorted(int(a) for a in nvrtc.getSupportedArchs())
    fitting = [a for a in known if a <= int(capability)]
    if not fitting:
        raise BackendError(
            f"backend cupy: NVRTC {version(nvrtc)} compiles for no device as old as this one (compute capability {capability})",
            code="HLO524",
            hint="install the extra cuda12, or choose --backend host",
        )
    is_same = fitting[-1] // 10 == int(capability) // 10
    return f"{'sm' if is_same else 'compute'}_{fitting[-1]}"


def version(nvrtc: Any) -> str:
    """NVRTC's version as it is written: `13.0`."""
    return ".".join(map(str, nvrtc.getVersion()))


def entry_name(source: str, arch: str, nvrtc_version: str) -> str:
    """The name of a kernel's file in the cache."""
    parts = ("cubin", nvrtc_version, arch, *NVRTC_OPTIONS, source)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40] + ".cubin"


def read_entry(path: Path) -> bytes | None:
    """The machine code of an entry, or None where there is none that is whole and the user's own."""
    try:
        with path.open("rb") as stream:
            owner = os.fstat(stream.fileno())
            if hasattr(os, "getuid") and (owner.st_uid != os.getuid() or owner.st_mode & 0o022):
                return None
            data = stream.read()
    except OSError:
        return None
    digest, code = data[:32], data[32:]
    return code if code and hashlib.sha256(code).digest() == digest else None


def write_entry(path: Path, code: bytes) -> None:
    """Keep an entry. A folder that cannot be written, or a full disk, costs only the next compilation."""
    partial = path.with_name(f".{path.name}.{os.urandom(6).hex()}.partial")
    try:
        with contextlib.suppress(OSError):
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(hashlib.sha256(code).digest() + code)
            partial.replace(path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def compiled(nvrtc: Any, kernels: Sequence[Kernel], arch: str, folder: Path) -> Mapping[str, bytes]:
    """The machine code (or PTX, see `architecture`) of kernels by symbol, from the cache where it has it; the rest is compiled, several at once.

    Raises BackendError (HLO522) when NVRTC refuses a kernel.
    """
    made: dict[str, bytes] = {}
    missing = []
    paths = {k.symbol: folder / entry_name(k.source, arch, version(nvrtc)) for k in kernels}
    for kernel in {k.symbol: k for k in kernels}.values():
        code = read_entry(paths[kernel.symbol])
        if code is None:
            missing.append(kernel)
        else:
            made[kernel.symbol] = code
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        for kernel, code in zip(missing, pool.map(lambda k: _compile(nvrtc, k, arch), missing), strict=True):
            write_entry(paths[kernel.symbol], code)
            made[kernel.symbol] = code
    return made


def _compile(nvrtc: Any, kernel: Kernel, arch: str) -> bytes:
    program = nvrtc.createProgram(kernel.source, f"{kernel.symbol}.cu", (), ())
    try:
        try:
            nvrtc.compileProgram(program, (f"-arch={arch}", *NVRTC_OPTIONS))
        except nvrtc.NVRTCError as error:
            lines = [line.strip() for line in nvrtc.getProgramLog(program).splitlines() if line.strip()]
            first = next((line for line in lines if "error" in line), lines[0] if lines else str(error))
            raise BackendError(f"NVRTC refuses kernel {kernel.symbol}: {first[:_SHOWN]}", code="HLO522") from None
        code: bytes = nvrtc.getCUBIN(program) if arch.startswith("sm_") else nvrtc.getPTX(program)
        return code
    finally:
        nvrtc.destroyProgram(program)
