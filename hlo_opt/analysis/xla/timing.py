"""Times of XLA's GPU performance model: nanoseconds of arithmetic, reads and writes.

Read times are updated while a kernel grows: an absorbed producer only affects the reads of its own operands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction

L2_SPEEDUP = 2.5
L1_SPEEDUP = 8.0
MEMORY_COMPUTE_PARALLELISM = 0.95


@dataclass(frozen=True, slots=True)
class KernelEstimate:
    """One execution of a kernel. `us` excludes launch overhead; it is infinite where the kernel is impossible."""

    us: float
    bytes_read: float
    bytes_written: float
    flops: float

    @property
    def bytes(self) -> float:
        return self.bytes_read + self.bytes_written


RESOLUTION = 0.25
"""The resolution of absl::Duration in nanoseconds."""


def nanoseconds(value: float) -> float:
    """Rounded to the resolution of absl::Duration."""
    return round(value * 4) / 4


def compute_ns(flops: float, blocks: int, threads: int, target: DeviceTarget) -> float:
    """Time of the arithmetic at peak rate, limited by blocks and threads."""
    cores = min(blocks, target.core_count)
    units = min(threads, target.fpus_per_core)
    per_ns = int(2 * target.clock_rate_ghz * cores * units)
    return nanoseconds(flops / max(1, per_ns))


def read_ns(net: float, total: float, used: float, blocks: int, target: DeviceTarget) -> float:
    """Time to read an operand: `net` bytes from memory, the rest of `total` from a cache.

    `used` is the used share of a memory transaction, 1.0 for coalesced reads. Without blocks the time is 0.
    """
    bandwidth = target.memory_bandwidth
    rest = bandwidth
    if net < target.l2_cache_size:
        rest *= L2_SPEEDUP
        if net < target.l1_cache_size_per_core * target.core_count:
            rest *= L1_SPEEDUP
    else:
        rest *= used
    limit = max(1, blocks) * target.clock_rate_ghz * 1e9 * target.bytes_per_core_and_clock
    net = min(net, total)
    first = net / min(bandwidth * used, limit)
    return nanoseconds(first * 1e9) + nanoseconds((total - net) / min(rest, limit) * 1e9)


def write_ns(written: float, target: DeviceTarget, used: float = 1.0) -> float:
    """Time to write bytes; `used` as in `read_ns`."""
    return nanoseconds(written / (used * target.memory_bandwidth) * 1e9)


def overlapped(compute: float, memory: float) -> float:
    """Arithmetic and memory time combined: most of the shorter one is hidden."""
    return compute + memory - nanoseconds(MEMORY_COMPUTE_PARALLELISM * min(compute, memory))


TUPLE_WIDTH = 4
"""Bytes of a tuple element in uncoalesced reads."""


@dataclass(frozen=True, slots=True)
class ReadTotal:
    """The reads of several operands. Times are integers (quarters of a nanosecond), so that sums do not depend on
    order."""

    quarters: int
    bytes: int


class ReadTimes:
    """Read times per operand of a kernel with a given number of blocks. `coalesced`: neighbouring threads read
    neighbouring elements."""

    def __init__(self, reads: Mapping[Instruction, int], blocks: int, coalesced: bool, target: DeviceTarget) -> None:
        self._blocks = blocks
        self._coalesced = coalesced
        self._target = target
        self.bytes: dict[Instruction, int] = {}
        self.quarters: dict[Instruction, int] = {}
        self._sum = self._size = 0
        self._known: dict[tuple[int, int, int], int] = {}
        """Times by operand bytes, bytes read and element size, since operands are often alike."""
        for operand, size in reads.items():
            self.put(operand, size)

    def one(self, operand: Instruction, size: int) -> int:
        """The time to read `size` bytes of an operand, in quarters of a nanosecond."""
        shape = operand.shape
        width = 0
        if not self._coalesced:
            width = (shape.type.bytes or 1) if shape.is_array else TUPLE_WIDTH
        key = (shape.byte_size, size, width)
        quarters = self._known.get(key)
        if quarters is None:
            net = min(shape.byte_size, size)
            share = width / self._target.dram_transaction_bytes if width else 1.0
            quarters = self._known[key] = int(4 * read_ns(net, size, share, self._blocks, self._target))
        return quarters

    def put(self, operand: Instruction, size: int) -> None:
        """Set the bytes read of an operand."""
        self.drop(operand)
        quarters = self.one(operand, size)
        self.bytes[operand], self.quarters[operand] = size, quarters
        self._size += size
        self._sum += quarters

    def drop(self, operand: Instruction) -> None:
        """Remove an operand."""
        if operand in self.bytes:
            self._size -= self.bytes.pop(operand)
            self._sum -= self.quarters.pop(operand)

    def all_of(self, named: Iterable[Instruction] | None = None) -> ReadTotal:
        """The total of the named operands, with repetitions; of all operands once for None."""
        if named is None:
            return ReadTotal(self._sum, self._size)
        operands = list(named)
        return ReadTotal(sum([self.quarters[o] for o in operands]), sum([self.bytes[o] for o in operands]))
