"""A pass: a frozen dataclass whose fields are its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.fusion.context import PassContext
from hlo_opt.ir import Module

__all__ = ["Pass", "PassContext"]


@dataclass(frozen=True)
class Pass:
    """Base of all passes. A pass that changes the graph only by outlining, inlining, merging equal values or dropping dead ones preserves "graph", and every run
    of it is proved; one that preserves "meaning" only is checked by evaluation in tests."""

    name: ClassVar[str]
    preserves: ClassVar[Literal["graph", "meaning"]]
    keeps_memory: ClassVar[bool] = False
    """Whether the pass keeps `PassContext.memory` up to date when it changes the module."""

    idempotent: ClassVar[bool] = False
    """Whether the pass finds nothing to do right after itself."""

    def run(self, module: Module, context: PassContext) -> bool:
        """Rewrite the module in place; True when anything changed."""
        raise AssertionError(f"{type(self).__name__} does not define run")
