"""The tiled-transpose plan: a block reads a square tile in the order of the operand, keeps it in shared memory, and
writes it in the order of the result.

Transposes of the same dimensions and sizes share the kernel, as do outputs in the order of the operand. The producers
of a transpose are computed while a tile is read, its users while it is written. An operand with another layout than the
result moves as a transpose does: JAX writes `x.T + y` with a transpose that is only a change of layout,
`f32[4,3]{0,1} transpose(f32[3,4]{1,0} x)`. Which transposes qualify: xla/service/gpu/ir_emission_utils.cc
(GetDescriptionForTiledTransposeEmitter); how: xla/backends/gpu/codegen/emitters/transpose.cc.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from hlo_opt.analysis.memory.forms import (
    TILE,
    TiledTranspose,
    only_renames,
    packing,
    tile_counts,
    tiled_move,
    tiled_read,
    turns_view,
)
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.index_map import Expression, add, delinearize, divide, linearize, modulo, multiply, variable
from hlo_opt.ops.lowering import Index
from hlo_opt.ops.movement.memory import physical_index
from hlo_opt.plans.columns import SHARED_BYTES
from hlo_opt.plans.element_reads import depending_below, ends_needed
from hlo_opt.plans.plan import Launch, Region, Segment, above
from hlo_opt.plans.reads import address_of
from hlo_opt.plans.walks import ITEM, ROUND, THREAD, Walk, leaves_at

BLOCK = 128
NARROW = 16
"""Bits of the widest elements of which a row of 32 is short."""
MOST_EDGES = 8
"""Tiles along a dimension, from which on those that are partly empty do not count."""

D = TypeVar("D", bound=Hashable)
"""What describes a move of elements."""


@dataclass(frozen=True)
class TransposeFrame:
    """A permutation of dimensions, in the order of memory: the operand's sizes, and its dimension for each dimension of
    the result.

    near   the operand's minor-most dimension that moves
    far    the dimension that takes its place in the result
    width  elements that stay adjacent: 1 unless the minor-most dimension does not move
    vector neighbouring elements that a thread moves together: as many narrow ones as a bank of shared memory holds
    warps  warps that move a row of a tile: two where narrow elements move one by one, so that rows are not as short
    """

    sizes: tuple[int, ...]
    permutation: tuple[int, ...]
    vector: int = 1
    warps: int = 1

    @staticmethod
    def of(move: TiledTranspose, vector: int = 1) -> TransposeFrame:
        return TransposeFrame(move.operand_sizes, move.permutation, vector)

    @property
    def side(self) -> int:
        """Elements of a tile along each of the two dimensions."""
        return self.lanes * self.vector

    @property
    def lanes(self) -> int:
        """Threads that move a row of a tile."""
        return TILE * self.warps

    @property
    def _stays(self) -> bool:
        return self.permutation[-1] == len(self.sizes) - 1

    @property
    def near(self) -> int:
        return len(self.sizes) - 1 - self._stays

    @property
    def far(self) -> int:
        return self.permutation[self.near]

    @property
    def width(self) -> int:
        return self.sizes[-1] if self._stays else 1

    @property
    def tiles(self) -> tuple[int, ...]:
        """Tiles along each dimension of the operand."""
        return tile_counts(self.sizes, self.permutation, self.vector * self.warps)

    def operand_place(self, at: Sequence[Expression]) -> Expression:
        """The linear position in the operand's memory of an index of the operand."""
        return linearize(at, self.sizes)

    def result_place(self, at: Sequence[Expression]) -> Expression:
        """The linear position in the result's memory of an index of the operand."""
        return linearize([at[d] for d in self.permutation], [self.sizes[d] for d in self.permutation])


@dataclass(frozen=True)
class Tiles:
    """Outputs (`roots` are positions) that are written from tiles, and the transposes, or arrays of another layout,
    that fill them."""

    kind: ClassVar[str] = "tiled-transpose"
    frame: TransposeFrame
    tiled: tuple[Instruction, ...]
    roots: tuple[int, ...]

    @property
    def hero(self) -> Instruction:
        """The first tiled instruction."""
        return self.tiled[0]

    @property
    def block(self) -> int:
        return BLOCK

    def segment(self, block: int) -> Segment[Tiles]:
        return Segment(self, math.prod(self.frame.tiles), self.frame.vector)

    def shared_bytes(self, block: int) -> int:
        """Bytes of the tiles."""
        return sum(tile_bytes(self.frame, t) for t in self.tiled)


def source_of(tiled: Instruction) -> Instruction:
    """The value that a tile is filled with: a transpose's operand, or, for an array of another layout, the array."""
    return tiled.operands[0] if tiled_move(tiled) is not None else tiled


def index_in(frame: TransposeFrame, tiled: Instruction, at: Sequence[Expression]) -> Index:
    """The index of an instruction's element in its tile, for an index of the operand."""
    return physical_index(tiled.shape, frame.operand_place(at) if tiled_move(tiled) is None else frame.result_place(at))


def tile_bytes(frame: TransposeFrame, transpose: Instruction) -> int:
    """Bytes of a tile. One more column avoids bank conflicts along rows and columns."""
    return frame.side * (frame.side + 1) * frame.width * transpose.shape.type.bytes


def match(
    region: Region, roots: Sequence[int], target: DeviceTarget, shared_bytes: int = SHARED_BYTES
) -> tuple[list[Tiles], list[int]]:
    """The tiled transposes for outputs of a region, as far as they fit into shared memory, and the positions of the
    other outputs."""
    frames: dict[TransposeFrame, list[Instruction]] = {}
    for instruction in region.computation.instructions:
        description = tiled_move(instruction)
        if description is not None:
            frames.setdefault(TransposeFrame.of(description), []).append(instruction)
    for instruction, description in in_other_order(region, roots, tiled_read):
        frames.setdefault(TransposeFrame.of(description), []).append(instruction)
    if target.in_lanes:  # lanes move neighbours one by one from tiles, but together in a loop
        frames = {frame: moved for frame, moved in frames.items() if frame.width == 1}
    parts, rest = [], list(roots)
    for frame in sorted(frames, key=lambda f: -math.prod(f.sizes)):  # equal ones in the order of the text
        tiles = _cover(region, rest, frame, frames[frame], shared_bytes, target)
        if tiles is not None:
            parts.append(tiles)
            rest = [n for n in rest if n not in tiles.roots]
            shared_bytes -= tiles.shared_bytes(BLOCK)
    return parts, rest


def _cover(
    region: Region,
    roots: Sequence[int],
    frame: TransposeFrame,
    transposes: Sequence[Instruction],
    room: int,
    target: DeviceTarget,
) -> Tiles | None:
    needs = _read_in_tiles(region, roots, frame, transposes)
    tiled: list[Instruction] = []
    whole_room = room
    for transpose in transposes:
        size = tile_bytes(frame, transpose)
        if size <= room and any(transpose in read for read in needs.values()):
            tiled.append(transpose)
            room -= size
    if not tiled:
        return None
    if not target.in_lanes:  # lanes are vectors themselves: of two elements each, they would gather
        bits = 8 * max(t.shape.type.bytes for t in tiled)
        vector = packing(frame.sizes, frame.permutation, bits, len(tiled), target.core_count, whole_room)
        frame = replace(frame, vector=vector, warps=_warps(frame, vector, tiled, whole_room, target))
    chosen = set(tiled)
    beside = above(map(source_of, tiled))
    moves = [t for t in transposes if source_of(t) is not t]
    covered = [
        number for number, read in needs.items() if read & chosen or _goes_along(region.roots[number], moves, beside)
    ]
    return Tiles(frame, tuple(tiled), tuple(covered))


def _warps(frame: TransposeFrame, vector: int, tiled: Sequence[Instruction], room: int, target: DeviceTarget) -> int:
    """Two for the rows of tiles of elements of up to 16 bits that move one by one, if such tiles fill the device and
    fit."""
    wide = replace(frame, vector=vector, warps=2)
    if vector > 1 or frame.width > 1 or any(8 * t.shape.type.bytes > NARROW for t in tiled):
        return 1
    is_large = min(frame.sizes[frame.near], frame.sizes[frame.far]) >= MOST_EDGES * wide.side
    fits = sum(tile_bytes(wide, t) for t in tiled) <= room and math.prod(wide.tiles) >= target.resident_threads // BLOCK
    return 2 if is_large and fits else 1


def _read_in_tiles(
    region: Region, roots: Sequence[int], frame: TransposeFrame, tiled: Sequence[Instruction]
) -> dict[int, set[Instruction]]:
    """For each output of as many elements as a frame has, by its position: what is read of `tiled` when its elements
    are written in the order of tiles."""
    elements = math.prod(frame.sizes)
    sized = [n for n in roots if [s.element_count for s in region.roots[n].shape.leaves()] == [elements]]
    if not sized:
        return {}
    at = [variable(f"d{d}", size) for d, size in enumerate(frame.sizes)]
    wanted, place = {t: index_in(frame, t, at) for t in tiled}, frame.result_place(at)
    return {n: read_at(region.roots[n], wanted, place) for n in sized}


def _goes_along(root: Instruction, transposes: Sequence[Instruction], beside: set[Instruction]) -> bool:
    """Whether an output shares inputs with the tiles, and needs no transpose."""
    needed = above([root])
    return not needed.isdisjoint(beside) and needed.isdisjoint(transposes)


def written_after(region: Region, part: Tiles) -> set[int]:
    """The positions of the outputs that are written from a tile; the others are written while tiles are filled."""
    return {n for n, read in _read_in_tiles(region, part.roots, part.frame, part.tiled).items() if read}


def read_at(root: Instruction, wanted: Mapping[Instruction, Index], place: Expression) -> set[Instruction]:
    """The keys of `wanted` whose element at their index the root's element at `place` in memory depends on."""
    start = (root, physical_index(next(root.shape.leaves()), place))
    over = depending_below(root, set(wanted))
    return {end[0] for end in ends_needed([start], over, lambda i, index: wanted.get(i) == index) if end is not None}


def read_along(roots: Iterable[Instruction], among: Iterable[Instruction]) -> set[Instruction]:
    """The instructions of `among` of which an element of a root depends on the element at the same place in memory.
    The place is written in the coordinates of each: those of the root are coarser or finer after a reshape."""
    read = set[Instruction]()
    for i in among:
        own = tuple(variable(f"d{d}", size) for d, size in enumerate(i.shape.dimensions))
        place = address_of(i.shape, own)
        if any(read_at(root, {i: own}, place) for root in roots):
            read.add(i)
    return read


def in_other_order(
    region: Region, roots: Sequence[int], described: Callable[[Shape, tuple[int, ...], Shape], D | None]
) -> list[tuple[Instruction, D]]:
    """The parameters, and transposes that are only changes of layout, that an output of another layout reads element by
    element, each with the description of the move of its elements, where it has one: of (shape of the operand, its
    dimension for each of the result, shape of the result), as `relative_order` takes them."""
    names = [p for p in region.parameters if p.shape.is_array and p.shape.rank > 1]
    names += [i for i in region.computation.instructions if only_renames(i)]
    views = {i.shape.element_count for i in region.computation.instructions if turns_view(i)}
    moves: dict[tuple[Instruction, D], None] = {}
    for root in (region.roots[n] for n in roots):
        shape = next(root.shape.leaves())
        among = {i for i in names if i.shape.is_array and i.shape.element_count == shape.element_count}
        orders = (i.shape.minor_to_major != shape.minor_to_major or i.operands for i in among)
        if shape.element_count in views or any(orders):
            moves |= dict.fromkeys(_moved(root, among, described))
    return sorted(moves, key=lambda pair: names.index(pair[0]))


def _moved(
    root: Instruction, among: set[Instruction], described: Callable[[Shape, tuple[int, ...], Shape], D | None]
) -> Iterator[tuple[Instruction, D]]:
    """The instructions of `among` that a root reads element by element in another order, each with the description of
    the move of its elements."""
    shape = next(root.shape.leaves())
    whole = tuple(variable(f"d{d}", size) for d, size in enumerate(shape.dimensions))

    def move(instruction: Instruction, index: Index) -> D | None:
        if instruction not in among or set(index) != set(whole):
            return None
        return described(instruction.shape, tuple(index.index(v) for v in whole), shape)

    def is_end(instruction: Instruction, index: Index) -> bool:
        return move(instruction, index) is not None or tiled_move(instruction) is not None

    for end in ends_needed([(root, whole)], depending_below(root, among), is_end):
        moved = None if end is None else move(*end)
        if end is not None and moved is not None:
            yield end[0], moved


def walks(region: Region, segment: Segment[Tiles], launch: Launch) -> list[Walk]:
    """The walks that fill a tile in the order of the operand, and write it in that of the result."""
    part, frame = segment.part, segment.part.frame
    threads = segment.blocks * BLOCK
    thread = variable(THREAD, threads)
    corner = delinearize(divide(thread, BLOCK), frame.tiles)
    rounds = frame.side * frame.side * frame.width // (BLOCK * frame.vector)
    at = [variable(f"at{d}", size) for d, size in enumerate(frame.sizes)]
    after = written_after(region, part)
    walks = []
    for along, place, known in (
        (frame.near, frame.operand_place(at), frozenset()),
        (frame.far, frame.result_place(at), part.tiled),
    ):
        element = add(multiply(variable(ROUND, rounds), BLOCK), modulo(thread, BLOCK))
        row, inside = divide(element, frame.lanes * frame.width), modulo(element, frame.lanes * frame.width)
        column = add(multiply(divide(inside, frame.width), frame.vector), variable(ITEM, frame.vector))
        places = {}
        for d, of_tile in enumerate(corner):
            if d in (frame.near, frame.far):
                places[f"at{d}"] = add(multiply(of_tile, frame.side), column if d == along else row)
            elif frame.width > 1 and d == len(frame.sizes) - 1:
                places[f"at{d}"] = modulo(inside, frame.width)
            else:
                places[f"at{d}"] = of_tile
        fills = not known
        roots = [region.roots[n] for n in part.roots if (n in after) != fills]
        ends = [(root, physical_index(next(root.shape.leaves()), place)) for root in roots]
        wanted = [(t, physical_index(t.shape, place)) for t in map(source_of, part.tiled)] if fills else []
        walks.append(
            Walk(
                threads,
                [*wanted, *ends],
                leaves_at(ends),
                places=places,
                items=frame.vector,
                rounds=rounds,
                known=frozenset(known),
                ahead=rounds,
                barriers=int(fills),
                shared=len(part.tiled),
            )
        )
    return walks
