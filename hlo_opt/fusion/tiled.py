"""What a generic Triton fusion (kind kCustom, backend config `__triton`) can take: a kernel that computes tiles of its output.

Such a kernel knows fewer operations than a loop kernel, and every value inside it must be a tile of the output's tile.
Source: xla/backends/gpu/codegen/triton/support.cc, xla/service/gpu/model/symbolic_tile_analysis.cc.
"""

from __future__ import annotations

import math
import re

from hlo_opt.analysis.graph.cluster import merge_clusters
from hlo_opt.analysis.xla.tiled_model import TileSizes
from hlo_opt.diag import Reason
from hlo_opt.fusion.legality import Edge
from hlo_opt.ir import Attribute, Instruction, Shape, edit
from hlo_opt.ops.emission import HEROES, TILED, TILED_FLOATS, Emitter

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
    if HEROES.get(opcode) is Emitter.REDUCTION and (
        len(instruction.operands) != 2 or len(instruction.ints("dimensions")) != 1
    ):
        return Reason.of("FUS321", instruction=instruction.name, element_type=types[0], opcode=opcode)
    return None


def _leaves(instruction: Instruction) -> list[Shape]:
    shapes = [o.shape for o in instruction.operands] if instruction.literal is None else []
    return [leaf for shape in (*shapes, instruction.shape) for leaf in shape.leaves()]
