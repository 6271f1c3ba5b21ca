"""A pass: a frozen dataclass whose fields are its options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.ir import Module


@dataclass
class PassContext:
    """What a pass is given besides the module: the device, where decisions go, and the step counter.

    `step` is asked before every single rewrite ("fuse producer into consumer"); False means that the limit of `--stop-after-step` is reached and the
    rewrite must not happen.
    """

    target: Any
    record: Callable[[FusionDecision], None] = lambda decision: None
    disabled_reasons: frozenset[str] = frozenset()
    forced_edges: frozenset[tuple[str, str]] = frozenset()
    stop_after_step: int | None = None
    steps: int = field(default=0)

    def step(self) -> bool:
        if self.stop_after_step is not None and self.steps >= self.stop_after_step:
            return False
        self.steps += 1
        return True


@dataclass(frozen=True)
class Pass:
    """Base of all passes. A pass that changes the graph only by outlining, inlining, merging equal values or dropping dead ones preserves "graph", and every run
    of it is proved; one that preserves "meaning" only is checked by evaluation in tests."""

    name: ClassVar[str]
    preserves: ClassVar[Literal["graph", "meaning"]]

    def run(self, module: Module, context: PassContext) -> bool:
        """Rewrite the module in place; True when anything changed."""
        raise AssertionError(f"{type(self).__name__} does not define run")
