"""Atomic updates whose values or places take long to compute: those of a block's threads come first, in vectors, and
then its threads combine the values with memory, one after another."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from hlo_opt.codegen.lanes_cuts import FUNCTIONS
from hlo_opt.codegen.statements import THREAD
from hlo_opt.codegen.tree import (
    Aligned,
    Assign,
    Block,
    Do,
    Leave,
    Let,
    Note,
    Statement,
    functions_in,
    names_in,
    walk,
)
from hlo_opt.ops.code import Name, cell, of

VALUES = Name("hlo_values")
"""An array with the value of each thread of a block."""
KIND = "float"
"""The type of the values: `FUNCTIONS` have no other."""


PLACES = "hlo_places"
"""Arrays with what a thread finds before it comes to its update, such as the place of that in each dimension."""
FOUND = frozenset({"int", KIND})
"""The types of these."""


@dataclass(frozen=True)
class Update:
    """What a thread does: it computes what `arrays` hold of each thread, and later combines its value with memory."""

    arrays: tuple[tuple[str, Name], ...]
    """The type of the elements of each, and its name."""
    computing: list[Statement]
    combining: list[Statement]


def update_of(body: Sequence[Statement], written: Collection[Name]) -> Update | None:
    """The two halves of a thread's statements; None where they are anything but one update whose value or place takes
    long, and where these may depend on the arrays `written`, which others write meanwhile."""
    return _values_first(body, written) or _places_first(body, written)


def _values_first(body: Sequence[Statement], written: Collection[Name]) -> Update | None:
    statements = list(walk(body))
    if not all(isinstance(s, Let | Leave | Block | Do | Aligned | Note) for s in statements):
        return None
    calls = [s for s in statements if isinstance(s, Do)]
    values = [piece for s in calls for piece in s.call.pieces if isinstance(piece, Name)]
    pure = [s for s in statements if isinstance(s, Let)]
    if len(calls) != 1 or len(values) != 1 or not FUNCTIONS & functions_in(pure):
        return None
    value = next((s for s in pure if s.name == values[0] and s.kind == KIND), None)
    if value is None or not names_in(pure).isdisjoint(written):
        return None
    own = cell(VALUES, of(THREAD))
    computing = _replaced(body, calls[0], Assign(own, of(values[0])))
    return Update(((KIND, VALUES),), computing, _replaced(body, value, replace(value, value=own)))


def _places_first(body: Sequence[Statement], written: Collection[Name]) -> Update | None:
    """The halves of a thread that computes all by itself up to its update, which stands under a condition."""
    statements = [s for s in body if not isinstance(s, Aligned | Note)]
    last = statements[-1] if statements else None
    before = [s for s in statements[:-1] if isinstance(s, Let | Leave)]
    if not isinstance(last, Block) or len(before) < len(statements) - 1:
        return None
    lets = [s for s in before if isinstance(s, Let)]
    leaving = {s.name for s in _needed(lets, names_in([s for s in before if isinstance(s, Leave)]))}
    found = [s for s in lets if s.name in names_in([last]) and s.name not in leaving]
    if not all(s.constant and s.kind in FOUND for s in found) or not names_in(lets).isdisjoint(written):
        return None
    if not functions_in(_needed(lets, {s.name for s in found})):
        return None
    own = {s.name: (s.kind, Name(f"{PLACES}{k}")) for k, s in enumerate(found)}
    kept = [Assign(cell(array, of(THREAD)), of(name)) for name, (_, array) in own.items()]
    combining: list[Statement] = []
    for s in before:
        if isinstance(s, Let) and s.name in own:
            combining.append(replace(s, value=cell(own[s.name][1], of(THREAD)), expression=None))
        elif isinstance(s, Leave) or s.name in leaving:
            combining.append(s)
    return Update(tuple(own.values()), [*before, *kept], [*combining, last])


def _needed(lets: Sequence[Let], names: Collection[Name]) -> list[Let]:
    """The declarations of some names, and those that these need."""
    needed, wanted = list[Let](), set(names)
    for let in reversed(lets):
        if let.name in wanted:
            needed.append(let)
            wanted |= names_in([let])
    return needed


def _replaced(body: Sequence[Statement], old: Statement, new: Statement) -> list[Statement]:
    """The statements with another one in the place of `old`."""
    replaced: list[Statement] = []
    for s in body:
        if isinstance(s, Block):
            inner, otherwise = _replaced(s.body, old, new), _replaced(s.otherwise, old, new)
            replaced.append(replace(s, body=inner, otherwise=otherwise))
        else:
            replaced.append(new if s is old else s)
    return replaced
