"""The plan of updates in place: threads walk the update and write only that. The output is the updated buffer itself,
or starts as a copy of it; the schedule decides (`Segment.aliases`, `Segment.own`).

A thread of the region may read only those elements of the buffer that it overwrites itself.
Source: xla/service/gpu/ir_emission_utils.cc (CanEmitFusedDynamicUpdateSliceInPlaceForGpu),
xla/backends/gpu/codegen/emitters/in_place_dynamic_update_slice.cc.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.index_map import Expression, add, constant, dimensions, variable
from hlo_opt.ir.size import gcd
from hlo_opt.ops.lowering import Element, Index
from hlo_opt.ops.movement.memory import physical_index
from hlo_opt.ops.sets import keeps_values
from hlo_opt.plans.element_reads import depending_on, heroes_read
from hlo_opt.plans.loop import Spread
from hlo_opt.plans.plan import Launch, Region, Segment, above
from hlo_opt.plans.walks import Walk, neighbours


@dataclass(frozen=True)
class Windows(Spread):
    """Updates of the same size (`heroes`), the positions of their roots, and (output, parameter) for each updated
    buffer (`aliases`)."""

    kind: ClassVar[str] = "dynamic-update-slice"
    heroes: tuple[Instruction, ...]
    roots: tuple[int, ...]
    aliases: tuple[tuple[int, int], ...]
    vector: int

    @property
    def hero(self) -> Instruction:
        """The first update."""
        return self.heroes[0]

    @property
    def threads(self) -> int:
        return self.heroes[0].operands[1].shape.element_count // self.vector

    def segment(self, block: int) -> Segment[Windows]:
        own = tuple(output for output, _ in self.aliases)
        return Segment(self, -(-self.threads // block), self.vector, aliases=self.aliases, own=own)


def update_of(root: Instruction) -> Instruction:
    """The operation whose memory a root shares."""
    while _keeps_memory(root):
        root = root.operands[0]
    return root


def window_index(update: Instruction, position: Expression) -> Index:
    """The index in the update of the element at a linear position, in the result's layout."""
    window = update.operands[1].shape.dimensions
    return physical_index(Shape(update.shape.type, window, update.shape.layout), position)


def match(region: Region, roots: Sequence[int], target: DeviceTarget) -> tuple[list[Windows], list[int]]:
    """The updates among outputs of a region that may be in place, grouped by size, and the positions of the other
    outputs."""
    groups: dict[int, list[tuple[int, tuple[int, int]]]] = {}
    rest: list[int] = []
    updates: set[Instruction] = set()
    for position in roots:
        update = update_of(region.roots[position])
        buffer = None if update in updates else _own_buffer(region, position, update)
        if buffer is None:
            rest.append(position)
            continue
        updates.add(update)
        output = sum(len(list(root.shape.leaves())) for root in region.roots[:position])
        alias = (output, region.parameters.index(buffer))
        groups.setdefault(update.operands[1].shape.element_count, []).append((position, alias))
    parts = []
    for members in groups.values():
        heroes = tuple(update_of(region.roots[position]) for position, _ in members)
        aliases = tuple(alias for _, alias in members)
        vector = gcd(*(_vector(hero, target) for hero in heroes))
        parts.append(Windows(heroes, tuple(position for position, _ in members), aliases, vector))
    return parts, rest


def _vector(update: Instruction, target: DeviceTarget) -> int:
    """Neighbouring elements per thread: several if the device is full, or if elements share a byte, and if they are
    aligned neighbours of the result."""
    window, size = update.operands[1].shape, update.shape
    most = 4 if window.element_count >= target.resident_threads else size.type.per_byte
    if most == 1 or not size.rank:
        return 1
    minor = size.minor_to_major[0]
    whole = window.dimensions[minor] == size.dimensions[minor]
    return gcd(size.dimensions[minor], most) if whole else 1


def _own_buffer(region: Region, position: int, update: Instruction) -> Instruction | None:
    """The parameter that an output updates, if nothing else in the region reads the overwritten elements; else None."""
    if update.opcode != "dynamic-update-slice":
        return None
    buffer = update.operands[0]
    while _keeps_memory(buffer):
        buffer = buffer.operands[0]
    root = region.roots[position]
    if buffer not in region.parameters or region.roots.count(root) > 1:
        return None
    if update.operands[0].shape.minor_to_major != update.shape.minor_to_major:
        return None
    if root.shape.dimensions == buffer.shape.dimensions and root.shape.minor_to_major != buffer.shape.minor_to_major:
        return None
    if any(user.opcode != "tuple" for user in _chain_users(root, update)):
        return None
    others = [r for n, r in enumerate(region.roots) if n != position]
    if others and buffer in above(others):
        return None
    return buffer if _sees_own_only(region, update, buffer) else None


def _chain_users(root: Instruction, update: Instruction) -> Iterator[Instruction]:
    """The users of the update and of its views up to the root, without the views."""
    at = root
    yield from at.users
    while at is not update:
        below = at.operands[0]
        yield from (user for user in below.users if user is not at)
        at = below


def _keeps_memory(instruction: Instruction) -> bool:
    """Whether an instruction is a view of its operand with the same element type."""
    if keeps_values(instruction, ("bitcast",)):
        return True
    return (
        instruction.opcode == "reshape"
        and instruction.shape.is_row_major
        and instruction.operands[0].shape.is_row_major
    )


def _sees_own_only(region: Region, update: Instruction, buffer: Instruction) -> bool:
    """Whether an element of the update depends on no element of the buffer but the one that it overwrites."""
    place, window = update.operands[:2]
    depending = depending_on(region.computation.instructions, [buffer])
    if any(start in depending for start in update.operands[2:]):
        return False
    here = dimensions(window.shape.dimensions)
    same = [i for i in depending if i.opcode == "dynamic-slice" and i.operands[0] is place and _same_window(i, update)]
    own: dict[Instruction, Index | None] = {buffer: None, place: _overwritten(update, here)}
    return heroes_read([(window, here)], depending, own | dict.fromkeys(same, here)) is not None


def _overwritten(update: Instruction, here: Index) -> Index | None:
    """The index that an element of the window overwrites; None where starts are not known."""
    place, window, *starts = update.operands
    known = [start.literal for start in starts]
    if len(known) != place.shape.rank or any(k is None or k.is_elided or k.shape.rank for k in known):
        return None
    most = [size - part for size, part in zip(place.shape.dimensions, window.shape.dimensions, strict=True)]
    first = [min(max(int(np.asarray(k.value)), 0), last) for k, last in zip(known, most, strict=True) if k is not None]
    return tuple(add(e, constant(start)) for e, start in zip(here, first, strict=True))


def _same_window(slice_: Instruction, update: Instruction) -> bool:
    if slice_.shape.dimensions != update.operands[1].shape.dimensions:
        return False
    starts, others = slice_.operands[1:], update.operands[2:]
    return len(starts) == len(others) and all(
        a is b or _same_constant(a, b) for a, b in zip(starts, others, strict=True)
    )


def _same_constant(one: Instruction, other: Instruction) -> bool:
    if one.literal is None or other.literal is None or one.shape.rank or other.shape.rank:
        return False
    if one.literal.is_elided or other.literal.is_elided:
        return False
    return one.literal.value == other.literal.value


def _elements(start: Instruction) -> list[Element]:
    """The elements of a window's start: one scalar per dimension, or all of them in one array."""
    if not start.shape.rank:
        return [(start, ())]
    return [(start, (constant(k),)) for k in range(start.shape.element_count)]


def walks(region: Region, segment: Segment[Windows], launch: Launch) -> list[Walk]:
    """The walk over the elements of the updates, in which threads also read the starts of windows."""
    part = segment.part
    place = variable("place", part.heroes[0].operands[1].shape.element_count)
    at = [(update, window_index(update, place)) for update in part.heroes]
    starts = [element for update in part.heroes for start in update.operands[2:] for element in _elements(start)]
    wanted = [*((update.operands[1], index) for update, index in at), *starts]
    written = [(update.shape, index) for update, index in at]
    return [
        Walk(part.threads, wanted, written, places={"place": neighbours(part.threads, part.vector)}, items=part.vector)
    ]
