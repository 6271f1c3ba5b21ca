"""A pass: a frozen dataclass whose fields are its options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from hlo_opt.diag import Reason
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.fusion.engine import Memory
from hlo_opt.fusion.plugin_choices import Choice
from hlo_opt.ir import Instruction, Module


@dataclass
class PassContext:
    """What a pass is given besides the module: the device, where decisions go, and the step counter.

    `step` is asked before every single rewrite ("fuse producer into consumer"); False means that the limit of `--stop-after-step` is reached and the
    rewrite must not happen. `origins` remembers what instructions that were copied under other names were called in the input; `forbidden` the
    edges (by those names) that a plan refused after they had been fused; `left` what a pass had against a producer (both by name) when it was done with
    it, for what comes later may change the answer; `fused_by` which pass moved a producer; `memory` what fusion passes know about the module, until another pass changes it;
    `choices` the rules of plugins that refuse edges besides the passes' own.
    """

    target: Any
    record: Callable[[FusionDecision], None] = lambda decision: None
    disabled_reasons: frozenset[str] = frozenset()
    forced_edges: frozenset[tuple[str, str]] = frozenset()
    stop_after_step: int | None = None
    steps: int = field(default=0)
    origins: dict[Instruction, str] = field(default_factory=dict)
    forbidden: dict[tuple[str, str], Reason] = field(default_factory=dict)
    left: dict[tuple[str, str], Reason] = field(default_factory=dict)
    fused_by: dict[str, str] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    choices: tuple[Choice, ...] = ()

    def step(self) -> bool:
        if self.exhausted:
            return False
        self.steps += 1
        return True

    @property
    def exhausted(self) -> bool:
        """Whether no rewrite may happen any more."""
        return self.stop_after_step is not None and self.steps >= self.stop_after_step


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
