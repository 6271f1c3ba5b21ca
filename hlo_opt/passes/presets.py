"""Presets: pipelines with a name. Each starts from a module that the simplify stage has been over."""

from __future__ import annotations

from hlo_opt.diag import UsageError, nearest

SIMPLIFY = "inline,cse,dce"
"""The simplify stage. Its passes leave a module that is simple already as it is."""

_XLA_2026 = "variadic-op-splitter,sort-iota-fusion,priority-fusion,cse,dce"

_HORIZONTAL = "fixpoint(horizontal-loop-fusion,horizontal-input-fusion,cse,dce)"

_OUTPUTS = "multi-output-fusion{levels=true}"

_PRESETS = {
    "default": (
        f"best({_XLA_2026},fixpoint(fusion-merger,cse,dce),{_OUTPUTS},cse,dce"
        " | inline{fusions=true},fixpoint(instruction-fusion{may-duplicate=false},instruction-fusion{may-duplicate=true},"
        f"fusion-merger,cse,dce),{_OUTPUTS},cse,dce),"
        f"{_HORIZONTAL}"
    ),
    "xla-2023": (
        "fixpoint(instruction-fusion{may-duplicate=false,row-kernels=false},instruction-fusion{row-kernels=false},"
        f"fusion-merger{{row-kernels=false,max-copies=10000}},multi-output-fusion,cse,dce),{_HORIZONTAL}"
    ),
    "xla-2026": f"{_XLA_2026},multi-output-fusion,cse,dce",
}
"""default: what xla-2026 does and then horizontal fusion, or, where that is estimated to take less time, instruction fusion with our row-reduction
kernels, which keep a softmax in one kernel. xla-2023: the paper's order. xla-2026: xla/service/gpu/fusion_pipeline.cc."""


def preset_names() -> list[str]:
    return sorted(_PRESETS)


def preset(name: str) -> str:
    """The pipeline of a preset, as `--passes` would spell it. Raises UsageError, naming the nearest one, for an unknown name."""
    if name not in _PRESETS:
        close = nearest(name, _PRESETS)
        hint = f"did you mean {close}?" if close else f"known: {', '.join(preset_names())}"
        raise UsageError(f"there is no preset {name!r}", hint=hint)
    return _PRESETS[name]
