"""C++ expressions as pieces, so that no code has to parse their text: which variables, functions and memory they use.

`code("{} * 2 + {}", x, y)` makes an expression from a template with holes; the printer of a kernel turns it into text
at the end. In a template, a name before a parenthesis is a function. Variables must come through holes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from functools import lru_cache
from string import Formatter

from hlo_opt.ir.index_map import Condition, Constant, Expression, Variable


@dataclass(frozen=True, slots=True)
class Name:
    """A variable, array or pointer of a kernel."""

    text: str

    def __str__(self) -> str:
        raise TypeError(f"{self.text} must go through a hole of a template")


@dataclass(frozen=True, slots=True)
class Function:
    """A called function: our own helper (`hlo_...`), or one of C++ or CUDA."""

    text: str


@dataclass(frozen=True, slots=True)
class Cell:
    """An element of an array or pointer."""

    array: Name
    index: Code


@dataclass(frozen=True, slots=True)
class PackedElement:
    """A packed element of `bits` bits, at a position behind a pointer.

    Where it is in a vector, `first` is the position of the vector's first element, which begins a byte, and `number`
    its number in the vector, so that compilers see which neighbours share bytes.
    """

    bits: int
    array: Name
    position: Code
    first: Code | None = None
    number: Code | None = None


@dataclass(frozen=True, slots=True)
class Shuffle:
    """The value of another thread's register in the warp.

    `kind`: `sync` reads lane `lane`, `down` the one `lane` lanes above, `up` the one below, `bits` the one whose number
    differs in the bits of `lane`. `cast` is the type to shuffle in where CUDA shuffles none so narrow, else "".
    """

    kind: str
    register: Name
    lane: Code
    cast: str


@dataclass(frozen=True, slots=True)
class Address:
    """The address of an element, for atomics."""

    of: Cell


@dataclass(frozen=True, slots=True)
class FirstRound:
    """Whether a thread is in the first iteration of a `hlo_opt.codegen.tree.Walk` with this stride. `counter` numbers
    the iterations, if anything does: a compiler that unrolls the loop then knows the answer."""

    step: Name
    stride: int
    counter: Name | None = None


Special = Name | Function | Cell | PackedElement | Shuffle | FirstRound | Address
CodePiece = str | Special


class Code:
    """An expression. Equal pieces make equal expressions.

    is_atom  a name or a literal: may be repeated, and needs no parentheses
    says     conditions equivalent to the expression
    place    the index expression that it prints, where known
    """

    __slots__ = ("is_atom", "pieces", "place", "says")

    def __init__(
        self,
        pieces: tuple[CodePiece, ...],
        is_atom: bool = False,
        *,
        says: tuple[Condition, ...] = (),
        place: Expression | None = None,
    ) -> None:
        self.pieces = pieces
        self.is_atom = is_atom
        self.says = says
        self.place = place

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Code) and self.pieces == other.pieces

    def __hash__(self) -> int:
        return hash(self.pieces)

    def __bool__(self) -> bool:
        return bool(self.pieces)

    def __str__(self) -> str:
        raise TypeError("an expression must go through a hole of a template")

    @property
    def name(self) -> Name | None:
        """The name, where the expression is just that."""
        first = self.pieces[0] if len(self.pieces) == 1 else None
        return first if isinstance(first, Name) else None

    def parts(self) -> Iterator[CodePiece]:
        """All pieces, including those nested in indices and lanes."""
        todo = list(reversed(self.pieces))
        while todo:
            piece = todo.pop()
            yield piece
            if isinstance(piece, str | Name | Function):  # the common case
                continue
            match piece:
                case Cell(array, index):
                    todo += [*reversed(index.pieces), array]
                case PackedElement(_, array, position, first, number):
                    todo.append(array)
                    todo += [p for c in (position, first, number) if c is not None for p in c.pieces]
                case FirstRound(step):
                    todo.append(step)
                case Address(element):
                    todo.append(element)
                case Shuffle(_, register, lane, _):
                    todo += [*reversed(lane.pieces), register]

    def names(self) -> Iterator[Name]:
        """The names it mentions, with repetitions."""
        return (piece for piece in self.parts() if isinstance(piece, Name))

    def functions(self) -> Iterator[str]:
        """The functions it calls, with repetitions."""
        for piece in self.parts():
            match piece:
                case Function(text):
                    yield text
                case PackedElement():
                    yield "hlo_get"


Hole = Code | Name | Expression | int | str
NOTHING = Code(())
"""The empty expression: a condition that always holds."""

_FUNCTION = re.compile(r"\bhlo_\w+|\bHLO_\w+|\b[A-Za-z_]\w*(?=\()")


def of(hole: Hole) -> Code:
    """A name, a number, or text without names, as an expression."""
    match hole:
        case Code():
            return hole
        case Name():
            return Code((hole,), True)
        case Variable(name=name):
            return Code((Name(name),), True)
        case Constant(value=value):
            return Code((str(value),), True)
        case int():
            return Code((str(hole),), True)
        case str():
            return code(hole)
    raise TypeError(f"{hole} is not a variable: a builder gives its text")


@lru_cache(maxsize=4096)
def _pieces(template: str) -> tuple[CodePiece | int, ...]:
    """The text, functions and hole numbers of a template."""
    pieces: list[CodePiece | int] = []
    automatic = 0
    for literal, field, _, _ in Formatter().parse(template):
        end = 0
        for match in _FUNCTION.finditer(literal):
            if match.start() > end:
                pieces.append(literal[end : match.start()])
            pieces.append(Function(match[0]))
            end = match.end()
        if end < len(literal):
            pieces.append(literal[end:])
        if field is not None:
            pieces.append(int(field) if field else automatic)
            automatic += not field
    return tuple(pieces)


def code(template: str, *holes: Hole) -> Code:
    """An expression from a template and the contents of its holes (`{}`, or `{0}`, `{1}` where one is used twice)."""
    pieces: list[CodePiece] = []
    for piece in _pieces(template):
        if isinstance(piece, int):
            hole = holes[piece]
            if isinstance(hole, Code):
                pieces += hole.pieces
            elif isinstance(hole, str):
                pieces.append(hole)
            else:
                pieces += of(hole).pieces
        else:
            pieces.append(piece)
    return Code(tuple(pieces))


def atom(text: str) -> Code:
    """A literal."""
    return Code((text,), True)


def call(function: str, *arguments: Hole) -> Code:
    """A call of a function, such as `hlo_put<4>`."""
    return code(f"{function}({', '.join(['{}'] * len(arguments))})", *arguments)


def cell(array: Name, index: Hole) -> Code:
    """An element of an array or pointer."""
    return Code((Cell(array, of(index)),))


def address(array: Name, index: Hole) -> Code:
    """The address of an element."""
    return Code((Address(Cell(array, of(index))),))


def with_calls(value: Code, functions: Container[str], instead: Callable[[str, Name], Code | None]) -> Code:
    """Replace calls of `functions` on a variable by what `instead` returns; None keeps the call."""
    pieces: list[CodePiece] = []
    at = 0
    while at < len(value.pieces):
        match value.pieces[at : at + 4]:
            case (Function(function), "(", Name() as argument, str() as rest) if (
                function in functions and rest[0] == ")"
            ):
                new = instead(function, argument)
                pieces += value.pieces[at : at + 3] if new is None else new.pieces
                pieces += [r for r in [rest if new is None else rest[1:]] if r]
                at += 4
            case _:
                pieces.append(value.pieces[at])
                at += 1
    return Code(tuple(pieces), value.is_atom)


def both(*conditions: Code) -> Code:
    """The conditions joined by `&&`, without empty ones."""
    return joined(" && ", [c for c in conditions if c])


def negated(condition: Code) -> Code:
    """The opposite of a condition."""
    is_simple = condition.is_atom or (len(condition.pieces) == 1 and not isinstance(condition.pieces[0], str))
    return code("!{}" if is_simple else "!({})", condition)


def joined(between: str, parts: list[Code]) -> Code:
    """Expressions joined by text."""
    pieces: list[CodePiece] = []
    for number, part in enumerate(parts):
        pieces += [between] * bool(number)
        pieces.extend(part.pieces)
    return Code(tuple(pieces), len(parts) == 1 and parts[0].is_atom)


def printed(expression: Code, print_piece: Callable[[Special], str]) -> str:
    """The text of an expression; `print_piece` prints the pieces that are not text."""
    return "".join([piece if isinstance(piece, str) else print_piece(piece) for piece in expression.pieces])
