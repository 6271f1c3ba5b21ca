"""Before and after in a few lines: kernels, launches, bytes, estimated microseconds, refusals by code."""

from __future__ import annotations

from typing import Any

from hlo_opt.diag import reason_spec
from hlo_opt.fusion.summary import ModuleSummary
from hlo_opt.passes import ExplainReport, Outcome
from hlo_opt.report.page import Page, Word, count, counted, microseconds, most_first, size


def summary_page(report: ExplainReport) -> Page:
    """The summary for people."""
    before, after = report.before, report.after
    page = Page()
    page.add(Word(report.outcome.module.name, "bold"), f" on {report.outcome.target.name}")
    add_figures(page, ("before", before), ("after", after))
    if before.unknown_trips or after.unknown_trips:
        loops = max(before.unknown_trips, after.unknown_trips)
        page.add(f"  {counted(loops, 'loop')} of an unknown trip count, counted as one round")
    if before.launches > before.kernels or after.launches > after.kernels:
        page.add("  launches and times count each round of a loop, kernels and bytes count its body once")
    counts = report.refusals_by_code
    fused, left = len(report.fused), len(report.refused)
    page.add(f"  {counted(fused, 'edge')} fused, {count(left)} refused" + (":" if counts else ""))
    rows: list[list[str | Word]] = []
    for code, number in most_first(counts).items():
        rows.append([count(number), Word(code, "yellow"), reason_spec(code).slug])
    page.table(rows, right=frozenset({0}), indent=4)
    return page


def add_figures(page: Page, old: tuple[str, ModuleSummary], new: tuple[str, ModuleSummary]) -> None:
    """The four numbers of two modules side by side, each under its title."""
    (title, before), (other, after) = old, new
    rows: list[list[str | Word]] = [["", title, other]]
    rows.append(["kernels", count(before.kernels), Word(count(after.kernels), "bold")])
    rows.append(["launches", count(before.launches), Word(count(after.launches), "bold")])
    rows.append(["bytes", size(before.bytes), Word(size(after.bytes), "bold")])
    rows.append(["estimated", microseconds(before.est_us), Word(microseconds(after.est_us), "bold")])
    page.table(rows, right=frozenset({1, 2}), indent=2)


def seconds_page(outcome: Outcome) -> Page:
    """How long each pass took and how often it ran, the longest first; the proof and the decisions are listed with them."""
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
    """The four numbers of a module for programs."""
    return {
        "kernels": summary.kernels,
        "launches": summary.launches,
        "bytes": int(summary.bytes),
        "est_us": round(summary.est_us, 3),
    }


def stats_json(report: ExplainReport) -> dict[str, Any]:
    """What `fuse --stats FILE.json` writes."""
    return {
        "before": summary_json(report.before),
        "after": summary_json(report.after),
        "refused": report.refusals_by_code,
        "seconds": {name: round(value, 6) for name, value in report.outcome.seconds.items()},
    }
