"""Predicates that are the same for all lanes: a mask of rows, an image turned around or not, a flag of a whole array,
the first and last rows of a window. Compilers compute both sides of a select for each lane and keep one, and mask what
stands under a condition. With a loop for each side, only that side is read, and each loop reads memory in one way."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from hlo_opt.codegen.tree import Assign, Block, Let, Note, Statement, walk
from hlo_opt.ir.index_map import Condition, Expression, substitute, variables_of
from hlo_opt.ops.code import Cell, Code, Name

MOST = 2
"""Predicates of a loop: each doubles it."""
LINES = 600
"""Lines of all copies of a loop, of which compilers make vector code in good time."""
SHORT = 150
"""Statements of a loop that has copies for conditions."""


def predicates_of(items: Sequence[Statement], uniform: Collection[str], lines: int) -> list[str]:
    """The predicates of a loop of `lines` lines that are the same for all lanes: those of branches, and as many as pay
    of those that select between values, at least one of which differs from lane to lane. `uniform` are the variables
    that are the same for all lanes."""
    conditions, selects = dict[str, None](), dict[str, None]()
    for item in walk(items):
        if isinstance(item, Block) and item.condition.name is not None and item.condition.name.text in uniform:
            conditions[item.condition.name.text] = None
        elif isinstance(item, Let):
            match item.value.pieces:
                case (Name(text=which), " ? ", Name() | Cell() as one, " : ", Name() | Cell() as other):
                    if which in uniform and one != other and not _all_in((one, other), uniform):
                        selects[which] = None
    found = list(conditions)
    for which in selects:
        if which not in conditions and len(found) < MOST and lines << (len(found) + 1) <= LINES:
            found.append(which)
    return found


def _all_in(pieces: Sequence[Name | Cell], uniform: Collection[str]) -> bool:
    return all(isinstance(p, Name) and p.text in uniform for p in pieces)


def left_of(condition: Code, values: Mapping[str, Expression], uniform: Collection[str]) -> tuple[Condition, ...]:
    """What a condition on indices says that is open, where that is the same for all lanes; else nothing. `values` are
    what index variables stand for."""
    conditions = (Condition(substitute(c.expression, values), c.low, c.high) for c in condition.says)
    left = tuple(c for c in conditions if not c.always)
    return left if all(variables_of(c.expression) <= set(uniform) for c in left) else ()


def is_simple(block: Block) -> bool:
    """Whether statements under a condition are plain ones."""
    return all(isinstance(s, Let | Assign | Note) for s in (*block.body, *block.otherwise))


def by_side(predicates: Sequence[str], lines: Sequence[str]) -> list[str]:
    """Lines, once for each side of each predicate, which is a constant in them."""
    whole = list(lines)
    for name in predicates:
        sides = [[f"const bool {name} = {value};", *whole] for value in ("true", "false")]
        whole = [f"if ({name}) {{", *sides[0], "} else {", *sides[1], "}"]
    return whole
