"""Source positions, user-visible errors, and the reasons for refused fusions."""

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
from hlo_opt.diag.reason import Reason, ReasonSpec, no_reason, reason_spec, reason_specs, register_reason
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
    "no_reason",
    "reason_spec",
    "reason_specs",
    "register_reason",
]
