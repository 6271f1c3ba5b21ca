"""Algebraic simplification: the rules of `hlo_opt.passes.simplify`, until none applies.

Source of many of the ideas: xla/hlo/transforms/simplifiers/algebraic_simplifier.cc and its siblings. Rules here keep
every bit that HLO defines; the others are applied with `fast-math` only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from hlo_opt.analysis.graph.inlining import remove_uncalled
from hlo_opt.analysis.properties import effectful_computations
from hlo_opt.fusion.context import Rewritten
from hlo_opt.ir import Module, edit
from hlo_opt.ir.walk import executed_computations
from hlo_opt.passes.base import Pass, PassContext
from hlo_opt.passes.pipeline import Best, Fixpoint, PassOrGroup, Pipeline
from hlo_opt.passes.simplify.worklist import Worklist


@dataclass(frozen=True)
class AlgebraicSimplifier(Pass):
    """Apply the rules that `hlo-opt passes --rules` lists.

    fast_math  also apply rules that are exact in real numbers only
    """

    name: ClassVar[str] = "algebraic-simplifier"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"
    idempotent: ClassVar[bool] = True

    fast_math: bool = False

    def run(self, module: Module, context: PassContext) -> bool:
        effects = effectful_computations(list(module.computations))
        steps: list[Rewritten] = []
        for computation in list(executed_computations(module))[::-1]:
            steps += self.rewrite(Worklist(computation, effects, self.fast_math), context)
        context.simplified.append(steps)
        if steps:
            remove_uncalled(module)
            edit.sort_computations(module)
        return bool(steps)

    def rewrite(self, work: Worklist, context: PassContext) -> list[Rewritten]:
        """Rewrite a computation as far as the limit of steps allows."""
        limit = context.options.stop_after_step
        context.steps += work.run(None if limit is None else limit - context.steps)
        if work.steps:
            edit.sort(work.computation)
        return work.steps


@dataclass(frozen=True)
class Replay(AlgebraicSimplifier):
    """The same rewrites again, by their certificate, without a search. `runs` are the lists of steps; each is used
    once. Raises ProofError for a step that does not fit."""

    runs: list[list[Rewritten]] = field(default_factory=list, compare=False)

    def rewrite(self, work: Worklist, context: PassContext) -> list[Rewritten]:
        own = [s for s in self.runs[0] if s.computation == work.computation.name] if self.runs else []
        work.replay(own)
        if own:
            edit.sort(work.computation)
        return own

    def run(self, module: Module, context: PassContext) -> bool:
        changed = super().run(module, context)
        if self.runs:
            self.runs.pop(0)
        return changed


def replayed(outcome_pipeline: Pipeline, runs: list[list[Rewritten]]) -> Pipeline:
    """A pipeline in which the simplifier does what a certificate says."""
    replay = Replay(fast_math=True, runs=[list(steps) for steps in runs])

    def swapped(step: PassOrGroup) -> PassOrGroup:
        if isinstance(step, Fixpoint):
            return Fixpoint(tuple(map(swapped, step.steps)))
        return replay if isinstance(step, AlgebraicSimplifier) else step

    return Pipeline(tuple(s if isinstance(s, Best) else swapped(s) for s in outcome_pipeline.steps))
