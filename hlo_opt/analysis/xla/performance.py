"""XLA's GPU performance model: microseconds of a kernel, and of a producer with its consumers, fused and unfused.

Source: xla/service/gpu/model/gpu_performance_model.cc and gpu_performance_model_base.cc.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from hlo_opt.analysis.graph.cluster import Cluster, Follower, Node, cluster_of, merge_clusters
from hlo_opt.analysis.memory.forms import LaunchDimensions, moves_minor
from hlo_opt.analysis.targets import DEFAULT_TARGET, DeviceTarget
from hlo_opt.analysis.targets import target as find_target
from hlo_opt.analysis.xla.heroes import emitter_of, writes_reduction
from hlo_opt.analysis.xla.launch import emitter_launch
from hlo_opt.analysis.xla.tiled_model import TileSizes, best_tiled_kernel, configured_tiles, tiled_kernel
from hlo_opt.analysis.xla.timing import KernelEstimate, ReadTimes, ReadTotal, compute_ns, overlapped, write_ns
from hlo_opt.analysis.xla.utilization import ClusterUsage, Usage, Use, plain_usage
from hlo_opt.diag import UsageError, did_you_mean
from hlo_opt.ir import Instruction, Module
from hlo_opt.ops.emission import NOTABLE
from hlo_opt.ops.sets import is_elementwise

_SHAPES_KERNELS = NOTABLE - {"pad"}
"""Operations that can affect how their kernel is launched, or whether its reads are coalesced."""

_MOVES = frozenset({"transpose", "copy"})

MOST_LAUNCHES = 4
"""The most launches for which a kernel keeps read times while it grows."""


@dataclass(frozen=True, slots=True)
class LaunchForm:
    """A kernel's launch, and whether its reads are coalesced."""

    launch: LaunchDimensions
    coalesced: bool


def launch_form(cluster: Cluster, target: DeviceTarget, *, movers: bool, reductions: int = 1) -> LaunchForm:
    """XLA's launch of a cluster.

    `movers`: whether a transpose inside makes reads uncoalesced. `reductions`: the number of fused parts that end in a
    reduction emitter.
    """
    emitter, hero = emitter_of(cluster)
    jumps = (movers and emitter != "transpose") or (emitter == "reduction" and reductions > 1)
    return LaunchForm(emitter_launch(emitter, hero, cluster, target), not jumps)


class Priced:
    """An instruction with all that its estimate needs, computed once. `known` caches uses (see `ClusterUsage`)."""

    def __init__(
        self,
        instruction: Instruction,
        target: DeviceTarget,
        *,
        cluster: Cluster | None = None,
        known: dict[Instruction, Use] | None = None,
    ) -> None:
        self.instruction = instruction
        self.target = target
        self.cluster = cluster = cluster_of(instruction) if cluster is None else cluster
        self.is_fusion = instruction.opcode == "fusion"
        known = {} if known is None else known
        self.usage: Usage
        self.reads: dict[Instruction, int]
        """Bytes read of each distinct operand."""
        if self.is_fusion:
            capability = target.compute_capability
            self.usage = cluster.following(ClusterUsage, lambda c: ClusterUsage(c, capability, known=known))
            self.reads = {o: round(self.usage.read_of(cluster, o)) for o in cluster.inputs}
        else:
            self.usage = plain_usage(cluster, target.compute_capability, known)
            self.reads = {}
            for operand, size in zip(instruction.operands, known[instruction].accesses.read, strict=True):
                self.reads.setdefault(operand, round(size))
        self._times: dict[tuple[int, bool], ReadTimes] = {}

    def absorbed(self, producer: Instruction, operands: Iterable[Instruction]) -> None:
        """The fusion and its cluster absorbed a producer: update the reads; those of other operands remain."""
        self.reads.pop(producer, None)
        for times in self._times.values():
            times.drop(producer)
        for operand in operands:
            size = self.reads[operand] = round(self.usage.read_of(self.cluster, operand))
            for times in self._times.values():
                times.put(operand, size)
        self._forget()

    def renamed(self, old: Instruction, new: Instruction) -> None:
        """An operand was replaced by another instruction."""
        self.reads = {new if o is old else o: size for o, size in self.reads.items()}
        self._times.clear()
        self._forget()

    def _forget(self) -> None:
        for name in ("tiles", "writes_reduction", "form", "estimate", "hands_on"):
            self.__dict__.pop(name, None)

    @property
    def is_plain(self) -> bool:
        """Whether nothing inside can affect the launch."""
        return _SHAPES_KERNELS.isdisjoint(self.cluster.opcodes)

    @property
    def moves(self) -> bool:
        """Whether a transpose inside makes reads uncoalesced."""
        if _MOVES.isdisjoint(self.cluster.opcodes):
            return False
        if not self.is_fusion:
            return makes_reads_jump(self.instruction)
        return self.cluster.following(Jumps, lambda c: Jumps()).any

    @cached_property
    def tiles(self) -> TileSizes | None:
        """The tiling of a Triton fusion, from its config; None for other instructions."""
        return configured_tiles(self.instruction) if self.is_fusion else None

    @cached_property
    def writes_reduction(self) -> bool:
        """Whether the reduction emitter takes a result."""
        return writes_reduction(self.cluster)

    @cached_property
    def form(self) -> LaunchForm:
        return launch_form(self.cluster, self.target, movers=self.moves)

    @cached_property
    def estimate(self) -> KernelEstimate:
        """The estimate of the kernel alone."""
        if self.tiles is not None:
            tiled = tiled_kernel(self.cluster, self.target, self.tiles)
            if (
                tiled.us < math.inf
            ):  # a kernel in the module exists: if its configured tiling is invalid, price it like any other
                return tiled
        # XLA's model reads an operand of a plain instruction once per position
        twice = not self.is_fusion
        read = self.read_times(self.form).all_of(self.instruction.operands if twice else None)
        return _estimate(self.form, self.usage.flops, read, self.usage.written, self.usage.constant_bytes, self.target)

    def read_times(self, form: LaunchForm) -> ReadTimes:
        """The read times of the operands in a launch."""
        key = (form.launch.blocks, form.coalesced)
        times = self._times.get(key)
        if times is None:
            if len(self._times) >= MOST_LAUNCHES:
                self._times.clear()
            times = self._times[key] = ReadTimes(self.reads, form.launch.blocks, form.coalesced, self.target)
        return times

    @cached_property
    def hands_on(self) -> bool:
        """Whether the kernel reads its operands exactly where its result is read."""
        return is_elementwise(self.instruction)

    def utilization_of(self, producer: Instruction) -> float:
        """How often this kernel uses the full value of a producer."""
        node = self.cluster.inputs.get(producer)
        return 0.0 if node is None else self.usage.utilization[node]

    def evaluations_of(self, producer: Instruction) -> float:
        """How often this kernel would compute the full value of a producer: a plain instruction once per operand
        position."""
        if self.is_fusion:
            return self.utilization_of(producer)
        return self.utilization_of(producer) * self.instruction.operands.count(producer)


def _estimate(
    form: LaunchForm, flops: float, read: ReadTotal, written: float, constant_bytes: float, target: DeviceTarget
) -> KernelEstimate:
    launch = form.launch
    compute = compute_ns(max(0, int(flops)), launch.blocks, launch.threads, target)
    memory = read.quarters / 4 + write_ns(written, target)
    return KernelEstimate(overlapped(compute, memory) / 1000, constant_bytes + read.bytes, written, flops)


class Jumps:
    """Whether a fusion has uncoalesced reads: it moves the minor dimension of something other than a broadcast or iota.

    The heuristic of xla/service/gpu/model/coalescing_analysis.cc, which stops at the inputs.
    """

    def __init__(self) -> None:
        self._surely = False
        self._open: set[Node] = set()
        """Moved inputs: undecided until their producers are absorbed."""

    @property
    def any(self) -> bool:
        return self._surely or bool(self._open)

    def spread(self, nodes: list[Node], inputs: list[Node]) -> None:
        for node in nodes:
            if node in self._open:
                self._open.remove(node)
                self._climb(node)
            if node.opcode in _MOVES and moves_minor(node.instruction):
                self._climb(node.operands[0])

    def fits(self, above: Follower, place: Node) -> bool:
        return True

    def adopt(self, above: Follower, root: Node, place: Node, inputs: Mapping[Node, Node]) -> None:
        assert isinstance(above, Jumps)
        self._surely |= above._surely
        self._open.update([inputs[node] for node in above._open])
        if place in self._open:
            self._open.remove(place)
            self._climb(place)

    def _climb(self, node: Node) -> None:
        while not self._surely and not node.is_input and node.opcode not in ("broadcast", "iota"):
            if _passes(node.instruction):
                node = node.operands[0]
            else:
                self._surely = True
        if node.is_input:
            self._open.add(node)


def _passes(instruction: Instruction) -> bool:
    """Whether moving the result amounts to moving the only operand."""
    return len(instruction.operands) == 1 and (instruction.opcode == "bitcast" or is_elementwise(instruction))


def makes_reads_jump(mover: Instruction) -> bool:
    """As `Jumps`, for an instruction other than a fusion; follows operands as far as necessary."""
    if mover.opcode not in _MOVES or not moves_minor(mover):
        return False
    instruction = mover.operands[0]
    while instruction.opcode not in ("broadcast", "iota"):
        if not _passes(instruction):
            return True
        instruction = instruction.operands[0]
    return False


def fused_estimate(producer: Priced, consumer: Priced, *, keep_producer: bool = False) -> KernelEstimate:
    """The producer fused into the consumer; with `keep_producer`, as a multi-output fusion that writes the producer
    too.

    For Triton fusions, XLA's tiled model: the best tiling, or infinite microseconds without one.
    """
    target = producer.target
    if producer.tiles is not None or consumer.tiles is not None:
        cluster = merge_clusters(producer.cluster, consumer.cluster, producer.instruction, keep_producer=keep_producer)
        return best_tiled_kernel(cluster, target)
    form = _form_of_both(producer, consumer, keep_producer)
    flops = int(producer.usage.flops) * consumer.evaluations_of(producer.instruction) + int(consumer.usage.flops)
    share = consumer.utilization_of(producer.instruction)
    read = _read_together(producer, consumer, form, share)
    written = consumer.usage.written + (producer.usage.written if keep_producer else 0.0)
    constants = producer.usage.constant_bytes * share + consumer.usage.constant_bytes
    return _estimate(form, flops, read, written, constants, target)


def _form_of_both(producer: Priced, consumer: Priced, keep: bool) -> LaunchForm:
    if producer.is_plain and not keep and not _depends_on_inputs(consumer):
        return consumer.form
    cluster = merge_clusters(producer.cluster, consumer.cluster, producer.instruction, keep_producer=keep)
    reductions = producer.writes_reduction + consumer.writes_reduction
    return launch_form(cluster, producer.target, movers=producer.moves or consumer.moves, reductions=reductions)


def _depends_on_inputs(consumer: Priced) -> bool:
    """Whether fusing a producer can change the launch: reductions vectorise by input width, in-place updates need their
    buffer as an input."""
    return not consumer.cluster.opcodes.isdisjoint(("reduce", "dynamic-update-slice"))


def _read_together(producer: Priced, consumer: Priced, form: LaunchForm, share: float) -> ReadTotal:
    """The reads of a fused pair: the consumer's, updated for the producer and its operands."""
    times = consumer.read_times(form)
    # XLA's list of a fused pair's reads repeats an operand as often as the consumer does
    repeats = len(consumer.instruction.operands) != len(consumer.reads)
    named = Counter(consumer.instruction.operands) if repeats else None
    total = times.all_of(None if named is None else consumer.instruction.operands)
    quarters, size = total.quarters, total.bytes
    fused = producer.instruction
    if fused in times.quarters:
        often = 1 if named is None else named[fused]
        quarters -= often * times.quarters[fused]
        size -= often * times.bytes[fused]
    for operand, by_producer in producer.reads.items():
        wanted = round(by_producer * share)
        often = 1
        by_consumer = times.bytes.get(operand)
        if by_consumer is not None:
            wanted += by_consumer - round(_common(producer, consumer, operand) * operand.shape.byte_size)
            if wanted == by_consumer:
                continue
            often = 1 if named is None else named[operand]
            quarters -= often * times.quarters[operand]
            size -= often * by_consumer
        wanted = max(0, wanted)
        quarters += often * times.one(operand, wanted)
        size += often * wanted
    return ReadTotal(quarters, size)


def _common(producer: Priced, consumer: Priced, operand: Instruction) -> float:
    """The share of an operand that both read at the same indices, so that it counts once (GetCommonUtilization)."""
    above, below = producer.cluster.inputs.get(operand), consumer.cluster.inputs.get(operand)
    if above is None or below is None:
        return 0.0
    if not producer.hands_on and (not producer.is_fusion or producer.usage.root not in producer.usage.use_roots[above]):
        return 0.0
    place = consumer.cluster.inputs[producer.instruction]
    if consumer.is_fusion:
        return consumer.usage.common_elementwise(below, place)
    return 1.0 if consumer.hands_on else 0.0


MODELS = ("xla",)


def estimate_fusion(producer: Priced, consumers: list[Priced]) -> tuple[float, float, float, float]:
    """(us unfused, us fused, bytes unfused, bytes fused) of a producer and all its consumers, launch overhead
    included."""
    launch = producer.target.kernel_launch_us
    fused = [fused_estimate(producer, c) for c in consumers]
    us_unfused = launch * (len(consumers) + 1) + producer.estimate.us + sum(c.estimate.us for c in consumers)
    us_fused = launch * len(consumers) + sum(f.us for f in fused)
    bytes_unfused = producer.estimate.bytes + sum(c.estimate.bytes for c in consumers)
    return us_unfused, us_fused, bytes_unfused, sum(f.bytes for f in fused)


def estimate(
    module: Module, producer: str, consumers: list[str], target: str = DEFAULT_TARGET, model: str = "xla"
) -> dict[str, float]:
    """Microseconds `us_fused` and `us_unfused` of a producer and its consumers, and `bytes_saved` by fusing it into
    all.

    Takes instruction names, with or without `%`; the consumers must use the producer. Raises UsageError for an unknown
    name, target or model.
    """
    if model not in MODELS:
        raise UsageError(f"there is no cost model {model!r}", hint=did_you_mean(model, MODELS) or "known: xla")
    device = find_target(target)
    by_name = {i.name: i for c in module.computations for i in c.instructions}

    def find(name: str) -> Instruction:
        plain = name.lstrip("%")
        if plain not in by_name:
            raise UsageError(f"there is no instruction {plain!r}", hint=did_you_mean(plain, by_name))
        return by_name[plain]

    above = find(producer)
    below = [find(c) for c in consumers]
    for consumer in below:
        if above not in consumer.operands:
            raise UsageError(f"{consumer.name} does not use {above.name}")
    priced = Priced(above, device)
    us_unfused, us_fused, bytes_unfused, bytes_fused = estimate_fusion(priced, [Priced(c, device) for c in below])
    return {"us_fused": us_fused, "us_unfused": us_unfused, "bytes_saved": bytes_unfused - bytes_fused}
