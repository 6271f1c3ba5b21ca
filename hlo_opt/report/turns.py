"""The first change in a series, for people and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from hlo_opt.cutting.alone import Alone
from hlo_opt.cutting.bisect import (
    CHECK,
    NO,
    Bisection,
    FirstChange,
    NoChange,
    Rewrites,
    Series,
    StepDifference,
)
from hlo_opt.cutting.questions import ENDED, NAN
from hlo_opt.report.page import Page, Word, counted

LINES_SHOWN = 24
"""The most lines of text that a step removed or added."""
SOURCES_SHOWN = 6
"""The most Python lines of a step."""
ALONE_SHOWN = 8
"""The most instructions that show something by themselves."""
COLUMNS = 140
"""The longest line."""


def answer_words(watched: str, answer: str) -> str:
    """An answer as a sentence has it: `other results`, `yes`, `no`, `a crash, or no end`, or what the question itself
    said."""
    if answer == ENDED:
        return "a crash, or no end"
    if watched == CHECK:
        return {NO: "the same results", "differs": "other results"}.get(answer, answer)
    return "yes" if answer == watched else answer


def turn_page(bisection: Bisection, turn: FirstChange, difference: StepDifference) -> Page:
    """The number and the name of the step, the pass, producer and consumer, the Python lines, and the text before and
    after."""
    page = Page()
    series = bisection.series
    last = "" if series.last is None else f" of {series.last}"
    ours = isinstance(series, Rewrites)
    name = f"step {turn.after}{last}" if ours else series.name(turn.after)
    page.add(Word(name, "bold"), f": {difference.done_by}" if difference.done_by else "")
    watched = bisection.watch.title
    was, became = answer_words(watched, turn.was), answer_words(watched, turn.became)
    page.add(f"  {watched}: {was} after {series.name(turn.before)}, {became} after this")
    if difference.error:
        page.add(f"  {difference.error.splitlines()[0]}")
    if turn.unknown:
        page.add(f"  {counted(len(turn.unknown), 'module')} between could not be compared: the change may be there")
    for title, about in zip(("producer", "consumer"), difference.about, strict=False):
        page.add(f"  {title} {about}")
    for source in difference.sources[:SOURCES_SHOWN]:
        page.add(f"  {source}")
    if len(difference.sources) > SOURCES_SHOWN:
        page.add(f"  and {counted(len(difference.sources) - SOURCES_SHOWN, 'more Python line')}")
    for line in difference.lines[:LINES_SHOWN]:
        shown = line if len(line) <= COLUMNS else f"{line[: COLUMNS - 3]}..."
        page.add(Word(shown, "red" if line.startswith("-") else "green"))
    if len(difference.lines) > LINES_SHOWN:
        page.add(f"... {len(difference.lines) - LINES_SHOWN} more lines")
    return page


def stays_lines(bisection: Bisection, stays: NoChange, shown: Sequence[Alone] | None) -> list[str]:
    """Lines that say that nothing changes, and which instructions of the first module show it alone, if asked."""
    series, title = bisection.series, bisection.watch.title
    lines = [f"nothing changes: {title}: {answer_words(title, stays.answer)} {_everywhere(series)}"]
    if stays.answer == NO:
        if series.is_ours and title == CHECK:
            lines.append(
                "  so fusing is not the cause; hlo-opt bisect FOLDER asks XLA's own passes (hlo-opt help dump)"
            )
        return lines
    lines.append(f"  it holds before the first {'rewrite' if series.is_ours else 'change'}, so none is the cause")
    if shown is None:
        return lines
    if not shown:
        lines.append("  no instruction of it shows it alone, on drawn inputs: it takes several of them")
        if title == NAN:
            lines.append("  `hlo-opt run FILE --check-nans` names the instruction that makes the first one")
    for one in shown[:ALONE_SHOWN]:
        lines.append(f"  {one.name} ({one.opcode}) alone: {one.answer}{f'  {one.source}' if one.source else ''}")
    if len(shown) > ALONE_SHOWN:
        lines.append(f"  and {counted(len(shown) - ALONE_SHOWN, 'more instruction')}")
    return lines


def _everywhere(series: Series) -> str:
    """Where all modules of a series give one answer, in words: both ends were asked."""
    if not series.is_ours:
        return f"in {series.name(0)}" if not series.last else f"in {series.name(0)} and in {series.name(series.last)}"
    if series.last is None:
        return "before fusing"
    rewrites = counted(series.last, "rewrite")
    return f"before fusing and after its {rewrites}" if series.last else "before fusing, which rewrites nothing here"


def stays_json(bisection: Bisection, stays: NoChange, shown: Sequence[Alone] | None) -> dict[str, object]:
    """The same, with all of them."""
    header = {"schema": 1, "step": None, "steps": bisection.series.last, "watched": bisection.watch.title}
    return {**header, "answer": stays.answer, "alone": [asdict(one) for one in shown or ()]}


def turn_json(bisection: Bisection, turn: FirstChange, difference: StepDifference) -> dict[str, object]:
    """The same, with all lines."""
    series = bisection.series
    return {
        "schema": 1,
        "step": turn.after,
        "steps": series.last,
        "name": series.name(turn.after),
        "before": series.name(turn.before),
        "watched": bisection.watch.title,
        "was": turn.was,
        "became": turn.became,
        "unknown": [series.name(n) for n in turn.unknown],
        "pass": difference.done_by,
        "about": list(difference.about),
        "sources": list(difference.sources),
        "lines": list(difference.lines),
        "error": difference.error,
    }
