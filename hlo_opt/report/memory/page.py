"""The memory of a module before and after fusing: as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from hlo_opt.ir import Module
from hlo_opt.passes import ExplainReport
from hlo_opt.report.donations import Donation, KeptApart, donations, kept_apart, lost_by_fusing, not_honoured
from hlo_opt.report.memory.advice import Advice, advice
from hlo_opt.report.memory.timeline import Holder, Moment, moment_of
from hlo_opt.report.page import Page, Word, count, counted, size
from hlo_opt.runtime.driver.emission import source_lines
from hlo_opt.runtime.schedule import EmittedKernels, build_schedule

KINDS = ("inputs", "constants", "results", "temporaries")
ONE_OF = {"inputs": "input", "constants": "fixed", "results": "result", "temporaries": "stored"}
"""The word for one array of a kind, in the table."""

HOLDERS_SHOWN = 12
LEAST_SHOWN = 1e-4
"""The share of the peak from which an array has a line of its own; smaller ones are added up."""

READERS_SHOWN = 3
DONATIONS_SHOWN = 4


@dataclass(frozen=True)
class MemoryReport:
    """The peaks before and after fusing, advice that would lower the one after, the donated inputs, and the edges that,
    kept apart, would let results use those that fusing lost, by the numbers of the arrays."""

    report: ExplainReport
    before: Moment
    after: Moment
    advice: Sequence[Advice]
    donations: Sequence[Donation] = ()
    kept: Mapping[int, KeptApart] = field(default_factory=dict)


def memory_report(report: ExplainReport) -> MemoryReport:
    """The memory of a run's module. Raises EvaluationError where the module has no program."""
    outcome = report.outcome
    emitted = EmittedKernels()
    fused = build_schedule(outcome.module, outcome.target, emitted)
    before = moment_of(build_schedule(outcome.original, outcome.target, emitted))
    after = moment_of(fused)
    kept = kept_apart(report, lost_by_fusing(report, not_honoured(report, emitted), emitted), emitted)
    ways = advice(report, after, emitted)
    return MemoryReport(report, before, after, ways, donations(outcome.module, fused), kept)


def as_page(report: MemoryReport, most: int | None = HOLDERS_SHOWN) -> Page:
    """The figures, who holds the peak after fusing, and what would lower it."""
    page = Page()
    outcome = report.report.outcome
    before, after = report.before, report.after
    page.add(Word(outcome.module.name, "bold"), f" on {outcome.target.name}")
    rows: list[list[str | Word]] = [
        ["", "before", "after"],
        ["peak", size(before.bytes), Word(size(after.bytes), "bold")],
    ]
    rows += [[f"  {kind}", size(before.of(kind)), size(after.of(kind))] for kind in KINDS]
    page.table(rows, right=frozenset({1, 2}), indent=2)
    page.add("after fusing the peak is ", *_when(outcome.module, after))
    shown = [h for h in after.holders[:most] if most is None or h.bytes >= LEAST_SHOWN * after.bytes]
    page.table([_row(outcome.module, holder) for holder in shown], right=frozenset({0}), indent=2)
    left = after.holders[len(shown) :]
    if left:
        page.add(f"  {size(sum(h.bytes for h in left))}  in {counted(len(left), 'more buffer')}")
    page.add(Word("what lowers it", "bold"), "" if report.advice else ": nothing that was tried")
    for one in report.advice:
        page.add(f"  by {size(one.saves)}  ", Word(one.kind, "yellow"), f"  {one.what}")
        if one.why:
            page.add(f"    now: {one.why}")
    if report.donations:
        page.extend(_donations_page(report, None if most is None else DONATIONS_SHOWN))
    return page


def _donations_page(report: MemoryReport, most: int | None) -> Page:
    """The donated inputs, with the results in their memory; those without a result come first."""
    page, inputs = Page(), report.donations
    honoured = sum(one.is_honoured for one in inputs)
    page.add(Word("donated", "bold"), f": {counted(len(inputs), 'input')}, {count(honoured)} honoured by our kernels")
    shown = sorted(inputs, key=lambda one: (one.is_honoured, -one.bytes))[:most]
    rows: list[list[str | Word]] = []
    for one in shown:
        becomes = f"holds result {one.result}" if one.is_honoured else f"does not hold result {one.result}: {one.why}"
        rows.append([size(one.bytes), f"`{one.parameter.name}` {becomes}"])
        if one.leaf in report.kept:
            rows.append(["", f"  {report.kept[one.leaf]}"])
    page.table(rows, right=frozenset({0}), indent=2)
    if len(inputs) > len(shown):
        page.add(f"  and {count(len(inputs) - len(shown))} more (--all)")
    return page


def _when(module: Module, moment: Moment) -> list[str | Word]:
    after = f" after `{moment.after.name}`" if moment.after not in (None, moment.at) else ""
    line = _line(module, moment)
    return [f"at `{moment.at.name}`{after}", "  " if line else "", Word(line, "cyan")]


def _line(module: Module, moment: Moment) -> str:
    return next(iter(source_lines(module, moment.at)), "")


def _row(module: Module, holder: Holder) -> list[str | Word]:
    line = next(iter(source_lines(module, holder.maker)), "")
    readers = [r.name for r in holder.readers[:READERS_SHOWN]]
    more = f" and {count(len(holder.readers) - len(readers))} more" if len(holder.readers) > len(readers) else ""
    role = f"{ONE_OF[holder.kind]} {holder.number}" if holder.number >= 0 else ONE_OF[holder.kind]
    read = f"for {', '.join(readers)}{more}" if readers else ""
    return [size(holder.bytes), Word(role, "yellow"), holder.maker.name, read, Word(line, "cyan")]


def as_json(report: MemoryReport) -> dict[str, object]:
    """The same for programs. Fields are only added within a version."""
    original, fused = report.report.outcome.original, report.report.outcome.module
    return {
        "schema": 1,
        "module": fused.name,
        "target": report.report.outcome.target.name,
        "before": _moment_json(original, report.before),
        "after": _moment_json(fused, report.after),
        "advice": [asdict(one) for one in report.advice],
        "donations": [
            {
                "input": one.parameter.name,
                "result": one.result,
                "bytes": one.bytes,
                "honoured": one.is_honoured,
                "why": one.why,
                "forbid": _edge_json(report.kept.get(one.leaf)),
            }
            for one in report.donations
        ],
    }


def _edge_json(kept: KeptApart | None) -> dict[str, object] | None:
    return None if kept is None else {"edge": ":".join(kept.edge), "us": round(kept.us, 3)}


def _moment_json(module: Module, moment: Moment) -> dict[str, object]:
    return {
        "peak": moment.bytes,
        "at": moment.at.name,
        "after": None if moment.after is None else moment.after.name,
        "source": _line(module, moment),
        "bytes": {kind: moment.of(kind) for kind in KINDS},
        "holders": [
            {
                "kind": h.kind,
                "number": h.number,
                "bytes": h.bytes,
                "instruction": h.maker.name,
                "shape": str(h.maker.shape.without_layout()),
                "readers": [r.name for r in h.readers],
                "sources": source_lines(module, h.maker),
            }
            for h in moment.holders
        ],
    }
