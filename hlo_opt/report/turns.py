"""Where something turned, for people and as JSON."""

from __future__ import annotations

from hlo_opt.cutting.turns import Bisection, Rewrites, Step, Turn
from hlo_opt.report.page import Page, Word, counted

LINES_SHOWN = 24
"""Of what a step changed."""
COLUMNS = 140
"""Of such a line."""


def turn_page(bisection: Bisection, turn: Turn, step: Step) -> Page:
    """The number and the name of the step, the pass, producer and consumer, the Python lines, and the text before and after."""
    page = Page()
    series = bisection.series
    last = "" if series.last is None else f" of {series.last}"
    ours = isinstance(series, Rewrites)
    name = f"step {turn.after}{last}" if ours else series.name(turn.after)
    page.add(Word(name, "bold"), f": {step.done_by}" if step.done_by else "")
    page.add(f"  {bisection.asks.title}: {turn.was} after {series.name(turn.before)}, {turn.became} after this")
    if step.error:
        page.add(f"  {step.error.splitlines()[0]}")
    if turn.unknown:
        page.add(f"  nothing can be told of {counted(len(turn.unknown), 'module')} between: it may have turned there")
    for title, about in zip(("producer", "consumer"), step.about, strict=False):
        page.add(f"  {title} {about}")
    for source in step.sources:
        page.add(f"  {source}")
    for line in step.lines[:LINES_SHOWN]:
        shown = line if len(line) <= COLUMNS else f"{line[: COLUMNS - 3]}..."
        page.add(Word(shown, "red" if line.startswith("-") else "green"))
    if len(step.lines) > LINES_SHOWN:
        page.add(f"... {len(step.lines) - LINES_SHOWN} lines more")
    return page


def turn_json(bisection: Bisection, turn: Turn, step: Step) -> dict[str, object]:
    """The same, with all lines."""
    series = bisection.series
    return {
        "schema": 1,
        "step": turn.after,
        "steps": series.last,
        "name": series.name(turn.after),
        "before": series.name(turn.before),
        "watched": bisection.asks.title,
        "was": turn.was,
        "became": turn.became,
        "unknown": [series.name(n) for n in turn.unknown],
        "pass": step.done_by,
        "about": list(step.about),
        "sources": list(step.sources),
        "lines": list(step.lines),
        "error": step.error,
    }
