"""What was decided about every edge, for people and for programs.

The JSON form is versioned: `{"schema": 1, ...}`. Fields are only added within a version.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import hlo_opt.diag.reasons  # noqa: F401  (declares the codes)
from hlo_opt.diag import Reason, reason_spec
from hlo_opt.fusion.decision import CostEstimate, FusionDecision
from hlo_opt.passes import ExplainReport
from hlo_opt.report.page import Page, Word, microseconds, size
from hlo_opt.report.summary import summary_json, summary_page

SCHEMA = 1
WIDTH = 100
"""Columns that the page of a code is wrapped at."""


def select(report: ExplainReport, names: Sequence[str]) -> list[FusionDecision]:
    """The refused edges; with names, every edge, fused ones too, that one of the instructions or kernels is an end of."""
    if not names:
        return report.refused
    wanted = {name.lstrip("%") for name in names}
    return [d for d in report.decisions if not wanted.isdisjoint(names_of(d))]


def names_of(decision: FusionDecision) -> tuple[str, ...]:
    """The instructions that an edge ends at, and the kernels that they ended in."""
    return (decision.producer, decision.consumer, decision.producer_kernel, decision.consumer_kernel)


def as_page(report: ExplainReport, shown: Sequence[FusionDecision]) -> Page:
    """The text form: the summary, the refused edges that cost most, then every edge asked for."""
    page = summary_page(report)
    dearest = [(d, d.cost) for d in report.dearest if d.cost is not None and d.cost.us_saved > 0]
    if dearest:
        page.add()
        page.add(Word("refused edges whose fusion alone would save most", "bold"))
        rows: list[list[str | Word]] = []
        for decision, cost in dearest:
            codes = ", ".join(f"{r.code} {r.slug}" for r in decision.reasons)
            edge = f"{decision.producer} -> {decision.consumer}"
            rows.append([microseconds(cost.us_saved), edge, Word(codes, "yellow")])
        page.table(rows, right=frozenset({0}), indent=2)
    for decision in shown:
        page.add()
        page.extend(edge_page(decision))
    return page


def edge_page(decision: FusionDecision) -> Page:
    """One edge: its ends, their source lines, every reason with its hint, and what fusing would cost and save."""
    page = Page()
    verdict = Word("fused", "green") if decision.fused else Word("refused", "yellow")
    page.add(
        Word(f"{decision.producer} -> {decision.consumer}", "bold"),
        f"  ({decision.producer_opcode} -> {decision.consumer_opcode}, in {decision.computation})  ",
        verdict,
        f" by {decision.rule}",
    )
    ends = (
        ("producer", decision.producer_source, decision.producer, decision.producer_kernel),
        ("consumer", decision.consumer_source, decision.consumer, decision.consumer_kernel),
    )
    rows = [
        [title, source or "(no source line)", f"in {kernel}" if kernel not in ("", name) else ""]
        for title, source, name, kernel in ends
    ]
    page.table(rows, indent=2)
    for reason in decision.reasons:
        page.add("  ", Word(f"{reason.code} {reason.slug}", "yellow"), f": {reason.message}")
        page.add("    hint: ", reason.hint)
    if decision.cost is not None:
        page.add("  " + cost_line(decision.cost))
    return page


def cost_line(cost: CostEstimate) -> str:
    """Time and bytes both ways."""
    apart = f"{microseconds(cost.us_unfused)}, {size(cost.bytes_unfused)}"
    together = f"{microseconds(cost.us_fused)}, {size(cost.bytes_fused)}"
    more = "save" if cost.us_saved >= 0 else "cost"
    return f"apart {apart}; as one kernel {together}: fusing alone would {more} {microseconds(abs(cost.us_saved))}"


def as_json(report: ExplainReport, shown: Sequence[FusionDecision]) -> dict[str, Any]:
    """The JSON form, ready for `json.dumps`."""
    return {
        "schema": SCHEMA,
        "module": report.outcome.module.name,
        "target": report.outcome.target.name,
        "before": summary_json(report.before),
        "after": summary_json(report.after),
        "fused": len(report.fused),
        "refused": report.refusals_by_code,
        "edges": [edge_json(d) for d in shown],
    }


def edge_json(decision: FusionDecision) -> dict[str, Any]:
    """One edge of the JSON form."""
    return {
        "producer": decision.producer,
        "consumer": decision.consumer,
        "computation": decision.computation,
        "producer_opcode": decision.producer_opcode,
        "consumer_opcode": decision.consumer_opcode,
        "producer_kernel": decision.producer_kernel,
        "consumer_kernel": decision.consumer_kernel,
        "producer_source": decision.producer_source,
        "consumer_source": decision.consumer_source,
        "rule": decision.rule,
        "fused": decision.fused,
        "reasons": [_reason_json(r) for r in decision.reasons],
        "cost": None if decision.cost is None else asdict(decision.cost),
    }


def _reason_json(reason: Reason) -> dict[str, Any]:
    return {
        "code": reason.code,
        "slug": reason.slug,
        "message": reason.message,
        "hint": reason.hint,
        "numbers": dict(reason.numbers),
    }


def code_page(code: str) -> Page:
    """The page of a reason's code. Raises UsageError for an unknown one."""
    spec = reason_spec(code)
    page = Page()
    page.add(Word(f"{spec.code} {spec.slug}", "bold"))
    page.add()
    for paragraph in spec.page.strip().split("\n\n"):
        for line in textwrap.wrap(paragraph, WIDTH):
            page.add(line)
        page.add()
    for title, text in (("message", spec.template), ("hint", spec.hint)):
        page.add(Word(title, "bold"))
        for line in textwrap.wrap(text, WIDTH - 2):
            page.add(f"  {line}")
    if spec.example:
        page.add()
        page.add(Word("example", "bold"))
        for line in spec.example.strip("\n").splitlines():
            page.add(f"  {line}")
    return page


def code_json(code: str) -> dict[str, Any]:
    """The page of a code for programs. Raises UsageError for an unknown one."""
    return {"schema": SCHEMA, **asdict(reason_spec(code))}
