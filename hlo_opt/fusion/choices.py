"""Is fusing this edge worth it? The rules of XLA's classic GPU instruction fusion, each a check of its own.

A policy may refuse what is legal; it never allows what is not. Another policy is another list of checks.
Source: xla/service/gpu/instruction_fusion.cc as it was before 2024, xla/service/instruction_fusion.cc,
xla/service/gpu/gpu_fusible.cc.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from hlo_opt.analysis.graph.cluster import Node
from hlo_opt.analysis.memory.forms import WARP, fast_form, moves_data
from hlo_opt.analysis.properties import is_boundary_fusion, is_effectively_scalar
from hlo_opt.analysis.xla.heroes import emitter_of
from hlo_opt.diag import Reason
from hlo_opt.fusion.in_place import in_place_conflict, scatter_conflict
from hlo_opt.fusion.legality import Check, Edge, can_be_planned
from hlo_opt.fusion.windows import keeps_sliding_windows, keeps_windows
from hlo_opt.ir import Instruction
from hlo_opt.ops import find
from hlo_opt.ops.emission import CHEAP_FUNCTIONS, WIDENINGS
from hlo_opt.ops.sets import fused
from hlo_opt.plans.limits import computes_at_once
from hlo_opt.plans.sketch import Sketch

HEAVY_WINDOW = 10

_CHEAP_TYPES = frozenset({"f32", "f16", "bf16"})


def is_expensive(instruction: Instruction) -> bool:
    """Whether computing it again costs too much. A GPU's special function units make some f32 and f16 operations cheap
    that the op table calls expensive."""
    if (
        instruction.opcode in CHEAP_FUNCTIONS
        and instruction.shape.is_array
        and instruction.shape.type.name in _CHEAP_TYPES
    ):
        return False
    spec = find(instruction.opcode)
    return spec is None or spec.is_expensive(instruction)


def always_duplicable(instruction: Instruction) -> bool:
    """Producers that cost nothing to compute again: broadcasts, iotas, scalar constants, and converts to a wider
    type."""
    if instruction.opcode in ("broadcast", "iota", "constant", "bitcast"):
        return True
    if instruction.opcode != "convert" or not instruction.shape.is_array:
        return False
    return instruction.shape.type.bits > instruction.operands[0].shape.type.bits


@dataclass(frozen=True)
class InstructionFusionChoices:
    """The policy of instruction fusion.

    may_duplicate   compute a producer again in each of several consumers
    max_emissions   how often a producer's code may be emitted inside a kernel
    do_not_duplicate  producers whose duplication would read more memory than it saves (FUS403)
    row_kernels     know the kernels that compute several reductions of a row and what follows them; XLA's emitters do
                    not
    staying         producers that are written whatever is fused: computing one again has to be quicker than reading it
                    (FUS410)
    """

    may_duplicate: bool = True
    max_emissions: int = 15
    do_not_duplicate: frozenset[Instruction] = field(default_factory=frozenset)
    row_kernels: bool = True
    staying: frozenset[Instruction] = field(default_factory=frozenset)

    @property
    def any_form(self) -> bool:
        """XLA's emitters are not asked beforehand what they make of a kernel."""
        return not self.row_kernels

    def against(self, edge: Edge, disabled: frozenset[str] = frozenset()) -> Iterator[Reason]:
        """Every reason of the policy against the edge."""
        for check in self.checks():
            reason = check(edge)
            if reason is not None and reason.code not in disabled:
                yield reason

    def rules_out(self, edge: Edge, disabled: frozenset[str] = frozenset()) -> bool:
        """A first look that costs next to nothing: True only where `against` has a reason."""
        if self.may_duplicate or "FUS501" in disabled:
            return False
        return edge.duplicates and not always_duplicable(edge.producer)

    def likeness(self, edge: Edge) -> Hashable:
        """What the answer depends on besides the structure of both sides and who reads the producer; None where that is
        not all."""
        if edge.producer in self.do_not_duplicate:
            return None
        return type(self), self.may_duplicate, self.max_emissions, self.row_kernels, edge.producer in self.staying

    def checks(self) -> tuple[Check, ...]:
        return (
            producer_is_fusion,
            library_call,
            self.duplication,
            self.memory_traffic,
            self.scatter_conflict,
            in_place_conflict,
            self.emission_limit,
            self.expensive_reuse,
            transpose_before_reduction,
            heavy_computation,
            keeps_windows,
            self.reduction_epilogue,
            *(
                (keeps_row_reduction, keeps_sliding_windows, self.recomputation, keeps_blocks)
                if self.row_kernels
                else ()
            ),
        )

    def scatter_conflict(self, edge: Edge) -> Reason | None:
        reason = scatter_conflict(edge)
        return None if self.row_kernels and reason is not None and starts_scatter(edge) else reason

    def expensive_reuse(self, edge: Edge) -> Reason | None:
        return expensive_reuse(edge, row_kernels=self.row_kernels)

    def reduction_epilogue(self, edge: Edge) -> Reason | None:
        return reduction_epilogue(edge, row_kernels=self.row_kernels)

    def duplication(self, edge: Edge) -> Reason | None:
        producer = edge.producer
        if not edge.duplicates or always_duplicable(producer):
            return None
        if not self.may_duplicate:
            return Reason.of("FUS501", producer=edge.producer_name, users=len(producer.users))
        if is_expensive(producer):
            return Reason.of("FUS401", producer=edge.producer_name, opcode=producer.opcode, users=len(producer.users))
        return None

    def memory_traffic(self, edge: Edge) -> Reason | None:
        if edge.producer not in self.do_not_duplicate or not edge.duplicates:
            return None
        read = sum(o.shape.byte_size for o in dict.fromkeys(edge.producer.operands))
        return Reason.of(
            "FUS403",
            producer=edge.producer_name,
            users=len(edge.producer.users),
            read=read,
            size=edge.producer.shape.byte_size,
        )

    def recomputation(self, edge: Edge) -> Reason | None:
        """A value that is in memory anyway is computed again only where that is quicker than reading it, or its kernel
        is small."""
        if edge.producer not in self.staying or not edge.duplicates or not can_be_planned(edge):
            return None
        prices = edge.state.prices
        if prices.of(edge.producer).is_small:
            return None
        fused, alone = prices.joined(edge.producer, edge.consumer), prices.of(edge.consumer)
        if isinstance(fused, Reason) or fused.us < alone.us:
            return None
        return Reason.of(
            "FUS410",
            producer=edge.producer_name,
            consumer=edge.consumer_name,
            us_fused=fused.us,
            us_unfused=alone.us,
        )

    def emission_limit(self, edge: Edge) -> Reason | None:
        if edge.producer.opcode == "broadcast":
            return None
        count = edge.state.emissions(edge.consumer).of(edge.producer)
        if count <= self.max_emissions:
            return None
        return Reason.of("FUS204", producer=edge.producer_name, count=count, limit=self.max_emissions)


def producer_is_fusion(edge: Edge) -> Reason | None:
    if fused(edge.producer) is None:
        return None
    return Reason.of(
        "FUS107", producer=edge.producer.name, size=sum(1 for _ in edge.state.cluster(edge.producer).members)
    )


def library_call(edge: Edge) -> Reason | None:
    """A library computes a matrix product or a sort faster than a loop does, even where a loop could. What a fusion
    that stands for a kernel holds is that kernel's affair (FUS104)."""
    sides = ((edge.producer, edge.above), (edge.consumer, edge.below))
    for instruction, traits in sides:
        spec = find(traits.library) if traits.library and not is_boundary_fusion(instruction) else None
        if spec is not None:
            if fused(instruction) is not None:
                return Reason.of("FUS311", fusion=instruction.name, opcode=traits.library)
            return Reason.of("FUS302", opcode=traits.library, runs_as=spec.runs_as)
    return None


def expensive_reuse(edge: Edge, *, row_kernels: bool = True) -> Reason | None:
    """An expensive producer whose elements the consumer reads several times each. A row kernel computes a reduction's
    result once per row, so paths through one do not count there."""
    producer = edge.producer
    if fused(producer) is not None or not is_expensive(producer) or is_effectively_scalar(producer.shape):
        return None
    if row_kernels and producer.opcode == "reduce" and _merges_into_row_kernel(edge):
        return None
    user = _reusing_user(edge, row_kernels=row_kernels)
    if user is None:
        return None
    return Reason.of(
        "FUS402",
        producer=edge.producer_name,
        opcode=producer.opcode,
        user=user.instruction.name,
        user_opcode=user.opcode,
    )


def _reusing_user(edge: Edge, *, row_kernels: bool) -> Node | None:
    """A member of the consumer, on a path from the producer, that reads an element of its operand several times."""
    once_per_row = row_kernels and edge.below.reduces > 0 and edge.state.row_reductions(edge.consumer) > 0
    below = edge.state.below(edge.consumer)
    place = edge.state.cluster(edge.consumer).inputs[edge.producer]
    return (below.reusing_once_per_row if once_per_row else below.reusing).get(place)


def transpose_before_reduction(edge: Edge) -> Reason | None:
    """A reduction reads its operand in the order of memory; a transpose in between makes it jump."""
    emitter, hero = emitter_of(edge.state.cluster(edge.consumer)) if edge.below.reduces else ("loop", None)
    if emitter != "reduction" or hero is None:
        return None
    for node in edge.state.cluster(edge.producer).members:
        if moves_data(node.instruction):
            return Reason.of(
                "FUS405", producer=edge.producer_name, transpose=node.instruction.name, reduction=hero.instruction.name
            )
    return None


def reduction_epilogue(edge: Edge, *, row_kernels: bool = True) -> Reason | None:
    """A reduction that has an emitter of its own stays the end of its kernel, unless our row kernel takes the consumer
    too."""
    if not edge.above.reductions:
        return None
    emitter, hero = emitter_of(edge.state.cluster(edge.producer))
    if emitter != "reduction":
        return None
    consumer = edge.consumer
    if consumer.opcode in WIDENINGS and len(edge.producer.users) == 1:
        return None
    if row_kernels and (_merges_into_row_kernel(edge) or folds_short_rows(edge)):
        return None
    return reduction_ends_kernel(edge, hero.instruction)


def reduction_ends_kernel(edge: Edge, hero: Instruction) -> Reason:
    """Refuses to fuse a reduction into a consumer that would make a loop of it: the reduction is to stay the end of its
    kernel."""
    form = fast_form(hero)
    assert form is not None
    return Reason.of(
        "FUS404",
        producer=edge.producer_name,
        reduction="row" if form.is_row else "column",
        sizes="x".join(map(str, form.sizes)),
        consumer=edge.consumer_name,
    )


def _merges_into_row_kernel(edge: Edge) -> bool:
    """Whether both become one row-reduction kernel in which every reduction that deserves its own threads still has
    them."""
    if not can_be_planned(edge):
        return False
    merged = edge.merged
    wanted = edge.above.reductions + edge.below.reductions
    return isinstance(merged, Sketch) and (not wanted or merged.row_reductions >= wanted)


def folds_short_rows(edge: Edge, *, anywhere: bool = False) -> bool:
    """Whether a thread folds each row of the producer by itself in a row kernel of the consumer, or in any kernel
    (`anywhere`), which keeps all its own reductions, and that takes less time than two kernels. The rows are no longer
    than a warp: distances of a few coordinates, before the softmax or the least of them."""
    wanted = edge.state.row_reductions(edge.consumer)
    if not (wanted or anywhere) or not edge.above.reductions or not can_be_planned(edge):
        return False
    forms = [form for n in edge.state.cluster(edge.producer).members if (form := fast_form(n.instruction)) is not None]
    if any(not form.is_row or form.sizes[0] != 1 or form.sizes[2] > WARP for form in forms):
        return False
    merged = edge.merged
    if not isinstance(merged, Sketch) or merged.row_reductions < wanted:
        return False
    prices = edge.state.prices
    both = prices.joined(edge.producer, edge.consumer)
    return not isinstance(both, Reason) and prices.takes_longer(edge.producer, edge.consumer, both.us, strictly=True)


def keeps_row_reduction(edge: Edge) -> Reason | None:
    """A row kernel must stay one with all its reductions, those of both sides: else a thread would fold a row for each
    element."""
    if not (edge.below.reduces or edge.above.reduces) or computes_at_once(edge.producer) or not can_be_planned(edge):
        return None
    before = edge.state.row_reductions(edge.consumer) + edge.state.row_reductions(edge.producer)
    merged = edge.merged if before else None
    if not isinstance(merged, Sketch) or merged.row_reductions >= before or folds_short_rows(edge):
        return None
    return Reason.of("FUS407", consumer=edge.consumer_name, producer=edge.producer_name, kind=merged.kind)


def keeps_blocks(edge: Edge) -> Reason | None:
    """Rows that are fewer than the device's cores leave most of it idle: a kernel of them takes a reduction in, or what
    comes after it, only where that takes less time than two kernels. So the norm of a whole array stays a kernel before
    what is scaled by it."""
    if not edge.above.reductions or not can_be_planned(edge):
        return None
    merged = edge.merged
    if not isinstance(merged, Sketch) or merged.launch.grid >= edge.state.target.core_count:
        return None
    prices = edge.state.prices
    if prices.takes_longer(edge.producer, edge.consumer, merged.price.us):
        return None
    apart = prices.apart(edge.producer, edge.consumer)
    return Reason.of(
        "FUS408", producer=edge.producer_name, users=1, model="", us_fused=merged.price.us, us_unfused=apart
    )


def starts_scatter(edge: Edge) -> bool:
    """Whether a scatter of few elements had better compute the array that it updates: one block does both, in less time
    than two launches take."""
    if edge.above.scatters or not can_be_planned(edge):
        return False
    merged, prices = edge.merged, edge.state.prices
    if not isinstance(merged, Sketch):
        return False
    apart = prices.of(edge.consumer).us if edge.duplicates else prices.apart(edge.producer, edge.consumer)
    return merged.price.us < apart


def heavy_computation(edge: Edge) -> Reason | None:
    """A producer that loops over many elements per result, read several times per result (CreatesHeavyComputation)."""
    heavy = None
    if edge.producer.opcode not in ("fusion", "reduce", "reduce-window"):
        return None
    for node in edge.state.cluster(edge.producer).members:
        if node.opcode == "reduce" and fast_form(node.instruction) is None:
            results = max(1, next(node.shape.leaves()).element_count)
            heavy = (node, node.operands[0].shape.element_count // results)
        elif node.opcode == "reduce-window":
            sizes = [d.size for d in getattr(node.instruction.value("window", ""), "dimensions", ())]
            if math.prod(sizes) > HEAVY_WINDOW:
                heavy = (node, math.prod(sizes))
    if heavy is None:
        return None
    user = _enlarging_user(edge)
    if user is None:
        return None
    return Reason.of(
        "FUS406",
        producer=edge.producer_name,
        opcode=heavy[0].opcode,
        elements=heavy[1],
        user=user.instruction.name,
        user_opcode=user.opcode,
    )


def _enlarging_user(edge: Edge) -> Node | None:
    """A member of the consumer, on a path from the producer, that makes more elements out of fewer."""
    place = edge.state.cluster(edge.consumer).inputs[edge.producer]
    return edge.state.below(edge.consumer).enlarging.get(place)
