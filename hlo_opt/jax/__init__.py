"""Our kernels inside `jax.jit`, where they are proved equal to XLA's code and are faster; and jitted functions as
modules.

Needs the extra `jax`. Names are imported at their first use, so that the rest of the package works without JAX.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlo_opt.jax.calling import call
    from hlo_opt.jax.hook import fusing, install, uninstall, wait
    from hlo_opt.jax.modules import explain, fuse, lower
    from hlo_opt.jax.report import Line, Report

_HOMES = {
    "calling": ("call",),
    "hook": ("fusing", "install", "uninstall", "wait"),
    "modules": ("explain", "fuse", "lower"),
    "report": ("Line", "Report"),
}

__all__ = ["Line", "Report", "call", "explain", "fuse", "fusing", "install", "lower", "uninstall", "wait"]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Callable[..., object]:
    for home, names in _HOMES.items():
        if name in names:
            try:
                room = importlib.import_module(f"hlo_opt.jax.{home}")
            except (ImportError, AttributeError) as fault:  # another JAX lacks names, or whole modules
                raise ImportError(
                    f"hlo_opt.jax needs JAX 0.10.2 or later, the extra jax of hlo-opt: {fault}"
                ) from fault
            value: Callable[..., object] = getattr(room, name)
            return value
    raise AttributeError(f"module 'hlo_opt.jax' has no attribute {name!r}")
