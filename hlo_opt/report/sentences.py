"""The first screen of `explain`: edges in three lines each, with what joining both ends would save, the Python line,
the cause that decides in one plain sentence, and what the user can change.

It fits a terminal: ten edges in `LINES` lines of `COLUMNS` columns. All reasons are one option away.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from hlo_opt.diag.errors import printable
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.passes import ExplainReport
from hlo_opt.report import summary
from hlo_opt.report.donations import not_honoured
from hlo_opt.report.page import LEAST, Page, Word, count, counted, microseconds, most_first, size
from hlo_opt.text.frames import has_source_lines

COLUMNS = 100
LINES = 40
"""Columns and lines of the first screen."""

SOURCE_HINT = 'lower(...).as_text("hlo", debug_info=True) has them (hlo-opt help dump)'
"""What to do where a dump does not say which Python lines it comes from."""

INDENT = " " * 4

CODES_TOLD = 2
"""Codes that a sentence names besides the first: what refuses next once that is off."""

CHANGE = "change: "

SLOWER = "nothing: one kernel of both would take longer"
"""What is said instead of a change where joining both ends costs time."""

AS_LONG = "nothing: one kernel of both would take as long"
"""What is said instead of a change where joining both ends neither saves nor costs time."""

_STANDS = ("FUS4", "FUS6")
"""Reasons whose advice holds even then: it makes joining pay, or an array needless that is written now."""

MOST_LINES = 3
"""Lines of one sentence below an edge."""

CODES_NAMED = 4
"""Codes that the line of figures names."""


def sentence(decision: FusionDecision, room: int = COLUMNS, *, cut: bool = False) -> str:
    """Why an edge is as it is, in one plain sentence with its codes: what decides, then what would refuse it next. In
    less room these are counted; with `cut`, three points stand for them where even that is too long."""
    if decision.fused:
        return f"fused by {decision.rule}"
    first, *others = decision.cause
    named = ", ".join(r.code for r in others[:CODES_TOLD])
    more = f"then {count(len(others))} more"
    tails = [""] if not others else [more] if len(others) > CODES_TOLD else [f"then {named}", more]
    tails += ["..."] if others and cut else []
    sentences = [f"{first.short} ({', '.join(filter(None, (first.code, tail)))})" for tail in tails]
    return next((one for one in sentences if len(one) <= room), sentences[-1])


def advice(decision: FusionDecision, room: int = COLUMNS * 2) -> str:
    """What the user can change about a refused edge: in the program or the options, or, where that would save time,
    forcing it; nothing where joining would save no time; empty for a fused one."""
    if decision.fused:
        return ""
    reason, cost = decision.cause[0], decision.cost
    change = reason.change
    if cost is None or cost.us_saved < LEAST:
        if cost is None or change.startswith("nothing") or reason.code.startswith(_STANDS):
            return change
        return SLOWER if cost.us_saved <= -LEAST else AS_LONG
    force = f"--force {decision.force}"
    both = force if change.startswith("nothing") else f"{change}; or {force}"
    return both if len(both) <= room else change


class EdgePrices:
    """What joining both ends of an edge would save, and what all kernels take: as estimated."""

    def __init__(self, report: ExplainReport) -> None:
        self.report = report
        self.total = report.after.est_us
        self.weights = {one.instruction: one.est_us for one in report.after.launched}

    def saved(self, decision: FusionDecision) -> float | None:
        """Microseconds in all iterations of the loops around an edge, below 0 where it would cost; None where there is
        no price."""
        cost = decision.cost
        return None if cost is None else cost.us_saved * self.report.rounds.get(decision.computation, 1)

    def dearest(self) -> list[FusionDecision]:
        """The refused edges whose joining would save most, one for each pair of kernels."""
        return self.report.dearest

    def page(self) -> Page:
        """A note on the source of the prices; empty for estimates."""
        return Page()


def first_page(
    report: ExplainReport,
    shown: Sequence[FusionDecision],
    compared: summary.Changes | None = None,
    *,
    most: int | None = None,
    prices: EdgePrices | None = None,
) -> Page:
    """The figures, what the changed rules change, then the edges asked for, those first whose joining would save most;
    `most` of them where that is given, alike ones as one."""
    prices = EdgePrices(report) if prices is None else prices
    page = figures_page(report)
    page.extend(prices.page())
    if compared is not None:
        page.add()
        page.extend(summary.changes_page(compared))
        page.add()
    asked = dearest_first(prices, shown)
    groups = [[decision] for decision in asked] if most is None else alike(asked, prices)[:most]
    if not groups:
        return page
    named = sum(map(len, groups))
    title = f"{count(named)} of {count(len(asked))} refused edges" if named < len(asked) else "edges"
    columns = "what joining saves or costs, cause, change"
    if len(groups) < named:
        title, columns = f"{title}, grouped", "saving or cost, cause, change"
    saving = [None if d.fused else prices.saved(d) for d, *_ in groups]
    if len(groups) > 1 and all(saved is not None and saved < LEAST for saved in saving):
        columns = "joining saves no time at any of these"
    every = "--all: all, " if len(groups) < len(asked) else ""
    page.add(Word(title, "bold"), f" ({every}-v: every reason): {columns}")
    pages = [edge_page(decision, prices, len(others)) for decision, *others in groups]
    for number in reversed(range(len(groups) if most is not None else 0)):  # the last that take more lines are cut
        if len(page.lines) + sum(len(one.lines) for one in pages) <= LINES:
            break
        decision, *others = groups[number]
        pages[number] = edge_page(decision, prices, len(others), most=1)
    for one in pages:
        page.extend(one)
    return page


def alike(decisions: Sequence[FusionDecision], prices: EdgePrices) -> list[list[FusionDecision]]:
    """Edges in groups, in the order of the first of each: the same operations in several kernels, and those whose
    joining saves nothing where lines, operations, price and cause are the same, such as those of equal layers."""
    groups: dict[tuple[object, ...], list[FusionDecision]] = {}
    for decision in decisions:
        saved = prices.saved(decision)
        ends: tuple[str, ...] = (decision.computation, decision.producer, decision.consumer)
        if saved is None or saved < LEAST:
            operations = (decision.producer_opcode, decision.consumer_opcode)
            ends = (*operations, decision.producer_source, decision.consumer_source)
        key = (*ends, decision.relation, price_words(decision, prices), sentence(decision))
        groups.setdefault(key, []).append(decision)
    return list(groups.values())


def dearest_first(prices: EdgePrices, shown: Sequence[FusionDecision]) -> list[FusionDecision]:
    """Edges in the order of what joining them would save, one edge for each pair of kernels among the first; then those
    that would cost, then those without a price."""
    dearest = prices.dearest()
    first = {id(d) for d in dearest}
    kernels = {frozenset((d.producer_kernel, d.consumer_kernel)) for d in dearest}
    there = {id(d) for d in shown}

    def rank(decision: FusionDecision) -> tuple[bool, bool, bool, float]:
        saved = prices.saved(decision)
        again = not decision.fused and frozenset((decision.producer_kernel, decision.consumer_kernel)) in kernels
        return decision.fused, again, saved is None, -(saved or 0.0)

    rest = sorted((d for d in shown if id(d) not in first), key=rank)
    return [*(d for d in dearest if id(d) in there), *rest]


def figures_page(report: ExplainReport) -> Page:
    """Kernels, bytes and time before and after, and how many edges which codes refuse: few lines."""
    page = summary.summary_page(report, codes=False)
    counts = most_first(report.refusals_by_code)
    edges = f"  {counted(len(report.fused), 'edge')} fused, {count(len(report.refused))} refused"
    lines = (edges + _reasons(counts, named) for named in range(min(CODES_NAMED, len(counts)), 0, -1))
    page.add(next((line for line in lines if len(line) <= COLUMNS), edges))
    if left := not_honoured(report):
        given = f"{counted(len(left), 'donated input')} ({size(sum(one.bytes for one in left))})"
        page.add(f"  {given} {'holds' if len(left) == 1 else 'hold'} no result: hlo-opt memory says why")
    if not has_source_lines(report.outcome.original):
        page.add("  no Python lines here: ", Word(SOURCE_HINT, "bold"))
    return page


def _reasons(counts: Mapping[str, int], named: int) -> str:
    """What the first so many codes refuse."""
    words = ", ".join(f"{code} {count(number)}" for code, number in list(counts.items())[:named])
    return f"; reasons: {words}" + (f" and {counted(len(counts) - named, 'more code')}" if len(counts) > named else "")


def edge_page(decision: FusionDecision, prices: EdgePrices, others: int = 0, *, most: int = MOST_LINES) -> Page:
    """An edge in three lines, a fused one in two; it stands for `others` that are alike, too. `most`: the lines of a
    sentence."""
    page = Page()
    page.add(*_ends(decision, prices, others))
    for line in _whole(sentence(decision, _room(most), cut=True), most):
        page.add(line)
    if change := advice(decision):
        for line in _whole(CHANGE + change, most):
            page.add(line)
    return page


def _whole(text: str, most: int) -> list[str]:
    """A sentence below an edge, in as many lines as it takes; of one that takes more than `most` the middle is left
    out."""
    text = fit(text, _room(most))
    return textwrap.wrap(text, COLUMNS, initial_indent=INDENT, subsequent_indent=INDENT + "  ", break_on_hyphens=False)


def _room(lines: int) -> int:
    """The characters of a sentence in so many lines below an edge; of several lines some are not full."""
    return COLUMNS - len(INDENT) if lines == 1 else lines * (COLUMNS - 2 * len(INDENT))


def price_words(decision: FusionDecision, prices: EdgePrices) -> str:
    """What joining both ends would save in all iterations, and its share of the module's time."""
    saved = prices.saved(decision)
    if decision.fused:
        return "fused" if saved is None or saved <= 0 else f"saved {microseconds(saved)}"
    if saved is None:
        return "no price"
    if abs(saved) < LEAST:
        return "saves nothing"
    if saved < 0:
        return f"costs {microseconds(-saved)}"
    return f"{microseconds(saved)} ({100 * saved / prices.total:.1f} %)" if prices.total else microseconds(saved)


def _ends(decision: FusionDecision, prices: EdgePrices, others: int) -> list[str | Word]:
    price = price_words(decision, prices)
    price = f"{price:<16} "
    edge = printable(f"{decision.producer} {decision.link} {decision.consumer}" if others else decision.ends)
    edge += f", and {count(others)} similar" if others else ""
    rounds = prices.report.rounds.get(decision.computation, 1)
    if rounds > 1:
        edge += f", {count(rounds)} iterations"
    room = COLUMNS - len(price) - 4
    source = decision.consumer_source or decision.producer_source
    source = short_path(printable(source), max(room - len(edge), 24))
    edge = fit(edge, room - len(source))
    return ["  ", Word(price, "bold"), edge, "  " if source else "", Word(source, "cyan")]


def short_path(source: str, room: int) -> str:
    """A `file:line` that fits: of a longer path as many last parts as there is room for, of a longer name its end."""
    if len(source) <= room:
        return source
    parts = PurePath(source.replace("\\", "/")).parts
    path = parts[-1]
    for part in reversed(parts[1:-1]):
        if len(part) + len(path) + 5 > room:
            break
        path = f"{part}/{path}"
    path = f".../{path}"
    return path if len(path) <= room else "..." + path[3 - room :]


def fit(text: str, room: int = COLUMNS) -> str:
    """A text that fits a line: of a longer one the middle is left out."""
    text = printable(text)
    if len(text) <= room:
        return text
    head = max(room - 3, 2) * 2 // 3
    return f"{text[:head]}...{text[len(text) - (room - 3 - head) :]}"
