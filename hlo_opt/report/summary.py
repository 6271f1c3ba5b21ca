"""Before and after in a few lines: kernels, launches, bytes, estimated microseconds, refusals by code."""

from __future__ import annotations

from typing import Any

from hlo_opt.analysis.summary import ModuleSummary
from hlo_opt.diag import reason_spec
from hlo_opt.passes import ExplainReport
from hlo_opt.report.page import Page, Word, count, counted, microseconds, size


def summary_page(report: ExplainReport) -> Page:
    """The summary for people."""
    before, after = report.before, report.after
    page = Page()
    page.add(Word(report.outcome.module.name, "bold"), f" on {report.outcome.target.name}")
    rows: list[list[str | Word]] = [["", "before", "after"]]
    rows.append(["kernels", count(before.kernels), Word(count(after.kernels), "bold")])
    rows.append(["launches", count(before.launches), Word(count(after.launches), "bold")])
    rows.append(["bytes", size(before.bytes), Word(size(after.bytes), "bold")])
    rows.append(["estimated", microseconds(before.est_us), Word(microseconds(after.est_us), "bold")])
    page.table(rows, right=frozenset({1, 2}), indent=2)
    if before.unknown_trips or after.unknown_trips:
        loops = max(before.unknown_trips, after.unknown_trips)
        page.add(f"  {counted(loops, 'loop')} of an unknown trip count, counted as one round")
    if before.launches > before.kernels or after.launches > after.kernels:
        page.add("  launches and times count each round of a loop, kernels and bytes count its body once")
    counts = report.refusals_by_code
    fused, left = len(report.fused), len(report.refused)
    page.add(f"  {counted(fused, 'edge')} fused, {count(left)} refused" + (":" if counts else ""))
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    page.table(
        [[count(number), Word(code, "yellow"), reason_spec(code).slug] for code, number in ordered],
        right=frozenset({0}),
        indent=4,
    )
    return page


def seconds_page(seconds: dict[str, float]) -> Page:
    """How long each pass took, the longest first."""
    page = Page()
    page.add("  seconds by pass")
    rows = sorted(seconds.items(), key=lambda item: -item[1])
    page.table([[f"{value:.3f}", name] for name, value in rows], right=frozenset({0}), indent=4)
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
