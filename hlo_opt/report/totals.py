"""What a module costs by Python line, function or operation: `explain --by`. And the program's text with these figures
beside its lines.

The time and the bytes of a kernel are shared among its instructions by the elements that each computes, so that the
rows add up to the module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from hlo_opt.analysis.properties import inside
from hlo_opt.diag.errors import printable
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.fusion.summary import ModuleSummary
from hlo_opt.ir import Instruction, Module
from hlo_opt.ops.sets import is_free
from hlo_opt.passes import ExplainReport
from hlo_opt.report.page import Page, Word, count, counted, microseconds, most_first, size
from hlo_opt.report.sentences import COLUMNS, EdgePrices, figures_page, fit, short_path
from hlo_opt.text.frames import source_function, source_location

By = Literal["line", "function", "op"]

UNKNOWN: Mapping[By, str] = {"line": "(no Python line)", "function": "(no function)", "op": "(no operation)"}

ROWS_SHOWN = 30
LARGEST_SOURCE = 4_000_000
"""Bytes of a Python file that is listed."""

NEAR = 0.005
"""Share of the bytes of a module up to which two counts of them look the same when they are printed."""

AROUND = 2
"""Lines of the program that are listed before and after one that has figures."""


@dataclass
class Total:
    """What one line, function or operation costs.

    us, bytes  its part of the kernels that hold its instructions, in all iterations; bytes count loop bodies once
    kernels    how many hold an instruction of it
    refused    edges that are refused where the consumer (else the producer) is of it, by the code that decides
    saving     what the costliest of these would save
    """

    us: float = 0.0
    bytes: float = 0.0
    kernels: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    edges: int = 0
    saving: float = 0.0


@dataclass(frozen=True)
class Totals:
    """All rows, the costliest first, and what they add up to. `measured`: the times are measured, not estimated."""

    by: By
    rows: Mapping[str, Total]
    us: float
    bytes: float
    kernels: int
    measured: bool = False


def totals(report: ExplainReport, by: By, measured: Mapping[str, float] | None = None) -> Totals:
    """The totals of the fused module; with `measured` microseconds by kernel, those of the original module, which was
    measured."""
    module = report.outcome.module if measured is None else report.outcome.original
    figures: ModuleSummary = report.after if measured is None else report.before
    place = _PLACES[by]
    rows: dict[str, Total] = {}
    instructions = {(c.name, i.name): i for c in module.computations for i in c.instructions}
    all_us = all_bytes = 0.0
    for one in figures.launched:
        us = one.est_us * one.rounds if measured is None else measured.get(one.instruction, 0.0)
        all_us += us
        all_bytes += one.bytes
        for key, share in _shares(module, instructions[one.computation, one.instruction], place, UNKNOWN[by]).items():
            row = rows.setdefault(key, Total())
            row.us += share * us
            row.bytes += share * one.bytes
            row.kernels += 1
    _add_refusals(report, by, rows)
    ordered = dict(sorted(rows.items(), key=lambda item: (-item[1].us, -item[1].saving, item[0])))
    return Totals(by, ordered, all_us, all_bytes, len(figures.launched), measured is not None)


RowName = Callable[[Module, Instruction], str]
"""The name of the row that an instruction counts for: its line, function or operation."""

_PLACES: Mapping[By, RowName] = {
    "line": source_location,
    "function": source_function,
    "op": lambda module, instruction: instruction.opcode,
}


def _shares(module: Module, kernel: Instruction, place: RowName, unknown: str) -> dict[str, float]:
    """Which part of a kernel belongs to which place."""
    work: Counter[str] = Counter()
    for member in _members(kernel):
        key = place(module, member)
        if key:
            work[key] += sum(leaf.element_count for leaf in member.shape.leaves() if leaf.is_array) or 1
    if not work:
        return {place(module, kernel) or unknown: 1.0}
    whole = sum(work.values())
    return {key: part / whole for key, part in work.items()}


def _members(kernel: Instruction) -> Iterator[Instruction]:
    """What a kernel computes."""
    body = inside(kernel)
    if body is None:
        yield kernel
        return
    for member in body.instructions:
        if inside(member) is not None:
            yield from _members(member)
        elif not is_free(member.opcode):
            yield member


def _add_refusals(report: ExplainReport, by: By, rows: dict[str, Total]) -> None:
    named = {
        i.name: (m, i)
        for m in (report.outcome.module, report.outcome.original)
        for c in m.computations
        for i in c.instructions
    }
    for decision in report.refused:
        key = _place_of(decision, by, named) or UNKNOWN[by]
        row = rows.setdefault(key, Total())
        row.edges += 1
        row.refused[decision.cause[0].code] += 1
        cost = decision.cost
        if cost is not None:
            row.saving = max(row.saving, cost.us_saved * report.rounds.get(decision.computation, 1))


def _place_of(decision: FusionDecision, by: By, named: Mapping[str, tuple[Module, Instruction]]) -> str:
    if by == "line":
        return decision.consumer_source or decision.producer_source
    if by == "op":
        return decision.consumer_opcode
    ends = [named[name] for name in (decision.consumer, decision.producer) if name in named]
    return next((place for place in (source_function(*end) for end in ends) if place), "")


def by_page(report: ExplainReport, sums: Totals, prices: EdgePrices | None, root: str | None) -> Page:
    """The figures of the module, the rows, and by lines, where a folder is named, the program's text."""
    page = figures_page(report)
    if prices is not None:
        page.extend(prices.page())
    page.extend(totals_page(sums))
    whole = (report.before if sums.measured else report.after).bytes
    if abs(sums.bytes - whole) > NEAR * whole:
        page.add("  bytes: as priced, to and from memory; the figures above count whole operands and results once")
    if root is not None and sums.by == "line":
        page.extend(listing_page(sums, root))
    return page


def totals_page(sums: Totals) -> Page:
    """The rows for people."""
    page = Page()
    title = {"line": "Python line", "function": "function", "op": "operation"}[sums.by]
    times = "measured" if sums.measured else "estimated"
    moved = f"{size(sums.bytes)} moved, {counted(sums.kernels, 'kernel')}"
    page.add(Word(f"by {title}", "bold"), f": {times} {microseconds(sums.us)}, {moved}")
    rows: list[list[str | Word]] = [["time", "share", "bytes", "kernels", "refused", "saving"]]
    shown = list(sums.rows.items())[:ROWS_SHOWN]
    rows += [_cells(row, sums) for _, row in shown]
    widths = [
        max(len(cell if isinstance(cell, str) else cell.text) for cell in column) for column in zip(*rows, strict=True)
    ]
    room = COLUMNS - 2 - sum(width + 2 for width in widths)
    for row, end in zip(rows, [title, *(_short(key, sums.by, room) for key, _ in shown)], strict=True):
        row.append(end)
    page.table(rows, right=frozenset(range(6)), indent=2)
    if len(sums.rows) > ROWS_SHOWN:
        page.add(f"  and {count(len(sums.rows) - ROWS_SHOWN)} more; --format json has them all")
    if sum(row.kernels for row in sums.rows.values()) > sums.kernels:
        page.add("  kernels: those with operations from there; one of several places counts for each")
    page.add("  refused: edges that end there; saving: what joining the costliest of them alone would save")
    return page


FILE_ROOM = 12
"""The least columns of the file that a function is in."""


def _short(key: str, by: By, room: int) -> str:
    """A key in the room that the figures leave. A function without `<locals>`, and of a longer one the end."""
    function, bracket, path = key.partition(" (")
    if by == "function" and bracket:
        function = printable(function.replace("<locals>.", ""))
        file = short_path(path.removesuffix(")"), max(FILE_ROOM, room - len(function) - 3))
        left = room - len(file) - 3
        return f"{function if len(function) <= left else '...' + function[3 - left :]} ({file})"
    return fit(short_path(key, room) if by == "line" else key, room)


def _cells(row: Total, sums: Totals) -> list[str | Word]:
    share = f"{100 * row.us / sums.us:.1f} %" if sums.us else ""
    codes = most_first(row.refused)
    first = next(iter(codes), "")
    refused = f"{count(row.edges)} {first}{'+' if len(codes) > 1 else ''}" if row.edges else ""
    saving = microseconds(row.saving) if row.saving > 0 else ""
    return [microseconds(row.us), share, size(row.bytes), count(row.kernels), Word(refused, "yellow"), saving]


def totals_json(sums: Totals) -> dict[str, object]:
    """The rows for programs."""
    return {
        "by": sums.by,
        "measured": sums.measured,
        "us": round(sums.us, 3),
        "bytes": round(sums.bytes),
        "kernels": sums.kernels,
        "rows": [
            {
                "place": key,
                "us": round(row.us, 3),
                "bytes": round(row.bytes),
                "kernels": row.kernels,
                "edges": row.edges,
                "refused": dict(sorted(row.refused.items())),
                "us_saved": round(row.saving, 3),
            }
            for key, row in sums.rows.items()
        ],
    }


def listing_page(sums: Totals, root: str) -> Page:
    """The program's text, where its files are below a folder, with the figures of each line before it. Files that are
    not there are named."""
    page = Page()
    lines: dict[str, dict[int, Total]] = {}
    for key, row in sums.rows.items():
        file, _, number = key.rpartition(":")
        if file and number.isdecimal() and len(number) < 10:
            lines.setdefault(file, {})[int(number)] = row
    for file, rows in lines.items():
        page.add()
        text = source_text(file, Path(root))
        if text is None:
            page.add(Word(file, "bold"), f": not found below {root}")
            continue
        page.add(Word(file, "bold"))
        page.extend(_listed(text, rows, sums))
    return page


def _listed(text: list[str], rows: Mapping[int, Total], sums: Totals) -> Page:
    page = Page()
    wanted = sorted(
        {n for at in rows if at <= len(text) for n in range(at - AROUND, at + AROUND + 1) if 0 < n <= len(text)}
    )
    cells: list[list[str | Word]] = [["time", "share", "bytes", "kernels", "refused", "saving", "line", ""]]
    last = 0
    for number in wanted:
        if last and number > last + 1:
            cells.append([*[""] * 6, "...", ""])
        last = number
        row = rows.get(number)
        figures: list[str | Word] = [""] * 6 if row is None else _cells(row, sums)
        cells.append([*figures, str(number), "| " + text[number - 1].rstrip()[:COLUMNS]])
    page.table(cells, right=frozenset(range(7)), indent=2)
    for number in sorted(n for n in rows if n > len(text)):
        page.add(f"  line {number} is not in it: the file is another version")
    return page


def source_text(file: str, root: Path) -> list[str] | None:
    """The lines of a file that a dump names, where it is below a folder: by its whole path, else by as many of its last
    parts as there are. None where it is not: names in dumps are not trusted, and nothing outside of the folder is read.
    """
    top = root.resolve()
    parts = PurePosixPath(file.replace("\\", "/")).parts
    named = [Path(file), *(top.joinpath(*parts[n:]) for n in range(len(parts)))]
    for path in named:
        try:
            whole = path.resolve()
            if whole.is_relative_to(top) and whole.is_file() and whole.stat().st_size <= LARGEST_SOURCE:
                return whole.read_text(encoding="utf-8", errors="replace").splitlines()
        except (OSError, ValueError):
            continue
    return None
