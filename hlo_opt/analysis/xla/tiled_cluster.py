"""A kernel in which each block computes one tile of the result: which tile of each operand a block needs.

An index along one dimension is a sum of digits, from which the extent of a tile follows. A digit takes some of the
values of one dimension of the kernel's result (or of a reduced dimension), times a stride. Reshapes split and join
digits; slices scale and shift them. Source: xla/codegen/tiling/symbolic_tile_analysis.cc,
xla/service/gpu/model/triton_emitter_constraints.cc, xla/hlo/analysis/indexing_analysis.cc (the maps),
xla/codegen/tiling/size_and_stride_expression.cc (extents and strides).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING

from hlo_opt.analysis.graph.cluster import Cluster, Node
from hlo_opt.ir import Shape
from hlo_opt.ir.index_map import Constant, Expression, Product, Sum, Variable
from hlo_opt.ops import find
from hlo_opt.ops.sets import RESHAPES, is_elementwise

if TYPE_CHECKING:
    from hlo_opt.analysis.xla.tiled_model import Sums

RANGE = -1
"""The source of a digit over a reduced dimension."""


@dataclass(frozen=True, slots=True)
class Digit:
    """`stride * ((x // divisor) % size)`, where x is the index along dimension `source` of size `extent`."""

    source: int
    extent: int
    divisor: int
    size: int
    stride: int

    @property
    def is_whole(self) -> bool:
        """Whether the digit has all values of its source."""
        return self.size == self.extent

    def elements(self, tiles: tuple[int, ...]) -> int:
        """The number of values within a tile."""
        if self.source == RANGE:
            return self.size
        tile = -(-tiles[self.source] // self.divisor)
        if self.divisor * self.size >= self.extent:
            return tile
        return tile - (tile - 1) // self.size * self.size

    def fits(self, tiles: tuple[int, ...]) -> bool:
        """Whether a tile covers values evenly: within one period, or whole periods."""
        if self.source == RANGE or self.divisor * self.size >= self.extent:
            return True
        tile = -(-tiles[self.source] // self.divisor)
        return self.size % tile == 0 or tile % self.size == 0


@dataclass(frozen=True, slots=True)
class DigitIndex:
    """An index along one dimension: the sum of the digits, by descending stride, and an offset."""

    digits: tuple[Digit, ...]
    offset: int = 0

    @property
    def is_simple(self) -> bool:
        """Whether it is a constant or follows one whole dimension, so that any tile fits."""
        return not self.digits or (len(self.digits) == 1 and self.digits[0].is_whole)

    @property
    def is_tileable(self) -> bool:
        """Whether a tile has an extent and a stride at all: partial digits do not combine to one stride, and reduced
        dimensions are not split."""
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
        """The distance between neighbours of a tile along this dimension; 0 for a constant index."""
        if len(self.digits) == 1:
            return self.digits[0].stride
        for digit in reversed(self.digits):
            if digit.elements(tiles) != 1:
                return digit.stride
        return 0

    def fits(self, tiles: tuple[int, ...]) -> bool:
        """Whether a tile is evenly spaced: digits of size 1, at most one partial digit, whole digits, digits of size
        1."""
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
        """A key for the first element of a tile: equal for indices whose tiles always begin at the same element."""
        moving = [d for d in self.digits if d.source != RANGE and tiles[d.source] < d.extent]
        return (self.offset, *moving)


DigitIndices = tuple[DigitIndex, ...]


def root_indices(shape: Shape) -> DigitIndices:
    """The identity: each dimension of the kernel's result."""
    return tuple(DigitIndex((Digit(n, size, 1, size, 1),)) for n, size in enumerate(shape.dimensions))


def _plain(indices: list[DigitIndex]) -> DigitIndices:
    """The indices without digits of size 1."""
    return tuple(
        index
        if all(d.size > 1 for d in index.digits)
        else DigitIndex(tuple(d for d in index.digits if d.size > 1), index.offset)
        for index in indices
    )


def operand_indices(node: Node, number: int, indices: DigitIndices) -> DigitIndices | None:
    """The indices of an operand, given the node's; None where tiles do not carry over (gathers, windows, padding,
    concatenation)."""
    instruction = node.instruction
    shape = node.operands[number].shape
    spec = find(instruction.opcode)
    if not shape.is_array or spec is None:
        return None
    if is_elementwise(instruction):
        return _plain(list(indices)) if shape.rank == len(indices) else ()
    if instruction.opcode in RESHAPES:
        reshaped = _reshaped(instruction.shape, shape, indices)
        return None if reshaped is None else _plain(reshaped)
    mapped = spec.index(instruction, number) if spec.index is not None else None
    if mapped is None or mapped.conditions or mapped.runtime or not (spec.moves_data or node.emitter):
        return None
    values: dict[str, DigitIndex] = {f"d{n}": index for n, index in enumerate(indices)}
    values |= {f"s{n}": DigitIndex((Digit(RANGE, size, 1, size, 1),)) for n, size in enumerate(mapped.symbols)}
    results = [_composed(expression, values) for expression in mapped.results]
    return _plain([index for index in results if index is not None]) if None not in results else None


def _composed(expression: Expression, values: Mapping[str, DigitIndex]) -> DigitIndex | None:
    """An operand index from its map, whose variables stand for indices; None unless it is a scaled and shifted
    variable."""
    match expression:
        case Constant():
            return DigitIndex((), expression.value)
        case Variable():
            return values[expression.name]
        case Product() if expression.factor > 0:
            index = _composed(expression.left, values)
            return None if index is None else _scaled(index, expression.factor)
        case Sum(right=Constant(value=shift)):
            index = _composed(expression.left, values)
            return None if index is None else DigitIndex(index.digits, index.offset + shift)
        case _:
            return None


def _scaled(index: DigitIndex, factor: int) -> DigitIndex:
    digits = [Digit(d.source, d.extent, d.divisor, d.size, d.stride * factor) for d in index.digits]
    return DigitIndex(tuple(digits), index.offset * factor)


def _reshaped(result: Shape, operand: Shape, indices: DigitIndices) -> list[DigitIndex] | None:
    """The indices before a reshape: equal dimensions pass through, others are split and joined digit by digit."""
    if result.element_count != operand.element_count or not result.element_count:
        return None
    if not (result.is_row_major and operand.is_row_major):
        return None
    split: list[DigitIndex] = []
    left, right = 0, 0
    while left < result.rank or right < operand.rank:
        first, second = left, right
        result_size = operand_size = 1
        while (first == left and second == right) or result_size != operand_size:
            if result_size <= operand_size and left < result.rank:
                result_size *= result.dimensions[left]
                left += 1
            else:
                operand_size *= operand.dimensions[right]
                right += 1
        part = _regroup(result.dimensions[first:left], operand.dimensions[second:right], list(indices[first:left]))
        if part is None:
            return None
        split.extend(part)
    return split


def _regroup(result: tuple[int, ...], operand: tuple[int, ...], indices: list[DigitIndex]) -> list[DigitIndex] | None:
    if [s for s in result if s > 1] == [s for s in operand if s > 1]:
        kept = iter([i for i, size in zip(indices, result, strict=True) if size > 1])
        return [next(kept) if size > 1 else DigitIndex(()) for size in operand]
    digits: list[Digit] = []
    place = 1
    for size, index in zip(reversed(result), reversed(indices), strict=True):
        if index.offset:
            return None
        scaled = [Digit(d.source, d.extent, d.divisor, d.size, d.stride * place) for d in reversed(index.digits)]
        digits.extend(d for d in scaled if d.size > 1)
        place *= size
    if not _covers(digits, place):
        return None
    regrouped: list[DigitIndex] = []
    for size in reversed(operand):
        joined: list[Digit] = []
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
            joined.append(Digit(digit.source, digit.extent, digit.divisor, digit.size, place))
            room //= digit.size
        regrouped.append(DigitIndex(tuple(reversed(_joined(joined)))))
    return regrouped[::-1]


def _covers(digits: list[Digit], elements: int) -> bool:
    """Whether the digits, by ascending stride, enumerate all elements."""
    place = 1
    for digit in digits:
        if digit.stride != place:
            return False
        place *= digit.size
    return place == elements


def _joined(digits: list[Digit]) -> list[Digit]:
    """Neighbouring parts of one dimension joined to one digit, by ascending stride."""
    merged: list[Digit] = []
    for digit in digits:
        last = merged[-1] if merged else None
        if (
            last is not None
            and digit.source == last.source
            and digit.source != RANGE
            and digit.divisor == last.divisor * last.size
            and digit.stride == last.stride * last.size
        ):
            merged[-1] = Digit(last.source, last.extent, last.divisor, last.size * digit.size, last.stride)
        else:
            merged.append(digit)
    return merged


MAX_TILE_ELEMENTS = 1048576
"""Triton's limit on the elements of a tensor."""
MAX_BLOCKS = 2**31 - 1
MAX_NODES = 4096
"""The most tiled nodes. A node counts once per path, so deep kernels can exceed it; they are not tiled."""


@dataclass(frozen=True, slots=True)
class TiledNode:
    """A node reached along one path from the result."""

    node: Node
    index: int
    """The position of its indices in `TiledCluster.indices`."""
    operands: tuple[int, ...]
    """Positions in `TiledCluster.nodes`."""


@dataclass(slots=True)
class TiledCluster:
    """All tiled nodes, operands before users; the last is the result.

    `indices` has each tuple of indices once. `reshapes` are checked separately: a reshape sees tiles padded to powers
    of two, so the indices of its operand are relative to its own result, whose position in `indices` comes with them.
    """

    nodes: list[TiledNode]
    indices: list[DigitIndices]
    reshapes: list[tuple[int, DigitIndices]]
    extents: list[Callable[[Sequence[int]], tuple[int, ...]]] = field(default_factory=list)
    """Per entry of `indices`: selects the extents of its dimensions from the values computed in `ClusterTiles`."""
    constants: list[int] = field(default_factory=list)
    compounds: list[DigitIndex] = field(default_factory=list)
    fixed_strides: list[tuple[int, ...] | None] = field(default_factory=list)
    """Per entry of `indices`: the strides, where all tilings share them."""
    repeated: tuple[int, ...] = ()
    """Positions of nodes that several paths reach, in order."""
    sums: Sums | None = None
    """The sums of the model that do not depend on the tiling."""

    @property
    def root(self) -> Node:
        return self.nodes[-1].node


def tile_cluster(cluster: Cluster) -> TiledCluster | None:
    """Propagate the result's indices to everything that the kernel reads; None where some node does not tile."""
    if len(cluster.roots) != 1 or not cluster.roots[0].shape.is_array or cluster.roots[0].is_input:
        return None
    tiled = TiledCluster([], [], [])
    reached = _Reached(tiled.indices)
    start = (cluster.roots[0], reached.number(root_indices(cluster.roots[0].shape)))
    position: dict[tuple[Node, int], int] = {}
    above: dict[tuple[Node, int], list[tuple[Node, int]]] = {}
    stack = [start]
    while stack:
        key = stack[-1]
        if key in position:
            stack.pop()
            continue
        if key not in above:
            operands = reached.operands(*key)
            if operands is None or len(above) > MAX_NODES:
                return None
            above[key] = operands
            stack.extend(o for o in operands if o not in position)
            continue
        stack.pop()
        node, index = key
        position[key] = len(tiled.nodes)
        if not node.is_input and node.opcode in RESHAPES:
            reshape = operand_indices(node, 0, root_indices(node.shape))
            if reshape is None or not all(i.is_tileable for i in reshape):
                return None
            if not all(i.is_simple for i in reshape):
                tiled.reshapes.append((index, reshape))
        tiled.nodes.append(TiledNode(node, index, tuple([position[o] for o in above[key]])))
    tiled.repeated = _repeated(tiled.nodes)
    _prepare(tiled)
    return tiled


class _Reached:
    """The indices at which nodes are reached, by numbers: most operations read their operands at their own."""

    def __init__(self, indices: list[DigitIndices]) -> None:
        """`indices` is filled, each tuple once."""
        self._indices = indices
        self._numbers: dict[DigitIndices, int] = {}
        self._tileable: list[bool] = []
        self._plain: dict[int, int] = {}

    def number(self, indices: DigitIndices) -> int:
        """The number of a tuple of indices."""
        number = self._numbers.setdefault(indices, len(self._indices))
        if number == len(self._indices):
            self._indices.append(indices)
            self._tileable.append(all(i.is_tileable for i in indices))
        return number

    def operands(self, node: Node, number: int) -> list[tuple[Node, int]] | None:
        """The operands of a node at these indices, and theirs; None where tiles do not carry over."""
        if not self._tileable[number]:
            return None
        if node.is_input:
            return []
        indices = self._indices[number]
        own = is_elementwise(node.instruction)
        operands = []
        for place, operand in enumerate(node.operands):
            if own and operand.shape.is_array and operand.shape.rank == len(indices):
                number_of_operand = self._plain.get(number)
                if number_of_operand is None:
                    number_of_operand = self._plain[number] = self.number(_plain(list(indices)))
            else:
                reached = operand_indices(node, place, indices)
                if reached is None:
                    return None
                number_of_operand = self.number(reached)
            operands.append((operand, number_of_operand))
        return operands


def _prepare(cluster: TiledCluster) -> None:
    """Separate what depends on the tiling: a search tries hundreds, and most indices are constant or follow one
    dimension."""
    rank = cluster.root.shape.rank
    constants: dict[int, int] = {}
    compounds: dict[DigitIndex, int] = {}
    places: list[list[tuple[str, int]]] = []
    for indices in cluster.indices:
        row: list[tuple[str, int]] = []
        for index in indices:
            digit = index.digits[0] if len(index.digits) == 1 else None
            if not index.digits:
                row.append(("constant", constants.setdefault(1, len(constants))))
            elif digit is None or not digit.is_whole:
                row.append(("compound", compounds.setdefault(index, len(compounds))))
            elif digit.source == RANGE:
                row.append(("constant", constants.setdefault(digit.size, len(constants))))
            else:
                row.append(("tile", digit.source))
        places.append(row)
        simple = all(i.is_simple for i in indices)
        cluster.fixed_strides.append(tuple([i.stride(()) for i in indices]) if simple else None)
    cluster.constants = list(constants)
    cluster.compounds = list(compounds)
    first = {"tile": 0, "constant": rank, "compound": rank + len(constants)}
    for row in places:
        cluster.extents.append(_picker([first[kind] + number for kind, number in row]))


def _picker(places: list[int]) -> Callable[[Sequence[int]], tuple[int, ...]]:
    if len(places) > 1:
        return itemgetter(*places)
    if places:
        only = slice(places[0], places[0] + 1)
        return lambda values: tuple(values[only])
    return lambda values: ()


def _repeated(nodes: list[TiledNode]) -> tuple[int, ...]:
    times: dict[Node, int] = {}
    for tiled in nodes:
        times[tiled.node] = times.get(tiled.node, 0) + 1
    return tuple([n for n, tiled in enumerate(nodes) if times[tiled.node] > 1])


def padded(sizes: tuple[int, ...]) -> int:
    """Elements of a tile with each side rounded up to a power of two, as in Triton."""
    return math.prod([1 << (s - 1).bit_length() for s in sizes])


_Key = tuple[object, ...]
"""What tells the tiles of a node apart."""


class ClusterTiles:
    """A tiling: the tiles of all indices for a tile of the result. `extents` and `padded` go by position in
    `TiledCluster.indices`."""

    __slots__ = ("_strides", "blocks", "cluster", "extents", "padded", "sizes")

    def __init__(self, cluster: TiledCluster, sizes: tuple[int, ...]) -> None:
        self.cluster = cluster
        self.sizes = sizes
        values = [*sizes, *cluster.constants, *[i.elements(sizes) for i in cluster.compounds]]
        self.extents = [pick(values) for pick in cluster.extents]
        rounded = [1 << (v - 1).bit_length() for v in values]
        self.padded = [math.prod(pick(rounded)) for pick in cluster.extents]
        self._strides: dict[int, tuple[int, ...]] = {}
        dimensions = cluster.root.shape.dimensions
        self.blocks = math.prod([-(-d // t) for d, t in zip(dimensions, sizes, strict=True)])
        """The number of blocks, one per tile of the result."""

    @property
    def largest(self) -> int:
        """Elements of the largest tile."""
        return max(self.padded)

    def strides(self, index: int) -> tuple[int, ...]:
        """The strides of a tile, by dimension."""
        strides = self.cluster.fixed_strides[index] or self._strides.get(index)
        if strides is None:
            # EvaluateTileStrides clamps a tile to its dimension
            dimensions = self.cluster.root.shape.dimensions
            clamped = tuple([min(t, d) for t, d in zip(self.sizes, dimensions, strict=True)])
            strides = self._strides[index] = tuple([i.stride(clamped) for i in self.cluster.indices[index]])
        return strides

    def is_valid(self) -> bool:
        """Whether every tile is evenly spaced and of a size that Triton accepts (ParametersSatisfyConstraints)."""
        if self.blocks >= MAX_BLOCKS or self.largest > MAX_TILE_ELEMENTS:
            return False
        if not all(i.fits(self.sizes) for i in self.cluster.compounds):
            return False
        for number, reshape in self.cluster.reshapes:
            whole = tuple([1 << (s - 1).bit_length() for s in self.extents[number]])
            if not all(i.fits(whole) for i in reshape):
                return False
        return True

    def distinct(self) -> Iterator[int]:
        """The positions of the nodes that several paths reach, without the first path's; once for several paths to the
        same tile of a node."""
        nodes = self.cluster.nodes
        seen: dict[_Key, int] = {}
        same: dict[int, int] = {}
        origins: dict[int, _Key] = {}
        reached: set[Node] = set()
        for number in self.cluster.repeated:
            tiled = nodes[number]
            index = tiled.index
            above = tuple([same.get(o, o) for o in tiled.operands])
            begin: _Key = ()
            if not above:
                if index not in origins:
                    origins[index] = tuple([i.origin(self.sizes) for i in self.cluster.indices[index]])
                begin = origins[index]
            key = (tiled.node, self.extents[index], self.strides(index), above, begin)
            first = same[number] = seen.setdefault(key, number)
            if tiled.node not in reached:
                reached.add(tiled.node)
            elif first == number:
                yield number
