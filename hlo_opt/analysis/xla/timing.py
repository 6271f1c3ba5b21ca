"""The clock of XLA's GPU performance model: nanoseconds of arithmetic, of reads and of writes on a device.

What a kernel spends reading its operands is kept up while the kernel grows: a producer that moves in changes the reads of its own operands only.
Source: xla/service/gpu/model/gpu_performance_model_base.cc.
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
    """One execution of a kernel. `us` leaves the launch overhead out; it is infinite where no such kernel can be made."""

    us: float
    bytes_read: float
    bytes_written: float
    flops: float

    @property
    def bytes(self) -> float:
        return self.bytes_read + self.bytes_written


def nanoseconds(value: float) -> float:
    """Rounded to a quarter of a nanosecond, as absl::Duration keeps times."""
    return round(value * 4) / 4


def compute_ns(flops: float, blocks: int, threads: int, target: DeviceTarget) -> float:
    """Time of the arithmetic at the device's peak rate, as far as blocks and threads fill it."""
    cores = min(blocks, target.core_count)
    units = min(threads, target.fpus_per_core)
    per_ns = int(2 * target.clock_rate_ghz * cores * units)
    return nanoseconds(flops / max(1, per_ns))


def read_ns(net: float, total: float, used: float, blocks: int, target: DeviceTarget) -> float:
    """Time to read an operand: `net` bytes from memory, the rest of `total` again from a cache that holds it. `used`: the share of a memory
    transaction that is wanted, 1.0 for reads in order. A kernel without blocks reads nothing and takes no time."""
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
    """Time to write bytes; `used` as for `read_ns`."""
    return nanoseconds(written / (used * target.memory_bandwidth) * 1e9)


def overlapped(compute: float, memory: float) -> float:
    """Nanoseconds of arithmetic and memory together: most of the shorter hides behind the longer."""
    return compute + memory - nanoseconds(MEMORY_COMPUTE_PARALLELISM * min(compute, memory))


TUPLE_WIDTH = 4
"""Bytes that a tuple counts as where reads jump."""


@dataclass(frozen=True, slots=True)
class ReadTotal:
    """Of several operands. Times are whole quarters of a nanosecond, so that sums do not depend on the order in which they were made."""

    quarters: int
    bytes: int


class ReadTimes:
    """Of each operand of a kernel that is launched with so many blocks. `coalesced`: neighbouring threads read neighbouring elements."""

    def __init__(self, reads: Mapping[Instruction, int], blocks: int, coalesced: bool, target: DeviceTarget) -> None:
        self._blocks = blocks
        self._coalesced = coalesced
        self._target = target
        self.bytes: dict[Instruction, int] = {}
        self.quarters: dict[Instruction, int] = {}
        self._sum = self._size = 0
        self._known: dict[tuple[int, int, int], int] = {}
        """Times by bytes of the operand, bytes read and the size of an element: operands are often alike."""
        for operand, size in reads.items():
            self.put(operand, size)

    def one(self, operand: Instruction, size: int) -> int:
        """Quarters of a nanosecond that reading so many bytes of an operand takes."""
        shape = operand.shape
        width = 0
        if not self._coalesced:
            width = (shape.type.bytes or 1) if shape.is_array else TUPLE_WIDTH
        key = (shape.byte_size, size, width)
        found = self._known.get(key)
        if found is None:
            net = min(shape.byte_size, size)
            share = width / self._target.dram_transaction_bytes if width else 1.0
            found = self._known[key] = int(4 * read_ns(net, size, share, self._blocks, self._target))
        return found

    def put(self, operand: Instruction, size: int) -> None:
        """So many bytes of an operand are read from now on."""
        self.drop(operand)
        taken = self.one(operand, size)
        self.bytes[operand], self.quarters[operand] = size, taken
        self._size += size
        self._sum += taken

    def drop(self, operand: Instruction) -> None:
        """An operand is not read any more."""
        if operand in self.bytes:
            self._size -= self.bytes.pop(operand)
            self._sum -= self.quarters.pop(operand)

    def all_of(self, named: Iterable[Instruction] | None = None) -> ReadTotal:
        """Of the operands that are named, each as often as it is; of all, once, where none are."""
        if named is None:
            return ReadTotal(self._sum, self._size)
        operands = list(named)
        return ReadTotal(sum([self.quarters[o] for o in operands]), sum([self.bytes[o] for o in operands]))
