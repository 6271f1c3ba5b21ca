"""The plan of outputs that are batches of small arrays, such as products of small matrices: a thread computes all
elements of one small array, and each shared intermediate value once.

A loop (`hlo_opt.plans.loop`) computes a value again for each element that needs it: in a chain of products of 4 x 4
matrices, four times as often with each product. A loop by lanes (`hlo_opt.plans.lane_loop`) is the same idea for a
`while`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir import index_map as maps
from hlo_opt.ir.element_type import PRED
from hlo_opt.ir.index_map import (
    Constant,
    Expression,
    Variable,
    add,
    delinearize,
    distinct_places,
    multiply,
    split_constant,
    variable,
)
from hlo_opt.ir.size import gcd
from hlo_opt.ops.lowering import Element, Elementwise, Index
from hlo_opt.ops.spec import find
from hlo_opt.plans.element_reads import Reads, read_at
from hlo_opt.plans.instructions import NOTHING, of_value
from hlo_opt.plans.lane_loop import LANE, ByLanes, along, places_of
from hlo_opt.plans.loop import WIDEST_ACCESS
from hlo_opt.plans.plan import Launch, Region, Segment
from hlo_opt.plans.reads import address_of
from hlo_opt.plans.samples import Numbers, value_of
from hlo_opt.plans.walks import Walk, neighbours

MOST_WRITTEN = 64
"""Limit of elements that a thread writes: each is a register until then."""
MOST_VALUES = 4_000
"""Limit of values that a thread computes: the code has a statement for each."""
GAIN = 1.5
"""The least factor by which instructions must be fewer than with a thread for each element."""
MOST_BYTES = 640
"""Limit of the bytes that a thread with neighbouring lanes reads and writes: 128 registers, if all are held."""
ENOUGH_THREADS = 384
"""Resident threads for which registers must suffice: 170 registers each. Left alone, the compiler spills the values of
a lane to fit more."""
MOST_AGAIN = 2.0
"""The factor by which threads that share a lane may compute more than one thread would."""
STREAMS = 4
"""Elements that a thread of a processor writes, where neighbours are those of other lanes: each is a stream of its own
through memory, with one or more that are read. Their places are often the same in a cache (32 streams of a batch norm
took 1.6 times as long)."""


@dataclass(frozen=True)
class Batch(ByLanes):
    """Outputs (`roots` are positions) of which each thread writes the elements of one lane, or of neighbouring lanes.

    hero        the output that determines the batch
    dimensions  the sizes of the batch's dimensions
    along       for each output, its dimensions that are the batch's
    shares      threads that share a lane: they take turns along the first dimension that is not the batch's
    vector      neighbouring lanes of a thread
    """

    kind: ClassVar[str] = "batch"
    hero: Instruction
    roots: tuple[int, ...]
    dimensions: tuple[int, ...]
    along: tuple[tuple[int, ...], ...]
    shares: int = 1
    vector: int = 1

    @property
    def places(self) -> int:
        """The number of shares of lanes: the lanes of the first share come first."""
        return self.lanes * self.shares

    @property
    def threads(self) -> int:
        return self.places // self.vector

    def segment(self, block: int) -> Segment[Batch]:
        resident = max(1, ENOUGH_THREADS // block)
        return Segment(self, -(-self.threads // block), self.vector, in_rows=True, resident=resident)

    def own(self, shape: Shape, lanes: Sequence[int]) -> list[int]:
        """How many coordinates the elements of a share of a lane have along each dimension of an output."""
        sizes = [1 if d in lanes else size for d, size in enumerate(shape.dimensions)]
        if self.shares > 1:
            sizes[_first_apart(shape, lanes)] //= self.shares
        return sizes

    def written(self, region: Region, place: Expression) -> Iterator[tuple[int, Index]]:
        """(position of an output, index) of each element that belongs to a share of a lane."""
        share, *at = delinearize(place, (self.shares, *self.dimensions))
        for number, lanes in zip(self.roots, self.along, strict=True):
            shape = region.roots[number].shape
            if self.shares == 1:
                yield from ((number, index) for index in places_of(shape, lanes, tuple(at)))
                continue
            turn = _first_apart(shape, lanes)
            for index in places_of(Shape(shape.type, tuple(self.own(shape, lanes))), lanes, tuple(at)):
                moved = add(multiply(index[turn], self.shares), share)
                yield number, (*index[:turn], moved, *index[turn + 1 :])


def match(region: Region, roots: Sequence[int], target: DeviceTarget) -> tuple[list[Batch], list[int]]:
    """The part of outputs for which a batch saves enough work, if there is one, and the positions of the others."""
    arrays = [n for n in roots if region.roots[n].shape.is_array and region.roots[n].shape.type.per_byte == 1]
    hero = max(arrays, key=lambda n: region.roots[n].shape.element_count, default=None)
    if hero is None:
        return [], list(roots)
    apart = _Apart(region, in_lanes=target.in_lanes)
    for dimensions in _candidates(region.roots[hero].shape.dimensions):
        part = _by(region, arrays, hero, dimensions, apart)
        if part is not None:
            return [_wide(region, part, target, apart)], [n for n in roots if n not in part.roots]
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
    if total is None or GAIN * apart.at_least(part) > total or (apart.in_lanes and not total):
        return None
    share = apart.share(part, total / GAIN)
    return part if share is not None and GAIN * share.slots <= total else None


def _wanted(region: Region, part: Batch) -> list[Element]:
    """The elements of a share of a lane."""
    return [(region.roots[n], index) for n, index in part.written(region, variable(LANE, part.places))]


def _wide(region: Region, part: Batch, target: DeviceTarget, apart: _Apart) -> Batch:
    """The part with neighbouring lanes in a thread, where these lie side by side in memory: as many as 16 bytes hold.
    As many threads share a lane then as registers need, if they compute little again. As it is if neither helps.
    On a processor neighbouring lanes are one vector in any case."""
    if target.in_lanes:
        return _in_few_streams(region, part, apart)
    vector = _widest(region, part, target)
    if vector == 1:
        return part
    once = apart.share(part)
    assert once is not None, "a part is known to save work"
    while vector > 1:
        for shares in _divisors(region, part):
            wide = replace(part, shares=shares, vector=vector)
            if wide.threads >= target.resident_threads // 4 and _is_side_by_side(region, wide):
                share = apart.share(wide)
                if share is None:
                    continue
                if shares * share.slots <= MOST_AGAIN * once.slots and vector * share.moved <= MOST_BYTES:
                    return wide
        vector //= 2
    return part


def _in_few_streams(region: Region, part: Batch, apart: _Apart) -> Batch:
    """The part with threads that share a lane, where its elements lie apart in memory: as many as leave each of them
    few streams, if they compute little again."""
    lanes = along(part.hero.shape, part.dimensions)
    if lanes is None or part.hero.shape.minor_to_major[0] not in lanes:
        return part
    once = apart.share(part)
    assert once is not None, "a part is known to save work"
    written = sum(region.roots[n].shape.element_count for n in part.roots) // part.lanes
    for shares in _divisors(region, part):
        shared = replace(part, shares=shares)
        share = apart.share(shared)
        if share is None or shares * share.slots > MOST_AGAIN * once.slots:
            break
        part = shared
        if written // shares <= STREAMS:
            break
    return part


def _widest(region: Region, part: Batch, target: DeviceTarget) -> int:
    """Lanes of a thread at the most: a power of two that divides the number of lanes."""
    shapes = [region.roots[n].shape for n in part.roots]
    shapes += [p.shape for p in region.parameters if p.shape.is_array and p.shape.element_count >= part.lanes]
    return gcd(part.lanes, max(4, WIDEST_ACCESS // max(shape.type.bytes for shape in shapes)))


def _divisors(region: Region, part: Batch) -> list[int]:
    """Numbers of threads that may share a lane, ascending: each gets as many elements of each output."""
    sizes = []
    for n, lanes in zip(part.roots, part.along, strict=True):
        shape = region.roots[n].shape
        sizes.append(1 if shape.rank == len(lanes) else shape.dimensions[_first_apart(shape, lanes)])
    common = gcd(*sizes)
    return [k for k in range(1, common + 1) if common % k == 0]


def _first_apart(shape: Shape, lanes: Sequence[int]) -> int:
    """The first dimension that is not the batch's."""
    return next(d for d in range(shape.rank) if d not in lanes)


def _is_side_by_side(region: Region, part: Batch) -> bool:
    """Whether neighbouring lanes of the outputs are neighbours in memory, and begin at multiples of a vector. Looks at
    the first lanes: accesses that are not are correct, but narrow."""
    shown = {LANE: np.arange(min(part.places, 4 * part.vector))}
    starts: dict[Expression, set[int]] = {}  # elements of a lane lie at constant distances from each other
    for value, index in _wanted(region, part):
        base, offset = split_constant(address_of(value.shape, index))
        if base not in starts:
            at = value_of(base, shown).reshape(-1, part.vector)
            if (np.diff(at, axis=1) != 1).any():
                return False
            starts[base] = set((at[:, 0] % part.vector).tolist())
        if any((start + offset) % part.vector for start in starts[base]):
            return False
    return True


@dataclass(frozen=True, slots=True)
class _Share:
    """A share of a lane: its instructions, the bytes that it reads and writes, and its values."""

    slots: float
    moved: int
    values: int


class _Apart:
    """The work of threads that compute one element of an output each, and of those that have a share of a lane. Cached
    for each output, and each share."""

    def __init__(self, region: Region, *, in_lanes: bool = False) -> None:
        self._region = region
        self.in_lanes = in_lanes
        self.reads = Reads()
        self._known: dict[int, list[tuple[Instruction, Index, float]] | None] = {}
        self._shares: dict[Batch, _Share] = {}

    def share(self, part: Batch, most: float = math.inf) -> _Share | None:
        """What a share of a lane takes; None where that is more than `most` instructions, or is unknown."""
        key = part if part.vector == 1 else replace(part, vector=1)
        known = self._shares.get(key)
        if known is None:
            known = self._by_coordinates(key)
            if known is None and not self._takes_more(key, most):
                known = self._by_elements(key, most)
            if known is None:
                return None
            self._shares[key] = known
        return known if known.slots <= most and known.values <= MOST_VALUES else None

    def _by_elements(self, part: Batch, most: float) -> _Share | None:
        """The same, element by element."""
        wanted = _wanted(self._region, part)
        slots, moved, values = 0.0, sum(root.shape.type.bytes for root, _ in wanted), 0
        for element in _needed(wanted, self.reads):
            if element is None or slots > most:
                return None
            slots += self._slots(element)
            values += 1
            if element[0].parameter_number is not None:
                moved += element[0].shape.type.bytes
        return _Share(slots, moved, values)

    def _takes_more(self, part: Batch, most: float) -> bool:
        """Whether the first lane certainly takes more than `most` instructions or `MOST_VALUES` values: what is at
        different places there is different everywhere. Cheaper than `_by_elements`, since places are numbers."""
        seen: dict[Instruction, set[int]] = {}
        slots, values = 0.0, 0
        for n, lanes in zip(part.roots, part.along, strict=True):
            own = np.indices(part.own(self._region.roots[n].shape, lanes)).astype(np.int64)
            env = {f"d{k}": coordinate.ravel() for k, coordinate in enumerate(own)}
            known: dict[tuple[Index, tuple[int, ...]], set[int]] = {}
            for instruction, index, work in self._of(n) or ():
                if not instruction.shape.is_array or not self.reads.are_always(instruction):
                    return False
                at = known.get(key := (index, instruction.shape.dimensions))
                if at is None:
                    at = known[key] = set(_numbers(*key, env).ravel().tolist())
                places = seen.setdefault(instruction, set())
                before = len(places)
                places |= at
                slots += work * (len(places) - before)
                values += len(places) - before
                if slots > most or values > MOST_VALUES:
                    return True
        return False

    def _by_coordinates(self, part: Batch) -> _Share | None:
        """The same, counted; None where a value is needed at other indices than one choice of an output's coordinates,
        or only for some of the elements."""
        seen: dict[Instruction, tuple[object, ...]] = {}
        slots, moved, values = 0.0, 0, 0
        for n, lanes in zip(part.roots, part.along, strict=True):
            shape = self._region.roots[n].shape
            sizes = {f"d{k}": size for k, size in enumerate(part.own(shape, lanes))}
            moved += shape.type.bytes * math.prod(sizes.values())
            for instruction, index, work in self._of(n) or ():
                at = index, lanes, *sizes.values()
                if seen.setdefault(instruction, at) is not at:
                    if seen[instruction] != at:
                        return None
                    continue
                if not self.reads.are_always(instruction):
                    return None
                count = 1
                for coordinate in set(index):
                    if isinstance(coordinate, Variable):
                        count *= sizes[coordinate.name]
                    elif not isinstance(coordinate, Constant):
                        return None
                values += count
                slots += work * count
                if instruction.parameter_number is not None:
                    moved += instruction.shape.type.bytes * count
        return _Share(slots, moved, values)

    def _slots(self, element: Element) -> float:
        """Instructions of a value. On a processor those of one that is the same in all lanes are none: the compiler
        moves them out of the loop over lanes, whatever the plan."""
        instruction, index = element
        if self.in_lanes and all(isinstance(coordinate, Constant) for coordinate in index):
            return 0.0
        return of_value(instruction).slots

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
                needed.append((*element, self._slots(element)))
        return self._known[number]

    def total(self, part: Batch) -> float | None:
        """Instructions for all elements of a lane, computed one by one; None if they are unknown. Outputs of one shape
        are computed by one thread, which computes once what they share."""
        groups: dict[Shape, dict[Element, float]] = {}
        for n in part.roots:
            needed = self._of(n)
            if needed is None:
                return None
            places = Shape(PRED, self._region.roots[n].shape.dimensions)
            groups.setdefault(places, {}).update(((instruction, index), slots) for instruction, index, slots in needed)
        return sum(sum(once.values()) * places.element_count / part.lanes for places, once in groups.items())

    def at_least(self, part: Batch) -> float:
        """A lower bound of the instructions of a lane's thread: a value is computed at least once for each index that
        one of its readers takes over the lane's elements."""
        most: dict[Instruction, float] = {}
        for n, lanes in zip(part.roots, part.along, strict=True):
            sizes = self._region.roots[n].shape.dimensions
            own = {f"d{k}": size for k, size in enumerate(sizes) if k not in lanes}
            for instruction, index, slots in self._of(n) or ():
                if slots:
                    most[instruction] = max(most.get(instruction, 0.0), slots * distinct_places(index, own))
        return sum(most.values())


def _is_read_elsewhere(i: Instruction) -> bool:
    """Whether an operation reads a computed operand at another index than its own."""
    spec = find(i.opcode)
    if spec is not None and isinstance(spec.cuda, Elementwise):
        return False
    here = _origin(i)
    return any(
        o.operands and o.shape.rank and read_at(i, n, here) != here and of_value(o) != NOTHING
        for n, o in enumerate(i.operands)
    )


def _numbers(index: Index, sizes: Sequence[int], env: Mapping[str, Numbers]) -> Numbers:
    """The row-major numbers of elements of an array of these sizes."""
    numbers = np.zeros((), np.int64)
    for coordinate, size in zip(index, sizes, strict=True):
        numbers = numbers * size + value_of(coordinate, env)
    return numbers


def _origin(i: Instruction) -> Index:
    return maps.dimensions(i.shape.dimensions) if i.shape.is_array else ()


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
    wanted = _wanted(region, part)
    written = [(value.shape, index) for value, index in wanted]
    places = {LANE: neighbours(part.threads, part.vector)}
    return [Walk(part.threads, wanted, written, places=places, items=part.vector)]
