"""Launch dimensions that XLA's emitters would choose: the cost model needs block and thread counts.

Source: xla/service/gpu/launch_dimensions.cc, gpu_fusible.cc (ComputeLoopFusionConfig), xla/backends/gpu/codegen/emitters/reduction.cc.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hlo_opt.analysis.cluster import Cluster, Node
from hlo_opt.analysis.heroes import emitter_of
from hlo_opt.analysis.reductions import WARP, ReductionForm, fast_form
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.analysis.transposes import TILE, tiled_transpose
from hlo_opt.ir import Shape

LOOP_BLOCK = 128
LOOP_UNROLL = 4
_MAY_DROP = frozenset({"sort", "dot", "concatenate", "reduce", "reduce-window"})


@dataclass(frozen=True, slots=True)
class LaunchDimensions:
    """Blocks in the grid and threads in a block."""

    blocks: int
    threads: int


def launch_dimensions(cluster: Cluster, target: DeviceTarget) -> LaunchDimensions:
    """The launch of a cluster as one kernel."""
    emitter, hero = emitter_of(cluster)
    if emitter == "reduction":
        form = fast_form(hero.instruction)
        assert form is not None
        return _reduction(form, hero, cluster, target)
    if emitter == "transpose":
        tiled = tiled_transpose(hero.instruction)
        assert tiled is not None
        last = len(tiled.sizes) - 1
        tiles = [last, tiled.permutation.index(last)]
        if tiled.permutation[-1] == last:
            tiles = [last - 1, tiled.permutation.index(last - 1)]
        blocks = math.prod(-(-s // TILE) if n in tiles else s for n, s in enumerate(tiled.sizes))
        if tiled.permutation[-1] == last:
            blocks //= tiled.sizes[-1]
        return LaunchDimensions(max(1, blocks), LOOP_BLOCK)
    shape = cluster.roots[0].shape
    if emitter == "scatter":
        shape = hero.operands[-1].shape
    elif emitter == "in-place":
        shape = hero.operands[1].shape
    elif emitter == "concatenate":
        shape = max((o.shape for o in hero.operands), key=lambda s: s.element_count)
    return loop_dimensions(shape, target, may_unroll=not _slower_unrolled(cluster))


def row_kernel_dimensions(cluster: Cluster) -> LaunchDimensions | None:
    """The launch of our row-reduction kernels, which also take several reductions of one row and what follows them; None for other clusters."""
    if "reduce" not in cluster.opcodes:
        return None
    forms = [fast_form(n.instruction) for n in cluster.members if n.opcode == "reduce"]
    rows = [f for f in forms if f is not None and f.is_row and f.sizes[0] == 1]
    if not rows:
        return None
    form = max(rows, key=lambda f: f.sizes[1] * f.sizes[2])
    fits = {form.sizes[1], form.sizes[1] * form.sizes[2]}
    if any(next(r.shape.leaves()).element_count not in fits for r in cluster.roots):
        return None
    return _rows(form)


def loop_dimensions(shape: Shape, target: DeviceTarget, *, may_unroll: bool = True) -> LaunchDimensions:
    """The loop emitter's launch: four elements per thread once the device is full, blocks of at most 128 threads."""
    first = next(shape.leaves(), shape)
    elements = max(1, first.element_count)
    unroll = 1
    if may_unroll and elements >= target.threads_per_core_limit * target.core_count:
        unroll = math.gcd(elements, LOOP_UNROLL)
    if first.is_array and first.type.bits < 8:
        unroll = max(unroll, math.gcd(elements, 8 // first.type.bits))
    threads = -(-elements // unroll)
    block = min(LOOP_BLOCK, threads)
    return LaunchDimensions(-(-threads // block), block)


def _slower_unrolled(cluster: Cluster) -> bool:
    """MayCausePerformanceDropIfUnrolled."""
    if _MAY_DROP.isdisjoint(cluster.opcodes):
        return False
    for node in cluster.members:
        if node.opcode in ("sort", "dot"):
            return True
        if node.opcode == "concatenate" and len(node.operands) > 10:
            return True
        if node.opcode == "reduce" and node.shape.is_tuple:
            return True
        if node.opcode == "reduce-window":
            sizes = [d.size for d in getattr(node.instruction.value("window", ""), "dimensions", ())]
            if math.prod(sizes) > 8:
                return True
    return False


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def _reduction(form: ReductionForm, hero: Node, cluster: Cluster, target: DeviceTarget) -> LaunchDimensions:
    if not form.is_row:
        return _column(form, hero)
    return _multi_row(form, hero, cluster, target) or _rows(form)


def _rows(form: ReductionForm) -> LaunchDimensions:
    """A warp or more per row, 16 elements per thread; short rows share a block of 256 threads."""
    _, middle, minor = form.sizes
    threads = min(1024, _round_up(-(-minor // 16), WARP))
    rows = min(middle, 256 // threads) if 2 * threads <= 256 else 1
    return LaunchDimensions(-(-middle // rows), threads * rows)


def _multi_row(form: ReductionForm, hero: Node, cluster: Cluster, target: DeviceTarget) -> LaunchDimensions | None:
    """Several rows per warp, for rows whose length is a small power of two."""
    major, rows, minor = form.sizes
    if major != 1 or minor & (minor - 1):
        return None
    inputs = [n.shape for n in cluster.inputs.values() if n.shape.is_array]
    types = [s.type.bits for s in (*inputs, *(leaf for r in cluster.roots for leaf in r.shape.leaves()))]
    narrowest = min((s.type.bits for s in inputs), default=32)
    vector = min(minor, max(1, 64 // narrowest))
    if max(types, default=32) >= 32:
        vector = min(vector, max(1, 128 // max(types, default=32)))
    if minor > WARP * vector:
        return None

    def dimensions(width: int) -> LaunchDimensions:
        along = max(1, minor // width)
        per_block = max(1, 256 // along)
        return LaunchDimensions(-(-rows // per_block), along * per_block)

    while vector > 1 and dimensions(vector).blocks < target.core_count:
        vector //= 2
    return dimensions(vector) if minor // vector <= WARP else None


def _column(form: ReductionForm, hero: Node) -> LaunchDimensions:
    major, _, minor = form.sizes
    if WARP % minor == 0:
        return LaunchDimensions(major, LOOP_BLOCK)
    narrowest = min((o.shape.type.bits for o in hero.operands if o.shape.is_array), default=32)
    vector = 1
    if minor % 2 == 0 and minor >= 2 * WARP and narrowest < 64:
        vector = 2 if narrowest >= 32 or minor % 4 or minor < 4 * WARP else 4
    return LaunchDimensions(major * -(-minor // (WARP * vector)), WARP * WARP)
