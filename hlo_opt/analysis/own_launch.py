"""Launch dimensions of our own kernels where they differ from XLA's: reductions of rows and columns with what follows them, and tiled transposes.

The sizes are those that hlo_opt/plans gives the kernels.
"""

from __future__ import annotations

import math

from hlo_opt.analysis.columns import PART, SHARED_BYTES, column_parts, column_tile
from hlo_opt.analysis.graph.cluster import Cluster, Node
from hlo_opt.analysis.memory.geometry import LaunchDimensions, bits_of, round_up, smallest_bits
from hlo_opt.analysis.memory.reductions import WARP, ReductionForm, fast_form
from hlo_opt.analysis.memory.transposes import moves_minor, packing, tile_counts, tiled_move
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction
from hlo_opt.ops.sets import is_elementwise

SHORT_ROW_BLOCK = 256
ROW_PER_THREAD = 16
"""Elements of a row that one thread folds, before the row gets more threads."""
MOST_THREADS = 1024
TRANSPOSE_BLOCK = 128
_PASSES_ON = frozenset({"bitcast", "reshape", "tuple", "get-tuple-element"})


def fold_dimensions(cluster: Cluster, target: DeviceTarget) -> LaunchDimensions | None:
    """The launch of our row- and column-reduction kernels, which also take several reductions of one form and what follows them; None for other clusters."""
    if "reduce" not in cluster.opcodes:
        return None
    found = [(fast_form(n.instruction), n.instruction) for n in cluster.members if n.opcode == "reduce"]
    forms = [(form, reduce) for form, reduce in found if form is not None and not (form.is_row and form.sizes[0] > 1)]
    if not forms:
        return None
    form, hero = max(forms, key=lambda item: math.prod(item[0].sizes))
    elements = math.prod(form.sizes)
    fits = {elements, elements // (form.sizes[2] if form.is_row else form.sizes[1])}
    if any(next(r.shape.leaves()).element_count not in fits for r in cluster.roots):
        return None
    if form.is_row:
        found_rows = _rows(form, hero)
        if found_rows is not None and _ends_in_one_pass(cluster, elements):
            parts = row_parts(form.sizes[1], form.sizes[2], target.core_count)
            return LaunchDimensions(found_rows.blocks * parts, found_rows.threads)
        return found_rows
    bits = smallest_bits(n.shape for n in cluster.inputs.values()) or 32
    results = [leaf for other, reduce in forms if other == form for leaf in reduce.shape.leaves()]
    tile = column_tile(form.sizes, bits, sum(max(4, leaf.type.bytes) for leaf in results), target.core_count)
    if tile is None:
        return None
    parts = 1
    if _ends_in_one_pass(cluster, elements):
        parts = column_parts(tile, form.sizes[1], target.core_count)
    return LaunchDimensions(tile.blocks * parts, tile.threads)


def row_parts(rows: int, columns: int, cores: int) -> int:
    """Blocks that fold a row of that length together: as many as fill the device, if each has enough to do."""
    return max(1, min(2 * cores // rows, columns // PART))


def _ends_in_one_pass(cluster: Cluster, elements: int) -> bool:
    """Whether no reduction needs another's result, and no output of the operand's size needs one."""
    after: set[Node] = set()
    for node in cluster.nodes:  # operands come before users
        if any(o in after or (o.opcode == "reduce" and not o.is_input) for o in node.operands):
            if node.opcode == "reduce":
                return False
            after.add(node)
    return not any(r in after and next(r.shape.leaves()).element_count == elements for r in cluster.roots)


def _rows(form: ReductionForm, hero: Instruction) -> LaunchDimensions | None:
    """A warp or more per row, 16 elements per thread; short rows share a block of 256 threads, the shortest a warp."""
    _, rows, minor = form.sizes
    threads = min(MOST_THREADS, round_up(-(-minor // ROW_PER_THREAD), WARP))
    if minor < WARP:
        vector = short_row_vector(hero, minor)
        if minor <= vector:
            return None
        threads = minor // vector
    shared = 1
    if 2 * threads <= SHORT_ROW_BLOCK:
        shared = min(round_up(rows, max(1, WARP // threads)), SHORT_ROW_BLOCK // threads)
    return LaunchDimensions(-(-rows // shared), threads * shared)


def short_row_vector(reduce: Instruction, columns: int) -> int:
    """Neighbouring elements that a thread of a short row folds: 8 bytes of the narrowest operand, at most 16 of the widest."""
    bits = [bits_of(o.shape) for o in reduce.operands]
    vector = min(columns, max(1, 64 // min(bits)))
    return min(vector, max(1, 128 // max(bits))) if max(bits) >= 32 else vector


def move_dimensions(cluster: Cluster, target: DeviceTarget) -> LaunchDimensions | None:
    """The launch of our tiled-transpose kernels, in which everything that moves the fastest dimension goes through tiles; None for other clusters."""
    movers = [n for n in cluster.members if n.opcode in ("transpose", "copy") and moves_minor(n.instruction)]
    found = {tiled_move(n.instruction) for n in movers}
    frames = {None if d is None else (d.operand_sizes, d.permutation) for d in found}
    (frame,) = frames if len(frames) == 1 else (None,)
    if frame is None:
        return None
    elements = math.prod(frame[0])
    if any(next(r.shape.leaves()).element_count != elements for r in cluster.roots):
        return None
    below = set(movers)
    for node in cluster.nodes:  # operands come before users
        if node not in below and any(o in below for o in node.operands):
            if node.opcode not in _PASSES_ON and not is_elementwise(node.instruction):
                return None
            below.add(node)
    bits = max(bits_of(n.shape) for n in movers)
    vector = packing(*frame, bits, len(movers), target.core_count, SHARED_BYTES)
    return LaunchDimensions(math.prod(tile_counts(*frame, vector)), TRANSPOSE_BLOCK)
