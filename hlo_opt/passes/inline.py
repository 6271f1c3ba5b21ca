"""Inlining of calls and, where asked for, of fusions. Source: xla/service/call_inliner.cc."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.analysis.graph.inlining import inline, is_plain_call, is_plain_fusion
from hlo_opt.fusion.preparation import separate_bodies
from hlo_opt.ir import Module
from hlo_opt.passes.base import Pass, PassContext


@dataclass(frozen=True)
class Inline(Pass):
    """Put the bodies of calls into their callers.

    fusions  also inline plain fusions, so that later passes can fuse their instructions again
    """

    name: ClassVar[str] = "inline"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    fusions: bool = False

    def run(self, module: Module, context: PassContext) -> bool:
        changed = inline(module, is_plain_call, context.step)
        if changed:
            separate_bodies(module)  # a fusion in a callee that was copied
        return (inline(module, is_plain_fusion, context.step) if self.fusions else False) or changed
