"""Sine and cosine of one angle by one call.

Both reduce the angle to a quarter turn, and branch where it is large. `sincosf` does that once, and gives the same
bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hlo_opt.codegen.tree import Assign, Block, BlockRange, Do, For, Let, Neighbours, Statement, StrideLoop, walk
from hlo_opt.ops.code import Function, Name, code

_OTHER = {"sinf": "cosf", "cosf": "sinf", "sin": "cos", "cos": "sin"}
_BOTH = {"float": ("sincosf", "0.0f"), "double": ("sincos", "0.0")}


def paired(statements: Sequence[Statement]) -> list[Statement]:
    """Statements in which a sine and a cosine of a variable, in one list of statements, come from one call where the
    first of them stood."""
    joined: list[Statement] = []
    left = list(statements)
    while left:
        statement = left.pop(0)
        match statement:
            case Block(_, body, otherwise):
                joined.append(replace(statement, body=paired(body), otherwise=paired(otherwise)))
            case For(body=body) | StrideLoop(body=body) | BlockRange(body=body):
                joined.append(replace(statement, body=paired(body)))
            case Neighbours(making=making):
                joined.append(replace(statement, making=paired(making)))
            case Let() if (other := _partner(statement, left)) is not None:
                left = [s for s in left if s is not other]
                function, start = _BOTH[statement.kind]
                sine, cosine = (statement, other) if _called(statement)[0] in ("sinf", "sin") else (other, statement)
                joined += [Let(each.kind, each.name, code(start), constant=False) for each in (sine, cosine)]
                text = f"{function}({{}}, &{{}}, &{{}})"
                joined.append(Do(code(text, _called(statement)[1], sine.name, cosine.name)))
            case _:
                joined.append(statement)
    return joined


def _called(statement: Statement) -> tuple[str, Name]:
    """The function of a variable that a constant is, and the variable; two empty names for any other statement."""
    match statement:
        case Let(kind=kind, constant=True) if kind in _BOTH:
            match statement.value.pieces:
                case (Function(function), "(", Name() as angle, ")") if function in _OTHER:
                    return function, angle
    return "", Name("")


def _partner(first: Let, following: Sequence[Statement]) -> Let | None:
    """The other function of the same variable, where nothing assigns to that in between."""
    function, angle = _called(first)
    for statement in following if function else ():
        if isinstance(statement, Let) and _called(statement) == (_OTHER[function], angle):
            return statement if statement.kind == first.kind else None
        if any(isinstance(s, Assign) and angle in s.target.names() for s in walk([statement])):
            return None
    return None
