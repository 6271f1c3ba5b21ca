"""Statements of lanes as vectors of eight floats, where they round to f16: one instruction of a processor converts a
vector of them, and GCC 12 puts none into vector code that it makes of a loop. What stands for a rounding there are ten
operations, each of which waits for the one before. `host_eights.h` has the type."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hlo_opt.codegen.lanes_cuts import FUNCTIONS
from hlo_opt.codegen.tree import Assign, Let, Statement, functions_in, names_in
from hlo_opt.ops.code import Cell, Code, CodePiece, Function, Name

LANES = 8
ROUND = "hlo_round_f16"
_CALLED = FUNCTIONS | {
    "fabsf", "sqrtf", "floorf", "ceilf", "rintf", "roundf", "truncf", "copysignf", "fmaf", "hlo_maximum", "hlo_minimum",
    "hlo_rsqrt", "hlo_exp_narrow", "hlo_divide_narrow", "hlo_logistic_narrow",
}  # fmt: skip
"""Functions of floats, each of which gives one."""
_NUMBER = frozenset("0123456789.ef+-()")
_ARITHMETIC = _NUMBER | frozenset("*/, ")
"""Characters of numbers, and of operations on these and on variables."""
_COMPARISONS = frozenset({" < ", " > ", " <= ", " >= ", " == ", " != "})
_TRUTH, _KIND, _FROM_BITS = "bool", "<float>", "__int_as_float"


class _OtherError(Exception):
    """Something that is no vector of floats."""


@dataclass(frozen=True)
class Where:
    """Where variables are: those of `kept` types in arrays of lanes, floats that are `alike` for all lanes, arrays that
    are `scalars` of a lane, and `halves`, which are f16 of memory: pointers to those of the first lane, and how many
    there are. `call` is what a function is called, `lane` the first of the eight."""

    kept: Mapping[str, str]
    alike: Collection[str]
    scalars: Collection[Name]
    halves: Mapping[str, tuple[str, str]]
    call: Callable[[str], str]
    lane: str


def eight_lines(items: Sequence[Statement], where: Where) -> list[str] | None:
    """The lines for eight lanes; None where something has no such form, or nothing is rounded."""
    if ROUND not in functions_in(items):
        return None
    items = _needed(items, where)
    text = _Text(where)
    written = {item.name.text for item in items if isinstance(item, Let)}
    read = [text.read(name) for name in where.halves if name not in written]
    try:
        return [*read, *(text.line(item) for item in items)]
    except _OtherError:
        return None


def _needed(items: Sequence[Statement], where: Where) -> list[Statement]:
    """The statements without declarations that nothing mentions: elements as they are read, which the arrays have, or
    as they are written."""
    needed, left = {*where.kept, *where.halves}, list[Statement]()
    for item in reversed(items):
        if not isinstance(item, Let) or item.name.text in needed:
            left.append(item)
            needed |= {name.text for name in names_in([item])}
    return left[::-1]


class _Text:
    """Prints statements. `own` are the variables that are declared among them, with their types."""

    def __init__(self, where: Where) -> None:
        self.where = where
        self.own: dict[str, str] = {}

    def read(self, name: str) -> str:
        """f16 of memory."""
        self.own[name] = "float"
        return f"const hlo::Eight {name} = hlo::read_f16({', '.join(self.where.halves[name])});"

    def line(self, item: Statement) -> str:
        match item:
            case Let(kind="float", name=name):
                value = self.value(item.value)
                if name.text in self.where.halves:
                    return f"hlo::write_f16({', '.join(self.where.halves[name.text])}, {value});"
                if name.text in self.where.kept:
                    return self.put(name.text, value)
                self.own[name.text] = "float"
                return f"{'const ' * item.constant}hlo::Eight {name.text} = {value};"
            case Let(kind="bool", name=name, constant=True) if name.text not in self.where.kept:
                value = self.truth(item.value.pieces)
                self.own[name.text] = _TRUTH
                return f"const hlo::Truths {name.text} = {value};"
            case Assign(Code(pieces=(Name(text=name),)), value):
                if name in self.where.kept:
                    return self.put(name, self.value(value))
                if self.own.get(name) == "float":
                    return f"{name} = {self.value(value)};"
        raise _OtherError

    def put(self, name: str, value: str) -> str:
        if self.where.kept[name] != "float":
            raise _OtherError
        return f"hlo::put({name}_of + {self.where.lane}, {value});"

    def variable(self, piece: CodePiece) -> str | None:
        """A variable of floats; None for another piece."""
        name = piece.array if isinstance(piece, Cell) and piece.array in self.where.scalars else piece
        if not isinstance(name, Name):
            return None
        if self.where.kept.get(name.text) == "float":
            return f"hlo::eight({name.text}_of + {self.where.lane})"
        if name.text in self.where.alike or self.own.get(name.text) == "float":
            return name.text
        raise _OtherError

    def value(self, value: Code) -> str:
        match value.pieces:
            case (Name(text=which), " ? ", one, " : ", other) if self.own.get(which) == _TRUTH:
                return f"hlo::selected({which}, {self.operand(one)}, {self.operand(other)})"
        return f"hlo::all({self.arithmetic(value.pieces)})"

    def arithmetic(self, pieces: Sequence[CodePiece]) -> str:
        """Operations, and calls of functions."""
        text, before = list[str](), ""
        for piece, follows in pairwise([*pieces, ""]):
            variable = self.variable(piece)
            if variable is not None:
                text.append(variable)
            elif isinstance(piece, Function):
                text.append(self.called(piece.text, follows))
            elif isinstance(piece, str):
                rest = piece[len(_KIND) :] if before in _CALLED and piece[: len(_KIND)] == _KIND else piece
                if not _ARITHMETIC.issuperset(rest):
                    raise _OtherError
                text.append(rest)
            else:
                raise _OtherError
            before = piece.text if isinstance(piece, Function) else ""
        return "".join(text)

    def called(self, function: str, follows: CodePiece) -> str:
        if function in (ROUND, _FROM_BITS):
            return self.where.call(function)
        if function not in _CALLED:
            raise _OtherError
        kind = _KIND if isinstance(follows, str) and follows[: len(_KIND)] == _KIND else ""
        return f"HLO_EACH({self.where.call(function)}{kind})"

    def operand(self, piece: CodePiece) -> str:
        """A variable or a number."""
        if isinstance(piece, str):
            if not _NUMBER.issuperset(piece):
                raise _OtherError
            return f"hlo::all({piece})"
        variable = self.variable(piece)
        if variable is None:
            raise _OtherError
        return f"hlo::all({variable})"

    def truth(self, pieces: Sequence[CodePiece]) -> str:
        """A comparison, or what is made of several."""
        match pieces:
            case (left, str() as test, right) if test in _COMPARISONS:
                return f"{self.operand(left)}{test}{self.operand(right)}"
            case (Name(text=left), (" & " | " | ") as both, Name(text=right)):
                names = [left, right]
                text = f"{left}{both}{right}"
            case ("!", Name(text=left)):
                names, text = [left], f"~{left}"
            case _:
                raise _OtherError
        if any(self.own.get(name) != _TRUTH for name in names):
            raise _OtherError
        return text
