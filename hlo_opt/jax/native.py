"""The C++ texts that call kernels from other programs: XLA's handlers and a bundle's function."""

from __future__ import annotations

from importlib import resources


def native_text(*names: str) -> str:
    """The texts of C++ files of this package, headers first. They include none of this package, so that a compiler
    needs no path to it."""
    folder = resources.files("hlo_opt.jax")
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)
