"""The plan of outputs that are batches of small arrays, such as products of small matrices: a thread computes all
elements of one small array, and each shared intermediate value once.

A loop (`hlo_opt.plans.loop`) computes a value again for each element that needs it: in a chain of products of 4 x 4
matrices, four times as often with each product. A loop by lanes (`hlo_opt.plans.lane_loop`) is the same idea for a
`while`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import Expression, delinearize, places_taken, variable
from hlo_opt.ops.lowering import Index
from hlo_opt.plans.element_reads import Element, Reads, read_at
from hlo_opt.plans.instructions import NOTHING, of_value
from hlo_opt.plans.lane_loop import LANE, ByLanes, along, places_of
from hlo_opt.plans.plan import Launch, Region, Segment
from hlo_opt.plans.walks import THREAD, Walk

MOST_WRITTEN = 64
"""Limit of elements that a thread writes: each is a register until then."""
MOST_VALUES = 4_000
"""Limit of values that a thread computes: the code has a statement for each."""
GAIN = 1.5
"""The least factor by which instructions must be fewer than with a thread for each element."""


@dataclass(frozen=True)
class Batch(ByLanes):
    """Outputs (`roots` are positions) of which each thread writes the elements of one lane.

    hero        the output that determines the batch
    dimensions  the sizes of the batch's dimensions
    along       for each output, its dimensions that are the batch's
    """

    kind: ClassVar[str] = "batch"
    hero: Instruction
    roots: tuple[int, ...]
    dimensions: tuple[int, ...]
    along: tuple[tuple[int, ...], ...]

    def segment(self, block: int) -> Segment[Batch]:
        """The segment in a launch of blocks of that size."""
        return Segment(self, -(-self.lanes // block))

    def written(self, region: Region, lane: Expression) -> Iterator[tuple[int, Index]]:
        """(position of an output, index) of each element that the thread of a lane writes."""
        at = delinearize(lane, self.dimensions)
        for number, lanes in zip(self.roots, self.along, strict=True):
            for index in places_of(region.roots[number].shape, lanes, at):
                yield number, index


def match(region: Region, roots: Sequence[int]) -> tuple[list[Batch], list[int]]:
    """The part of outputs for which a batch saves enough work, if there is one, and the positions of the others."""
    arrays = [n for n in roots if region.roots[n].shape.is_array and region.roots[n].shape.type.per_byte == 1]
    hero = max(arrays, key=lambda n: region.roots[n].shape.element_count, default=None)
    if hero is None:
        return [], list(roots)
    apart = _Apart(region)
    for dimensions in _candidates(region.roots[hero].shape.dimensions):
        part = _by(region, arrays, hero, dimensions, apart)
        if part is not None:
            return [part], [n for n in roots if n not in part.roots]
    return [], list(roots)


def may_pay(region: Region) -> bool:
    """Whether anything in the region reads a computed operand at another index than its own."""
    return any(map(_is_read_elsewhere, region.computation.instructions))


def _candidates(sizes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The sizes of the fewest leading, and of the fewest trailing, dimensions that leave a thread few elements."""
    for sides in ([sizes[:k] for k in range(len(sizes))], [sizes[k:] for k in range(len(sizes), 0, -1)]):
        few = (side for side in sides if 1 < math.prod(sizes) <= MOST_WRITTEN * math.prod(side))
        side = next(few, None)
        if side is not None:
            yield side


def _by(region: Region, arrays: Sequence[int], hero: int, dimensions: tuple[int, ...], apart: _Apart) -> Batch | None:
    """The part with a batch of these dimensions; None if it does not save enough work."""
    lanes, room = math.prod(dimensions), MOST_WRITTEN
    along_of: dict[int, tuple[int, ...]] = {}
    for number in (hero, *(n for n in arrays if n != hero)):
        shape = region.roots[number].shape
        at, own = along(shape, dimensions), shape.element_count // lanes
        if at is not None and own <= room and shape.element_count:
            along_of[number], room = at, room - own
    if hero not in along_of or room > MOST_WRITTEN - 2:
        return None
    numbers = sorted(along_of)
    part = Batch(region.roots[hero], tuple(numbers), dimensions, tuple(along_of[n] for n in numbers))
    total = apart.total(part)
    if total is None or GAIN * apart.at_least(part) > total:
        return None
    whole = 0.0
    wanted = [(region.roots[n], index) for n, index in part.written(region, variable(LANE, lanes))]
    for element in _needed(wanted, apart.reads):
        if element is None or GAIN * whole > total:
            return None
        whole += of_value(element[0]).slots
    return part if GAIN * whole <= total else None


class _Apart:
    """The work of threads that compute one element of an output each. Cached for each output."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self.reads = Reads()
        self._known: dict[int, list[tuple[Instruction, Index, float]] | None] = {}

    def _of(self, number: int) -> list[tuple[Instruction, Index, float]] | None:
        """The elements that an element of an output needs, each with its number of instructions; None if some are
        unknown."""
        if number not in self._known:
            root, needed = self._region.roots[number], list[tuple[Instruction, Index, float]]()
            self._known[number] = needed
            for element in _needed([(root, _origin(root))], self.reads):
                if element is None:
                    self._known[number] = None
                    break
                needed.append((*element, of_value(element[0]).slots))
        return self._known[number]

    def total(self, part: Batch) -> float | None:
        """Instructions for all elements of a lane, computed one by one; None if they are unknown."""
        result = 0.0
        for n in part.roots:
            needed = self._of(n)
            if needed is None:
                return None
            result += sum(slots for _, _, slots in needed) * self._region.roots[n].shape.element_count / part.lanes
        return result

    def at_least(self, part: Batch) -> float:
        """A lower bound of the instructions of a lane's thread: a value is computed at least once for each index that
        one of its readers takes over the lane's elements."""
        most: dict[Instruction, float] = {}
        for n, lanes in zip(part.roots, part.along, strict=True):
            sizes = self._region.roots[n].shape.dimensions
            own = {f"d{k}": size for k, size in enumerate(sizes) if k not in lanes}
            for instruction, index, slots in self._of(n) or ():
                if slots:
                    most[instruction] = max(most.get(instruction, 0.0), slots * places_taken(index, own))
        return sum(most.values())


def _is_read_elsewhere(i: Instruction) -> bool:
    """Whether an operation reads a computed operand at another index than its own."""
    return any(
        o.operands and o.shape.rank and read_at(i, n, _origin(i)) != _origin(i) and of_value(o) != NOTHING
        for n, o in enumerate(i.operands)
    )


def _origin(i: Instruction) -> Index:
    return tuple(variable(f"d{k}", size) for k, size in enumerate(i.shape.dimensions)) if i.shape.is_array else ()


def _needed(starts: Sequence[Element], reads: Reads) -> Iterator[Element | None]:
    """The elements and all that they depend on, each once. Ends with None if there are too many, or if an operation
    folds, or reads an index from data."""
    seen, stack = set(starts), list(starts)
    while stack:
        instruction, index = stack.pop()
        yield instruction, index
        for operand, there in reads.below(instruction, index):
            if there is None:
                yield None
                return
            needed, count = (operand, there), len(seen)
            seen.add(needed)
            if len(seen) > count:  # looked up once, not twice: the key is long
                stack.append(needed)
        if len(seen) > MOST_VALUES:
            yield None
            return


def walks(region: Region, segment: Segment[Batch], launch: Launch) -> list[Walk]:
    """The walk over the elements of a lane."""
    part = segment.part
    wanted = [(region.roots[n], index) for n, index in part.written(region, variable(LANE, part.lanes))]
    written = [(value.shape, index) for value, index in wanted]
    return [Walk(part.lanes, wanted, written, places={LANE: variable(THREAD, part.lanes)})]
