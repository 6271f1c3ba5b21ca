"""C++ expressions as pieces, so that nobody has to read their text: which variables one uses, which functions it calls, which elements of memory it touches.

An expression is made from a template with holes, `code("{} * 2 + {}", x, y)`, and printed once, at the end, by the printer of a kernel. A template is source
code of ours: names in front of a parenthesis in it become functions, everything else that stands for a variable must come through a hole.
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
    """A variable, an array or a pointer of a kernel."""

    text: str

    def __str__(self) -> str:
        raise TypeError(f"{self.text} must go through a hole of a template")


@dataclass(frozen=True, slots=True)
class Function:
    """Something that is called: a helper of ours (`hlo_...`), of C++ or of CUDA."""

    text: str


@dataclass(frozen=True, slots=True)
class Cell:
    """An element of an array or of what a pointer points to."""

    array: Name
    index: Code


@dataclass(frozen=True, slots=True)
class Part:
    """An element that shares its byte with others, of `bits` bits, at a position of what a pointer points to. `first` and `number`: the position as that of the first element of a vector,
    which begins a byte, and a number in it; compilers then see which neighbours share bytes."""

    bits: int
    array: Name
    position: Code
    first: Code | None = None
    number: Code | None = None


@dataclass(frozen=True, slots=True)
class Shuffle:
    """What a register of another thread of the warp holds: of the lane `lane` (`kind` is `sync`), or of the one so many lanes up (`down`) or
    down (`up`). `cast` is the type of the register where CUDA
    shuffles none so narrow, else empty."""

    kind: str
    register: Name
    lane: Code
    cast: str


@dataclass(frozen=True, slots=True)
class Address:
    """Where an element lies, for what changes it at once."""

    of: Cell


@dataclass(frozen=True, slots=True)
class FirstRound:
    """The condition that a thread which walks with steps of `stride` (see `hlo_opt.codegen.tree.Walk`) is at its first one."""

    step: Name
    stride: int


Special = Name | Function | Cell | Part | Shuffle | FirstRound | Address
Piece = str | Special


class Code:
    """An expression. Where `is_atom`, it is a name or a literal, which may be repeated and needs no parentheses. `says`: it is true where these conditions hold, and only there. `place`: it is this
    index, where that is known. Equal pieces make equal expressions."""

    __slots__ = ("is_atom", "pieces", "place", "says")

    def __init__(
        self,
        pieces: tuple[Piece, ...],
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
        """The name that it is, if it is one."""
        first = self.pieces[0] if len(self.pieces) == 1 else None
        return first if isinstance(first, Name) else None

    def parts(self) -> Iterator[Piece]:
        """All pieces, those of indices and lanes among them."""
        todo = list(reversed(self.pieces))
        while todo:
            piece = todo.pop()
            yield piece
            if isinstance(piece, str | Name | Function):  # most are
                continue
            match piece:
                case Cell(array, index):
                    todo += [*reversed(index.pieces), array]
                case Part(_, array, position, first, number):
                    todo.append(array)
                    todo += [p for c in (position, first, number) if c is not None for p in c.pieces]
                case FirstRound(step):
                    todo.append(step)
                case Address(element):
                    todo.append(element)
                case Shuffle(_, register, lane, _):
                    todo += [*reversed(lane.pieces), register]

    def names(self) -> Iterator[Name]:
        """What it mentions, each as often as it does."""
        return (piece for piece in self.parts() if isinstance(piece, Name))

    def functions(self) -> Iterator[str]:
        """What it calls."""
        for piece in self.parts():
            match piece:
                case Function(text):
                    yield text
                case Part():
                    yield "hlo_get"


Hole = Code | Name | Expression | int | str
NOTHING = Code(())
"""No expression: a condition that always holds."""

_FUNCTION = re.compile(r"\bhlo_\w+|\bHLO_\w+|\b[A-Za-z_]\w*(?=\()")


def of(hole: Hole) -> Code:
    """A name, a number, or text without names as an expression."""
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
    raise TypeError(f"{hole} is no variable: a builder gives its text")


@lru_cache(maxsize=4096)
def _pieces(template: str) -> tuple[Piece | int, ...]:
    """Text and functions of a template, and numbers of holes."""
    found: list[Piece | int] = []
    automatic = 0
    for literal, field, _, _ in Formatter().parse(template):
        end = 0
        for match in _FUNCTION.finditer(literal):
            if match.start() > end:
                found.append(literal[end : match.start()])
            found.append(Function(match[0]))
            end = match.end()
        if end < len(literal):
            found.append(literal[end:])
        if field is not None:
            found.append(int(field) if field else automatic)
            automatic += not field
    return tuple(found)


def code(template: str, *holes: Hole) -> Code:
    """An expression from a template with a hole (`{}`, or `{0}`, `{1}` where one is used twice) for each part of it."""
    made: list[Piece] = []
    for piece in _pieces(template):
        if isinstance(piece, int):
            hole = holes[piece]
            if isinstance(hole, Code):
                made += hole.pieces
            elif isinstance(hole, str):
                made.append(hole)
            else:
                made += of(hole).pieces
        else:
            made.append(piece)
    return Code(tuple(made))


def atom(text: str) -> Code:
    """A literal."""
    return Code((text,), True)


def call(function: str, *arguments: Hole) -> Code:
    """A call of a function by its name, such as `hlo_put<4>`."""
    return code(f"{function}({', '.join(['{}'] * len(arguments))})", *arguments)


def cell(array: Name, index: Hole) -> Code:
    """An element of an array, or of what a pointer points to."""
    return Code((Cell(array, of(index)),))


def address(array: Name, index: Hole) -> Code:
    """Where an element of an array lies."""
    return Code((Address(Cell(array, of(index))),))


def with_calls(value: Code, functions: Container[str], instead: Callable[[str, Name], Code | None]) -> Code:
    """The expression with something else in the place of calls of these functions on a variable; None leaves the call."""
    made: list[Piece] = []
    at = 0
    while at < len(value.pieces):
        match value.pieces[at : at + 4]:
            case (Function(function), "(", Name() as argument, str() as rest) if (
                function in functions and rest[0] == ")"
            ):
                new = instead(function, argument)
                made += value.pieces[at : at + 3] if new is None else new.pieces
                made += [r for r in [rest if new is None else rest[1:]] if r]
                at += 4
            case _:
                made.append(value.pieces[at])
                at += 1
    return Code(tuple(made), value.is_atom)


def both(*conditions: Code) -> Code:
    """The conditions joined by `&&`; those that say nothing are left out."""
    return joined(" && ", [c for c in conditions if c])


def joined(between: str, parts: list[Code]) -> Code:
    """Expressions one behind the other."""
    made: list[Piece] = []
    for number, part in enumerate(parts):
        made += [between] * bool(number)
        made.extend(part.pieces)
    return Code(tuple(made), len(parts) == 1 and parts[0].is_atom)


def printed(expression: Code, print_piece: Callable[[Special], str]) -> str:
    """The text, given how a printer writes what is not text."""
    return "".join([piece if isinstance(piece, str) else print_piece(piece) for piece in expression.pieces])
