"""Base of the passes that fuse: they can also say what they have against an edge that is left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from hlo_opt.diag import Reason
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.legality import Edge
from hlo_opt.ir import Module
from hlo_opt.passes.base import Pass, PassContext


@dataclass(frozen=True)
class FusionPass(Pass):
    """A pass over the shared legality and policy layers."""

    keeps_memory: ClassVar[bool] = True

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
        )

    def looks_at(self, edge: Edge) -> bool:
        """Whether edges of this kind are this pass's business."""
        raise AssertionError(f"{type(self).__name__} does not define looks_at")

    def refusals(self, engine: Engine, edge: Edge) -> Iterator[Reason]:
        """What the pass has against an edge that it left."""
        raise AssertionError(f"{type(self).__name__} does not define refusals")
