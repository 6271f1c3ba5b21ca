"""Modules in numbers: one by itself, kernels, launches, bytes, estimated microseconds, opcodes; before and after a run,
with changed rules, and against limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hlo_opt.analysis.graph.digest import module_digest
from hlo_opt.analysis.graph.loops import NO_TRIP_COUNTS, TripCounts
from hlo_opt.analysis.memory.traffic import distinct_bytes
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.diag import CheckError, reason_spec
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.fusion.summary import ModuleSummary, kernels_of, module_summary
from hlo_opt.ir import Attribute, Computation, Instruction, Module
from hlo_opt.ops.shapes import flops_of
from hlo_opt.passes import ExplainReport, Outcome
from hlo_opt.report.page import Page, Word, count, counted, microseconds, most_first, size


def summary_page(report: ExplainReport, *, codes: bool = True) -> Page:
    """The summary for people; without `codes` only its figures, in as few lines as they need."""
    before, after = report.before, report.after
    page = Page()
    page.add(Word(report.outcome.module.name, "bold"), f" on {report.outcome.target.name}")
    again = [] if report.decided_again is None else [(DECIDED_AGAIN, report.decided_again)]
    add_figures(page, ("before", before), ("after", after), *again, brief=not codes)
    if again:
        page.add(f"  after: forced edges are joined and nothing else changes; {DECIDED_AGAIN}: for comparison only,")
        page.add("  the figures if every other edge were decided again around them")
    if is_compiled_for_cpu(report.outcome.original):
        page.add("  XLA optimised this for a CPU: feed the stage before optimisations (hlo-opt help dump)")
    if before.unknown_trips or after.unknown_trips:
        page.add(unknown_loops(max(before, after, key=lambda m: m.unknown_trips)))
    if not codes:
        return page
    if before.launches > before.kernels or after.launches > after.kernels:
        page.add("  launches and times count each iteration of a loop, kernels and bytes count its body once")
    counts = report.refusals_by_code
    fused, left = len(report.fused), len(report.refused)
    page.add(f"  {counted(fused, 'edge')} fused, {count(left)} refused" + ("; reasons:" if counts else ""))
    rows: list[list[str | Word]] = []
    for code, number in most_first(counts).items():
        rows.append([count(number), Word(code, "yellow"), reason_spec(code).slug])
    page.table(rows, right=frozenset({0}), indent=4)
    return page


_OF_CPU = {"backend_config": '"outer_dimension_partitions"', "frontend_attributes": "xla_cpu_small_call"}
"""Attributes, and what only XLA's compiler for CPUs writes into them (xla/backends/cpu/codegen,
xla/service/cpu/backend_config.proto)."""


def is_compiled_for_cpu(module: Module) -> bool:
    """Whether XLA's compiler for CPUs has optimised a module, where that is certain."""
    return any(
        isinstance(value := i.attributes.get(name), Attribute) and sign in value.text
        for c in module.computations
        for i in c.instructions
        for name, sign in _OF_CPU.items()
    )


def unknown_loops(summary: ModuleSummary) -> str:
    """How many loops are counted as one iteration, and the option that gives their trip counts."""
    loops = counted(summary.unknown_trips, "loop")
    return (
        f"  {loops} of an unknown trip count, counted as one iteration: --trip-count {summary.unknown_loops[0]}=N says "
        f"how many"
    )


DECIDED_AGAIN = "all decided again"
"""The title of what a module is where everything is decided again around edges that are forced."""


def add_figures(page: Page, *modules: tuple[str, ModuleSummary], brief: bool = False) -> None:
    """The four numbers of modules side by side, each under its title; those of the second stand out. In `brief`,
    launches only where they are not the kernels."""
    rows: list[list[str | Word]] = [["", *(title for title, _ in modules)]]
    figures: tuple[tuple[str, Callable[[ModuleSummary], str]], ...] = (
        ("kernels", lambda m: count(m.kernels)),
        ("launches", lambda m: count(m.launches)),
        ("bytes", lambda m: size(m.bytes)),
        ("estimated", lambda m: microseconds(m.est_us)),
    )
    for name, figure in figures:
        if brief and name == "launches" and all(m.launches == m.kernels for _, m in modules):
            continue
        texts = [figure(module) for _, module in modules]
        rows.append([name, texts[0], Word(texts[1], "bold"), *texts[2:]])
    page.table(rows, right=frozenset(range(1, len(modules) + 1)), indent=2)


def seconds_page(outcome: Outcome) -> Page:
    """How long each pass took and how often it ran, the longest first; the proof and the decisions are listed with
    them."""
    page = Page()
    page.add("  seconds by pass")
    total = sum(outcome.seconds.values())
    rows = [["", "share", "runs", ""]]
    for name, value in sorted(outcome.seconds.items(), key=lambda item: -item[1]):
        share = f"{100 * value / total:.0f} %" if total else ""
        rows.append([f"{value:.3f}", share, count(outcome.runs[name]) if name in outcome.runs else "", name])
    rows.append([f"{total:.3f}", "", "", "together"])
    page.table(rows, right=frozenset({0, 1, 2}), indent=4)
    return page


def steps_page(outcome: Outcome) -> Page:
    """How many rewrites a limit let happen."""
    limit = outcome.context.options.stop_after_step
    page = Page()
    if outcome.context.exhausted:
        page.add(f"  stopped after {counted(outcome.steps, 'rewrite')}")
    else:
        page.add(f"  all {counted(outcome.steps, 'rewrite')} happened, fewer than the limit of {count(limit or 0)}")
    return page


def summary_json(summary: ModuleSummary) -> dict[str, int | float]:
    """The numbers of a module for programs."""
    return {
        "kernels": summary.kernels,
        "launches": summary.launches,
        "bytes": int(summary.bytes),
        "est_us": round(summary.est_us, 3),
        "overlapped_us": round(summary.overlapped_us, 3),
    }


def prices_json(summary: ModuleSummary) -> list[dict[str, object]]:
    """What each launch and library call takes, and the bytes that it moves, for programs."""
    return [
        {
            "instruction": one.instruction,
            "computation": one.computation,
            "est_us": round(one.est_us, 3),
            "bytes": round(one.bytes),
        }
        for one in summary.launched
    ]


def decided_again_json(report: ExplainReport) -> dict[str, object]:
    """The figures of the module in which everything is decided again around forced edges, where some are."""
    return {} if report.decided_again is None else {"decided_again": summary_json(report.decided_again)}


STATS_SCHEMA = 1
"""The version of `stats.schema.json`."""


def stats_json(report: ExplainReport) -> dict[str, Any]:
    """What `fuse --stats FILE.json` writes; stats.schema.json describes it."""
    return {
        "schema": STATS_SCHEMA,
        "before": summary_json(report.before),
        "after": summary_json(report.after),
        **decided_again_json(report),
        "prices": prices_json(report.after),
        "refused": report.refusals_by_code,
        "seconds": {name: round(value, 6) for name, value in report.outcome.seconds.items()},
    }


KERNELS = "HLO710"
BYTES = "HLO711"
REFUSALS = "HLO712"


@dataclass(frozen=True)
class Budget:
    """What is allowed. None and empty set no limit.

    max_kernels  kernels of the fused module, those in the body of a loop counted once
    max_bytes    bytes that they read and write, counted the same way
    fail_on      codes of reasons under which no edge may be refused
    """

    max_kernels: int | None = None
    max_bytes: int | None = None
    fail_on: tuple[str, ...] = ()

    def check(self) -> None:
        """Raises UsageError, naming the nearest one, for a code that does not exist."""
        for code in self.fail_on:
            reason_spec(code.upper())

    def exceeded(self, report: ExplainReport) -> list[CheckError]:
        """One coded error, of one line, for each limit that the module does not keep."""
        module = report.outcome.module
        filename = None if module.source is None else module.source.filename
        return [
            CheckError(f"module {module.name}: {message}", code=code, filename=filename)
            for code, message in self._limits_exceeded(report)
        ]

    def _limits_exceeded(self, report: ExplainReport) -> Iterator[tuple[str, str]]:
        after = report.after
        if self.max_kernels is not None and after.kernels > self.max_kernels:
            over = count(after.kernels - self.max_kernels)
            yield (
                KERNELS,
                f"{counted(after.kernels, 'kernel')}, {over} more than the budget of {count(self.max_kernels)}",
            )
        if self.max_bytes is not None and after.bytes > self.max_bytes:
            over = _both(after.bytes - self.max_bytes)
            yield (
                BYTES,
                f"{_both(after.bytes)} read and written, {over} more than the budget of {_both(self.max_bytes)}",
            )
        refusals = report.refusals_by_code
        for code in dict.fromkeys(c.upper() for c in self.fail_on):
            if code not in refusals:
                continue
            first = next(d for d in report.refused if any(r.code == code for r in d.reasons))
            places = [p for p in (first.consumer_source, first.producer_source) if p]
            where = f"{first.producer} -> {first.consumer}" + (f", {places[0]}" if places else "")
            yield (
                REFUSALS,
                f"{counted(refusals[code], 'edge')} refused as {code} {reason_spec(code).slug}, and the budget is 0 "
                f"(the first: {where})",
            )


def _both(value: float) -> str:
    """Bytes for people and exactly: `12.3 MB (12,345,678 bytes)`."""
    return f"{size(value)} ({count(value)} bytes)"


MOST_SHOWN = 10
"""Edges of each kind that the text names."""

EdgeKey = tuple[str, str, str]


@dataclass(frozen=True)
class Changes:
    """The report as things are, the report with the changed rules, and the edges whose answer differs.

    fused    refused as things are, fused with the changed rules
    moved    refused both times, but for other reasons; the decision is the one with the changed rules
    refused  fused as things are, refused with the changed rules
    gone     refused as things are, and no edge between kernels with the changed rules: one of its ends fused with
             others, and reads under another name
    types    a type in place of another, such as `f32=bf16`: then the second report is on a module with it
    """

    codes: tuple[str, ...]
    forced: tuple[str, ...]
    forbidden: tuple[str, ...]
    before: ExplainReport
    after: ExplainReport
    fused: list[FusionDecision]
    moved: list[FusionDecision]
    refused: list[FusionDecision]
    gone: list[FusionDecision]
    types: str = ""


def changes(
    codes: Iterable[str],
    forced: Iterable[str],
    before: ExplainReport,
    after: ExplainReport,
    forbidden: Iterable[str] = (),
    types: str = "",
) -> Changes:
    """Compare two reports on one module, or on it and on one with another type."""
    old, new = ({_ends(d): d for d in report.decisions} for report in (before, after))
    left = [(d, new.get(ends)) for ends, d in old.items() if not d.fused]
    return Changes(
        tuple(code.upper() for code in codes),
        tuple(forced),
        tuple(forbidden),
        before,
        after,
        fused=[now for _, now in left if now is not None and now.fused],
        moved=[now for d, now in left if now is not None and not now.fused and _codes(now) != _codes(d)],
        refused=[d for ends, d in new.items() if not d.fused and ends in old and old[ends].fused],
        gone=[d for d, now in left if now is None],
        types=types,
    )


def _ends(decision: FusionDecision) -> EdgeKey:
    return (decision.computation, decision.producer, decision.consumer)


def _codes(decision: FusionDecision) -> list[str]:
    return sorted({r.code for r in decision.reasons})


def changes_page(changes: Changes) -> Page:
    """The comparison for people."""
    page = Page()
    asked = [f"without {code}" for code in changes.codes] + [f"with {edge} forced" for edge in changes.forced]
    asked += [f"with {edge} forbidden" for edge in changes.forbidden]
    if changes.types:
        old, _, new = changes.types.partition("=")
        asked.append(f"with {new} for {old}")
    page.add(Word("what if: " + ", ".join(asked), "bold"))
    if changes.types:
        page.add("  every array of the type, sums and weights too: programs keep some; results are not looked at")
    add_figures(page, ("as it is", changes.before.after), ("what if", changes.after.after))
    kinds: tuple[tuple[str, str, Sequence[FusionDecision]], ...] = (
        ("would fuse", "green", changes.fused),
        ("would be refused for other reasons", "yellow", changes.moved),
        ("would be refused that fuse now", "yellow", changes.refused),
        ("would be gone: an end fuses with others", "", changes.gone),
    )
    for title, style, edges in kinds:
        if edges:
            page.add("  ", Word(f"{counted(len(edges), 'edge')} {title}", style))
            page.table([_row(d, with_codes=edges is not changes.gone) for d in edges[:MOST_SHOWN]], indent=4)
        if len(edges) > MOST_SHOWN:
            page.add(f"    and {count(len(edges) - MOST_SHOWN)} more")
    if not any(edges for _, _, edges in kinds):
        page.add("  no edge would be decided differently")
    return page


def _row(decision: FusionDecision, *, with_codes: bool) -> list[str | Word]:
    codes = ", ".join(dict.fromkeys(f"{r.code} {r.slug}" for r in decision.reasons)) if with_codes else ""
    return [f"{decision.producer} -> {decision.consumer}", Word(codes, "yellow")]


def changes_json(changes: Changes) -> dict[str, Any]:
    """The comparison for programs."""

    def edges(decisions: Iterable[FusionDecision]) -> list[dict[str, Any]]:
        return [{"producer": d.producer, "consumer": d.consumer, "codes": _codes(d)} for d in decisions]

    return {
        "codes": list(changes.codes),
        "forced": list(changes.forced),
        "forbidden": list(changes.forbidden),
        "types": changes.types,
        "as_it_is": summary_json(changes.before.after),
        "what_if": summary_json(changes.after.after),
        "fused": edges(changes.fused),
        "other_reasons": edges(changes.moved),
        "refused": edges(changes.refused),
        "gone": edges(changes.gone),
    }


@dataclass(frozen=True)
class ComputationStats:
    """One computation run once: floating-point operations (0 for what the op table does not count) and bytes accessed,
    calls not followed."""

    name: str
    instructions: int
    parameters: int
    flops: float
    bytes: float
    opcodes: dict[str, int]


@dataclass(frozen=True)
class Stats:
    """The figures of a module on a target.

    digest    one hash of all that the text says, names, metadata and order left out
    opcodes   instructions by opcode, in all computations
    launched  instructions that launch work, by opcode (fusions with their kind, custom calls with their target)
    """

    module: str
    target: str
    digest: str
    summary: ModuleSummary
    computations: list[ComputationStats]
    parameters: int
    opcodes: dict[str, int]
    launched: dict[str, int]


def stats(module: Module, target: DeviceTarget, trip_counts: TripCounts = NO_TRIP_COUNTS) -> Stats:
    """Count a module, with the trip counts that the user gave."""
    opcodes = Counter(i.opcode for c in module.computations for i in c.instructions)
    return Stats(
        module.name,
        target.name,
        module_digest(module),
        module_summary(module, target, trip_counts=trip_counts),
        [_of(c) for c in module.computations],
        len(module.entry.parameters),
        most_first(opcodes),
        most_first(Counter(label(i) for i in kernels_of(module, target))),
    )


def _of(computation: Computation) -> ComputationStats:
    instructions = computation.instructions
    return ComputationStats(
        computation.name,
        len(instructions),
        len(computation.parameters),
        sum(flops_of(i) for i in instructions),
        sum(distinct_bytes(i) for i in instructions),
        most_first(Counter(i.opcode for i in instructions)),
    )


def label(instruction: Instruction) -> str:
    """The opcode, with the kind of a fusion and the target of a custom call."""
    words = (instruction.opcode, instruction.word("kind"), instruction.word("custom_call_target"))
    return " ".join(word for word in words if word)


def as_page(statistics: Stats) -> Page:
    """The figures for people."""
    page = Page()
    page.add(Word(statistics.module, "bold"), f" on {statistics.target}")
    summary = statistics.summary
    rows = [
        ["kernels", count(summary.kernels)],
        ["launches", count(summary.launches)],
        ["bytes", size(summary.bytes)],
        ["estimated", microseconds(summary.est_us)],
        *([["side by side", microseconds(summary.overlapped_us)]] if summary.overlaps else []),
        ["computations", count(len(statistics.computations))],
        ["parameters", count(statistics.parameters)],
        ["instructions", count(sum(statistics.opcodes.values()))],
    ]
    page.table(rows, right=frozenset({1}), indent=2)
    if summary.unknown_trips:
        page.add(unknown_loops(summary))
    for title, counts in (("launched", statistics.launched), ("instructions", statistics.opcodes)):
        page.add()
        page.add(Word(title, "bold"))
        page.table([[count(number), name] for name, number in counts.items()], right=frozenset({0}), indent=2)
    page.add()
    page.add(Word("computations", "bold"))
    rows = [["", "instructions", "parameters", "flops", "bytes"]]
    for c in statistics.computations:
        rows.append([c.name, count(c.instructions), count(c.parameters), count(int(c.flops)), size(c.bytes)])
    page.table(rows, right=frozenset({1, 2, 3, 4}), indent=2)
    return page


def as_json(statistics: Stats) -> dict[str, Any]:
    """The figures for programs."""
    return {
        "schema": 1,
        "module": statistics.module,
        "target": statistics.target,
        "hash": statistics.digest,
        **summary_json(statistics.summary),
        "prices": prices_json(statistics.summary),
        "unknown_trips": statistics.summary.unknown_trips,
        "computations": [asdict(c) for c in statistics.computations],
        "parameters": statistics.parameters,
        "opcodes": statistics.opcodes,
        "launched": statistics.launched,
    }
