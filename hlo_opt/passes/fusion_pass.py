"""Base of the passes that fuse: they can also say what they have against an edge that is left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from hlo_opt.diag import Reason
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.legality import Edge
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.passes.base import Pass, PassContext


@dataclass(frozen=True)
class Refusal:
    """Two kernels of which neither reads the other, and what keeps them apart."""

    first: Instruction
    second: Instruction
    reasons: list[Reason]


@dataclass(frozen=True)
class FusionPass(Pass):
    """A pass over the shared legality and policy layers."""

    keeps_memory: ClassVar[bool] = True
    kind: ClassVar[str] = "producer"
    """What the pass fuses: producers into consumers (`producer`), or kernels that keep their outputs (`outputs`, `horizontal`). Of the passes of a kind
    the last that takes an edge explains it."""

    def engine(self, module: Module, context: PassContext) -> Engine:
        return Engine(
            module,
            context.target,
            context.origins,
            context.disabled_reasons,
            context.forced_edges,
            context.forbidden,
            rule=self.name,
            fused_by=context.fused_by,
            memory=context.memory,
            choices=context.choices,
            left=context.left,
        )

    def looks_at(self, edge: Edge) -> bool:
        """Whether edges of this kind are this pass's business."""
        raise AssertionError(f"{type(self).__name__} does not define looks_at")

    def refusals(self, engine: Engine, edge: Edge) -> Iterator[Reason]:
        """What the pass has against an edge that it left."""
        raise AssertionError(f"{type(self).__name__} does not define refusals")

    def sibling_refusals(self, engine: Engine, computation: Computation) -> Iterator[Refusal]:
        """What the pass has against making one kernel of neighbours that do not read each other."""
        return iter(())
