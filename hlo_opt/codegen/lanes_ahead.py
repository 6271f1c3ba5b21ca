"""Rows that the next round of a loop reads, asked of memory while lanes compute.

In each round a chunk of lanes reads its part of another row. That lies on other pages of memory, where processors do
not look ahead by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from hlo_opt.codegen.lanes_folds import place_of, stride
from hlo_opt.codegen.lanes_text import variables_in
from hlo_opt.codegen.tree import For, Let, codes_of, walk
from hlo_opt.ir.index_map import Constant, Expression, Variable, add, constant, substitute, variables_of
from hlo_opt.ops.code import Cell, Code

ROUNDS = 2
"""How far ahead: the round at whose end a row is asked for is over."""
LEAST = 1 << 18
"""Elements of all rows of an array that caches do not keep."""
WIDEST = 16
"""Elements of a row that belong to one lane, at most."""
_NEXT = "hlo_next"


def lines_ahead(
    loop: For,
    known: Mapping[str, Expression],
    constants: Set[str],
    lane: str,
    first: int,
    end: str,
    lanes: int,
    text: Callable[[Expression], str],
) -> list[str]:
    """The statements at the end of a round: for each array a call that prefetches the part of a row.

    `known` are the expressions of index variables, `constants` the arrays into which nobody writes, `lane` is the
    variable of lanes from `first` to `end`, at most `lanes`; `text` prints an index.
    """
    counted = _counted(loop)
    calls: dict[tuple[str, int, int, Expression], str] = {}
    cells = [p for s in walk(loop.body) for c in codes_of(s) for p in c.parts() if isinstance(p, Cell)]
    for cell in cells:
        place = place_of(cell, known) if cell.array.text in constants else None
        if place is None:
            continue
        place = substitute(place, known)
        rows = [v for v in variables_in(place) if v.name in counted]
        if len(set(rows)) != 1:
            continue
        row, along, wide = rows[0], stride(place, rows[0].name), stride(place, lane)
        if along is None or wide is None or not 1 <= wide <= WIDEST or along <= wide * lanes:
            continue
        if (row.high - row.low + 1) * along < LEAST:
            continue
        later = add(Variable(row.low, row.high, _NEXT), constant(0))
        at = substitute(place, {lane: constant(first), row.name: later})
        call = f"hlo::ahead({cell.array.text}, {text(at)}, {wide} * ((long long)({end}) - {first}));"
        line = f"{{ const long long {_NEXT} = (long long)({row.name}) + {ROUNDS}; {call} }}"
        calls.setdefault((cell.array.text, along, wide, _corner(place, row.name, lane, wide)), line)
    return list(calls.values())


def _corner(place: Expression, row: str, lane: str, wide: int) -> Expression:
    """Where the elements of the first lane begin in the first row."""
    rest = substitute(place, {row: constant(0), lane: constant(0)})
    least = substitute(rest, dict.fromkeys(variables_of(rest), constant(0)))
    return add(rest, constant(-(least.value % wide))) if isinstance(least, Constant) else rest


def _counted(loop: For) -> set[str]:
    """The loop's counter, and what is computed from it alone."""
    assert loop.name is not None
    counted = {loop.name.text}
    for item in loop.body:
        if isinstance(item, Let) and _is_of(item.value, counted):
            counted.add(item.name.text)
    return counted


def _is_of(value: Code, counted: Set[str]) -> bool:
    names = {name.text for name in value.names()}
    return bool(names) and names <= counted and not any(isinstance(p, Cell) for p in value.parts())
