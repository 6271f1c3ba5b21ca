"""The memory accesses of a walk: the values that it computes are followed by index maps down to the kernel's operands.
Also the layout of such an access in memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir import index_map as maps
from hlo_opt.ir.index_map import (
    Condition,
    Expression,
    Quotient,
    linearize,
    split_constant,
    substitute,
    variable,
    variables_of,
)
from hlo_opt.ops.lowering import Element, Elementwise, Index
from hlo_opt.ops.sets import tuple_index
from hlo_opt.ops.spec import find
from hlo_opt.plans.element_reads import is_at_hand
from hlo_opt.plans.instructions import divides, divides_by_constant
from hlo_opt.plans.samples import LINE, SECTOR, Frame, Numbers, Sample, sample, share_of, value_of
from hlo_opt.plans.walks import AHEAD, ITEM, ROUND, THREAD, Walk

MOST_JOINED = 64
"""The most elements of an array that a thread accesses at a time for which neighbours are sought. NVRTC joins few of
more (of bytes in rows of seven, all of 8 rows of a thread, but hardly any of 16)."""
_MOST_STEPS = 20_000  # elements that are followed from the wanted values to operands
_MOST_ROUNDS = 4096

DRAWN = "drawn"
"""The prefix of names of variables whose values are data."""


@dataclass(slots=True, eq=False)
class Access:
    """An access to one element of an array for each item: a read, or a write if `operand` is None. It does not change;
    as one of the many objects of a price it is not declared frozen, which takes three times as long to create.

    share       the fraction of items that have the access
    conditions  what holds for these items
    again       whether an earlier walk has read the element, or the launch itself has written it
    tries       atomic operations that change the element; 0 for a plain write
    """

    shape: Shape
    index: Index
    operand: Instruction | None = None
    share: float = 1.0
    conditions: tuple[Condition, ...] = ()
    again: bool = False
    tries: float = 0.0

    @property
    def bits(self) -> int:
        """Bits of an element in memory."""
        return self.shape.type.stored_bits

    @property
    def is_by_lanes(self) -> bool:
        """Whether `tries` counts sectors, each tried for a lane by itself."""
        return self.tries not in (0.0, 1.0)

    @property
    def size(self) -> float:
        """Bytes of the array."""
        return self.shape.element_count * self.bits / 8


@dataclass
class Trace:
    """The accesses and operations of a walk.

    values    the instructions that are computed, each with its index and the fraction of items that need it
    folds     the instructions with an inner loop, each with its index and the number of elements that it folds
    loops     sizes of inner loops, by variable
    drawn     variables for indices that come from data, each with the index of that data and its upper bound
    looks_up  whether an index is data that a thread must have read before
    is_whole  whether all reads could be followed
    """

    walk: Walk
    reads: list[Access] = field(default_factory=list)
    writes: list[Access] = field(default_factory=list)
    values: list[tuple[Instruction, Index, float]] = field(default_factory=list)
    folds: list[tuple[Instruction, Index, int]] = field(default_factory=list)
    loops: dict[str, int] = field(default_factory=dict)
    drawn: dict[str, tuple[Index, int]] = field(default_factory=dict)
    looks_up: bool = False
    is_whole: bool = True
    _varying: dict[int, tuple[Index, frozenset[str], float, int]] = field(default_factory=dict)
    """Results of `_of` by the index's identity: a kernel computes most values at the same index."""
    _addresses: dict[tuple[int, Shape], Expression] = field(default_factory=dict)
    _looks: dict[tuple[int, Shape, tuple[Condition, ...], int], Sample] = field(default_factory=dict)

    def varies_with(self, index: Index) -> frozenset[str]:
        """The loops of a thread, inner ones included, in which an index changes."""
        return self._of(index)[1]

    def times(self, index: Index) -> float:
        """How often a thread computes a value at an index, on average: once for each value that the index takes."""
        known = self._varying.get(id(index))
        return self._of(index)[2] if known is None else known[2]

    def inner(self, index: Index) -> int:
        """The number of steps of the inner loops in which an index changes."""
        return self._of(index)[3]

    def _of(self, index: Index) -> tuple[Index, frozenset[str], float, int]:
        known = self._varying.get(id(index))
        if known is not None:
            return known
        loops: set[str] = set()
        names = names_in(index)
        for name in names:
            if name in self.walk.places:
                loops |= names_in((self.walk.places[name],))
            elif name in self.drawn:
                loops |= self.varies_with(self.drawn[name][0])
            else:
                loops.add(name)
        if ITEM in loops and self.walk.items > 1 and self._is_of_all_items(index, names):
            loops.discard(ITEM)
        inner = math.prod([self.loops[name] for name in loops if name in self.loops]) if self.loops else 1
        rounds = self._rounds(index, names) * self.walk.filled if ROUND in loops else 1.0
        times = inner * (self.walk.items if ITEM in loops else 1) * rounds
        # the index stays alive as long as its identity is a key
        known = self._varying[id(index)] = index, frozenset(loops), times, inner
        return known

    def _is_of_all_items(self, index: Index, names: frozenset[str]) -> bool:
        """Whether an index is the same for all items of a thread though its variables are not, such as the row of
        columns that are all a thread's."""
        places = self.walk.places
        if names.isdisjoint(places) or not any(isinstance(e, Quotient) for e in index):
            return False
        return ITEM not in names_in(tuple(substitute(e, places) for e in index))

    def _rounds(self, index: Index, names: frozenset[str]) -> int:
        """The number of rounds in which an index, in which these variables are, differs from the round before."""
        rounds, places = self.walk.rounds, self.walk.places
        if rounds > _MOST_ROUNDS or not names <= places.keys():
            return rounds
        return _rounds(index, tuple([item for item in places.items() if item[0] in names]), rounds)

    def address(self, access: Access) -> Expression:
        """The linear position in memory of an access."""
        key = id(access.index), access.shape
        address = self._addresses.get(key)
        if address is None:
            self._of(access.index)
            address = self._addresses[key] = address_of(access.shape, access.index)
        return address

    def divisor(self, instruction: Instruction, index: Index) -> Index | None:
        """The index of a division's divisor if that is a broadcast: a compiler computes the inverse once for each
        element of the operand. None for any other instruction, and for numbers, which it inverts itself."""
        if len(instruction.operands) != 2 or len(instruction.operands[1].operands) != 1:  # asked first: it is quick
            return None
        if not divides(instruction) or divides_by_constant(instruction):
            return None
        repeated = instruction.operands[1]
        spec = find(repeated.opcode)
        read = None if spec is None or spec.index is None else spec.index(repeated, 0)
        if read is None or read.symbols or read.runtime:
            return None
        return read.apply(index, [], [])

    @cached_property
    def waits(self) -> int:
        """How often a thread waits for its loads. Asked for when all reads are there, as `ahead`."""
        inner = max([self.inner(read.index) for read in self.reads], default=1)
        return max(1, math.ceil(self.walk.rounds / self.walk.ahead) * math.ceil(inner / AHEAD))

    @property
    def first(self) -> float:
        """The part of its loads that a thread has under way at a time."""
        inner = max([self.inner(read.index) for read in self.reads], default=1)
        return min(1.0, self.walk.ahead / max(1, self.walk.rounds)) * min(1.0, AHEAD / max(1, inner))

    @cached_property
    def ahead(self) -> float:
        """Bytes that a thread loads before it needs the first of them."""
        return sum([read.share * self.times(read.index) * read.bits / 8 for read in self.reads]) / self.waits


@functools.lru_cache(maxsize=4096)
def names_in(index: Index) -> frozenset[str]:
    """The variables of an index."""
    return frozenset[str]().union(*map(variables_of, index))


@functools.lru_cache(maxsize=4096)
def _rounds(index: Index, places: tuple[tuple[str, Expression], ...], rounds: int) -> int:
    """The number of rounds in which an index over these variables differs from the round before."""
    env: dict[str, Numbers] = {THREAD: np.asarray(0), ITEM: np.asarray(0), ROUND: np.arange(rounds)}
    env.update({name: value_of(place, env) for name, place in places})
    changes = np.zeros(rounds - 1, bool)
    for e in index:
        values = value_of(e, env)
        if values.ndim:  # else it never changes
            changes |= values[1:] != values[:-1]
    return 1 + int(np.count_nonzero(changes))


def traced(walk: Walk, before: set[Element]) -> Trace:
    """Follows the wanted values of a walk down to operands. `before` has the elements that earlier walks of the segment
    need; those of this walk are added to it."""
    trace = Trace(walk)
    trace.writes += [Access(shape, index) for shape, index in walk.written]
    trace.writes += [Access(shape, index, again=True) for shape, index in walk.published]
    trace.writes += [Access(shape, index, tries=tries) for shape, index, tries in walk.changed]
    seen = set(before) if walk.keeps else set()
    stack: list[tuple[Instruction, Index, float, tuple[Condition, ...]]]
    stack = [(instruction, index, 1.0, ()) for instruction, index in walk.wanted]
    for _ in range(_MOST_STEPS):
        if not stack:
            break
        instruction, index, share, conditions = stack.pop()
        if instruction in walk.known or instruction.literal is not None:
            continue
        count = len(seen)
        seen.add((instruction, index))
        if len(seen) == count:  # looked up once, not twice: the key is long
            continue
        if instruction.parameter_number is not None:
            again = (instruction, index) in before or instruction in walk.near
            trace.reads.append(Access(instruction.shape, index, instruction, share, conditions, again))
            continue
        trace.values.append((instruction, index, share))
        spec = find(instruction.opcode)
        if spec is not None and isinstance(spec.cuda, Elementwise):
            for operand in instruction.operands:
                stack.append((operand, index if operand.shape.dimensions or _sizes(operand) else (), share, conditions))
            continue
        for number, operand in enumerate(instruction.operands):
            below, part, further = _below(trace, instruction, number, index)
            if part > 0:
                stack.append((operand, below, share * part, conditions + further))
    trace.is_whole = not stack
    before |= seen
    return trace


def _sizes(value: Instruction) -> tuple[int, ...]:
    """The dimensions of an array, or of the first leaf of a tuple."""
    shape = value.shape
    return shape.dimensions if shape.is_array else next(shape.leaves()).dimensions


def _below(
    trace: Trace, instruction: Instruction, number: int, index: Index
) -> tuple[Index, float, tuple[Condition, ...]]:
    """The index at which an operand is read, the fraction of items that read it, and the conditions for it."""
    if tuple_index(instruction) is not None:  # all results of an operation are computed together
        return index, 1.0, ()
    spec, sizes = find(instruction.opcode), _sizes(instruction.operands[number])
    read = None if spec is None or spec.index is None else spec.index(instruction, number)
    if read is None:  # anywhere: the index is data
        trace.looks_up = True
        return tuple(_drawn(trace, index, size) for size in sizes), 1.0, ()
    if read.symbols and number == 0:
        trace.folds.append((instruction, index, math.prod(read.symbols)))
    symbols = []
    for size in read.symbols:
        symbols.append(variable(f"loop{len(trace.loops)}", size))
        trace.loops[f"loop{len(trace.loops)}"] = size
    runtime = []
    for at in read.runtime:
        how = spec.index(instruction, at) if spec is not None and spec.index is not None else None
        trace.looks_up = trace.looks_up or not is_at_hand(instruction.operands[at], trace.walk.known)
        runtime.append(_drawn(trace, index if how is None else how.apply(index), max(sizes, default=1)))
    if 0 in read.symbols:  # an empty fold reads nothing
        return (), 0.0, ()
    conditions = read.conditions_at(index, symbols)
    return read.apply(index, symbols, runtime), math.prod(map(share_of, conditions)), conditions


def _drawn(trace: Trace, at: Index, size: int) -> Expression:
    name = f"{DRAWN}{len(trace.drawn)}"
    trace.drawn[name] = (at, size)
    return variable(name, size)


def address_of(shape: Shape, index: Index) -> Expression:
    """The linear position in memory of the element at an index."""
    return _position(index, shape.dimensions, shape.minor_to_major)


@functools.lru_cache(maxsize=4096)
def _position(index: Index, sizes: tuple[int, ...], minor_to_major: tuple[int, ...]) -> Expression:
    order = minor_to_major[::-1]
    return linearize([index[d] for d in order], [sizes[d] for d in order])


@dataclass(slots=True, eq=False)
class Lay:
    """The memory layout of an access. It does not change, as an `Access` does not.

    bits     bits that one instruction moves
    count    instructions per thread
    useful   bytes that all threads access; those that a block accesses twice count once
    fetched  bytes of the sectors that hold these
    run      average bytes of a contiguous range that a block accesses at a time
    stretch  average bytes of contiguous sectors that a block accesses at a time
    lines    cache lines that one instruction of a warp accesses
    advance  bytes between the accesses of a thread in consecutive steps of its loop; 0 without a loop
    window   bytes among which data says where a block accesses the array; infinite where data says nothing
    onward   bytes by which the window of a block lies behind that of the block before, on average
    """

    access: Access
    bits: int
    count: float
    useful: float
    fetched: float
    run: float
    stretch: float
    lines: int
    advance: int
    window: float = math.inf
    onward: float = 0.0


def lay_of(trace: Trace, access: Access, block: int) -> Lay:
    """The layout of an access, sampled from the threads of one block in the middle of the launch."""
    walk, bits, share = trace.walk, access.bits, access.share
    _, varies, times, _ = trace._of(access.index)
    key = id(access.index), access.shape, access.conditions, block
    seen = trace._looks.get(key)
    if seen is None:
        seen = trace._looks[key] = _look(trace, access, block)
    scale = share * seen.scale * (walk.filled if ROUND in varies and not seen.is_exact else 1.0)
    return Lay(
        access,
        bits=seen.together * bits,
        count=share * times / seen.together / (walk.items if seen.is_shared and ITEM in varies else 1),
        useful=seen.places * bits / 8 * scale,
        fetched=seen.sectors * SECTOR * scale,
        run=seen.run,
        stretch=seen.stretch,
        lines=seen.lines,
        advance=seen.advance,
        window=seen.window,
        onward=seen.onward,
    )


def lays_of(trace: Trace, accesses: Sequence[Access], block: int) -> list[Lay]:
    """The layouts of the reads, or of the writes, of a walk. Those of neighbours in one array are joined where that
    gives wider instructions, or where they share sectors: the first has the layout of all, the others move nothing."""
    lays = [lay_of(trace, access, block) for access in accesses]
    if len({access.operand for access in accesses}) == len(accesses):  # as mostly
        return lays
    groups: dict[tuple[object, ...], dict[int, int]] = {}
    for number, access in enumerate(accesses):
        if access.share == 1 and not (access.conditions or access.again or access.tries):
            base, offset = split_constant(trace.address(access))
            groups.setdefault((access.operand, access.shape, base), {}).setdefault(offset, number)
    for offsets in groups.values():
        numbers = [offsets[offset] for offset in sorted(offsets)]
        if len(numbers) > 1 and trace.walk.items * len(numbers) <= MOST_JOINED:
            joined = _joined(trace, [accesses[n] for n in numbers], block)
            apart = sum(lays[n].fetched for n in numbers)
            if joined.bits > max(lays[n].bits for n in numbers) or joined.fetched < apart:
                lays[numbers[0]] = joined
                for n in numbers[1:]:
                    lays[n] = _moving_nothing(joined, accesses[n])
    return lays


def _moving_nothing(lay: Lay, access: Access) -> Lay:
    """The layout of an access that another does, too."""
    return replace(lay, access=access, count=0.0, useful=0.0, fetched=0.0)


def _joined(trace: Trace, accesses: Sequence[Access], block: int) -> Lay:
    """The layout of accesses at constant distances from each other."""
    first, *others = accesses
    start = split_constant(trace.address(first))[1]
    beside = (0, *(split_constant(trace.address(other))[1] - start for other in others))
    seen, bits = _look(trace, first, block, beside), first.bits
    varies = trace.varies_with(first.index)
    scale = seen.scale * (trace.walk.filled if ROUND in varies and not seen.is_exact else 1.0)
    items = trace.walk.items if ITEM in varies else 1
    return Lay(
        first,
        bits=seen.together * bits,
        count=trace.times(first.index) * len(beside) / min(seen.together, items * len(beside)),
        useful=seen.places * bits / 8 * scale,
        fetched=seen.sectors * SECTOR * scale,
        run=seen.run,
        stretch=seen.stretch,
        lines=seen.lines,
        advance=seen.advance,
    )


def _look(trace: Trace, access: Access, block: int, beside: tuple[int, ...] = (0,)) -> Sample:
    """The sample of an access, and of those at distances from it."""
    walk, varies, address = trace.walk, trace.varies_with(access.index), trace.address(access)
    loops = tuple([(name, size) for name, size in trace.loops.items() if name in varies])
    asked = () if walk.in_pieces else access.conditions
    outside: Index = tuple([c.expression for c in asked])
    used, drawn = _drawn_for(trace, names_in((address, *outside)))
    places = tuple([item for item in walk.places.items() if item[0] in used])
    # Names by order, and whole lines more or less, change nothing that a sample counts: what unrolled steps read is
    # sampled once.
    names = {name: variable(f"{DRAWN}{n}", size) for n, (name, _, size) in enumerate(drawn)}
    if names:
        drawn = tuple([(f"{DRAWN}{n}", _renamed(at, names), size) for n, (_, at, size) in enumerate(drawn)])
        (address,), outside = _renamed((address,), names), _renamed(outside, names)
    base, offset = split_constant(address)
    if offset:
        address = maps.add(base, maps.constant(offset % (8 * LINE // access.bits)))
    rounds = walk.rounds if ROUND in varies else 1
    limits = tuple([item for item in walk.limits.items() if item[0] in used]) if walk.limits else ()
    frame = Frame(walk.threads, max(1, block), rounds, walk.rounds, walk.items, places, loops, drawn, limits)
    within = tuple([Condition(e, c.low, c.high) for e, c in zip(outside, asked, strict=True)])
    return sample(frame, address, access.bits, within, beside)


def _renamed(index: Index, names: Mapping[str, Expression]) -> Index:
    return tuple([maps.substitute(e, names) for e in index])


def _drawn_for(trace: Trace, used: frozenset[str]) -> tuple[frozenset[str], tuple[tuple[str, Index, int], ...]]:
    """The variables that are needed for those used, and of these the drawn ones, in the order in which they were
    drawn: none stands for itself or a later one."""
    if used.isdisjoint(trace.drawn):
        return used, ()
    drawn = []
    for name in reversed(trace.drawn):
        if name in used:
            at, size = trace.drawn[name]
            drawn.append((name, at, size))
            used = used.union(*map(variables_of, at))
    return used, tuple(reversed(drawn))
