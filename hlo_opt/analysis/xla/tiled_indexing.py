"""Which element of an operand a tile's element comes from, written so that the extent of a tile follows.

An index along one dimension is a sum of digits. A digit takes some of the values of one dimension of the kernel's result (or runs over a reduced
dimension) and has a stride; a reshape cuts digits and puts them together again, a slice scales and shifts them.
Source: xla/hlo/analysis/indexing_analysis.cc (the maps), xla/codegen/tiling/size_and_stride_expression.cc (extents and strides).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hlo_opt.analysis.graph.cluster import Node
from hlo_opt.ir import Shape
from hlo_opt.ir.index_map import Constant, Expression, Product, Sum, Variable
from hlo_opt.ops import find
from hlo_opt.ops.sets import RESHAPES, is_elementwise

RANGE = -1
"""The source of a digit that runs over a reduced dimension."""


@dataclass(frozen=True, slots=True)
class Digit:
    """`stride * ((x // divisor) % size)`, where x is the index along dimension `source`, which has `extent` elements."""

    source: int
    extent: int
    divisor: int
    size: int
    stride: int

    @property
    def is_whole(self) -> bool:
        """Whether it takes all values of its source."""
        return self.size == self.extent

    def elements(self, tiles: tuple[int, ...]) -> int:
        """How many values it takes within a tile."""
        if self.source == RANGE:
            return self.size
        tile = -(-tiles[self.source] // self.divisor)
        if self.divisor * self.size >= self.extent:
            return tile
        return tile - (tile - 1) // self.size * self.size

    def fits(self, tiles: tuple[int, ...]) -> bool:
        """Whether a tile takes its values evenly: a tile within one round, or whole rounds."""
        if self.source == RANGE or self.divisor * self.size >= self.extent:
            return True
        tile = -(-tiles[self.source] // self.divisor)
        return self.size % tile == 0 or tile % self.size == 0


@dataclass(frozen=True, slots=True)
class Index:
    """An index along one dimension: the sum of the digits, by falling stride, and an offset."""

    digits: tuple[Digit, ...]
    offset: int = 0

    @property
    def is_simple(self) -> bool:
        """Whether it is a constant or follows one whole dimension: then any tile fits."""
        return not self.digits or (len(self.digits) == 1 and self.digits[0].is_whole)

    @property
    def is_tileable(self) -> bool:
        """Whether extent and stride of a tile can be told at all. Parts of a dimension do not add up to one stride, and a reduced dimension is
        not cut."""
        if any(d.source == RANGE and not d.is_whole for d in self.digits):
            return False
        if len(self.digits) < 2:
            return True
        if not all(d.is_whole for d in self.digits):
            return False
        pairs = zip(self.digits, self.digits[1:], strict=False)
        return all(major.stride == minor.size * minor.stride for major, minor in pairs)

    def elements(self, tiles: tuple[int, ...]) -> int:
        """The extent of a tile along this dimension."""
        if len(self.digits) == 1:
            return self.digits[0].elements(tiles)
        return math.prod([d.elements(tiles) for d in self.digits])

    def stride(self, tiles: tuple[int, ...]) -> int:
        """The distance between neighbours of a tile along this dimension; 0 where the index stands still."""
        if len(self.digits) == 1:
            return self.digits[0].stride
        for digit in reversed(self.digits):
            if digit.elements(tiles) != 1:
                return digit.stride
        return 0

    def fits(self, tiles: tuple[int, ...]) -> bool:
        """Whether a tile is one evenly spaced run: single steps, then at most one part of a digit, then whole digits, then single steps."""
        if not all(d.fits(tiles) for d in self.digits):
            return False
        if len(self.digits) < 2:
            return True
        sizes = [d.elements(tiles) for d in self.digits]
        first = next((n for n, s in enumerate(sizes) if s != 1), len(sizes))
        rest = first + 1
        while rest < len(sizes) and sizes[rest] == self.digits[rest].size:
            rest += 1
        return all(s == 1 for s in sizes[rest:])

    def origin(self, tiles: tuple[int, ...]) -> tuple[object, ...]:
        """What tells where a tile begins: equal for two indices whose tiles always begin at the same element."""
        moving = [d for d in self.digits if d.source != RANGE and tiles[d.source] < d.extent]
        return (self.offset, *moving)


Indices = tuple[Index, ...]


def root_indices(shape: Shape) -> Indices:
    """Each dimension of the kernel's result by itself."""
    return tuple(Index((Digit(n, size, 1, size, 1),)) for n, size in enumerate(shape.dimensions))


def _plain(indices: list[Index]) -> Indices:
    """Without digits that take one value only."""
    return tuple(
        index
        if all(d.size > 1 for d in index.digits)
        else Index(tuple(d for d in index.digits if d.size > 1), index.offset)
        for index in indices
    )


def operand_indices(node: Node, number: int, indices: Indices) -> Indices | None:
    """The indices of an operand, given those of the node; None where tiles do not carry over (gathers, windows, padding, concatenation)."""
    instruction = node.instruction
    shape = node.operands[number].shape
    spec = find(instruction.opcode)
    if not shape.is_array or spec is None:
        return None
    if is_elementwise(instruction):
        return _plain(list(indices)) if shape.rank == len(indices) else ()
    if instruction.opcode in RESHAPES:
        found = _reshaped(instruction.shape, shape, indices)
        return None if found is None else _plain(found)
    mapped = spec.index(instruction, number) if spec.index is not None else None
    if mapped is None or mapped.conditions or mapped.runtime or not (spec.moves_data or node.emitter):
        return None
    values: dict[str, Index] = {f"d{n}": index for n, index in enumerate(indices)}
    values |= {f"s{n}": Index((Digit(RANGE, size, 1, size, 1),)) for n, size in enumerate(mapped.symbols)}
    results = [_composed(expression, values) for expression in mapped.results]
    return _plain([index for index in results if index is not None]) if None not in results else None


def _composed(expression: Expression, values: Mapping[str, Index]) -> Index | None:
    """An index of an operand where the variables of its map are indices; None for one that is not a variable, scaled and shifted."""
    match expression:
        case Constant():
            return Index((), expression.value)
        case Variable():
            return values[expression.name]
        case Product() if expression.factor > 0:
            index = _composed(expression.left, values)
            return None if index is None else _scaled(index, expression.factor)
        case Sum(right=Constant(value=shift)):
            index = _composed(expression.left, values)
            return None if index is None else Index(index.digits, index.offset + shift)
        case _:
            return None


def _scaled(index: Index, factor: int) -> Index:
    digits = [Digit(d.source, d.extent, d.divisor, d.size, d.stride * factor) for d in index.digits]
    return Index(tuple(digits), index.offset * factor)


def _reshaped(made: Shape, given: Shape, indices: Indices) -> list[Index] | None:
    """The indices before a reshape: dimensions of equal extent go together, the others are cut and joined digit by digit."""
    if made.element_count != given.element_count or not made.element_count:
        return None
    if not (made.is_row_major and given.is_row_major):
        return None
    found: list[Index] = []
    left, right = 0, 0
    while left < made.rank or right < given.rank:
        first, second = left, right
        product_made = product_given = 1
        while (first == left and second == right) or product_made != product_given:
            if product_made <= product_given and left < made.rank:
                product_made *= made.dimensions[left]
                left += 1
            else:
                product_given *= given.dimensions[right]
                right += 1
        part = _regroup(made.dimensions[first:left], given.dimensions[second:right], list(indices[first:left]))
        if part is None:
            return None
        found.extend(part)
    return found


def _regroup(made: tuple[int, ...], given: tuple[int, ...], indices: list[Index]) -> list[Index] | None:
    if [s for s in made if s > 1] == [s for s in given if s > 1]:
        kept = iter([i for i, size in zip(indices, made, strict=True) if size > 1])
        return [next(kept) if size > 1 else Index(()) for size in given]
    digits: list[Digit] = []
    place = 1
    for size, index in zip(reversed(made), reversed(indices), strict=True):
        if index.offset:
            return None
        scaled = [Digit(d.source, d.extent, d.divisor, d.size, d.stride * place) for d in reversed(index.digits)]
        digits.extend(d for d in scaled if d.size > 1)
        place *= size
    if not _covers(digits, place):
        return None
    found: list[Index] = []
    for size in reversed(given):
        taken: list[Digit] = []
        room = size
        while room > 1:
            digit = digits.pop(0)
            if digit.size > room:
                if digit.size % room:
                    return None
                high = Digit(digit.source, digit.extent, digit.divisor * room, digit.size // room, digit.stride * room)
                digits.insert(0, high)
                digit = Digit(digit.source, digit.extent, digit.divisor, room, digit.stride)
            elif room % digit.size:
                return None
            place = size // room
            taken.append(Digit(digit.source, digit.extent, digit.divisor, digit.size, place))
            room //= digit.size
        found.append(Index(tuple(reversed(_joined(taken)))))
    return found[::-1]


def _covers(digits: list[Digit], elements: int) -> bool:
    """Whether the digits, by rising stride, count through all elements."""
    place = 1
    for digit in digits:
        if digit.stride != place:
            return False
        place *= digit.size
    return place == elements


def _joined(digits: list[Digit]) -> list[Digit]:
    """Neighbouring parts of one dimension made one digit again, by rising stride."""
    found: list[Digit] = []
    for digit in digits:
        last = found[-1] if found else None
        if (
            last is not None
            and digit.source == last.source
            and digit.source != RANGE
            and digit.divisor == last.divisor * last.size
            and digit.stride == last.stride * last.size
        ):
            found[-1] = Digit(last.source, last.extent, last.divisor, last.size * digit.size, last.stride)
        else:
            found.append(digit)
    return found
