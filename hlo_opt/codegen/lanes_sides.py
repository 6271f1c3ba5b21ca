"""Selects by a predicate that is the same for all lanes: a mask of rows, an image turned around or not, a flag of a
whole array. Compilers compute both sides for each lane and keep one. With a loop for each side, only that side is read,
and each loop reads memory in one way."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from hlo_opt.codegen.tree import Let, Statement, walk
from hlo_opt.ops.code import Cell, Name

MOST = 2
"""Predicates of a loop: each doubles it."""
LINES = 600
"""Lines of all copies of a loop, of which compilers make vector code in good time."""


def predicates_of(items: Iterable[Statement], uniform: Collection[str]) -> list[str]:
    """The predicates, the same for all lanes, that choose between values of which one at least differs from lane to
    lane; `uniform` are the variables that are the same. No more than `MOST`, the first ones."""
    found = dict[str, None]()
    for item in walk(items):
        if isinstance(item, Let):
            match item.value.pieces:
                case (Name(text=which), " ? ", Name() | Cell() as one, " : ", Name() | Cell() as other):
                    if which in uniform and one != other and not _all_in((one, other), uniform):
                        found[which] = None
    return list(found)[:MOST]


def _all_in(pieces: Sequence[Name | Cell], uniform: Collection[str]) -> bool:
    return all(isinstance(p, Name) and p.text in uniform for p in pieces)


def by_side(predicates: Sequence[str], lines: Sequence[str]) -> list[str]:
    """Lines, once for each side of each predicate, which is a constant in them."""
    whole = list(lines)
    for name in predicates:
        if 2 * len(whole) <= LINES:
            sides = [[f"const bool {name} = {value};", *whole] for value in ("true", "false")]
            whole = [f"if ({name}) {{", *sides[0], "} else {", *sides[1], "}"]
    return whole
