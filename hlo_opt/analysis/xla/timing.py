"""The clock of XLA's GPU performance model: nanoseconds of arithmetic, of reads and of writes on a device.

Source: xla/service/gpu/model/gpu_performance_model_base.cc.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlo_opt.analysis.targets import DeviceTarget

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
