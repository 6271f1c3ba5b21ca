"""Whether lanes that change memory stay out of each other's way: those of a scatter's window do, whose places follow
each other. Then they run side by side, though windows must come one after another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hlo_opt.codegen.lanes_folds import place_of
from hlo_opt.codegen.tree import Assign, Block, Do, Let, Neighbours, Note, Statement, codes_of, walk
from hlo_opt.ir.index_map import Constant, Expression, Product, Sum, Variable, substitute, variables_of
from hlo_opt.ops.code import Address, Cell, CodePiece, Function, Name

_SUMS = "hlo_atomic_add_f32"
"""Adds as many values as it is given to neighbouring elements."""
_ONE = frozenset({"hlo_atomic_add", "atomicAdd", "atomicMax", "atomicMin", "atomicAnd", "atomicOr", "atomicXor"})
"""Functions that change one element."""


def are_apart(
    items: Sequence[Statement], constants: Collection[str], values: Mapping[str, Expression], lane: str
) -> bool:
    """Whether no lane mentions an element that another one changes. `constants` are arrays that nobody changes;
    `values` is what index variables stand for: all but the lane are the same for all lanes."""
    for statement in walk(items):
        is_by_lanes = isinstance(statement, Neighbours) and statement.number.text in values
        if not (is_by_lanes or isinstance(statement, Let | Assign | Block | Do | Note)):
            return False
    arrays, places = set[Name](), list[tuple[Expression, int]]()
    for element, width in (mention for s in walk(items) for mention in _mentioned(s)):
        if element.array.text in constants:
            continue
        place = place_of(element, values)
        if place is None or not width:
            return False
        arrays.add(element.array)
        places.append((substitute(place, values), width))
    return len(arrays) == 1 and _is_apart(places, lane)  # of two arrays, either may lie in the other


def _is_apart(places: Sequence[tuple[Expression, int]], lane: str) -> bool:
    """Whether the elements at these places (a place and the number of elements from there on) differ between
    lanes."""
    places_read = [(Place.of(place, lane), width) for place, width in places]
    first, _ = places_read[0]
    ends = list[int]()
    for place, width in places_read:
        if place is None or first is None or (place.rest, place.step) != (first.rest, first.step):
            return False
        ends += [place.offset, place.offset + width]
    return first is not None and max(ends) - min(ends) <= abs(first.step)


@dataclass(frozen=True)
class Place:
    """A sum of what is the same for all lanes, of `step` for every lane, and of a number."""

    rest: Mapping[Expression, int]
    step: int
    offset: int

    @classmethod
    def of(cls, place: Expression, lane: str) -> Place | None:
        """None where the lane is in a digit."""
        rest, step, offset, todo = Counter[Expression](), 0, 0, [place]
        while todo:
            match todo.pop():
                case Sum(left=left, right=right):
                    todo += [left, right]
                case Constant(value=value):
                    offset += value
                case Variable(name=name) if name == lane:
                    step += 1
                case Product(left=Variable(name=name), factor=factor) if name == lane:
                    step += factor
                case other if lane in variables_of(other):
                    return None
                case other:
                    rest[other] += 1
        return cls(rest, step, offset)


def _mentioned(statement: Statement) -> Iterator[tuple[Cell, int]]:
    """Elements of memory that a statement reads or changes, and how many from there on; 0 where that is open."""
    for expression in codes_of(statement):
        for piece in expression.parts():
            match piece:
                case Cell():
                    yield piece, 1
                case Address(element):
                    first = next((p for p in expression.pieces[1:] if not isinstance(p, str)), None)
                    yield element, _width(expression.pieces) if first is piece else 0


def _width(pieces: Sequence[CodePiece]) -> int:
    """How many elements a call changes whose first argument is an address."""
    match pieces[0]:
        case Function(text) if text in _ONE:
            return 1
        case Function(text) if text == _SUMS:
            return sum(piece == ", " for piece in pieces)
    return 0
