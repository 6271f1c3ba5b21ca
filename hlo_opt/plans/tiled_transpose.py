"""The tiled-transpose plan: a block reads a square tile in the order of the operand and writes it in the order of the result; shared memory lies between.

Transposes that move the same dimensions of the same sizes share the kernel, as do outputs in the order of the operand. What leads to a transpose is computed while
reading, what follows it while writing.
Which transposes qualify: xla/service/gpu/ir_emission_utils.cc (GetDescriptionForTiledTransposeEmitter); how: xla/backends/gpu/codegen/emitters/transpose.cc.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from hlo_opt.analysis.memory.transposes import TILE, TiledTranspose, packing, tile_counts, tiled_move
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import Expression, linearize, variable
from hlo_opt.ops.spec import find
from hlo_opt.plans.columns import SHARED_BYTES
from hlo_opt.plans.limits import HEAVIEST, weight
from hlo_opt.plans.loop import physical_index
from hlo_opt.plans.plan import Region, Segment, above

BLOCK = 128
_MOST_STEPS = 20_000  # of the walk that follows indices from outputs to transposes


@dataclass(frozen=True)
class Frame:
    """What moves: the operand's sizes in memory, and which of its dimensions each of the result's is.

    near   the operand's dimension whose neighbours lie together
    far    the one that changes places with it
    width  elements that stay together: 1 unless the fastest dimension stays where it is
    vector neighbouring elements that a thread moves together: narrow ones, as many as a bank of shared memory holds
    """

    sizes: tuple[int, ...]
    permutation: tuple[int, ...]
    vector: int = 1

    @staticmethod
    def of(found: TiledTranspose, vector: int = 1) -> Frame:
        return Frame(found.operand_sizes, found.permutation, vector)

    @property
    def side(self) -> int:
        """Elements of a tile along each of the two dimensions."""
        return TILE * self.vector

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
        return tile_counts(self.sizes, self.permutation, self.vector)

    def given(self, at: Sequence[Expression]) -> Expression:
        """The place in the operand's memory of a position."""
        return linearize(at, self.sizes)

    def made(self, at: Sequence[Expression]) -> Expression:
        """The place in the result's memory of a position, which is given by the operand's dimensions."""
        return linearize([at[d] for d in self.permutation], [self.sizes[d] for d in self.permutation])


@dataclass(frozen=True)
class Tiles:
    """Outputs (`roots` are positions) that come out of tiles, and the transposes that go through them."""

    kind: ClassVar[str] = "tiled-transpose"
    frame: Frame
    tiled: tuple[Instruction, ...]
    roots: tuple[int, ...]

    @property
    def hero(self) -> Instruction:
        """The first transpose."""
        return self.tiled[0]

    @property
    def block(self) -> int:
        """Threads per block when nothing else asks for more."""
        return BLOCK

    def segment(self, block: int) -> Segment[Tiles]:
        """The segment in a launch of blocks of that size, which is at least `self.block`."""
        return Segment(self, math.prod(self.frame.tiles), self.frame.vector)

    def shared_bytes(self, block: int) -> int:
        """Bytes of the tiles."""
        return sum(tile_bytes(self.frame, t) for t in self.tiled)


def tile_bytes(frame: Frame, transpose: Instruction) -> int:
    """Bytes of a tile, one column more than it needs so that neither rows nor columns meet in a bank."""
    return frame.side * (frame.side + 1) * frame.width * transpose.shape.type.bytes


def match(
    region: Region, roots: Sequence[int], target: DeviceTarget, shared_bytes: int = SHARED_BYTES
) -> tuple[list[Tiles], list[int]]:
    """The tiled transposes that outputs of a region come out of, as far as shared memory has room, and the positions of the other outputs."""
    frames: dict[Frame, list[Instruction]] = {}
    for instruction in region.computation.instructions:
        description = tiled_move(instruction)
        if description is not None:
            frames.setdefault(Frame.of(description), []).append(instruction)
    found, rest = [], list(roots)
    for frame in sorted(frames, key=lambda f: -math.prod(f.sizes)):  # equal ones in the order of the text
        tiles = _cover(region, rest, frame, frames[frame], shared_bytes, target.core_count)
        if tiles is not None:
            found.append(tiles)
            rest = [n for n in rest if n not in tiles.roots]
            shared_bytes -= tiles.shared_bytes(BLOCK)
    return found, rest


def _cover(
    region: Region, roots: Sequence[int], frame: Frame, transposes: Sequence[Instruction], room: int, cores: int
) -> Tiles | None:
    at = [variable(f"d{d}", size) for d, size in enumerate(frame.sizes)]
    needs: dict[int, set[Instruction]] = {}
    for number in roots:
        shapes = list(region.roots[number].shape.leaves())
        if len(shapes) == 1 and shapes[0].element_count == math.prod(frame.sizes):
            needs[number] = read_at(region.roots[number], transposes, frame.made(at))
    tiled: list[Instruction] = []
    whole_room = room
    for transpose in transposes:
        size = tile_bytes(frame, transpose)
        if size <= room and any(transpose in read for read in needs.values()):
            tiled.append(transpose)
            room -= size
    if not tiled:
        return None
    bits = 8 * max(t.shape.type.bytes for t in tiled)
    frame = replace(frame, vector=packing(frame.sizes, frame.permutation, bits, len(tiled), cores, whole_room))
    chosen = set(tiled)
    beside = above([t.operands[0] for t in tiled]) - chosen
    covered = [
        number
        for number, read in needs.items()
        if read & chosen or _goes_along(region.roots[number], transposes, beside)
    ]
    return Tiles(frame, tuple(tiled), tuple(covered))


def _goes_along(root: Instruction, transposes: Sequence[Instruction], beside: set[Instruction]) -> bool:
    """Whether an output needs what the transposes need, and none of these."""
    needed = above([root])
    return not needed.isdisjoint(beside) and needed.isdisjoint(transposes)


def writes_after(root: Instruction, tiled: Sequence[Instruction], frame: Frame) -> bool:
    """Whether an output of the plan comes out of a tile; the others are written while tiles are filled."""
    at = [variable(f"d{d}", size) for d, size in enumerate(frame.sizes)]
    return bool(read_at(root, tiled, frame.made(at)))


def read_at(root: Instruction, among: Sequence[Instruction], place: Expression) -> set[Instruction]:
    """The instructions among some whose element at a place in memory the root's element at that place needs."""
    wanted = {i: physical_index(i.shape, place) for i in among}
    over = _depending_on(root, set(among))
    found: set[Instruction] = set()
    stack = [(root, physical_index(next(root.shape.leaves()), place))] if root in over else []
    seen = set(stack)
    while stack:
        instruction, index = stack.pop()
        if wanted.get(instruction) == index:
            found.add(instruction)
            continue
        if len(seen) > _MOST_STEPS or any(weight(e, HEAVIEST) >= HEAVIEST for e in index):
            continue
        spec = find(instruction.opcode)
        for number, operand in enumerate(instruction.operands):
            read = (
                None if operand not in over or spec is None or spec.index is None else spec.index(instruction, number)
            )
            if instruction.opcode in ("tuple", "get-tuple-element"):
                continue
            if read is None or read.symbols or read.runtime:
                continue
            below = (operand, read.apply(index))
            if below not in seen:
                seen.add(below)
                stack.append(below)
    return found


def _depending_on(root: Instruction, wanted: set[Instruction]) -> set[Instruction]:
    """What the root needs and what needs one of the wanted."""
    found = wanted & above([root])
    stack = list(found)
    inside = above([root])
    while stack:
        for user in stack.pop().users:
            if user in inside and user not in found:
                found.add(user)
                stack.append(user)
    return found
