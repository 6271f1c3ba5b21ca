"""Running a pipeline on a copy of a module: simplify, fuse, prove, decide. Everything that an explanation shows, as
data."""

from __future__ import annotations

import gc
import math
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from hlo_opt.analysis.graph.identity import identical
from hlo_opt.analysis.graph.loops import NO_TRIP_COUNTS, TripCounts, check_trip_counts
from hlo_opt.analysis.targets import DEFAULT_TARGET, DeviceTarget
from hlo_opt.diag import UsageError, did_you_mean
from hlo_opt.diag.errors import printable
from hlo_opt.diag.python_files import below, current_folder
from hlo_opt.fusion.context import FuseOptions, PassContext, PassMemory
from hlo_opt.fusion.decision import ByStructure, FusionDecision
from hlo_opt.fusion.preparation import prepare
from hlo_opt.fusion.proof import prove_same_graph
from hlo_opt.fusion.summary import ModuleSummary, executions, module_summary
from hlo_opt.ir import Module, edit
from hlo_opt.passes.base import Pass
from hlo_opt.passes.decisions import decisions
from hlo_opt.passes.forcing import chosen, join_edge, price_by_joining, with_distinct_edges
from hlo_opt.passes.pipeline import Observer, Pipeline, parse_pipeline
from hlo_opt.passes.stages import first_stage, without_simplifying
from hlo_opt.passes.table import preset

DEFAULT_EFFORT = 1
MOST_EFFORT = 2
SMALL = 500
"""Instructions of a module of which a preset's choices are all tried at the default effort. The last branch is the one
that is kept of most larger ones, and seldom dearer by more than a hundredth; the others double the time."""

EVEN = 1.001
"""Estimates that differ by less are equal."""


@dataclass(frozen=True)
class Outcome:
    """The result of a run. `seconds` has the time of every pass by name, and of `proof` and `decisions`; `runs` says
    how often each pass ran, fixpoint groups repeat theirs; `steps` counts single rewrites; `original` is the input
    module; `settled` are passes that would change nothing in the result."""

    original: Module
    module: Module
    pipeline: Pipeline
    context: PassContext
    seconds: dict[str, float]
    runs: dict[str, int]
    settled: set[Pass] = field(default_factory=set)

    def decide(self, kernels: Container[str] | None = None, *, siblings: bool = True) -> list[FusionDecision]:
        """One decision for every edge between kernels, fused or left. With `kernels` only for the edges into these;
        without `siblings` none for kernels that do not read each other."""
        started = time.perf_counter()
        with collector_paused():
            result = with_distinct_edges(
                decisions(self.module, self.pipeline, self.context, kernels, siblings=siblings)
            )
        self.seconds["decisions"] = time.perf_counter() - started
        return result

    @property
    def target(self) -> DeviceTarget:
        return self.context.options.target

    @property
    def steps(self) -> int:
        return self.context.steps


def run(
    module: Module,
    preset_name: str = "default",
    passes: str | Pipeline | None = None,
    target: str | DeviceTarget = DEFAULT_TARGET,
    simplify: str = "auto",
    *,
    what_if: Iterable[str] = (),
    force: Iterable[tuple[str, str]] = (),
    forbid: Iterable[tuple[str, str]] = (),
    decide_again: bool = False,
    stop_after_step: int | None = None,
    choices: Iterable[str] = (),
    trip_counts: TripCounts = NO_TRIP_COUNTS,
    effort: int = DEFAULT_EFFORT,
    own_passes: bool | None = None,
    observer: Observer | None = None,
    verify: Callable[[Module], None] | None = None,
) -> Outcome:
    """Run a preset, or passes, on a copy of the module.

    simplify         what runs first: see `first_stage`
    own_passes       whether the passes are the user's, not those of a preset as a pipeline; None: they are where they
                     are given
    what_if          codes of reasons that are switched off
    force            edges (producer, consumer) that are joined in the result, wherever there can be one kernel, by the
                     names that decisions give them or their kernels
    forbid           edges (producer, consumer), by the names of the input, whose ends stay in separate kernels
    decide_again     the passes get them as rules instead, and decide everything again around them
    stop_after_step  rewrites that may happen
    choices          names of plugins' rules that may refuse edges, too
    trip_counts      rounds of loops, by their names, where the text does not tell them: they weigh what a round costs
    effort           which of a preset's choices are tried: 0 the last, 1 all where the module is small, 2 all
    observer         called after each pass
    verify           called with the module after each pass that changed it

    A pipeline with choices is run once for each; the outcome is the one whose module is estimated to take least time,
    of equals one with the fewest kernels, and the first of these. With `stop_after_step` or an observer the choice
    comes first, without them. What is kept of a run is proved (`prove_same_graph`) at once when all its passes promise
    to keep the graph; otherwise each part of it that does, together with the next if nothing between them changed
    anything. Names that several instructions share get unique names first. Raises UsageError for unknown presets,
    passes, targets, codes, choices, loops and instructions, and ProofError when a pass broke its promise.
    """
    own = passes is not None if own_passes is None else own_passes
    pipeline = _pipeline(module, preset_name, passes, simplify, own, effort)
    edges, separated = ([(p.lstrip("%"), c.lstrip("%")) for p, c in each] for each in (force, forbid))
    for producer, consumer in separated:
        if (producer, consumer) in edges:
            raise UsageError(f"{producer}:{consumer} cannot be both forced and forbidden")
    options = FuseOptions.of(
        target,
        what_if=what_if,
        force=edges if decide_again else (),
        forbid=separated,
        choices=choices,
        stop_after_step=stop_after_step,
        trip_counts=trip_counts,
    )
    check_trip_counts(module, options.trip_counts)
    outcome = _best_of(module, pipeline, options, observer, verify)
    _check_names(outcome, [*edges, *separated])
    if not decide_again:
        force_edges(outcome, edges)
    return outcome


def run_again(outcome: Outcome, context: PassContext, observer: Observer) -> None:
    """The passes of an outcome once more, in a new context, with an observer. Edges joined afterwards are not."""
    _run(outcome.original, outcome.pipeline, context, observer, None)


def force_edges(outcome: Outcome, edges: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Join the ends of refused edges in the result, by the names that its decisions give them or their kernels. Returns
    the edges that no refused one is called by."""
    if not edges:
        return []
    decided = outcome.decide()
    named = {edge: chosen(decided, edge) for edge in edges}
    for number, decision in enumerate(d for d in named.values() if d is not None):
        _force(outcome, decision, decided if not number else outcome.decide())
    return [edge for edge, decision in named.items() if decision is None]


def _force(outcome: Outcome, edge: FusionDecision, decided: Sequence[FusionDecision]) -> None:
    """Join a refused edge in the result. Nothing happens where it is fused, or no kernel can hold both ends."""
    by_kernels = chosen(decided, (edge.producer_kernel, edge.consumer_kernel))
    decision = by_kernels or chosen(decided, (edge.producer, edge.consumer))
    with collector_paused():
        if decision is None:
            return
        before = edit.clone_module(outcome.module)
        if join_edge(outcome.module, outcome.context, decision) is not None:
            _prove(before, outcome.module, outcome.seconds)


def _best_of(
    module: Module,
    pipeline: Pipeline,
    options: FuseOptions,
    observer: Observer | None,
    verify: Callable[[Module], None] | None,
) -> Outcome:
    """The run of a pipeline, or of the alternative that is estimated to take least time. The passes before the first
    choice run once."""
    alternatives = pipeline.alternatives()
    if len(alternatives) == 1:
        return _run(module, alternatives[0], PassContext(options), observer, verify)
    started = time.perf_counter()
    with collector_paused():
        unproved: dict[Module, Module] = {}
        known = ByStructure()
        unlimited = replace(options, stop_after_step=None)
        begun = _run(module, pipeline.head, PassContext(unlimited, memory=PassMemory(known)), None, verify)
        outcomes: list[tuple[Outcome, ModuleSummary]] = []
        for a in alternatives:
            context = PassContext(unlimited, memory=PassMemory(known))
            outcome = _run(module, a, context, None, verify, unproved, begun)
            outcomes.append((outcome, _summary(outcome)))
            if _is_least(*outcomes[-1]):
                break
        best = outcomes[quickest([summary for _, summary in outcomes])][0]
        if observer is not None or options.stop_after_step is not None:
            best = _run(module, best.pipeline, PassContext(options, memory=PassMemory(known)), observer, verify)
        elif best.module in unproved:
            _prove(unproved[best.module], best.module, best.seconds)
    best.seconds["alternatives"] = time.perf_counter() - started - sum(best.seconds.values())
    return best


def _is_least(outcome: Outcome, summary: ModuleSummary) -> bool:
    """Whether no alternative takes less time: all is in one kernel, which takes less than two launches."""
    return summary.launches == 1 and summary.est_us < 2 * outcome.target.kernel_launch_us


def quickest(summaries: Sequence[ModuleSummary]) -> int:
    """The number of the result that is estimated to take least time; of those that are nearly equal, the first one with
    the fewest kernels."""
    us = min(s.est_us for s in summaries)
    kernels = [s.kernels if s.est_us <= us * EVEN else math.inf for s in summaries]
    return kernels.index(min(kernels))


def _summary(outcome: Outcome) -> ModuleSummary:
    """The estimate of a result, by what its passes know of it."""
    options = outcome.context.options
    state = outcome.context.memory.state(outcome.module, options.target)
    return module_summary(outcome.module, options.target, trip_counts=options.trip_counts, state=state)


def _run(
    module: Module,
    pipeline: Pipeline,
    context: PassContext,
    observer: Observer | None,
    verify: Callable[[Module], None] | None,
    unproved: dict[Module, Module] | None = None,
    begun: Outcome | None = None,
) -> Outcome:
    """Run one pipeline without choices. With `unproved` the last proof is left to the caller, who gets the module that
    the result must equal. `begun` is the outcome of the pipeline's first steps, which are not run again; their time
    counts as this run's."""
    seconds: dict[str, float] = {} if begun is None else dict(begun.seconds)
    runs: dict[str, int] = {} if begun is None else dict(begun.runs)
    settled: set[Pass] = set() if begun is None else set(begun.settled)
    with collector_paused():
        given = module if begun is None else begun.module
        work = edit.clone_module(given)
        is_copy = True  # whether nothing has changed it yet
        work.target = context.options.target
        if begun is not None:
            context.go_on(begun.context, begun.module, work)
        elif prepare(work):
            _prove(module, work, seconds)
            is_copy = False
        parts = _provable_parts(Pipeline(pipeline.steps[0 if begun is None else len(begun.pipeline.steps) :]))
        before: Module | None = None  # what the module must equal, until a part changes the graph
        for part in parts:
            reached: Module | None = None
            if not settled.issuperset(part.passes()):
                if not part.preserves_graph and before is not None:
                    reached = edit.snapshot(work)
                elif part.preserves_graph and before is None:
                    before = given if is_copy else edit.snapshot(work)
            if part.run(work, context, observer=observer, seconds=seconds, runs=runs, verify=verify, settled=settled):
                is_copy = False
            edit.sort_computations(work)
            edit.restore_names(work)
            if before is not None and reached is not None and not identical(reached, work):
                _prove(before, reached, seconds)
                before = None
        edit.forget_snapshots(work)
        if before is not None and unproved is not None:
            unproved[work] = before
        elif before is not None:
            _prove(before, work, seconds)
    return Outcome(module, work, pipeline, context, seconds, runs, settled)


def _prove(before: Module, after: Module, seconds: dict[str, float]) -> None:
    """Raises ProofError when the graphs differ. After passes without effect there is nothing to compare."""
    started = time.perf_counter()
    if not identical(before, after):
        prove_same_graph(before, after)
    seconds["proof"] = seconds.get("proof", 0.0) + time.perf_counter() - started


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector: graphs are full of cycles that stay alive, and looking for garbage among them takes
    a quarter of the time. Objects from the meantime count as old afterwards (freezing and thawing moves them there), so
    that the collector need not look at all of them at once."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _pipeline(
    module: Module, preset_name: str, passes: str | Pipeline | None, simplify: str, own_passes: bool, effort: int
) -> Pipeline:
    if not 0 <= effort <= MOST_EFFORT:
        raise UsageError(f"effort must be 0 to {MOST_EFFORT}, but is {effort}")
    text = preset(preset_name)
    chosen = passes if isinstance(passes, Pipeline) else parse_pipeline(text if passes is None else passes)
    if simplify == "never" and not own_passes:
        chosen = without_simplifying(chosen)
    if not own_passes and not tries_all(module, effort):
        chosen = chosen.last_choices()
    return Pipeline((*first_stage(module, simplify, own_passes=own_passes).steps, *chosen.steps))


def tries_all(module: Module, effort: int = DEFAULT_EFFORT) -> bool:
    """Whether all choices of a preset are tried for a module, or only the last one."""
    return effort > 1 or (effort == 1 and size_of(module) <= SMALL)


def size_of(module: Module) -> int:
    """The instructions of all computations."""
    return sum(len(computation.instructions) for computation in module.computations)


def _provable_parts(pipeline: Pipeline) -> list[Pipeline]:
    """The pipeline in parts: runs of steps that keep the graph, and the others."""
    parts: list[Pipeline] = []
    for step in pipeline.steps:
        single = Pipeline((step,))
        if parts and parts[-1].preserves_graph == single.preserves_graph:
            parts[-1] = Pipeline((*parts[-1].steps, step))
        else:
            parts.append(single)
    return parts


def _check_names(outcome: Outcome, edges: Iterable[tuple[str, str]]) -> None:
    """Raises UsageError for an unknown end of a forced or forbidden edge: neither in the input, nor created by a
    pass."""
    ends = sorted({end for edge in edges for end in edge})
    if not ends:
        return
    names = {i.name for m in (outcome.original, outcome.module) for c in m.computations for i in c.instructions}
    names.update(outcome.context.origins.values())
    for name in ends:
        if name not in names:
            raise UsageError(f"there is no instruction {name!r}", hint=did_you_mean(name, sorted(names)))


DEAREST = 10


@dataclass(frozen=True, repr=False)
class ExplainReport:
    """The report on a run: a decision for every edge, and the figures of the module before and after. Where edges were
    forced, also those of the module in which everything is decided again around them. `str` is a line of figures, and
    one for each refused edge: its ends, their Python lines, and the reason; `hlo_opt.report` prints prices as well."""

    outcome: Outcome
    decisions: list[FusionDecision]
    before: ModuleSummary
    after: ModuleSummary
    decided_again: ModuleSummary | None = None

    def __repr__(self) -> str:
        return f"<ExplainReport {self._figures}>"

    def __str__(self) -> str:
        return "\n".join([self._figures, *map(_refusal, self.refused)])

    @property
    def _figures(self) -> str:
        before, after = self.before, self.after
        return (
            f"{self.outcome.module.name} on {self.outcome.target.name}: {before.kernels} -> {after.kernels} kernels, "
            f"{before.est_us:.1f} -> {after.est_us:.1f} us, {len(self.fused)} edges fused, {len(self.refused)} refused"
        )

    @property
    def refused(self) -> list[FusionDecision]:
        return [d for d in self.decisions if not d.fused]

    @property
    def fused(self) -> list[FusionDecision]:
        return [d for d in self.decisions if d.fused]

    @property
    def refusals_by_code(self) -> dict[str, int]:
        """How often each code refuses an edge; an edge counts once under each of its codes."""
        counts = Counter(code for d in self.refused for code in {r.code: None for r in d.reasons})
        return {code: counts[code] for code in sorted(counts)}

    @cached_property
    def rounds(self) -> Mapping[str, int]:
        """How often each computation of the result runs, by name: the known trip counts of the loops around it."""
        return {
            computation.name: often
            for computation, often in executions(self.outcome.module, self.outcome.context.options.trip_counts)[
                0
            ].items()
        }

    @cached_property
    def dearest(self) -> list[FusionDecision]:
        """The refused edges whose fusion would save most microseconds in all rounds of the loops around them, the
        dearest first; of two kernels the edge with the fewest reasons. Their costs are computed by joining them: ask
        for these before those of other edges are shown."""
        dearest = first_by_kernels(self._by_savings(self.refused))
        with collector_paused():
            price_by_joining(self.outcome.module, self.outcome.context, dearest)
        return self._by_savings(dearest)

    def _by_savings(self, decisions: Iterable[FusionDecision]) -> list[FusionDecision]:
        """The edges with a price, ordered by their savings in all rounds; equal ones keep their order."""
        priced = [(d, d.cost.us_saved * self.rounds.get(d.computation, 1)) for d in decisions if d.cost is not None]
        return [d for d, _ in sorted(priced, key=lambda p: -p[1])]


def _refusal(decision: FusionDecision) -> str:
    """A refused edge in one line."""
    lines = ", ".join(dict.fromkeys(filter(None, (decision.producer_source, decision.consumer_source))))
    ends = f"{decision.ends} ({lines})" if lines else decision.ends
    return printable(below(current_folder(), f"{ends}: {decision.cause[0].code} {decision.cause[0].short}"))


def first_by_kernels(decisions: Iterable[FusionDecision]) -> list[FusionDecision]:
    """For each of the first `DEAREST` pairs of kernels, the edge that their names stand for: the one with the fewest
    reasons. In the order of the input."""
    by_kernels: dict[frozenset[str], FusionDecision] = {}
    for decision in decisions:
        kernels = frozenset({decision.producer_kernel, decision.consumer_kernel})
        if kernels not in by_kernels and len(by_kernels) == DEAREST:
            break
        known = by_kernels.setdefault(kernels, decision)
        if (decision.by_kernels, len(decision.cause)) < (known.by_kernels, len(known.cause)):
            by_kernels[kernels] = decision
    return list(by_kernels.values())


def report_on(outcome: Outcome, decided_again: Module | None = None) -> ExplainReport:
    """The report on every edge of a run."""
    with collector_paused():
        known, trip_counts = outcome.context.memory.known, outcome.context.options.trip_counts
        summary = partial(module_summary, target=outcome.target, known=known, trip_counts=trip_counts)
        before, after = (summary(m) for m in (outcome.original, outcome.module))
        again = None if decided_again is None else summary(decided_again)
        return ExplainReport(outcome, outcome.decide(), before, after, again)
