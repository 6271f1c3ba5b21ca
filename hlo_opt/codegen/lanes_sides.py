"""Predicates that are the same for all lanes: a mask of rows, an image turned around or not, a flag of a whole array,
the first and last rows of a window. Compilers compute both sides of a select for each lane and keep one, and mask what
stands under a condition. With a loop for each side, only that side is read, and each loop reads memory in one way."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from hlo_opt.codegen.tree import Assign, Block, Let, Note, Statement, walk
from hlo_opt.ir.index_map import Condition, Expression, substitute, variables_of
from hlo_opt.ops.code import Cell, Code, Name

SELECTS, MOST = 2, 3
"""Predicates of a loop that choose between values, and that statements stand under, at most: each doubles it."""
LINES = 600
"""Lines of all copies of a loop, of which compilers make vector code in good time."""
SHORT, SHORTER = 150, 120
"""Statements of a loop that has copies for conditions, and of one that has as many as for `MOST`; longer ones have them
for one less."""


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
        if which not in conditions and len(found) < SELECTS and lines << (len(found) + 1) <= LINES:
            found.append(which)
    return found


def _all_in(pieces: Sequence[Name | Cell], uniform: Collection[str]) -> bool:
    return all(isinstance(p, Name) and p.text in uniform for p in pieces)


def settled(condition: Code, values: Mapping[str, Expression]) -> bool | None:
    """Whether a condition on indices holds for all lanes (or for none); None where that is open."""
    conditions = [Condition(substitute(c.expression, values), c.low, c.high) for c in condition.says]
    if any(c.never for c in conditions):
        return False
    return True if conditions and all(c.always for c in conditions) else None


def left_of(
    condition: Code, values: Mapping[str, Expression], uniform: Collection[str] | None
) -> tuple[Condition, ...]:
    """What a condition on indices says that is open and, unless `uniform` is None, the same for all lanes. `values` are
    what index variables stand for."""
    conditions = (Condition(substitute(c.expression, values), c.low, c.high) for c in condition.says)
    left = (c for c in conditions if not c.always)
    return tuple(c for c in left if uniform is None or variables_of(c.expression) <= set(uniform))


def has_room(size: int, sides: int) -> bool:
    """Whether a loop of so many statements, with copies for so many conditions, may have some for another one."""
    return size <= SHORT and sides < MOST - (size > SHORTER)


def is_simple(block: Block) -> bool:
    """Whether statements under a condition are plain ones."""
    return all(isinstance(s, Let | Assign | Note) for s in (*block.body, *block.otherwise))


def changed_in(block: Block, names: Collection[str]) -> dict[str, None]:
    """The variables among these that statements under a condition give new values."""
    targets = (s.target.name for s in walk([block]) if isinstance(s, Assign)) if block.condition else ()
    return dict.fromkeys(t.text for t in targets if t is not None and t.text in names)


def by_side(predicates: Sequence[str], lines: Sequence[str]) -> list[str]:
    """Lines, once for each side of each predicate, which is a constant in them."""
    whole = list(lines)
    for name in predicates:
        sides = [[f"const bool {name} = {value};", *whole] for value in ("true", "false")]
        whole = [f"if ({name}) {{", *sides[0], "} else {", *sides[1], "}"]
    return whole
