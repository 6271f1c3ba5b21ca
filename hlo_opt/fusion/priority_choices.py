"""Why priority fusion refuses an edge: XLA's rules, in its order, and the limits of a generic Triton fusion (kind
kCustom, backend config `__triton`).

Whether an edge pays is decided by the queue's cost. A kernel that computes tiles of its output knows fewer operations
than a loop kernel, and every value inside it must be a tile of the output's tile.
Source: xla/backends/gpu/transforms/priority_fusion.cc (IsFusible, CanFuse, CanFuseConstant),
xla/backends/gpu/codegen/triton/support.cc, xla/service/gpu/model/symbolic_tile_analysis.cc.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from hlo_opt.analysis.graph.cluster import merge_clusters
from hlo_opt.analysis.properties import fusion_backend_kind, is_boundary_fusion, is_generic_triton
from hlo_opt.analysis.xla.heroes import emitter_of
from hlo_opt.analysis.xla.tiled_model import TileSizes
from hlo_opt.diag import Reason
from hlo_opt.fusion.choices import reduction_ends_kernel
from hlo_opt.fusion.compatibility import copies_emitted, own_code_size
from hlo_opt.fusion.in_place import in_place_conflict, scatter_conflict
from hlo_opt.fusion.legality import MAX_CODE_SIZE, Check, Edge
from hlo_opt.fusion.windows import keeps_sliding_windows, keeps_windows
from hlo_opt.ir import Attribute, Instruction, Shape, edit
from hlo_opt.ops.emission import HEROES, NEVER_PRIORITY_FUSED, PRIORITY_FUSED, TILED, TILED_FLOATS, XlaEmitter
from hlo_opt.ops.sets import fused, is_elementwise, is_view

_FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
_TYPES = _FLOATS | frozenset({"pred", "s4", "s8", "s16", "s32", "s64", "f8e5m2", "f8e4m3fn"})


def operation_conflict(edge: Edge) -> Reason | None:
    """The first operation of both sides that a tiled kernel does not know."""
    for instruction in (edge.producer, edge.consumer):
        for node in edge.state.cluster(instruction).members:
            reason = unsupported(node.instruction)
            if reason is not None:
                return reason
    return None


def tiled_kernel_conflict(edge: Edge) -> Reason | None:
    """Why the tiled kernel on one side of the edge cannot hold the other side."""
    reason = operation_conflict(edge)
    if reason is not None:
        return reason
    if math.isinf(edge.state.fused_by_xla(edge.producer, edge.consumer).us):
        cluster = merge_clusters(edge.state.cluster(edge.producer), edge.state.cluster(edge.consumer), edge.producer)
        return Reason.of(
            "FUS322",
            producer=edge.producer_name,
            consumer=edge.consumer_name,
            sizes="x".join(map(str, cluster.roots[0].shape.dimensions)),
            members=sum(1 for _ in cluster.members),
        )
    return None


def retile(fusion: Instruction, tiles: TileSizes) -> None:
    """Write the tiles that a fusion's kernel computes, and its warps, into the backend config."""
    config = fusion.attributes["backend_config"]
    text = config.text
    sizes = ",".join(rf"\g<quote>{size}\g<quote>" for size in tiles.sizes)
    text = _SIZES.sub(rf"\g<before>{sizes}\g<after>", text, count=1)
    text = _WARPS.sub(rf"\g<before>{tiles.warps}\g<after>", text, count=1)
    edit.set_attribute(fusion, "backend_config", Attribute(text))


_SIZES = re.compile(
    r'(?P<before>"output_tiles\\?"\s*:\s*\[\s*\{\s*\\?"sizes\\?"\s*:\s*\[)\s*(?P<quote>\\?"?)[^\]]*(?P<after>\])'
)
_WARPS = re.compile(r'(?P<before>"num_warps\\?"\s*:\s*\\?"?)\d+(?P<after>)')


def unsupported(instruction: Instruction) -> Reason | None:
    """Why a tiled kernel cannot compute the instruction."""
    opcode = instruction.opcode
    types = [leaf.type.name for leaf in _leaves(instruction)]
    supported = opcode in TILED or (opcode in TILED_FLOATS and types[0] in _FLOATS)
    for name in types:
        if not supported or name not in _TYPES:
            return Reason.of("FUS321", instruction=instruction.name, element_type=name, opcode=opcode)
    if HEROES.get(opcode) is XlaEmitter.REDUCTION and (
        len(instruction.operands) != 2 or len(instruction.ints("dimensions")) != 1
    ):
        return Reason.of("FUS321", instruction=instruction.name, element_type=types[0], opcode=opcode)
    return None


def _leaves(instruction: Instruction) -> list[Shape]:
    shapes = [o.shape for o in instruction.operands] if instruction.literal is None else []
    return [leaf for shape in (*shapes, instruction.shape) for leaf in shape.leaves()]


def is_fusible(instruction: Instruction) -> bool:
    """Whether priority fusion takes the instruction at all, as a producer or as a consumer."""
    opcode = instruction.opcode
    if fused(instruction) is not None:
        return not is_boundary_fusion(instruction)
    if is_view(opcode):
        return keeps_width(instruction)
    return opcode in PRIORITY_FUSED or (opcode not in NEVER_PRIORITY_FUSED and is_elementwise(instruction))


def keeps_width(bitcast: Instruction) -> bool:
    """Whether a bitcast's elements are as wide as its operand's."""
    source = bitcast.operands[0].shape
    return source.is_array and bitcast.shape.is_array and source.type.bits == bitcast.shape.type.bits


@dataclass(frozen=True)
class PriorityChoices:
    """The policy of priority fusion.

    max_code_size    operations that a merged kernel may emit
    sliding_windows  keep the kernels in which threads fold sliding windows together; XLA has none
    """

    max_code_size: int = MAX_CODE_SIZE
    sliding_windows: bool = False
    any_form: ClassVar[bool] = True

    def against(self, edge: Edge, disabled: frozenset[str] = frozenset()) -> Iterator[Reason]:
        """Every reason of the policy against the edge. Where a side is a Triton fusion, only what that kernel can hold
        counts."""
        for check in self.checks(edge):
            reason = check(edge)
            if reason is not None and reason.code not in disabled:
                yield reason

    def rules_out(self, edge: Edge, disabled: frozenset[str] = frozenset()) -> bool:
        """A first look that costs next to nothing: True only where `against` has a reason."""
        return "FUS122" not in disabled and not (is_fusible(edge.producer) and is_fusible(edge.consumer))

    def likeness(self, edge: Edge) -> Hashable:
        """What the answer depends on besides the structure of both sides."""
        return type(self), self.max_code_size, self.sliding_windows

    def checks(self, edge: Edge) -> tuple[Check, ...]:
        if is_generic_triton(edge.producer) or is_generic_triton(edge.consumer):
            return (opcode_not_fused, tiled_kernel_conflict)
        return (
            opcode_not_fused,
            scatter_conflict,
            reduce_into_reduce,
            reduction_becomes_loop,
            self.code_size,
            in_place_conflict,
            keeps_windows,
            *((keeps_sliding_windows,) if self.sliding_windows else ()),
        )

    def code_size(self, edge: Edge) -> Reason | None:
        """ProducerConsumerMergedTooLarge."""
        above, below = (own_code_size(edge.state, i) for i in (edge.producer, edge.consumer))
        size = above * copies_emitted(edge) + below
        if size <= self.max_code_size:
            return None
        return Reason.of(
            "FUS220", producer=edge.producer_name, consumer=edge.consumer_name, size=size, limit=self.max_code_size
        )


def opcode_not_fused(edge: Edge) -> Reason | None:
    for instruction in (edge.producer, edge.consumer):
        if not is_fusible(instruction):
            return Reason.of("FUS122", instruction=instruction.name, opcode=_described(instruction))
    return None


def _described(instruction: Instruction) -> str:
    target = instruction.word("custom_call_target")
    if target:
        return f"{instruction.opcode} {target}"
    if fused(instruction) is not None:
        return f"fusion {fusion_backend_kind(instruction)}".strip()
    return instruction.opcode


def reduce_into_reduce(edge: Edge) -> Reason | None:
    """Both sides fold many elements into one: the cost model does not see what nesting them costs."""
    above, below = edge.above.significant_reduces, edge.below.significant_reduces
    if not (above and below):
        return None
    return Reason.of("FUS420", producer=edge.producer_name, consumer=edge.consumer_name, above=above, below=below)


def reduction_becomes_loop(edge: Edge) -> Reason | None:
    """A reduction that has an emitter of its own must keep it."""
    if not edge.above.reductions:
        return None
    emitter, hero = edge.state.emitter(edge.producer)
    if emitter != "reduction":
        return None
    state = edge.state
    merged = merge_clusters(state.cluster(edge.producer), state.cluster(edge.consumer), edge.producer)
    if emitter_of(merged)[0] != "loop":
        return None
    return reduction_ends_kernel(edge, hero.instruction)


@dataclass(frozen=True)
class ConstantChoices:
    """The policy for constants of one element."""

    any_form: ClassVar[bool] = True

    def against(self, edge: Edge, disabled: frozenset[str] = frozenset()) -> Iterator[Reason]:
        reason = constant_conflict(edge)
        if reason is not None and reason.code not in disabled:
            yield reason

    def rules_out(self, edge: Edge, disabled: frozenset[str] = frozenset()) -> bool:
        return "FUS122" not in disabled and not is_fusible(edge.consumer)

    def likeness(self, edge: Edge) -> Hashable:
        """What the answer depends on besides the structure of both sides."""
        return "constants"


def constant_conflict(edge: Edge) -> Reason | None:
    """CanFuseConstant: whatever is fusible takes a constant of one element."""
    if is_generic_triton(edge.consumer):
        return opcode_not_fused(edge) or operation_conflict(edge)
    return opcode_not_fused(edge) or scatter_conflict(edge)
