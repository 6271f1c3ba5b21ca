"""Where things are in a text, what is wrong with it, and why a fusion was refused."""

from hlo_opt.diag.errors import (
    BackendError,
    CheckError,
    DeviceWarning,
    EvaluationError,
    HloOptError,
    ParseError,
    ProofError,
    UsageError,
    VerifyError,
    did_you_mean,
    nearest,
)
from hlo_opt.diag.reason import Reason, ReasonSpec, reason_spec, reason_specs, register_reason
from hlo_opt.diag.source import Source, Span

__all__ = [
    "BackendError",
    "CheckError",
    "DeviceWarning",
    "EvaluationError",
    "HloOptError",
    "ParseError",
    "ProofError",
    "Reason",
    "ReasonSpec",
    "Source",
    "Span",
    "UsageError",
    "VerifyError",
    "did_you_mean",
    "nearest",
    "reason_spec",
    "reason_specs",
    "register_reason",
]
