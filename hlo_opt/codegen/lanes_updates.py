"""Atomic updates whose values take long to compute: the values of a block's threads come first, in vectors, and then
its threads combine them with memory, one after another."""

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


@dataclass(frozen=True)
class Update:
    """What a thread does: it computes its value, and later combines it with memory."""

    computing: list[Statement]
    combining: list[Statement]


def update_of(body: Sequence[Statement], written: Collection[Name]) -> Update | None:
    """The two halves of a thread's statements; None where they are anything but one update of a value that takes long,
    and where a value may depend on the arrays `written`, which others write meanwhile."""
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
    return Update(computing, _replaced(body, value, replace(value, value=own)))


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
