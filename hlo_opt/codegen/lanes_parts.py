"""Rows of lanes in parts: conditions on the place in a row are decided in each, so that no lane asks for itself.

An array padded by its own edges, or one of pieces of others, takes its elements from another place in each part.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from hlo_opt.codegen.lanes_folds import stride
from hlo_opt.codegen.tree import Block, Let, Statement, walk
from hlo_opt.ir.index_map import Expression, Variable, add, constant, substitute, variables_of

SHORTEST = 48
"""Lanes of a row that is worth parts."""
MOST = 6
"""Parts of a row: each is another function."""
MOST_STATEMENTS = 400
"""Statements of all parts."""


def parts_of_row(
    items: Sequence[Statement], values: Mapping[str, Expression], place: str, row: int
) -> list[tuple[int, int]]:
    """The first place and the one behind the last of each part; one part where conditions do not say where to cut, or
    where no part would be long. `values` are what index variables stand for, `place` is the variable of the place in a
    row of `row` lanes."""
    known, cuts = dict(values), {0, row}
    everything = list(walk(items))
    if row < SHORTEST or 2 * len(everything) > MOST_STATEMENTS:
        return [(0, row)]
    for item in everything:
        if isinstance(item, Let) and item.is_index and item.expression is not None:
            known[item.name.text] = substitute(item.expression, known)
        elif isinstance(item, Block) and item.condition:
            for condition in item.condition.says:
                expression = substitute(condition.expression, known)
                step = stride(expression, place) if variables_of(expression) == {place} else None
                if step is not None and step > 0:
                    cuts |= {
                        -(-(condition.low - expression.low) // step),
                        (condition.high - expression.low) // step + 1,
                    }
    ends = sorted(cut for cut in cuts if 0 <= cut <= row)
    parts = list(itertools.pairwise(ends))
    longest = max(high - low for low, high in parts)
    is_worth = 2 * longest >= row and len(parts) <= MOST and len(parts) * len(everything) <= MOST_STATEMENTS
    return parts if is_worth else [(0, row)]


def within(values: Mapping[str, Expression], place: str, low: int, high: int) -> dict[str, Expression]:
    """Values where the place is at least `low` and less than `high`."""
    narrow = {place: add(Variable(low, high - 1, place), constant(0))}
    return {name: substitute(value, narrow) for name, value in values.items()}
