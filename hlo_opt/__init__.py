"""hlo-opt: reads a module, fuses it, explains every edge that it did not fuse, and writes and runs the kernels.

The names below are the public interface; each is loaded when it is first used, so that `import hlo_opt` is quick.
"""

from __future__ import annotations

import gc
import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hlo_opt import report
    from hlo_opt.analysis.xla.performance import estimate
    from hlo_opt.diag import EvaluationError, HloOptError, ParseError, ProofError, UsageError, VerifyError
    from hlo_opt.evaluate import evaluate, evaluate_devices
    from hlo_opt.jax.conversion import read
    from hlo_opt.passes import fuse
    from hlo_opt.report.diff.comparison import diff
    from hlo_opt.report.figures import stats
    from hlo_opt.runtime.driver.emission import emit
    from hlo_opt.runtime.executable import compile
    from hlo_opt.text import parse, verify
    from hlo_opt.tune import tune

__version__ = "0.1.0"

_HOMES = {
    "hlo_opt.analysis.xla.performance": ("estimate",),
    "hlo_opt.diag": ("EvaluationError", "HloOptError", "ParseError", "ProofError", "UsageError", "VerifyError"),
    "hlo_opt.evaluate": ("evaluate", "evaluate_devices"),
    "hlo_opt.jax.conversion": ("read",),
    "hlo_opt.passes": ("fuse",),
    "hlo_opt.report.diff.comparison": ("diff",),
    "hlo_opt.report.figures": ("stats",),
    "hlo_opt.runtime.driver.emission": ("emit",),
    "hlo_opt.runtime.executable": ("compile",),
    "hlo_opt.text": ("parse", "verify"),
    "hlo_opt.tune": ("tune",),
}

__all__ = [
    "EvaluationError",
    "HloOptError",
    "ParseError",
    "ProofError",
    "UsageError",
    "VerifyError",
    "compile",
    "diff",
    "emit",
    "estimate",
    "evaluate",
    "evaluate_devices",
    "fuse",
    "parse",
    "read",
    "report",
    "stats",
    "tune",
    "verify",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    if name in ("jax", "report"):  # packages; jax is the extra: only who asks for it needs JAX
        return importlib.import_module(f"hlo_opt.{name}")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(imported(home), name)
    raise AttributeError(f"module 'hlo_opt' has no attribute {name!r}")


def imported(home: str) -> ModuleType:
    """A module. Meanwhile Python's cycle collector pauses: what is imported stays, and looking for garbage in it and in
    programs that were read before takes a tenth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(home)
    finally:
        if was_on:
            gc.enable()
