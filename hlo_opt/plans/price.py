"""The price of a plan: microseconds of its launch on its target, and their parts.

There are five parts: bytes between memory and L2; bytes between L2 and multiprocessors; instructions; functions and
conversions in the slow pipe; and the latency of a block (loads, barriers, dependent steps), times the number of blocks
that a multiprocessor runs one after another. The parts overlap, but two of equal length take longer than either.

The constants come from a review of some 110 kernels and their machine code for an H100, from measured copies, or from
NVIDIA. None is fitted to a single kernel. All that users see and all presets but `xla-*` go by this price (through
`hlo_opt.fusion.prices`); those go by XLA's (`hlo_opt.analysis.xla`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

from hlo_opt.analysis.memory.forms import round_up
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.analysis.targets.rates import products_per_cycle
from hlo_opt.diag.time_limit import check_time
from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import Expression
from hlo_opt.ops.lowering import Element
from hlo_opt.plans import instructions as work_of
from hlo_opt.plans.columns import JUMP
from hlo_opt.plans.instructions import Work
from hlo_opt.plans.kinds import kind_of
from hlo_opt.plans.loop import BLOCK
from hlo_opt.plans.plan import Launch, Part, Plan, Region, Segment
from hlo_opt.plans.reads import Lay, Trace, lays_of, traced
from hlo_opt.plans.samples import SECTOR
from hlo_opt.plans.walks import AHEAD, Walk

LATENCY = 0.75
"""Microseconds of a load while memory is busy: 17 KB in flight per multiprocessor of an H100 are the least that reach
3.0 TB/s."""
L2_HIT, HIT = 0.2, 0.03
"""Microseconds of a load from L2 and from L1: some 270 and 40 cycles."""
USABLE = 0.92
"""The fraction of issue slots that kernels use at most: steps of many games of CartPole on an H200."""
READING, WRITING = 0.92, 1.02
"""The time of a byte that is read and of one that is written, over that of a byte of a copy: sums of rows read 4.5 TB/s
on an H200, where a copy moves 4.18, with its ramp. The last writes leave L2 when the launch is over."""
RAMP, ENDS = 2, 0.4
"""Latencies in which memory is not busy yet or no longer: the first loads of a launch, and its last writes. And the
microseconds of both where memory is idle: blocks start, and what they have written last must be in L2 before the next
kernel starts. On an H200 that is 0.65 us in a graph of one kernel, and 0.15 us for each of several
(`scripts.bench.small_kernels`)."""
SCHEDULERS = 4
"""Schedulers of a multiprocessor; each issues an instruction of a warp per cycle (CUDA C++ Programming Guide, since
compute capability 7.0)."""
SLOW_LANES = 16
"""Functions and conversions of a multiprocessor per cycle (CUDA C++ Programming Guide, "Arithmetic Instructions")."""
L2_HELD, L1_HELD = 0.6, 0.5
"""The fraction of L2 that is still there when it is read again: 26 MB of rows are on an H100, 64 MB are not. The
fraction of L1 that caches loads of all blocks: the other half is their shared memory."""
STEP, SHUFFLE, BARRIER, SHARED = 4.5, 30, 20, 30
"""Cycles from an instruction to one that needs its result; of a shuffle with the use of its result; of a barrier of a
block; of a load from shared memory with the use of its result."""
BESIDE = 3
"""Instructions of a thread that do not need each other's results, on average: rounds of CartPole by one warp on an
H200 take 1.2 to 1.6 cycles for each."""
TOGETHER = 5
"""The exponent of the norm that combines the parts: two equal parts take 15 % more time than one. Fitted to 60 programs
on an H200, of which computing takes as long as memory in a third."""
CLUSTER = 0.7
"""Microseconds for which multiprocessors wait, in each wave of blocks, until all those of a cluster are free, and until
its blocks have met. Fitted to six softmaxes on an H200 (0.1 to 1.7)."""
REGISTERS, MOST_READ, MOST_AHEAD = 16, 20, 64
"""Registers of a thread: for addresses and numbers; the limit for loads in flight in the estimate of registers; and the
limit for loads in flight in any case."""
MOST_BLOCKS = 32
"""Limit of resident blocks of a multiprocessor."""


@dataclass(frozen=True, slots=True)
class Price:
    """The time of a launch, or of a library call, in microseconds. `us` is the total; the parts overlap.

    memory        transfers between memory and L2
    cache         transfers between L2 and multiprocessors, and lookups of cache lines
    instructions  issued instructions, or those of f64 where these take longer; the arithmetic of a library call
    slow          functions and conversions
    way           the latency of blocks, one after another
    launch        from the end of the kernel before to the start of this one; where memory is idle, with `ENDS`

    Besides:

    read, written bytes between memory and L2
    least         the least of these bytes: each operand that is read, and each result, once
    in_flight     bytes that the threads of a multiprocessor wait for at a time
    waves         waves of blocks over the multiprocessors
    resident      resident threads of a multiprocessor
    registers     registers of a thread, known or estimated
    loads, stores bits of the widest and the narrowest access to the largest arrays
    """

    us: float
    memory: float
    cache: float
    instructions: float
    slow: float
    way: float
    launch: float
    read: float
    written: float
    least: float
    in_flight: float = 0.0
    waves: float = 0.0
    resident: int = 0
    registers: int = 0
    loads: tuple[int, int] = (0, 0)
    stores: tuple[int, int] = (0, 0)

    @property
    def is_small(self) -> bool:
        """Whether the kernel takes little more than its launch. Computing its results again in other kernels may then
        save more than it costs, since independent kernels can share a launch."""
        return self.us < 2 * self.launch - ENDS

    @property
    def bytes(self) -> float:
        """Bytes that are read and written."""
        return self.read + self.written


FREE = Price(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""The price of an instruction without a launch."""


def one_after_another(prices: Iterable[Price]) -> Price:
    """The price of several launches: the sum of times and bytes; threads and accesses are those of the costliest."""
    every = list(prices)
    if len(every) == 1:
        return every[0]
    dearest = max(every, key=lambda p: p.us, default=FREE)
    added: dict[str, Any] = {name: math.fsum(getattr(p, name) for p in every) for name in _ADDED}
    return replace(dearest, **added)


_ADDED = ("us", "memory", "cache", "instructions", "slow", "way", "launch", "read", "written", "least")


def together(parts: Iterable[float], exponent: float = TOGETHER) -> float:
    """Microseconds of overlapping parts: the less they overlap, the lower the exponent."""
    return math.fsum(part**exponent for part in parts) ** (1 / exponent)


@dataclass
class _Sums:
    """Sums over all threads of a launch.

    at_a_time  resident blocks of the device
    latency    microseconds of a load from memory
    turned     the cost of jumps to other addresses, in bytes
    way        microseconds of a block, on average
    """

    launch: Launch
    target: DeviceTarget
    at_a_time: int
    latency: float
    read: float = 0.0
    written: float = 0.0
    turned: float = 0.0
    least: float = 0.0
    cached: float = 0.0
    lines: float = 0.0
    work: Work = work_of.NOTHING
    way: float = 0.0
    first: dict[Instruction, list[Lay]] = field(default_factory=dict)
    loads: list[tuple[float, int]] = field(default_factory=list)
    stores: list[tuple[float, int]] = field(default_factory=list)


def price(plan: Plan, target: DeviceTarget, *, registers: int | None = None) -> Price:
    """The price of a launch on a target. `registers` are those of a thread, if a compiler has reported them; else they
    are estimated, and the price is cached."""
    if registers is not None:
        return _price(plan, target, registers)
    known = _KNOWN.get(plan)
    if known is None or known[0] is not target:
        known = _KNOWN[plan] = target, _price(plan, target, None)
    return known[1]


_KNOWN: WeakKeyDictionary[Plan, tuple[DeviceTarget, Price]] = WeakKeyDictionary()
"""Prices of plans: plans compete by price before one of them is used."""


def _price(plan: Plan, target: DeviceTarget, registers: int | None) -> Price:
    operands = plan.region.instruction.operands
    measures = [(measure(plan.region, s, plan.launch.block, target), operands) for s in plan.segments]
    return price_of_segments(plan.launch, measures, target, registers=registers)


def price_of_segments(
    launch: Launch,
    measures: Sequence[tuple[Measure, Sequence[Instruction]]],
    target: DeviceTarget,
    *,
    registers: int | None = None,
) -> Price:
    """The price of a launch of segments, in order, each with the values that the parameters of its region stand for:
    two that are the same value are one array. Segments of one region have the same list."""
    if registers is None:
        bound = max([1, *(measured.segment.resident for measured, _ in measures)]) * launch.block
        kept = max([measured.kept for measured, _ in measures], default=0)
        registers = min(REGISTERS + kept, target.registers_per_block_limit // bound)
    blocks = resident_blocks(launch, registers, target)
    ahead = max([measured.ahead for measured, _ in measures], default=0.0)
    under_way = ahead * launch.block * min(launch.grid, blocks * target.core_count)
    busy = min(1.0, under_way / (LATENCY * target.copied_per_second / 1e6))
    sums = _Sums(
        launch, target, blocks * target.core_count, target.idle_load_us + busy * max(0.0, LATENCY - target.idle_load_us)
    )
    longest = 0.0
    for measured, operands in measures:
        segment = measured.segment
        if segment.blocks:
            before = sums.way
            _add_segment(sums, measured, operands)
            own = (sums.way - before) * launch.grid / segment.blocks
            longest = max(longest, own * math.ceil(segment.blocks / sums.at_a_time))
    for lays in sums.first.values():
        _add_moved(sums, lays)
        sums.least += min(sum(lay.useful for lay in lays), lays[0].access.size)
    cycles = clock(target) * target.core_count
    peak = target.memory_bandwidth / 1e6
    waves = launch.grid / sums.at_a_time
    parts = (
        (READING * sums.read + WRITING * sums.written + sums.turned) / (target.copied_per_second / 1e6),
        max(sums.cached / (target.l2_share * peak), sums.lines / cycles),
        max(
            sums.work.slots / (SCHEDULERS * target.threads_per_warp * USABLE * cycles),
            sums.work.doubles / (products_per_cycle(target, "f64", tensor_cores=False) * cycles),
        ),
        sums.work.slow / (SLOW_LANES * cycles),
        max(longest, math.ceil(waves) * sums.way),
    )
    ramp = RAMP * LATENCY * busy
    start = target.kernel_launch_us + (max(0.0, ENDS - ramp) if longest else 0.0)
    copied = _copied(measures)
    copies = sum(2 * size / (target.copied_per_second / 1e6) for size in copied)
    return Price(
        together(parts) + ramp + start + CLUSTER * waves * (launch.cluster > 1) + copies + start * len(copied),
        parts[0] + copies,
        *parts[1:],
        launch=start,
        read=sums.read + sum(copied),
        written=sums.written + sum(copied),
        least=sums.least + 2 * sum(copied),
        in_flight=ahead * min(blocks, -(-launch.grid // target.core_count)) * launch.block,
        waves=waves,
        resident=blocks * launch.block,
        registers=registers,
        loads=_widths(sums.loads),
        stores=_widths(sums.stores),
    )


def _copied(measures: Sequence[tuple[Measure, Sequence[Instruction]]]) -> list[int]:
    """Bytes of each array that is copied before the launch: what a segment updates in place, and another reads, needs
    memory of its own."""
    copied: list[int] = []
    for measured, operands in measures:
        for output, parameter in measured.segment.aliases:
            value = operands[parameter]
            is_shared = any(value in others for _, others in measures if others is not operands)
            if is_shared or output not in measured.segment.own:
                copied.append(value.shape.byte_size)
    return copied


def clock(target: DeviceTarget) -> float:
    """Cycles per microsecond."""
    return target.clock_share * target.clock_rate_ghz * 1e3


def resident_blocks(launch: Launch, registers: int, target: DeviceTarget) -> int:
    """The number of resident blocks of a multiprocessor. Registers are allocated in units of eight per thread; each
    block's shared memory has one more kilobyte for the system."""
    threads = round_up(launch.block, target.threads_per_warp)
    by_registers = target.registers_per_block_limit // (round_up(registers, 8) * threads)
    by_memory = target.shared_memory_per_core // (launch.shared_bytes + 1024)
    return max(1, min(by_registers, by_memory, target.threads_per_core_limit // threads, MOST_BLOCKS))


@dataclass(slots=True)
class _WalkCost:
    """One walk of a segment's threads, as the price of a launch adds it. It does not change, as a `Walk` does not.

    accesses  how each access lies, and the bytes between L2 and multiprocessors of those that many try
    reads     how many of them read
    work      of a thread
    useful    bytes that all threads access
    waits     how often a thread waits for its loads
    first     the part of the work that the first of these loads is for
    answers   how often it waits for memory besides: for an index, for atomic operations, for other blocks
    fixed     microseconds of shuffles and of the steps of a fold
    pauses    microseconds in which all threads of a block wait for each other, or for what others have written
    lines     cache lines that all threads look up
    """

    walk: Walk
    accesses: tuple[tuple[Lay, float], ...]
    reads: int
    work: Work
    useful: float
    waits: int
    first: float
    answers: float
    fixed: float
    pauses: float
    lines: float


@dataclass(frozen=True, slots=True, eq=False)
class Measure:
    """What the price of a launch needs to know about one of its segments. It depends on the threads of a block, but on
    no other segment.

    kept   registers of a thread
    ahead  bytes that a thread loads before it needs the first
    """

    segment: Segment[Part]
    kept: int
    ahead: float
    steps: tuple[_WalkCost, ...]


def measure(region: Region, segment: Segment[Part], block: int, target: DeviceTarget) -> Measure:
    """The measure of a segment in a launch of blocks of that size."""
    check_time()
    before: set[Element] = set()
    walks = kind_of(segment.part).walks(region, segment, Launch(segment.blocks, block))
    traces = [traced(walk, before) for walk in walks]
    ahead = max(map(_ahead, traces), default=0.0)
    steps = [_step(trace, number, block, target) for number, trace in enumerate(traces)] if segment.blocks else ()
    return Measure(segment, _kept(traces), ahead, tuple(steps))


def _step(trace: Trace, number: int, block: int, target: DeviceTarget) -> _WalkCost:
    walk, cycles = trace.walk, clock(target)
    lays = [*lays_of(trace, trace.reads, block), *lays_of(trace, trace.writes, block)]
    tried = [
        SECTOR * lay.access.tries * walk.threads * trace.times(lay.access.index) if lay.access.is_by_lanes else 0.0
        for lay in lays
    ]
    answers = sum(1.0 if walk.looks else max(1.0, tries) for _, _, tries in walk.changed) + walk.looks
    steps = walk.rounds * (walk.steps + sum(size for _, _, size in trace.folds))
    return _WalkCost(
        walk,
        tuple(zip(lays, tried, strict=True)),
        len(trace.reads),
        _work(trace, lays) + (work_of.NOTHING if number else work_of.THREAD),
        sum(lay.useful for lay in lays),
        trace.waits,
        trace.first,
        trace.looks_up + answers + 2 * walk.trips,
        (walk.shuffles * SHUFFLE + steps * STEP) / cycles,
        (walk.barriers * BARRIER + walk.hops * SHARED) / cycles,
        sum(walk.threads / target.threads_per_warp * lay.count * lay.lines for lay in lays),
    )


def _kept(traces: Sequence[Trace]) -> int:
    """Registers of a thread for loads in flight, or for values that it keeps from walk to walk."""
    counts = [min(MOST_READ, trace.ahead / 4) for trace in traces]
    if any(trace.walk.keeps for trace in traces):
        counts += [trace.walk.registers or trace.walk.items * trace.walk.rounds for trace in traces]
    return math.ceil(max(counts, default=0))


def _add_segment(sums: _Sums, measured: Measure, operands: Sequence[Instruction]) -> None:
    launch, target, cycles, segment = sums.launch, sums.target, clock(sums.target), measured.segment
    for step in measured.steps:
        walk = step.walk
        block = min(launch.block, BLOCK) if walk.alone else launch.block
        warps = math.ceil(min(block, walk.threads / segment.blocks) / target.threads_per_warp)
        issue = max(warps / SCHEDULERS / USABLE, STEP / BESIDE)
        for lay, tried in step.accesses:
            _add_access(sums, segment, walk, lay, tried, operands)
        sums.work += step.work * (walk.threads * walk.times)
        reads = [lay for lay, _ in step.accesses[: step.reads]]
        held = sum(lay.useful for lay in reads if _is_held(sums, segment, lay))
        moved = (step.useful - held) / segment.blocks / target.bytes_per_core_and_clock
        latency = max([_latency(sums, segment, lay, walk.early) for lay in reads], default=0.0)
        waiting = step.waits * latency + step.answers * sums.latency + step.fixed
        # the warps of a block hide each other's latency within a walk, but not between walks
        looked_up = step.lines / segment.blocks / cycles
        busy = max(moved / cycles, step.work.slots * issue / cycles, looked_up)
        way = max(waiting, busy) + step.pauses
        if walk.times > 1:  # warps that have met all wait for their first loads, and compute when these are there
            way += min(waiting, busy) * step.first
        way += target.barrier_us * walk.meetings
        sums.way += way * walk.times * segment.blocks / launch.grid


def _add_access(
    sums: _Sums, segment: Segment[Part], walk: Walk, lay: Lay, tried: float, operands: Sequence[Instruction]
) -> None:
    """Adds the bytes of an access to those of memory and caches."""
    target, access = sums.target, lay.access
    size = access.size
    (sums.stores if access.operand is None else sums.loads).append((lay.useful, lay.bits))
    if access.operand is None and access.again:
        _add_moved(sums, [lay], _lost(size, target), written=True)
    elif access.operand is None:
        times = 2 if access.tries else 1  # a changed element is read and written
        _add_moved(sums, [lay], times, written=True)
        sums.least += times * min(lay.useful, size)
    elif access.again:
        live = lay.useful * min(1.0, sums.at_a_time / segment.blocks)
        _add_moved(sums, [lay], _lost(min(size, live), target))
    else:
        sums.first.setdefault(operands[access.operand.parameter_number or 0], []).append(lay)
    again = walk.times - 1
    if again:
        _add_moved(sums, [lay], again * _lost(size, target), written=access.operand is None)
    sums.lines += walk.threads / target.threads_per_warp * lay.count * lay.lines * (1 + again)
    if access.is_by_lanes:
        sums.cached += tried
    elif again or size > L1_HELD * target.shared_memory_per_core:
        sums.cached += lay.fetched * (1 + again)


def _work(trace: Trace, lays: Sequence[Lay]) -> Work:
    """The work of a thread on a walk. Accesses share the divisions of their indices; inner loops have none."""
    walk, divided = trace.walk, dict[Expression, float]()
    rounds = walk.rounds * walk.filled
    fixed = (walk.body + work_of.ACCESS * walk.shared) * (walk.items * rounds) + work_of.ROUND * (rounds / walk.ahead)
    slots, slow, doubles = fixed.slots, fixed.slow, fixed.doubles
    origins, times_of = walk.origins, trace.times
    for instruction, index, share in trace.values:
        origin = origins.get(instruction, instruction) if origins else instruction
        work = work_of.of_value(origin)
        if work is work_of.NOTHING:  # as of about every second value, which only moves elements
            continue
        times = times_of(index)
        slots += work.slots * (share * times)
        slow += work.slow * (share * times)
        doubles += work.doubles * (share * times)
        if (divisor := trace.divisor(instruction, index)) is not None:
            work, times = work_of.inverted_again(instruction), -share * (times - times_of(divisor))
            slots += work.slots * times
            slow += work.slow * times
    for instruction, index, size in trace.folds:
        work, times = work_of.of_fold(origins.get(instruction, instruction)), size * times_of(index)
        work += work_of.ROUND * (1 / AHEAD)
        slots += work.slots * times
        slow += work.slow * times
        doubles += work.doubles * times
    for lay in lays:
        access, count = lay.access, lay.count
        times = times_of(access.index)
        slots += work_of.ACCESS.slots * count
        work = work_of.of_packing(access.shape.type)
        slots += work.slots * (access.share * times)
        slow += work.slow * (access.share * times)
        inner = trace.inner(access.index)
        for node in work_of.divisions(trace.address(access)):
            divided[node] = min(divided.get(node, math.inf), count / inner)
    return Work(slots, slow, doubles) + work_of.DIVISION * sum(divided.values())


def _ahead(trace: Trace) -> float:
    return min(4 * MOST_AHEAD, trace.ahead)


def _latency(sums: _Sums, segment: Segment[Part], lay: Lay, early: bool) -> float:
    """The average latency of a thread's next load, in microseconds. Elements that a block has read before are still in
    a cache, if they fit."""
    miss = min(1.0, lay.advance * AHEAD / SECTOR) if lay.advance else 1.0
    latency = L2_HIT if early else sums.latency
    if segment.together:  # L1 is not coherent with the writes of other blocks
        latency = L2_HIT if not _lost(lay.access.size, sums.target) else latency
    elif lay.access.again:
        if _is_held(sums, segment, lay):
            latency = HIT
        elif not _lost(min(_live(sums, segment, lay), lay.access.size), sums.target):
            latency = L2_HIT
    return HIT + miss * (latency - HIT)


def _live(sums: _Sums, segment: Segment[Part], lay: Lay) -> float:
    """The bytes of an array that blocks access at a time."""
    return lay.useful / segment.blocks * min(sums.at_a_time, segment.blocks)


def _is_held(sums: _Sums, segment: Segment[Part], lay: Lay) -> bool:
    """Whether L1 still has what a block reads again. It is not coherent with the writes of other blocks."""
    cores = min(sums.target.core_count, segment.blocks)
    room = L1_HELD * sums.target.shared_memory_per_core * cores
    return lay.access.again and not segment.together and _live(sums, segment, lay) <= room


def _lost(size: float, target: DeviceTarget) -> float:
    """The fraction of `size` bytes that is no longer in L2 at the next read."""
    return min(1.0, max(0.0, size / (L2_HELD * target.l2_cache_size) - 1))


def _add_moved(sums: _Sums, lays: Sequence[Lay], times: float = 1.0, *, written: bool = False) -> None:
    """Adds the bytes between memory and L2 for accesses to an array. Elements that are accessed again soon are still in
    L2. So is the unused rest of sectors, if the whole array fits into L2, or the part of it among which data says where
    blocks access it at a time, or if a block reads contiguous ranges, at whose ends its neighbour reads at the same
    time."""
    useful, moved, turned = sum(lay.useful for lay in lays), 0.0, 0.0
    for lay in lays:
        near = min(lay.access.size, lay.window + lay.onward * sums.at_a_time)
        wasted = (lay.fetched - lay.useful) * _lost(near, sums.target) if lay.run < SECTOR else 0.0
        moved += lay.useful + wasted
        turned += (lay.useful + wasted) * JUMP / max(lay.run, lay.stretch)
    share = times * min(1.0, lays[0].access.size / useful) if useful else 0.0
    if written:
        sums.written += moved * share
    else:
        sums.read += moved * share
    sums.turned += turned * share


def _widths(accesses: Sequence[tuple[float, int]]) -> tuple[int, int]:
    """Bits of the widest and the narrowest access, among those that move at least a quarter of the bytes of the
    largest."""
    most = max((size for size, _ in accesses), default=0.0)
    bits = [b for size, b in accesses if 4 * size >= most]
    return (max(bits), min(bits)) if bits else (0, 0)
