"""The table of passes: a name, and where the class is. Classes are imported when they are first asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType

from hlo_opt.diag import UsageError, nearest
from hlo_opt.passes.base import Pass

_TABLE: dict[str, str] = {
    "cse": "hlo_opt.passes.cse:CommonSubexpressionElimination",
    "dce": "hlo_opt.passes.dce:DeadCodeElimination",
    "fusion-merger": "hlo_opt.passes.fusion_merger:FusionMerger",
    "inline": "hlo_opt.passes.inline:Inline",
    "instruction-fusion": "hlo_opt.passes.instruction_fusion:InstructionFusion",
}

PASSES: Mapping[str, str] = MappingProxyType(_TABLE)
"""Name -> `module:Class`, read only."""


def register_pass(name: str, home: str) -> None:
    """Add a pass, as `module:Class`. Raises ValueError for a name that is taken."""
    if name in _TABLE:
        raise ValueError(f"pass {name} is declared twice")
    _TABLE[name] = home


def unregister_pass(name: str) -> None:
    """Take a pass out again: for tests and plugins that clean up after themselves."""
    del _TABLE[name]


def pass_names() -> list[str]:
    """All names, sorted."""
    return sorted(_TABLE)


def pass_class(name: str) -> type[Pass]:
    """The class of a pass. Raises UsageError, naming the nearest pass, for an unknown name."""
    if name not in _TABLE:
        close = nearest(name, _TABLE)
        hint = f"did you mean {close}?" if close else f"known: {', '.join(pass_names())}"
        raise UsageError(f"there is no pass {name!r}", hint=hint)
    module, _, attribute = _TABLE[name].partition(":")
    found: type[Pass] = getattr(importlib.import_module(module), attribute)
    return found


def pass_options(name: str) -> dict[str, tuple[str, object]]:
    """The options of a pass, spelt as users write them: type name and default."""
    return {f.name.replace("_", "-"): (str(f.type), f.default) for f in fields(pass_class(name))}
