"""hlo-opt: reads a textual HLO dump, fuses it, explains every edge that it did not fuse, and writes and runs the kernels.

The names below are the public interface; each is loaded when it is first used, so that `import hlo_opt` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hlo_opt.analysis.xla.cost import estimate
    from hlo_opt.diag import EvaluationError, HloOptError, ParseError, ProofError, UsageError, VerifyError
    from hlo_opt.evaluate import evaluate, evaluate_devices
    from hlo_opt.passes import fuse
    from hlo_opt.runtime import compile, emit
    from hlo_opt.text import parse, verify

__version__ = "0.1.0"

_HOMES = {
    "EvaluationError": "hlo_opt.diag",
    "HloOptError": "hlo_opt.diag",
    "ParseError": "hlo_opt.diag",
    "ProofError": "hlo_opt.diag",
    "UsageError": "hlo_opt.diag",
    "VerifyError": "hlo_opt.diag",
    "compile": "hlo_opt.runtime",
    "emit": "hlo_opt.runtime",
    "estimate": "hlo_opt.analysis.xla.cost",
    "evaluate": "hlo_opt.evaluate",
    "evaluate_devices": "hlo_opt.evaluate",
    "fuse": "hlo_opt.passes",
    "parse": "hlo_opt.text",
    "verify": "hlo_opt.text",
}

__all__ = [
    "EvaluationError",
    "HloOptError",
    "ParseError",
    "ProofError",
    "UsageError",
    "VerifyError",
    "compile",
    "emit",
    "estimate",
    "evaluate",
    "evaluate_devices",
    "fuse",
    "parse",
    "verify",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hlo_opt' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
