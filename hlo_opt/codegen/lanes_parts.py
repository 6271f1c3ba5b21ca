"""Rows of lanes in parts: conditions on the place in a row are decided in each, so that no lane asks for itself.

An array padded by its own edges, or one of pieces of others, takes its elements from another place in each part.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hlo_opt.codegen.kernel import Pointer
from hlo_opt.codegen.lanes_folds import stride
from hlo_opt.codegen.lanes_sides import settled
from hlo_opt.codegen.tree import Assign, Block, Do, Let, Statement, codes_of, inside, walk
from hlo_opt.ir.index_map import Expression, Variable, constant, substitute, variables_of
from hlo_opt.ops.code import Address, Cell

SHORTEST = 48
"""Lanes of a row that is worth parts."""
MOST = 6
"""Parts of a row: each is another function."""
MOST_STATEMENTS = 400
"""Statements of all parts, or of all bands of rows."""
LONGEST = 4
"""How many times the rows of the longest band all rows are, at most."""
LONG = 32
"""Lanes of a part that has statements of its own where not all parts can."""

VECTOR = 64
"""Bytes of the longest vectors of processors."""
BYTES = {"unsigned char": 1, "signed char": 1, "unsigned short": 2, "short": 2}
"""Bytes of an element of the narrow types of parameters; of others they are four or more."""
WORD = 4


@dataclass(frozen=True)
class Part:
    """The lanes of a row from `low` to before `high`. Where `asks`, each asks for itself: such parts are short, and
    share their statements."""

    low: int
    high: int
    asks: bool = False

    @property
    def lanes(self) -> int:
        return self.high - self.low


def parts_of_row(items: Sequence[Statement], values: Mapping[str, Expression], place: str, row: int) -> list[Part]:
    """The parts of a row; one part where conditions do not say where to cut, or where no part would be long. `values`
    are what index variables stand for, `place` is the variable of the place in a row of `row` lanes."""
    if row < SHORTEST:
        return [Part(0, row)]
    parts, everything = _cut(items, values, place, row)
    if 2 * everything > MOST_STATEMENTS:
        return [Part(0, row)]
    if 2 * max(part.lanes for part in parts) >= row and _are_few(len(parts), everything):
        return parts
    parts = _joined(parts, LONG)
    own = [part for part in parts if not part.asks]
    is_worth = 4 * sum(part.lanes for part in own) >= 3 * row and _are_few(len(own) + 1, everything)
    return parts if is_worth else [Part(0, row)]


def bands_of(items: Sequence[Statement], values: Mapping[str, Expression], place: str, rows: int) -> list[Part]:
    """Rows in bands, in each of which conditions on the row (variable `place`) are decided: parts of `rows` rows. One
    part where conditions do not say where to cut, or where most rows would have to ask."""
    bands, everything = _cut(items, values, place, rows)
    if LONGEST * max(band.lanes for band in bands) < rows:
        return [Part(0, rows)]
    most = MOST_STATEMENTS // everything
    if len(bands) <= most:
        return bands
    lanes = sorted((band.lanes for band in bands), reverse=True)
    longest = [one for one, following in itertools.pairwise(lanes[:most]) if following < one]
    if not longest:
        return [Part(0, rows)]
    bands = _joined(bands, longest[-1])
    is_worth = 4 * sum(band.lanes for band in bands if not band.asks) >= 3 * rows
    return bands if is_worth else [Part(0, rows)]


def _cut(items: Sequence[Statement], values: Mapping[str, Expression], place: str, size: int) -> tuple[list[Part], int]:
    """Parts of `size` places, between which conditions on the place alone change, and how many statements there are.
    What stands under conditions that never hold does not count."""
    known, cuts = dict(values), {0, size}
    number, left = 0, [*reversed(items)]
    while left:
        item = left.pop()
        number += 1
        if isinstance(item, Let) and item.is_index and item.expression is not None:
            known[item.name.text] = substitute(item.expression, known)
        within_it = inside(item)
        if isinstance(item, Block) and item.condition:
            holds = settled(item.condition, known)
            within_it = within_it if holds is None else item.body if holds else item.otherwise
            for condition in item.condition.says if holds is None else ():
                expression = substitute(condition.expression, known)
                step = stride(expression, place) if variables_of(expression) == {place} else None
                if step is not None and step > 0:
                    cuts |= {
                        -(-(condition.low - expression.low) // step),
                        (condition.high - expression.low) // step + 1,
                    }
        left += reversed(within_it)
    ends = sorted(cut for cut in cuts if 0 <= cut <= size)
    return [Part(low, high) for low, high in itertools.pairwise(ends)], number


def _joined(parts: Sequence[Part], least: int) -> list[Part]:
    """Parts, of which those shorter than `least` ask, and are one where they lie side by side."""
    joined = list[Part]()
    for asks, group in itertools.groupby(parts, key=lambda part: part.lanes < least):
        beside = list(group)
        joined += [Part(beside[0].low, beside[-1].high, asks=True)] if asks else beside
    return joined


def _are_few(functions: int, statements: int) -> bool:
    return functions <= MOST and functions * statements <= MOST_STATEMENTS


def within(values: Mapping[str, Expression], place: str, low: int, high: int) -> dict[str, Expression]:
    """Values where the place is at least `low` and less than `high`."""
    narrow = {place: constant(low) if high - low == 1 else Variable(low, high - 1, place)}
    return {name: substitute(value, narrow) for name, value in values.items()}


def vector_lanes(items: Sequence[Statement], parameters: Sequence[Pointer]) -> int:
    """How many lanes end a part of a row as whole vectors that begin among lanes before them; 0 where no lane may run
    twice: one that reads through a pointer that may change, or that does more than to assign elements."""
    pointers = {p.name: p for p in parameters}
    least = WORD
    for item in walk(items):
        if isinstance(item, Do):
            return 0
        for number, expression in enumerate(codes_of(item)):
            is_target = isinstance(item, Assign) and not number
            for at, piece in enumerate(expression.parts()):
                pointer = pointers.get(piece.array) if isinstance(piece, Cell) else None
                if isinstance(piece, Address) or (pointer and not (pointer.constant or (is_target and not at))):
                    return 0
                if pointer:
                    least = min(least, BYTES.get(pointer.kind, WORD))
    return VECTOR // least
