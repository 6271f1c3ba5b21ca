"""All that the page shows, as one JSON value. Its form is versioned: fields are only added within a version.

`sides` are the two graphs that stand next to each other: a module before and after fusing, or the old and the new one
of a comparison. Nodes and kernels of both sides that are of one group become each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from hlo_opt import __version__
from hlo_opt.analysis.graph.compare.matching import match
from hlo_opt.fusion.outline import original_name
from hlo_opt.fusion.summary import ModuleSummary
from hlo_opt.ir import Instruction, Module
from hlo_opt.passes import ExplainReport
from hlo_opt.report.diff.comparison import Comparison, Side
from hlo_opt.report.diff.data import as_json
from hlo_opt.report.sentences import EdgePrices, advice, sentence
from hlo_opt.report.summary import summary_json
from hlo_opt.report.totals import source_text, totals
from hlo_opt.report.view.graph import NOWHERE, DrawnGraph, graph_json, graph_of
from hlo_opt.report.view.kernels import DrawnKernel, add_plans, kernels_json, launched, rates
from hlo_opt.report.view.steps import PassLog

SCHEMA = 1

MOST_SOURCE = 20_000
"""Lines of a Python file that the page holds."""

PageData = dict[str, object]


def data_of(report: ExplainReport, log: PassLog, root: str | None = None) -> PageData:
    """What the page of one module shows. `log` has the steps of its passes; `root` is the folder that has the module's
    Python files."""
    outcome = report.outcome
    known, target = outcome.context.memory.known, outcome.target
    before, after = graph_of(outcome.original), graph_of(outcome.module)
    kernels = launched(outcome.module, report.after, target, known)
    _group_by_kernel(before, after, kernels, outcome.context.origins)
    first = _side("before", outcome.original, report.before, before)
    first["kernels"] = kernels_json(outcome.original, launched(outcome.original, report.before, target, known), before)
    second = _side("after", outcome.module, report.after, after)
    rows = kernels_json(outcome.module, kernels, after)
    second["cuda"] = add_plans(rows, outcome.module, target)
    second["kernels"] = rows
    return {
        **_head(outcome.original, "module"),
        "target": rates(target),
        "sides": [first, second],
        "edges": _edges(report),
        "fused": [[d.producer, d.consumer, d.rule] for d in report.fused],
        "sources": _sources(report, root),
        "passes": log.as_json(),
        "diff": None,
    }


def comparison_data(comparison: Comparison) -> PageData:
    """What the page of two modules shows: their kernels as they are compared, and the differences."""
    sides, graphs = [], []
    for title, side in (("old", comparison.old), ("new", comparison.new)):
        module = side.outcome.module
        graph = graph_of(module)
        kernels = launched(module, side.summary, comparison.target, side.outcome.context.memory.known)
        graphs.append((graph, kernels))
        sides.append(_side(title, module, side.summary, graph))
    _group_by_match(comparison.old, comparison.new, *graphs)
    for row, side, (graph, kernels) in zip(sides, (comparison.old, comparison.new), graphs, strict=True):
        rows = kernels_json(side.outcome.module, kernels, graph)
        row["graph"] = graph_json(side.outcome.module, graph)
        row["cuda"] = add_plans(rows, side.outcome.module, comparison.target)
        row["kernels"] = rows
        row["file"] = side.name
    return {
        **_head(comparison.new.module, "comparison"),
        "target": rates(comparison.target),
        "sides": sides,
        "edges": [],
        "fused": [],
        "sources": [],
        "passes": [],
        "diff": as_json(comparison),
    }


def _head(module: Module, kind: str) -> PageData:
    filename = "" if module.source is None else module.source.filename
    return {"schema": SCHEMA, "version": __version__, "kind": kind, "module": module.name, "file": filename}


def _side(title: str, module: Module, summary: ModuleSummary, graph: DrawnGraph) -> PageData:
    figures: PageData = {**summary_json(summary), "instructions": len(graph.instructions)}
    return {"title": title, "figures": figures, "graph": graph_json(module, graph), "cuda": []}


def _group_by_kernel(
    before: DrawnGraph, after: DrawnGraph, kernels: Sequence[DrawnKernel], origins: dict[Instruction, str]
) -> None:
    """Number the kernels of the result, and give their numbers to what they hold, on both sides. An instruction that
    several kernels compute goes with the first."""
    by_name: dict[str, int] = {}
    for number, kernel in enumerate(kernels):
        for member in kernel.members:
            at = after.numbers.get(member)
            if at is not None and after.groups[at] == NOWHERE:
                after.groups[at] = number
            by_name.setdefault(original_name(member, origins), number)
    for at, instruction in enumerate(before.instructions):
        before.groups[at] = by_name.get(instruction.name, NOWHERE)


GraphWithKernels = tuple[DrawnGraph, Sequence[DrawnKernel]]


def _group_by_match(old: Side, new: Side, first: GraphWithKernels, second: GraphWithKernels) -> None:
    """Number what became each other: kernels that share operations, with all that they hold."""
    matched = match(old.outcome.module, new.outcome.module)
    holders = [
        {member: kernel.instruction for kernel in kernels for member in kernel.members}
        for _, kernels in (first, second)
    ]
    votes: dict[Instruction, Counter[Instruction]] = {}
    for site in matched.old.sites():
        if site.partner is None:
            continue
        ends = (site.instruction, site.partner.instruction)
        mine, theirs = (holders[n].get(end) for n, end in enumerate(ends))
        if mine is not None and theirs is not None:
            votes.setdefault(theirs, Counter())[mine] += 1
    numbers = {kernel.instruction: number for number, kernel in enumerate(first[1])}
    fresh = len(numbers)
    for kernel in second[1]:
        most = votes.get(kernel.instruction)
        if most:
            numbers[kernel.instruction] = numbers[most.most_common(1)[0][0]]
        else:
            numbers[kernel.instruction] = fresh
            fresh += 1
    for graph, kernels in (first, second):
        for kernel in kernels:
            for member in kernel.members:
                if member in graph.numbers:
                    graph.groups[graph.numbers[member]] = numbers[kernel.instruction]


def _edges(report: ExplainReport) -> list[PageData]:
    """The refused edges, what would save most first."""
    prices = EdgePrices(report)
    rows: list[tuple[float, PageData]] = []
    _ = report.dearest  # finds out what these cost by joining them
    for decision in report.refused:
        saved = prices.saved(decision)
        row: PageData = {
            "producer": decision.producer,
            "consumer": decision.consumer,
            "ends": decision.ends,
            "kernels": [decision.producer_kernel, decision.consumer_kernel],
            "computation": decision.computation,
            "relation": decision.relation,
            "saved": None if saved is None else round(saved, 4),
            "line": decision.consumer_source or decision.producer_source,
            "sentence": sentence(decision, 400),
            "change": advice(decision),
            "reasons": [
                {"code": r.code, "slug": r.slug, "message": r.message, "hint": r.hint} for r in decision.reasons
            ],
        }
        rows.append((float("-inf") if saved is None else saved, row))
    return [row for _, row in sorted(rows, key=lambda item: -item[0])]


def _sources(report: ExplainReport, root: str | None) -> list[PageData]:
    """The Python files with what their lines cost, and their texts where they are below the root. The dearest file
    comes first."""
    sources = totals(report, "line")
    files: dict[str, dict[int, PageData]] = {}
    for place, row in sources.rows.items():
        file, _, number = place.rpartition(":")
        if file and number.isdecimal() and len(number) < 10:
            files.setdefault(file, {})[int(number)] = {
                "us": round(row.us, 4),
                "bytes": round(row.bytes),
                "kernels": row.kernels,
                "refused": dict(sorted(row.refused.items())),
                "saving": round(row.saving, 4),
            }
    rows: list[PageData] = []
    for file, lines in files.items():
        text = None if root is None else source_text(file, Path(root))
        rows.append(
            {
                "file": file,
                "lines": {str(number): lines[number] for number in sorted(lines)},
                "text": None if text is None else [line[:400] for line in text[:MOST_SOURCE]],
            }
        )
    return rows
