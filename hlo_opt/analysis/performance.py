"""XLA's GPU performance model: microseconds of a kernel from its operations, its bytes and its launch.

Source: xla/service/gpu/model/gpu_performance_model.cc and gpu_performance_model_base.cc.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlo_opt.analysis.accesses import byte_size
from hlo_opt.analysis.cluster import Cluster, cluster_of, merge_clusters
from hlo_opt.analysis.facts import is_elementwise
from hlo_opt.analysis.heroes import emitter_of
from hlo_opt.analysis.launch import LaunchDimensions, launch_dimensions, row_kernel_dimensions
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.analysis.transposes import moves_minor
from hlo_opt.analysis.utilization import Usage, Use, usage_of
from hlo_opt.ir import Instruction, Shape

L2_SPEEDUP = 2.5
L1_SPEEDUP = 8.0
MEMORY_COMPUTE_PARALLELISM = 0.95


@dataclass(frozen=True, slots=True)
class KernelEstimate:
    """One execution of a kernel. `us` leaves the launch overhead out."""

    us: float
    bytes_read: float
    bytes_written: float
    flops: float

    @property
    def bytes(self) -> float:
        return self.bytes_read + self.bytes_written


_SHAPES_KERNELS = frozenset(
    {
        "reduce",
        "reduce-window",
        "transpose",
        "copy",
        "concatenate",
        "scatter",
        "dynamic-update-slice",
        "sort",
        "dot",
        "convolution",
    }
)
"""Operations that may decide how a kernel that holds them is launched, or whether it reads memory in order."""

_MOVES = frozenset({"transpose", "copy"})


@dataclass(frozen=True, slots=True)
class LaunchForm:
    """How a kernel is launched, and whether neighbouring threads read neighbouring elements."""

    launch: LaunchDimensions
    coalesced: bool


def launch_form(cluster: Cluster, target: DeviceTarget, *, row_local: bool) -> LaunchForm:
    """How XLA would launch a cluster; with `row_local`, how our row-reduction kernels are launched where one fits."""
    launch = row_kernel_dimensions(cluster) if row_local else None
    return LaunchForm(launch or launch_dimensions(cluster, target), is_coalesced(cluster))


class Priced:
    """An instruction with everything that its estimate needs, computed once. `row_local` prices our row-reduction kernels and `known` saves work (see
    `usage_of`)."""

    def __init__(
        self,
        instruction: Instruction,
        target: DeviceTarget,
        *,
        row_local: bool = False,
        cluster: Cluster | None = None,
        known: dict[Instruction, Use] | None = None,
    ) -> None:
        self.instruction = instruction
        self.target = target
        self.cluster = cluster_of(instruction) if cluster is None else cluster
        self.usage: Usage = usage_of(self.cluster, target.compute_capability, row_local=row_local, known=known)
        self.reads = {o: self.usage.read_of(self.cluster, o) for o in self.cluster.inputs}
        self.row_local = row_local
        self.form = launch_form(self.cluster, target, row_local=row_local)
        self.estimate = _estimate(
            self.form, self.usage.flops, self.reads, self.usage.written, self.usage.constant_bytes, target
        )
        self.is_plain = _SHAPES_KERNELS.isdisjoint(self.cluster.opcodes)

    def utilization_of(self, producer: Instruction) -> float:
        """How often this kernel uses the full value of a producer."""
        node = self.cluster.inputs.get(producer)
        return 0.0 if node is None else self.usage.utilization[node]


def nanoseconds(value: float) -> float:
    """Rounded to a quarter of a nanosecond, as absl::Duration keeps times."""
    return round(value * 4) / 4


def compute_ns(flops: float, launch: LaunchDimensions, target: DeviceTarget) -> float:
    """Time of the arithmetic at the device's peak rate, as far as blocks and threads fill it."""
    cores = min(launch.blocks, target.core_count)
    units = min(launch.threads, target.fpus_per_core)
    per_ns = int(2 * target.clock_rate_ghz * cores * units)
    return nanoseconds(flops / max(1, per_ns))


def read_ns(net: float, total: float, shape: Shape, blocks: int, coalesced: bool, target: DeviceTarget) -> float:
    """Time to read an operand: `net` bytes from memory, the rest of `total` again from a cache that holds it."""
    width = next(shape.leaves(), shape).type.bytes or 1
    waste = 1.0 if coalesced else target.dram_transaction_bytes / width
    bandwidth = target.memory_bandwidth
    rest = bandwidth
    if net < target.l2_cache_size:
        rest *= L2_SPEEDUP
        if net < target.l1_cache_size_per_core * target.core_count:
            rest *= L1_SPEEDUP
    else:
        rest /= waste
    limit = blocks * target.clock_rate_ghz * 1e9 * target.bytes_per_core_and_clock
    net = min(net, total)
    first = net / min(bandwidth / waste, limit)
    return nanoseconds(first * 1e9) + nanoseconds((total - net) / min(rest, limit) * 1e9)


def _estimate(
    form: LaunchForm,
    flops: float,
    read: dict[Instruction, float],
    written: float,
    constant_bytes: float,
    target: DeviceTarget,
) -> KernelEstimate:
    launch = form.launch
    time_read = 0.0
    total = constant_bytes
    for operand, wanted in read.items():
        used = round(wanted)
        total += used
        net = min(byte_size(operand.shape), used)
        time_read += read_ns(net, used, operand.shape, launch.blocks, form.coalesced, target)
    time_written = nanoseconds(written / target.memory_bandwidth * 1e9)
    memory = time_read + time_written
    compute = compute_ns(int(flops), launch, target)
    together = compute + memory - nanoseconds(MEMORY_COMPUTE_PARALLELISM * min(compute, memory))
    return KernelEstimate(together / 1000, total, written, flops)


def is_coalesced(cluster: Cluster) -> bool:
    """The heuristic of xla/service/gpu/model/coalescing_analysis.cc: no member moves the fastest dimension, unless the emitter does it in tiles."""
    if _MOVES.isdisjoint(cluster.opcodes):
        return True
    emitter, _ = emitter_of(cluster)
    if emitter == "transpose":
        return True
    for node in cluster.members:
        if not moves_minor(node.instruction):
            continue
        operand = node.operands[0]
        while not operand.is_input and operand.operands and is_elementwise(operand.instruction):
            operand = operand.operands[0]
        if operand.opcode not in ("broadcast", "iota"):
            return False
    return True


def fused_estimate(producer: Priced, consumer: Priced, *, keep_producer: bool = False) -> KernelEstimate:
    """The producer computed inside the consumer; with `keep_producer` its value is written too (a multi-output fusion)."""
    target = producer.target
    form = consumer.form
    if not producer.is_plain or keep_producer:
        cluster = merge_clusters(producer.cluster, consumer.cluster, producer.instruction, keep_producer=keep_producer)
        form = launch_form(cluster, target, row_local=consumer.row_local)
    share = consumer.utilization_of(producer.instruction)
    flops = producer.estimate.flops * share + consumer.estimate.flops
    read: dict[Instruction, float] = {}
    for operand in (*producer.reads, *consumer.reads):
        if operand is producer.instruction or operand in read:
            continue
        by_producer, by_consumer = producer.reads.get(operand, 0.0), consumer.reads.get(operand, 0.0)
        common = _common(producer, consumer, operand)
        read[operand] = max(0.0, round(by_producer * share) + by_consumer - common * byte_size(operand.shape))
    written = consumer.usage.written + (producer.usage.written if keep_producer else 0.0)
    constants = producer.usage.constant_bytes * share + consumer.usage.constant_bytes
    return _estimate(form, flops, read, written, constants, target)


def _common(producer: Priced, consumer: Priced, operand: Instruction) -> float:
    """How much of an operand both read at the same places, so that it counts once (GetCommonUtilization)."""
    above, below = producer.cluster.inputs.get(operand), consumer.cluster.inputs.get(operand)
    if above is None or below is None:
        return 0.0
    root = producer.cluster.roots[0]
    if not set(producer.usage.use_roots[above]) <= {root}:
        return 0.0
    place = consumer.cluster.inputs[producer.instruction]
    if consumer.instruction.opcode == "fusion":
        return consumer.usage.common_elementwise(below, place)
    return 1.0 if is_elementwise(consumer.instruction) else 0.0
