"""Everything that an explanation shows, as data: the decisions, the module before and after, refusals by code, the dearest of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from hlo_opt.analysis.targets import DEFAULT_TARGET
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.fusion.summary import ModuleSummary, executions, module_summary
from hlo_opt.ir import Module
from hlo_opt.passes.pipeline import Pipeline
from hlo_opt.passes.run import Outcome, collector_paused, run

DEAREST = 10


@dataclass(frozen=True)
class ExplainReport:
    """The result of `explain_module`; `original` is the module that it was given."""

    original: Module
    outcome: Outcome
    decisions: list[FusionDecision]
    before: ModuleSummary
    after: ModuleSummary

    @property
    def refused(self) -> list[FusionDecision]:
        return [d for d in self.decisions if not d.fused]

    @property
    def fused(self) -> list[FusionDecision]:
        return [d for d in self.decisions if d.fused]

    @property
    def refusals_by_code(self) -> dict[str, int]:
        """How many edges each code refuses, by code; an edge counts once under each of its codes."""
        counts = Counter(code for d in self.refused for code in {r.code: None for r in d.reasons})
        return {code: counts[code] for code in sorted(counts)}

    @cached_property
    def rounds(self) -> Mapping[str, int]:
        """How often each computation of the result runs, by name: the trip counts of the loops around it, as far as they are known."""
        return {computation.name: often for computation, often in executions(self.outcome.module)[0].items()}

    @cached_property
    def dearest(self) -> list[FusionDecision]:
        """The refused edges whose fusion would save most microseconds in all rounds of the loops around them, the dearest first; of two kernels one edge, and
        no siblings of which one needs the other: what lies between them would have to go first."""
        rounds = self.rounds
        priced = [
            (d.cost.us_saved * rounds.get(d.computation, 1), n, d)
            for n, d in enumerate(self.refused)
            if d.cost is not None and all(r.code != "FUS132" for r in d.reasons)
        ]
        found: dict[frozenset[str], FusionDecision] = {}
        for _, _, decision in sorted(priced, key=lambda p: (-p[0], p[1])):
            found.setdefault(frozenset({decision.producer_kernel, decision.consumer_kernel}), decision)
            if len(found) == DEAREST:
                break
        return list(found.values())


def explain_module(
    module: Module,
    preset: str = "default",
    passes: str | Pipeline | None = None,
    target: str = DEFAULT_TARGET,
    simplify: str = "auto",
    *,
    what_if: Iterable[str] = (),
    force: Iterable[tuple[str, str]] = (),
    stop_after_step: int | None = None,
    choices: Iterable[str] = (),
) -> ExplainReport:
    """Fuse a copy of the module and report on every edge. The arguments are those of `hlo_opt.passes.run.run`."""
    with collector_paused():
        outcome = run(
            module,
            preset,
            passes,
            target,
            simplify,
            what_if=what_if,
            force=force,
            stop_after_step=stop_after_step,
            choices=choices,
        )
        return report_on(module, outcome)


def report_on(module: Module, outcome: Outcome) -> ExplainReport:
    """The report on a run that was given the module."""
    with collector_paused():
        known = outcome.context.memory.known
        before, after = (module_summary(m, outcome.target, known) for m in (module, outcome.module))
        return ExplainReport(module, outcome, outcome.decide(), before, after)
