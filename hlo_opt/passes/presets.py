"""Presets: pipelines with a name. Each starts from a module that the simplify stage has been over."""

from __future__ import annotations

from hlo_opt.diag import UsageError, nearest

SIMPLIFY = "inline,cse,dce"
"""The simplify stage. Its passes leave a module that is simple already as it is."""

_PRESETS = {
    "default": (
        "inline{fusions=true},fixpoint(instruction-fusion{may-duplicate=false},instruction-fusion{may-duplicate=true},"
        "fusion-merger,cse,dce)"
    ),
}


def preset_names() -> list[str]:
    return sorted(_PRESETS)


def preset(name: str) -> str:
    """The pipeline of a preset, as `--passes` would spell it. Raises UsageError, naming the nearest one, for an unknown name."""
    if name not in _PRESETS:
        close = nearest(name, _PRESETS)
        hint = f"did you mean {close}?" if close else f"known: {', '.join(preset_names())}"
        raise UsageError(f"there is no preset {name!r}", hint=hint)
    return _PRESETS[name]
