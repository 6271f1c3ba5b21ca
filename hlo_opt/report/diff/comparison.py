"""Two modules compared: their figures, and the differences, each with what it comes from, the kernels that it changes
and what that costs; worst first."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice

from hlo_opt.analysis.graph.compare.flat import FlatSite, Scope
from hlo_opt.analysis.graph.compare.matching import Matched, match
from hlo_opt.analysis.graph.digest import may_be_alike, module_digest
from hlo_opt.analysis.graph.loops import NO_TRIP_COUNTS, TripCounts
from hlo_opt.analysis.graph.numbering import literal_key
from hlo_opt.analysis.targets import DEFAULT_TARGET, DeviceTarget
from hlo_opt.analysis.targets import target as find_target
from hlo_opt.diag import UsageError, did_you_mean
from hlo_opt.fusion.context import FuseOptions, PassContext
from hlo_opt.fusion.decision import ByStructure, FusionDecision
from hlo_opt.fusion.summary import ModuleSummary, executions, module_summary
from hlo_opt.ir import Module
from hlo_opt.ir.walk import executed_computations
from hlo_opt.ops.sets import fused
from hlo_opt.passes.pipeline import Pipeline, parse_pipeline
from hlo_opt.passes.run import Outcome, collector_paused, run
from hlo_opt.passes.table import preset as preset_text
from hlo_opt.report.diff.beginning import GRADIENT, beginning, turns
from hlo_opt.report.diff.changes import FORMS, Change, Counts, changes
from hlo_opt.report.diff.kernels import WAS_DONE, KernelGroup, LaunchedKernel, Seam, groups, kernels_of
from hlo_opt.text import parse, verify

FUSE_MODES = ("auto", "always", "never")

MOST_FUSED = 600
"""Instructions of a module that `auto` fuses: larger ones may take longer than anybody waits for a comparison."""

SEAMS_SHOWN = 4
"""The most edges that are shown for a group of kernels."""

MOST_LOOKED_AT, LARGE = 64, 5_000
"""Kernels that became one other kernel whose edges are looked at: those whose price changed most; and the instructions
of a module of which none are."""

MOST_IN_LARGE = 256
"""Kernels that split or joined in a module of more instructions whose edges are looked at, those of the dearest groups
first: an edge may take 10 ms there, and a change in each of 60 layers changes thousands of kernels."""

LEAST_SAVED, OTHER_SAVED = 0.1, 0.1
"""Microseconds, and share, by which what an edge would save must differ to count as another price."""

NEIGHBOURS = 64
"""Readers of one value that are looked at."""

NOTHING = 1e-3
"""Share of the old module's time below which a difference counts as none where differences are put in order."""


@dataclass(eq=False)
class Side:
    """One of the modules: as it was read, as its kernels are, what these cost."""

    module: Module
    outcome: Outcome
    """How it was fused; nothing ran where it is taken as it is."""
    summary: ModuleSummary

    @cached_property
    def digest(self) -> str:
        """The hash of the module without names."""
        return module_digest(self.module)

    @property
    def name(self) -> str:
        """The file, where it was read from one, else the module."""
        return self.module.source.filename if self.module.source is not None else self.module.name


@dataclass(eq=False)
class Difference:
    """One cause, as far as it can be told apart, and what it changes: instructions, the first of which it begins with,
    and kernels."""

    changes: list[Change] = field(default_factory=list)
    groups: list[KernelGroup] = field(default_factory=list)

    @property
    def us(self) -> float:
        """By how much its kernels are slower now, all rounds of loops counted."""
        return sum(g.us for g in self.groups)

    @property
    def bytes(self) -> float:
        return sum(g.bytes for g in self.groups)

    @property
    def source(self) -> str:
        """The Python line that it begins at."""
        lines = (*(c.source for c in self.changes), *(g.source for g in self.groups))
        return next((line for line in lines if line), "")


@dataclass(eq=False)
class Comparison:
    """What `hlo-opt diff` shows. `fused_by` are the passes that made the kernels of both; empty where they are those of
    the texts."""

    old: Side
    new: Side
    target: DeviceTarget
    fused_by: str
    too_large: bool
    counts: Counts
    differences: list[Difference]

    @property
    def same(self) -> bool:
        """Whether there is no difference, but for names, metadata and the order of the text."""
        return not self.differences

    @property
    def growth(self) -> float:
        """By which share the new module is slower; infinite where the old one takes no time and the new one does."""
        old, new = self.old.summary.est_us, self.new.summary.est_us
        if old <= 0:
            return 0.0 if new <= 0 else float("inf")
        return new / old - 1

    def __str__(self) -> str:
        """What `hlo-opt diff` prints."""
        from hlo_opt.report.diff.page import as_page

        return str(as_page(self))


def diff(
    old: Module | str,
    new: Module | str,
    *,
    target: str | DeviceTarget = DEFAULT_TARGET,
    fuse: str = "auto",
    preset: str = "default",
    passes: str | Pipeline | None = None,
    simplify: str = "auto",
    choices: Iterable[str] = (),
    trip_counts: TripCounts = NO_TRIP_COUNTS,
) -> Comparison:
    """Compare two modules, or texts, without their names.

    `fuse` says whether both are fused first, by the preset or the passes: `auto` does where neither text has a fusion
    and both are small enough, `always`, `never`.
    Raises UsageError for unknown names; ParseError and VerifyError for a text.
    """
    if fuse not in FUSE_MODES:
        raise UsageError(f"fuse must be auto, always or never, not {fuse!r}", hint=did_you_mean(fuse, FUSE_MODES))
    with collector_paused():
        modules = [_read(module) for module in (old, new)]
        device = find_target(target) if isinstance(target, str) else target
        raw = not any(map(has_kernels, modules))
        too_large = fuse == "auto" and raw and max(map(_size, modules)) > MOST_FUSED
        fuses = fuse == "always" or (fuse == "auto" and raw and not too_large)
        text = passes if passes is not None else preset_text(preset)
        pipeline = text if isinstance(text, Pipeline) else parse_pipeline(text)
        fuse_one: Callable[[Module], Outcome]
        if fuses:
            fuse_one = partial(
                run,
                passes=pipeline,
                own_passes=passes is not None,
                target=device,
                simplify=simplify,
                choices=choices,
                trip_counts=trip_counts,
            )
        else:
            fuse_one = partial(as_it_is, pipeline=pipeline, target=device, choices=choices, trip_counts=trip_counts)
        first, second = _sides(modules, fuse_one, device, trip_counts)
        fused_by = preset
        if passes is not None:
            fused_by = passes if isinstance(passes, str) else ",".join(p.name for p in passes.passes())
        return _compared(first, second, device, fused_by if fuses else "", too_large)


def _read(module: Module | str) -> Module:
    if isinstance(module, str):
        module = parse(module)
        verify(module)
    return module


def _size(module: Module) -> int:
    return sum(len(c.instructions) for c in module.computations)


def has_kernels(module: Module) -> bool:
    """Whether a compiler fused a module already, so that its launches are kernels."""
    return any(fused(i) is not None for c in executed_computations(module) for i in c.instructions)


def as_it_is(
    module: Module, pipeline: Pipeline, target: DeviceTarget, choices: Iterable[str], trip_counts: TripCounts
) -> Outcome:
    """What a run that does nothing gives: the kernels are those of the text, and our passes say what they have against
    each edge between them."""
    options = FuseOptions.of(target, choices=choices, trip_counts=trip_counts)
    return Outcome(module, module, pipeline.alternatives()[0], PassContext(options), {}, {})


def _sides(
    modules: Sequence[Module], fuse_one: Callable[[Module], Outcome], target: DeviceTarget, trip_counts: TripCounts
) -> list[Side]:
    """Both modules, priced; what is known of the kernels of one helps to price the other, and what is the same is
    looked at once."""
    known = ByStructure()
    sides: list[Side] = []
    for module in modules:
        same = next((s for s in sides if _are_alike(s.module, module)), None)
        outcome = fuse_one(module) if same is None else same.outcome
        summary = module_summary(outcome.module, target, known, trip_counts) if same is None else same.summary
        sides.append(Side(module, outcome, summary))
    return sides


def _are_alike(one: Module, other: Module) -> bool:
    return may_be_alike(one, other) and module_digest(one) == module_digest(other)


def _compared(old: Side, new: Side, target: DeviceTarget, fused_by: str, too_large: bool) -> Comparison:
    if old.outcome is new.outcome:
        counts = Counts(_size(old.module), 0, 0, 0, 0)
        return Comparison(old, new, target, fused_by, too_large, counts, [])
    matched = match(old.module, new.module)
    rows, counts = changes(matched)
    launched = match(old.outcome.module, new.outcome.module) if fused_by else matched
    sides = [
        kernels_of(flat, side.summary, executions(side.outcome.module, side.outcome.context.options.trip_counts)[0])
        for flat, side in ((launched.old, old), (launched.new, new))
    ]
    changed = groups(launched, *(kernels.values() for kernels in sides))
    twins = {one: other for pair in matched.scopes.items() for one, other in (pair, pair[::-1])}
    differences = _differences(rows, changed, twins, is_one_graph=launched is matched)
    _add_seams([g for d in differences for g in d.groups], launched, old.outcome, new.outcome)
    unit = NOTHING * old.summary.est_us
    differences.sort(key=partial(_rank, unit=unit))
    return Comparison(old, new, target, fused_by, too_large, counts, _told_once(differences))


def _told_once(differences: list[Difference]) -> list[Difference]:
    """The differences, of which those of one constant that a compiler repeats for its readers are one. The names of
    constants say nothing."""
    first: dict[Hashable, Change] = {}
    kept = []
    for difference in differences:
        (change, *others) = difference.changes or (None,)
        literals = () if change is None else tuple(site.instruction.literal for site in change.sites)
        if change is not None and not others and not difference.groups and len(literals) == 2 and all(literals):
            # details show a part of a long value only
            values = [(one.shape.without_layout(), literal_key(one)) for one in literals if one is not None]
            known = first.setdefault((change.details, *values, change.source), change)
            if known is not change:
                known.places += change.places
                known.repeated.extend([*change.sites, *change.repeated])
                continue
        kept.append(difference)
    return kept


def _rank(difference: Difference, unit: float) -> tuple[float, bool, float, bool, int, float]:
    """What costs most first; of what costs nothing or saves time that which something in the text explains, of that
    what saves most, then what is no gradient, which follows from what it is the gradient of, and then the largest
    arrays."""
    cost = difference.us if abs(difference.us) > unit else 0.0
    order = difference.changes[0].order if difference.changes else 0.0
    largest = max((_bytes(site) for change in difference.changes for site in change.sites), default=0)
    return (min(-cost, 0.0), not difference.changes, cost, _is_gradient(difference), -largest, order)


def _is_gradient(difference: Difference) -> bool:
    """Whether all that changed is gradients, or constants that only these read."""
    sites = [site for change in difference.changes for site in change.sites]
    readers = [u for s in sites if s.instruction.literal is not None for u, _, _ in s.users[:NEIGHBOURS]]
    told = [s for s in (*sites, *readers) if s.instruction.literal is None]
    return bool(told) and all(GRADIENT in s.instruction.metadata.op_name for s in told)


def _bytes(site: FlatSite) -> int:
    """The bytes of the array that an operation gives, or for a constant of the largest that reads it; of a tuple none:
    what is another one about it is one of its elements."""
    sites = [user for user, _, _ in site.users[:NEIGHBOURS]] if site.instruction.literal is not None else [site]
    return max((s.instruction.shape.byte_size for s in sites if s.instruction.shape.is_array), default=0)


class _Joining:
    """Sets of changes and groups of kernels that belong together."""

    def __init__(self, things: Iterable[Change | KernelGroup]) -> None:
        self._parent = {thing: thing for thing in things}

    def join(self, one: Change | KernelGroup, other: Change | KernelGroup) -> None:
        self._parent[self.root(other)] = self.root(one)

    def root(self, thing: Change | KernelGroup) -> Change | KernelGroup:
        parent = self._parent
        while parent[thing] is not thing:
            parent[thing] = parent[parent[thing]]
            thing = parent[thing]
        return thing


def _differences(
    comparison: list[Change], changed: list[KernelGroup], twins: Mapping[Scope, Scope], *, is_one_graph: bool
) -> list[Difference]:
    """Changes that stand next to each other are one difference; so are the kernels that hold them, or read what they
    give. `twins`: matched computations, either way."""
    joining = _Joining((*comparison, *changed))
    homes: dict[FlatSite, Change] = {}
    for change in comparison:
        for site in (*change.sites, *change.repeated):
            homes.setdefault(site, change)
    for change in comparison:
        for site in (*change.sites, *change.repeated):
            for near in (*(s for s, _ in site.inputs), *(_instead(site, twins) if site.partner is None else ())):
                if near in homes:
                    joining.join(homes[near], change)
    kernels: dict[object, KernelGroup] = {}
    for group in changed:
        for kernel in (*group.old, *group.new):
            for site in kernel.sites:
                kernels[site if is_one_graph else site.instruction.name] = group
            kernels[kernel.instruction if is_one_graph else kernel.name] = group
    for change in comparison:
        for group in _touched(change, kernels, is_one_graph):
            joining.join(change, group)
    for change in comparison:
        for site in change.sites:
            owner = homes.get(site.scope.owner) if site.scope.owner is not None else None
            if owner is not None and (turns(owner) or site.instruction.parameter_number is not None):
                joining.join(owner, change)
    loops: dict[object, Change] = {
        s if is_one_graph else s.instruction.name: c for c in comparison if turns(c) for s in c.sites
    }
    for group in changed:
        cause = _loop_change(group, comparison) or _loop_of(group, loops, is_one_graph)
        if cause is not None:
            joining.join(cause, group)
    for cause, group in _next_to(comparison, changed, joining, kernels, is_one_graph):
        joining.join(cause, group)
    causes = {joining.root(c) for c in comparison}
    if len(causes) == 1 and not is_one_graph:  # all else is alike, and fusing has no other reason to end otherwise
        for group in changed:
            joining.join(comparison[0], group)
    differences: dict[Change | KernelGroup, Difference] = {}
    for change in comparison:
        differences.setdefault(joining.root(change), Difference()).changes.append(change)
    for group in changed:
        differences.setdefault(joining.root(group), Difference()).groups.append(group)
    for difference in differences.values():
        difference.groups = _gathered(difference.groups)
        difference.groups.sort(key=lambda g: -abs(g.us))
        difference.changes.sort(key=beginning(difference.changes, homes))
    return list(differences.values())


def _next_to(
    comparison: list[Change],
    changed: list[KernelGroup],
    joining: _Joining,
    kernels: Mapping[object, KernelGroup],
    is_one_graph: bool,
) -> list[tuple[Change, KernelGroup]]:
    """The kernels that hold no change and belong to none, each with the first change that reads what they give, or
    gives what they read."""
    explained = {joining.root(change) for change in comparison}
    left = {group for group in changed if joining.root(group) not in explained}
    causes: dict[KernelGroup, Change] = {}
    for change in comparison if left else ():
        for site in change.sites:
            near = (*(u for u, _, _ in site.users[:NEIGHBOURS]), *(i for i, _ in site.inputs))
            for group in _holding(near, kernels, is_one_graph):
                if group in left:
                    causes.setdefault(group, change)
    return [(cause, group) for group, cause in causes.items()]


def _holding(
    sites: Iterable[FlatSite], kernels: Mapping[object, KernelGroup], is_one_graph: bool
) -> dict[KernelGroup, None]:
    """The groups of kernels that hold these operations."""
    return {
        kernels[key]: None
        for site in sites
        for key in ((site, site.instruction) if is_one_graph else (site.instruction.name,))
        if key in kernels
    }


def _instead(site: FlatSite, twins: Mapping[Scope, Scope]) -> Iterable[FlatSite]:
    """What stands in the other module where something that only one has stands in its own: what its readers read
    there, or what is the same result there; and what only the other module has right before that."""
    other = twins.get(site.scope)
    if other is not None and len(other.results) == len(site.scope.results):
        yield from (s for s, _ in (other.results[place] for place in site.roots) if s.partner is None)
    for user, place, _ in site.users[:NEIGHBOURS]:
        twin = user.partner
        if twin is not None:
            same = twin.inputs[place : place + 1] if len(twin.inputs) == len(user.inputs) else twin.inputs[:NEIGHBOURS]
            for read, _ in same:
                yield from (s for s in (read, *(s for s, _ in read.inputs[:NEIGHBOURS])) if s.partner is None)


def _gathered(groups: list[KernelGroup]) -> list[KernelGroup]:
    """Kernels that one difference adds and those that it takes away, as one group."""
    apart = [g for g in groups if not (g.old and g.new)]
    if len(apart) < 2:
        return groups
    whole = KernelGroup([k for g in apart for k in g.old], [k for g in apart for k in g.new])
    return [*(g for g in groups if g.old and g.new), whole]


def _loop_change(group: KernelGroup, rows: list[Change]) -> Change | None:
    """What changed about the loop that kernels run in, where these run in another number of rounds than before; None
    where they do not."""
    if group.kind != "changed" or group.old[0].rounds == group.new[0].rounds or not group.new[0].sites:
        return None
    owner = group.new[0].sites[0].scope.owner
    while owner is not None:
        scopes = {body for _, body in owner.bodies}
        near = {owner, *(s for s, _ in owner.inputs)}
        for change in rows:
            site = change.new or (change.old.scope.owner.partner if change.old and change.old.scope.owner else None)
            if site is not None and (site in near or site.scope in scopes):
                return change
        owner = owner.scope.owner
    return None


def _loop_of(group: KernelGroup, loops: Mapping[object, Change], is_one_graph: bool) -> Change | None:
    """The loop that came, went, or has another number of rounds, in which a kernel of one side alone runs."""
    if group.old and group.new:
        return None
    for site in (s for k in (*group.old, *group.new) for s in k.sites[:1]):
        owner = site.scope.owner
        while owner is not None:
            change = loops.get(owner if is_one_graph else owner.instruction.name)
            if change is not None:
                return change
            owner = owner.scope.owner
    return None


def _touched(change: Change, kernels: Mapping[object, KernelGroup], is_one_graph: bool) -> Iterable[KernelGroup]:
    """The groups of kernels that hold a changed instruction or compute again what it reads, and where its value has
    another form those that read it; where there are none, those that read it or that it reads."""
    readers = [u for site in change.sites for u, _, _ in site.users[:NEIGHBOURS]]
    inputs = [i for site in change.sites for i, _ in site.inputs]
    again = [i for i in inputs if i.partner is None]
    changed = [*change.sites, *again, *(readers if any(d.what in FORMS for d in change.details) else ())]
    for sites in (changed, [*readers, *inputs]):
        if touched := _holding(sites, kernels, is_one_graph):
            return touched
    return ()


def _add_seams(changed: list[KernelGroup], matched: Matched, old: Outcome, new: Outcome) -> None:
    """Tell which edges are between two kernels on one side only, with what refuses them, for kernels that split, joined
    or were regrouped; and which are refused on both sides for other causes."""
    is_large = max(map(_size, (old.module, new.module))) > LARGE
    mixed = [g for g in changed if g.kind in ("split", "joined", "regrouped")]
    mixed.sort(key=lambda g: -abs(g.us))
    alone = [g for g in changed if g.kind == "changed"] if not is_large else []
    looked = [*mixed, *heapq.nlargest(MOST_LOOKED_AT, alone, key=lambda g: abs(g.us))]
    if not looked:
        return
    refused = [
        _refused(outcome, islice((k for g in looked for k in (g.old, g.new)[n]), MOST_IN_LARGE if is_large else None))
        for n, outcome in enumerate((old, new))
    ]
    sites: list[dict[str, FlatSite]] = [
        {s.instruction.name: s for s in flat.sites()} for flat in (matched.old, matched.new)
    ]
    homes = [{s: k for g in mixed for k in (g.old, g.new)[n] for s in k.sites} for n in (0, 1)]
    for group in mixed:
        for n, kernels in enumerate((group.old, group.new)):
            names = {k.name for k in kernels}
            crossing = [d for d in refused[n] if d.consumer_kernel in names and d.producer_kernel in names]
            crossing = [d for d in crossing if d.producer_kernel != d.consumer_kernel]
            for decision in crossing:
                ends = [sites[n].get(name) for name in (decision.producer, decision.consumer)]
                twins = [s.partner if s is not None else None for s in ends]
                there = [homes[1 - n].get(t) if t is not None else None for t in twins]
                is_whole = len(group.old if n else group.new) == 1
                if there == [None, None] or (not is_whole and (None in there or there[0] is not there[1])):
                    continue
                mine, theirs = (decision, None) if n == 0 else (None, decision)
                seam = Seam(decision.producer, decision.consumer, mine, theirs, bool(old.runs))
                group.seams.append(seam)
    for group, seam in _refused_otherwise(looked, refused, sites[0], bool(old.runs)):
        group.seams.append(seam)
    for group in looked:
        group.seams.sort(key=lambda s: -_saved(s))
        del group.seams[SEAMS_SHOWN:]


def _refused_otherwise(
    looked: list[KernelGroup], refused: list[list[FusionDecision]], sites: Mapping[str, FlatSite], passed: bool
) -> Iterator[tuple[KernelGroup, Seam]]:
    """Edges that are between two kernels on both sides, under other codes or with another price, with the group of the
    consumer, else of the producer."""
    homes = {k.name: g for g in looked for k in g.old}
    there = {(d.producer, d.consumer): d for d in refused[1]}
    for decision in refused[0]:
        group = homes.get(decision.consumer_kernel) or homes.get(decision.producer_kernel)
        ends = [sites.get(name) for name in (decision.producer, decision.consumer)]
        twins = [s.partner.instruction.name if s is not None and s.partner is not None else "" for s in ends]
        other = there.get((twins[0], twins[1]))
        if group is None or other is None:
            continue
        codes = [{r.code for r in d.reasons} for d in (decision, other)]
        if not passed and codes == [{WAS_DONE}, {WAS_DONE}]:  # nothing refuses it
            continue
        saved = [0.0 if d.cost is None else d.cost.us_saved for d in (decision, other)]
        if codes[0] != codes[1] or abs(saved[0] - saved[1]) > max(LEAST_SAVED, OTHER_SAVED * max(map(abs, saved))):
            yield group, Seam(decision.producer, decision.consumer, decision, other, passed)


def _saved(seam: Seam) -> float:
    decision = seam.old or seam.new
    assert decision is not None
    return decision.cost.us_saved if decision.cost is not None else 0.0


def _refused(outcome: Outcome, kernels: Iterable[LaunchedKernel]) -> list[FusionDecision]:
    return [d for d in outcome.decide({k.name for k in kernels}, siblings=False) if not d.fused]
