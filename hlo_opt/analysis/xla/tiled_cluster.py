"""A kernel whose blocks each compute one tile of the result: which tile of everything above it a block needs.

Source: xla/codegen/tiling/symbolic_tile_analysis.cc, xla/service/gpu/model/triton_emitter_constraints.cc.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from hlo_opt.analysis.graph.cluster import Cluster, Node
from hlo_opt.analysis.xla.tiled_indexing import RANGE, Index, Indices, operand_indices, root_indices
from hlo_opt.ops.sets import RESHAPES

MAX_TILE_ELEMENTS = 1048576
"""Triton's limit on the elements of a tensor."""
MAX_BLOCKS = 2**31 - 1
MAX_NODES = 4096
"""A node is reached along several paths; a kernel that unfolds further than this is not tiled."""


@dataclass(frozen=True, slots=True)
class TiledNode:
    """A node as it is reached along one path from the result."""

    node: Node
    index: int
    """Position of its indices in `TiledCluster.indices`."""
    operands: tuple[int, ...]
    """Positions in `TiledCluster.nodes`."""


@dataclass(slots=True)
class TiledCluster:
    """All tiled nodes, operands before users; the last is the result.

    `indices` holds each tuple of indices once. `reshapes` are checked apart: a reshape sees tiles padded to powers of two, so its operand's
    indices are kept in terms of its own result, beside the position of the result's indices.
    """

    nodes: list[TiledNode]
    indices: list[Indices]
    reshapes: list[tuple[int, Indices]]
    extents: list[Callable[[Sequence[int]], tuple[int, ...]]] = field(default_factory=list)
    """By position in `indices`: picks what belongs to each dimension from the values of `Tiles.values`."""
    constants: list[int] = field(default_factory=list)
    compounds: list[Index] = field(default_factory=list)
    fixed_strides: list[tuple[int, ...] | None] = field(default_factory=list)
    """By position in `indices`: the strides, where they are the same for all tilings."""
    repeated: frozenset[int] = frozenset()
    """Positions of nodes that are reached along several paths, and of all that reads them."""
    flops: list[int] = field(default_factory=list)
    """Operations for one element, by position in `nodes`; filled by the model."""

    @property
    def root(self) -> Node:
        return self.nodes[-1].node


def tile_cluster(cluster: Cluster) -> TiledCluster | None:
    """Carry the result's indices up to everything that the kernel reads; None where something does not tile."""
    if len(cluster.roots) != 1 or not cluster.roots[0].shape.is_array or cluster.roots[0].is_input:
        return None
    start = (cluster.roots[0], root_indices(cluster.roots[0].shape))
    found = TiledCluster([], [], [])
    numbers: dict[Indices, int] = {}
    position: dict[tuple[Node, Indices], int] = {}
    above: dict[tuple[Node, Indices], list[tuple[Node, Indices]]] = {}
    stack = [start]
    while stack:
        key = stack[-1]
        if key in position:
            stack.pop()
            continue
        if key not in above:
            operands = _operands_of(*key)
            if operands is None or len(above) > MAX_NODES:
                return None
            above[key] = operands
            stack.extend(o for o in operands if o not in position)
            continue
        stack.pop()
        node, indices = key
        position[key] = len(found.nodes)
        index = numbers.setdefault(indices, len(numbers))
        if index == len(found.indices):
            found.indices.append(indices)
        if not node.is_input and node.opcode in RESHAPES:
            reshape = operand_indices(node, 0, root_indices(node.shape))
            if reshape is None or not all(i.is_tileable for i in reshape):
                return None
            if not all(i.is_simple for i in reshape):
                found.reshapes.append((index, reshape))
        found.nodes.append(TiledNode(node, index, tuple([position[o] for o in above[key]])))
    found.repeated = _repeated(found.nodes)
    _prepare(found)
    return found


def _prepare(cluster: TiledCluster) -> None:
    """Sort out what changes with the tiling. A search tries hundreds, and most indices follow one dimension of the result or are constant."""
    rank = cluster.root.shape.rank
    constants: dict[int, int] = {}
    compounds: dict[Index, int] = {}
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


def _operands_of(node: Node, indices: Indices) -> list[tuple[Node, Indices]] | None:
    if not all(i.is_tileable for i in indices):
        return None
    if node.is_input:
        return []
    found = []
    for number, operand in enumerate(node.operands):
        reached = operand_indices(node, number, indices)
        if reached is None:
            return None
        found.append((operand, reached))
    return found


def _repeated(nodes: list[TiledNode]) -> frozenset[int]:
    times: dict[Node, int] = {}
    for tiled in nodes:
        times[tiled.node] = times.get(tiled.node, 0) + 1
    return frozenset(n for n, tiled in enumerate(nodes) if times[tiled.node] > 1)


def padded(sizes: tuple[int, ...]) -> int:
    """Elements of a tile with each side rounded up to a power of two, as Triton keeps it."""
    return math.prod([1 << (s - 1).bit_length() for s in sizes])


class Tiles:
    """A tiling of a kernel: for a tile of the result, the tiles of all indices. `extents` and `padded` go by position in `TiledCluster.indices`."""

    __slots__ = ("_strides", "cluster", "extents", "padded", "sizes")

    def __init__(self, cluster: TiledCluster, sizes: tuple[int, ...]) -> None:
        self.cluster = cluster
        self.sizes = sizes
        values = [*sizes, *cluster.constants, *[i.elements(sizes) for i in cluster.compounds]]
        self.extents = [pick(values) for pick in cluster.extents]
        rounded = [1 << (v - 1).bit_length() for v in values]
        self.padded = [math.prod(pick(rounded)) for pick in cluster.extents]
        self._strides: dict[int, tuple[int, ...]] = {}

    @property
    def blocks(self) -> int:
        """How many tiles cover the result: one block each."""
        dimensions = self.cluster.root.shape.dimensions
        return math.prod([-(-d // t) for d, t in zip(dimensions, self.sizes, strict=True)])

    @property
    def largest(self) -> int:
        """Elements of the largest tile."""
        return max(self.padded)

    def strides(self, index: int) -> tuple[int, ...]:
        """The distances between neighbours of a tile, by dimension."""
        found = self.cluster.fixed_strides[index] or self._strides.get(index)
        if found is None:
            # EvaluateTileStrides: a tile is no larger than its dimension
            dimensions = self.cluster.root.shape.dimensions
            clamped = tuple([min(t, d) for t, d in zip(self.sizes, dimensions, strict=True)])
            found = self._strides[index] = tuple([i.stride(clamped) for i in self.cluster.indices[index]])
        return found

    def is_valid(self) -> bool:
        """Whether every tile is one evenly spaced block of a size that Triton takes (ParametersSatisfyConstraints)."""
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
        """The nodes, by position, each once where several paths lead to the same tile of it."""
        nodes, repeated = self.cluster.nodes, self.cluster.repeated
        if not repeated:
            yield from range(len(nodes))
            return
        seen: dict[tuple[object, ...], int] = {}
        same = list(range(len(nodes)))
        for number, tiled in enumerate(nodes):
            if number in repeated:
                index = tiled.index
                above = tuple([same[o] for o in tiled.operands])
                begin = () if above else tuple([i.origin(self.sizes) for i in self.cluster.indices[index]])
                key = (tiled.node, self.extents[index], self.strides(index), above, begin)
                same[number] = seen.setdefault(key, number)
            if same[number] == number:
                yield number
