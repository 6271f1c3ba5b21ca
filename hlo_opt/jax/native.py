"""The C++ texts that call kernels from other programs: XLA's handler and a bundle's function."""

from __future__ import annotations

from importlib import resources


def native_text(name: str) -> str:
    """The text of a C++ file of this package after the common header. It has no includes of this package, so that a
    compiler needs no path to it."""
    folder = resources.files("hlo_opt.jax")
    return "\n".join(folder.joinpath(file).read_text(encoding="utf-8") for file in ("thread_memory.h", name))
