"""The concatenate plan: the result of a concatenate is written piece by piece, so that no thread must test which
operand its element comes from.

Pieces of one size share threads: each thread writes the elements at the same position of all pieces, and computes
common values once (as in a stack of columns from one calculation). Pieces of different sizes have blocks of their own.
Concatenates of one shape along one dimension share their pieces. Source of the idea:
xla/backends/gpu/codegen/emitters/concatenate.cc, where the threads of the longest operand walk all operands.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.index_map import Expression, add, constant, linearize, variable
from hlo_opt.ir.size import gcd
from hlo_opt.ops.lowering import Index
from hlo_opt.ops.movement.memory import physical_index
from hlo_opt.plans.loop import MOST_ELEMENTS, WIDEST_ACCESS, Spread, elements_per_thread
from hlo_opt.plans.plan import Launch, Region, Segment, above
from hlo_opt.plans.tiled_transpose import read_along
from hlo_opt.plans.walks import Own, Walk, leaves_at, neighbours

MOST_SHARED = 4
"""Limit of pieces that one thread writes, unless they are single elements of the dimension."""
MOST_PIECES = 16
_MOST_VALUES = 4000  # instructions times pieces: each piece has its own code

Piece = tuple[int, int]
"""The start and the size of a piece along the dimension."""


@dataclass(frozen=True)
class Pieces(Spread):
    """Outputs (`roots` are positions) of the size of a concatenate, and pieces of them of equal size."""

    kind: ClassVar[str] = "concatenate"
    hero: Instruction
    roots: tuple[int, ...]
    pieces: tuple[Piece, ...]
    vector: int

    @property
    def shape(self) -> Shape:
        """The shape of one piece."""
        return piece_shape(self.hero, self.pieces[0])

    @property
    def threads(self) -> int:
        return self.shape.element_count // self.vector

    def segment(self, block: int) -> Segment[Pieces]:
        return Segment(self, -(-self.threads // block), self.vector)


def along(hero: Instruction) -> int:
    """The dimension of a concatenate."""
    return hero.ints("dimensions")[0]


def piece_shape(hero: Instruction, piece: Piece) -> Shape:
    """The shape of a piece of a concatenate, in the result's layout."""
    sizes = list(hero.shape.dimensions)
    sizes[along(hero)] = piece[1]
    return replace(hero.shape, dimensions=tuple(sizes))


def piece_index(hero: Instruction, piece: Piece, position: Expression) -> Index:
    """The index in the result of the element at a linear position of a piece."""
    inside = physical_index(piece_shape(hero, piece), position)
    return tuple(add(e, constant(piece[0])) if d == along(hero) else e for d, e in enumerate(inside))


def root_index(hero: Instruction, root: Instruction, index: Index) -> Index:
    """The index of the output's element at the same position in memory as the concatenate's element at `index`."""
    shape = next(root.shape.leaves())
    if shape.dimensions == hero.shape.dimensions and shape.minor_to_major == hero.shape.minor_to_major:
        return index
    order = hero.shape.minor_to_major[::-1]
    return physical_index(shape, linearize([index[d] for d in order], [hero.shape.dimensions[d] for d in order]))


def match(region: Region, roots: Sequence[int], target: DeviceTarget) -> tuple[list[Pieces], list[int]]:
    """The outputs of a region that are written piece by piece, and the positions of the other outputs."""
    heroes = [i for i in region.computation.instructions if i.opcode == "concatenate" and len(i.operands) > 1]
    if not heroes:
        return [], list(roots)
    groups: dict[int, list[int]] = {}
    for position in roots:
        groups.setdefault(next(region.roots[position].shape.leaves()).element_count, []).append(position)
    all_parts: list[Pieces] = []
    rest: list[int] = []
    for elements, positions in groups.items():
        parts = _parts_of_size(region, positions, [h for h in heroes if h.shape.element_count == elements], target)
        all_parts += parts
        rest += [] if parts else positions
    return all_parts, sorted(rest)


def _parts_of_size(
    region: Region, positions: Sequence[int], heroes: Sequence[Instruction], target: DeviceTarget
) -> list[Pieces]:
    roots = [region.roots[n] for n in positions]
    if not heroes or not heroes[0].shape.element_count or any(root.shape.is_tuple for root in roots):
        return []
    read = read_along(roots, heroes)
    chosen = [h for h in heroes if h in read]
    if not chosen or any(not _is_alike(h, chosen[0]) for h in chosen):
        return []
    pieces = _pieces(chosen)
    if not 1 < len(pieces) <= MOST_PIECES or len(above(roots)) * len(pieces) > _MOST_VALUES:
        return []
    hero, numbers = chosen[0], tuple(positions)
    vector = _vector(region, roots, hero, pieces, target)
    if vector == 1 and not _interlace(hero, pieces) and _is_quicker_in_rows(roots, len(pieces), target):
        return []
    is_even = len({size for _, size in pieces}) == 1
    if is_even and (len(pieces) <= MOST_SHARED or pieces[0][1] == 1):
        return [Pieces(hero, numbers, pieces, vector)]
    return [Pieces(hero, numbers, (piece,), vector) for piece in pieces]


def _is_quicker_in_rows(roots: Sequence[Instruction], pieces: int, target: DeviceTarget) -> bool:
    """Whether a loop is quicker than pieces with a vector of 1, because its threads write 16 bytes of an output at a
    time: of narrow ones always, of those of 4 bytes if there are few pieces to test for."""
    outputs = [root.shape for root in roots]
    vector = elements_per_thread(outputs, (), outputs[0].element_count, target.resident_threads)
    widest = 4 if pieces <= MOST_SHARED else 2
    return all(vector * s.type.bytes >= WIDEST_ACCESS and s.type.bytes <= widest for s in outputs)


def _is_alike(one: Instruction, other: Instruction) -> bool:
    a, b = one.shape, other.shape
    return (a.dimensions, a.minor_to_major, along(one)) == (b.dimensions, b.minor_to_major, along(other))


def _pieces(heroes: Sequence[Instruction]) -> tuple[Piece, ...]:
    """The pieces between the joints of all concatenates."""
    joints = {0}
    for hero in heroes:
        end = 0
        for operand in hero.operands:
            end += operand.shape.dimensions[along(hero)]
            joints.add(end)
    ordered = sorted(joints)
    return tuple((a, b - a) for a, b in itertools.pairwise(ordered))


def _vector(
    region: Region, roots: Sequence[Instruction], hero: Instruction, pieces: Sequence[Piece], target: DeviceTarget
) -> int:
    """Neighbouring elements per thread. If the device is full, as many as in a loop that divide the contiguous elements
    of each piece; else as many as share a byte of an output."""
    elements, resident = hero.shape.element_count, target.resident_threads
    inputs = [shape for shape in region.inputs if shape.is_array and len(pieces) * shape.element_count >= elements]
    widest = min(WIDEST_ACCESS // s.type.bytes * s.type.per_byte for s in (*(root.shape for root in roots), *inputs))
    most = min(8, max(4, widest))
    if elements // len(pieces) < most * resident // 4:
        most = 4
    if elements // len(pieces) < resident:
        most = max(root.shape.type.per_byte for root in roots)
    minor = hero.shape.minor_to_major[0]
    if minor != along(hero):
        return gcd(hero.shape.dimensions[minor], most)
    if _interlace(hero, pieces) and len(pieces) * most <= MOST_ELEMENTS:
        return gcd(most // gcd(most, len(pieces)), elements // len(pieces))
    return gcd(most, *(size for _, size in pieces))


def _interlace(hero: Instruction, pieces: Sequence[Piece]) -> bool:
    """Whether the elements at one position of all pieces are neighbours in memory, as in pairs of a rotary embedding: a
    thread with several positions writes all elements between them."""
    return hero.shape.minor_to_major[0] == along(hero) and all(size == 1 for _, size in pieces)


def walks(region: Region, segment: Segment[Pieces], launch: Launch) -> list[Walk]:
    """The walk of a thread over all pieces; it computes common values once, and what the pieces read together is read
    together."""
    part = segment.part
    place = variable("place", part.shape.element_count)
    places = {"place": neighbours(part.threads, part.vector)}
    at = [piece_index(part.hero, piece, place) for piece in part.pieces]
    roots = [region.roots[n] for n in part.roots]
    wanted = [(root, root_index(part.hero, root, index)) for index in at for root in roots]
    return [Walk(part.threads, wanted, leaves_at(wanted), places=places, items=part.vector)]


def own(region: Region, segment: Segment[Pieces], launch: Launch, walks: Sequence[Walk]) -> list[Own]:
    """Outputs of which one thread writes the elements at a position of all pieces, after it has computed all of
    them."""
    part = segment.part
    if len(part.pieces) * part.pieces[0][1] != part.hero.shape.dimensions[along(part.hero)]:
        return []  # other pieces have threads of their own
    place = variable("place", part.shape.element_count)
    at = [piece_index(part.hero, piece, place) for piece in part.pieces]
    roots = [(n, region.roots[n]) for n in part.roots]
    return [Own(n, 0, frozenset(root_index(part.hero, root, index) for index in at)) for n, root in roots]
