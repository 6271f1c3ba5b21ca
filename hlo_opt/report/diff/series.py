"""A series of dumps: a line for each step, and the steps that are slower than allowed."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.diag import CheckError
from hlo_opt.report.diff.comparison import Comparison, Side
from hlo_opt.report.diff.data import as_json, failures_json
from hlo_opt.report.diff.page import percent, title
from hlo_opt.report.page import Page, Word, count, counted, microseconds, size

REGRESSION = "HLO714"
"""The code of a comparison that is over the limit."""


def regressions(steps: Sequence[Comparison], limit: float | None) -> list[CheckError]:
    """One error for each step by which the estimated time grew by more than the limit, a share."""
    if limit is None:
        return []
    return [
        CheckError(
            f"module {step.new.module.name}: estimated at {microseconds(step.new.summary.est_us)}, "
            f"{percent(step.growth)} against "
            f"{microseconds(step.old.summary.est_us)} in {step.old.name}; {100 * limit:g} % are allowed" + _first(step),
            code=REGRESSION,
            filename=step.new.name,
        )
        for step in steps
        if step.growth > limit
    ]


def _first(step: Comparison) -> str:
    return f" (the first: {title(step.differences[0])})" if step.differences else ""


def series_page(steps: Sequence[Comparison]) -> Page:
    """The series for people: figures of each file, by how much it is slower than the one before it, and the first
    difference."""
    page = Page()
    first = steps[0]
    how = f"each fused by {first.fused_by}" if first.fused_by else "kernels as they are in the texts"
    page.add(Word(f"{len(steps) + 1} modules on {first.target.name}, {how}", "bold"))
    rows: list[list[str | Word]] = [["kernels", "bytes", "estimated", "", ""], _figures(first.old, Word(""))]
    for step in steps:
        style = "red" if step.growth > 0 else "green" if step.growth < 0 else ""
        rows.append(_figures(step.new, Word(percent(step.growth) if abs(step.growth) > 1e-9 else "=", style)))
    page.table(rows, right=frozenset({0, 1, 2, 3}), indent=2)
    for number, step in enumerate(steps, 1):
        page.add()
        page.add(f"{number}. {step.old.name} -> {step.new.name}")
        page.add("   ", title(step.differences[0]) if step.differences else "no difference")
        if len(step.differences) > 1:
            page.add(f"   and {counted(len(step.differences) - 1, 'more difference')}")
    return page


def _figures(side: Side, more: Word) -> list[str | Word]:
    summary = side.summary
    return [count(summary.kernels), size(summary.bytes), microseconds(summary.est_us), more, side.name]


def series_json(steps: Sequence[Comparison], failed: Sequence[CheckError]) -> dict[str, object]:
    """The series for programs."""
    return {"schema": 1, "steps": [as_json(step) for step in steps], "failed": failures_json(failed)}
