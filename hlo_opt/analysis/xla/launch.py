"""Launch dimensions of XLA's emitters, for the cost model: blocks, threads, and groups of results in a kernel.

Source: xla/service/gpu/launch_dimensions.cc, gpu_fusible.cc (ComputeLoopFusionConfig), and the emitters in
xla/backends/gpu/codegen/emitters: reduction.cc, reduction_base.cc (GroupDisjointReductions), transpose.cc,
concatenate.cc, scatter.cc, in_place_dynamic_update_slice.cc.
"""

from __future__ import annotations

import math

from hlo_opt.analysis.graph.cluster import Cluster, Node
from hlo_opt.analysis.memory.forms import (
    TILE,
    WARP,
    LaunchDimensions,
    ReductionForm,
    bits_of,
    fast_form,
    memory_order,
    round_up,
    smallest_bits,
    tiled_transpose,
)
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.analysis.xla.heroes import hero_of, heroes_of, is_real_reduction
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ops.emission import XlaEmitter, is_slower_unrolled

BLOCK = 128


def reduction_dimensions(form: ReductionForm, hero: Node, cluster: Cluster, target: DeviceTarget) -> LaunchDimensions:
    """The launch of a kernel with a reduction hero. Results that share no work form groups, a further grid
    dimension."""
    if form.is_row:
        launch = _multi_row(form, cluster, target) or _rows(form)
    else:
        launch = _column(form, hero, cluster)
    return LaunchDimensions(launch.blocks * disjoint_groups(cluster), launch.threads)


def _rows(form: ReductionForm) -> LaunchDimensions:
    """One warp or more per row, 16 elements per thread; short rows share a block of 256 threads."""
    _, middle, minor = form.sizes
    threads = min(1024, round_up(-(-minor // 16), WARP))
    rows = min(middle, 256 // threads) if 2 * threads <= 256 else 1
    return LaunchDimensions(-(-middle // rows), threads * rows)


def _multi_row(form: ReductionForm, cluster: Cluster, target: DeviceTarget) -> LaunchDimensions | None:
    """Several rows per warp, for rows whose length is a small power of two."""
    _, rows, minor = form.sizes
    if minor & (minor - 1):
        return None
    read = smallest_bits(n.shape for n in cluster.inputs.values())
    written = smallest_bits(r.shape for r in cluster.roots)
    known = [bits for bits in (read, written) if bits is not None] or [32]
    vector = min(minor, max(1, 64 // min(known)))
    if max(known) >= 32:
        vector = min(vector, max(1, 128 // max(known)))
    if minor > WARP * vector:
        return None

    def dimensions(width: int) -> LaunchDimensions:
        along = max(1, minor // width)
        kept = rows if rows * along <= 256 else max(1, 256 // along)
        return LaunchDimensions(-(-rows // kept), along * kept)

    while vector > 1 and dimensions(vector).blocks < target.core_count:
        vector //= 2
    return dimensions(vector) if minor <= WARP * vector else None


def _vector_size(minor: int, hero: Node, cluster: Cluster) -> int:
    """Elements that a thread of a column reduction loads at once (GetVectorSizeForMlir with a warp of threads)."""
    if minor % 2 or minor < 2 * WARP:
        return 1
    if any(o.shape.is_array and o.shape.type.kind == "complex" for o in hero.operands):
        return 1
    narrowest = smallest_bits(n.shape for n in cluster.inputs.values())
    if narrowest is None or narrowest >= 64:
        return 1
    if narrowest >= 32 or minor < 4 * WARP:
        return 2
    return 4 if minor % 4 == 0 else 2


def _column(form: ReductionForm, hero: Node, cluster: Cluster) -> LaunchDimensions:
    major, reduced, minor = form.sizes
    if WARP % minor == 0:
        vector = _vector_size(reduced * minor, hero, cluster)
        threads = BLOCK
        shared_rows = vector * threads // minor
        while shared_rows > WARP and vector > 1:
            vector //= 2
            shared_rows //= 2
        if shared_rows > WARP:
            threads //= shared_rows // WARP
        return LaunchDimensions(major, threads)
    vector = _vector_size(minor, hero, cluster)
    return LaunchDimensions(major * -(-minor // (WARP * vector)), WARP * WARP)


def disjoint_groups(cluster: Cluster) -> int:
    """The number of groups of results that share no work; each group has its own blocks.

    Results other than reductions stay together. So do results with a common value above them, except a broadcast
    constant or scalar, which is cheap to repeat per reduction.
    """
    roots = list(dict.fromkeys(cluster.roots))
    if len(roots) == 1:
        return 1
    real = [is_real_reduction(r, hero_of(r, cluster.emitters)) for r in roots]
    group = list(range(len(roots)))

    def find(number: int) -> int:
        while group[number] != number:
            number = group[number]
        return number

    others = [n for n, is_real in enumerate(real) if not is_real]
    for number in others[1:]:
        group[find(number)] = find(others[0])
    reached: dict[Node, set[int]] = {root: {n} for n, root in enumerate(roots)}
    for node in reversed(cluster.nodes):
        below = reached.get(node)
        if below is None:
            continue
        for operand in node.operands:
            reached.setdefault(operand, set()).update(below)
        members = sorted(below)
        if _is_uniform(node):
            first = next((n for n in members if real[n]), None)
            members = [n for n in members if not real[n] or n == first]
        for number in members[1:]:
            group[find(number)] = find(members[0])
    return len({find(n) for n in range(len(roots))})


def _is_uniform(node: Node) -> bool:
    """Whether all elements are one constant or scalar (IsBroadcastedConstantOrScalar)."""
    instruction = node.instruction
    if instruction.shape.is_array and instruction.shape.element_count == 1:
        return True
    if instruction.opcode != "broadcast":
        return instruction.literal is not None
    operand = instruction.operands[0]
    return operand.literal is not None or operand.shape.element_count == 1


LOOP_BLOCK = 128
LOOP_UNROLL = 4
BLACKWELL = 10
"""Major compute capability."""
VECTOR_BITS = 128
"""The widest load or store of a thread, with CUDA 12.8."""
MAX_UNROLL = 32
MAX_VECTOR_BYTES = 4
"""The transpose emitter moves elements together up to this width."""
SCATTER_WARPS = 4
"""Warps per block that iterates over sorted scatter indices."""
SCATTER_VECTOR_BITS = 128


def emitter_launch(emitter: XlaEmitter, hero: Node, cluster: Cluster, target: DeviceTarget) -> LaunchDimensions:
    """The launch for a known emitter and hero."""
    most = _most_unrolled(emitter, cluster, target)
    match emitter:
        case XlaEmitter.REDUCTION:
            form = fast_form(hero.instruction)
            assert form is not None
            return reduction_dimensions(form, hero, cluster, target)
        case XlaEmitter.TRANSPOSE:
            return _transpose(hero, cluster, target)
        case XlaEmitter.SCATTER:
            return _scatter(hero, target, most=most)
        case XlaEmitter.IN_PLACE:
            return loop_dimensions(hero.operands[1].shape, target, most=most)
        case XlaEmitter.CONCATENATE:
            return _concatenate(hero, target, most=most)
        case XlaEmitter.LOOP:
            return _loops([root.shape for root in cluster.roots], target, most=most)


def _loops(shapes: list[Shape], target: DeviceTarget, *, most: int) -> LaunchDimensions:
    """Outputs of one size share threads. Other sizes, which XLA's kernels do not have, get blocks of their own in our
    plans."""
    sizes = {next(shape.leaves(), shape).element_count: shape for shape in reversed(shapes)}
    parts = [loop_dimensions(shape, target, most=most) for shape in sizes.values()]
    return LaunchDimensions(sum(p.blocks for p in parts), max(p.threads for p in parts))


def loop_unroll(shape: Shape, target: DeviceTarget, *, most: int = LOOP_UNROLL) -> int:
    """Elements per thread: up to `most`, as far as it divides, once the device is full; at least a byte of packed
    elements (ComputeLoopFusionConfig)."""
    first = next(shape.leaves(), shape)
    elements = first.element_count
    unroll = 1
    if elements >= target.threads_per_core_limit * target.core_count:
        unroll = math.gcd(elements, most)
    if first.is_array and first.type.bits < 8:
        unroll = max(unroll, -(-8 // bits_of(first)))
    return unroll


def unrolled_dimensions(elements: int, unroll: int) -> LaunchDimensions:
    """Blocks of at most 128 threads with `unroll` elements each (CalculateLaunchDimensions)."""
    threads = max(1, -(-elements // unroll))
    block = min(LOOP_BLOCK, threads)
    return LaunchDimensions(-(-threads // block), block)


def loop_dimensions(shape: Shape, target: DeviceTarget, *, most: int = LOOP_UNROLL) -> LaunchDimensions:
    """The loop emitter's launch over the elements of a result."""
    first = next(shape.leaves(), shape)
    return unrolled_dimensions(first.element_count, loop_unroll(first, target, most=most))


def _most_unrolled(emitter: XlaEmitter, cluster: Cluster, target: DeviceTarget) -> int:
    """The largest unroll factor (MaxUnrollFactor): 1 where unrolling is slower, more for narrow results on Blackwell,
    else 4."""
    if any(is_slower_unrolled(node.instruction) for node in cluster.notable):
        return 1
    if target.compute_capability // 10 != BLACKWELL or emitter in (XlaEmitter.REDUCTION, XlaEmitter.SCATTER):
        return LOOP_UNROLL
    written = smallest_bits(r.shape for r in cluster.roots)
    if (
        written is None
        or written >= VECTOR_BITS // LOOP_UNROLL
        or len(cluster.roots) > 1
        or XlaEmitter.REDUCTION in cluster.emitters
    ):
        return LOOP_UNROLL
    shapes = [*(n.shape for n in cluster.inputs.values()), *(r.shape for r in cluster.roots)]
    widest = max([8, *(bits_of(s) for s in shapes if s.is_array)])
    most = min(MAX_UNROLL, 1 << ((VECTOR_BITS // widest).bit_length() - 1))
    if "pad" in cluster.opcodes:
        most = min(most, 8)
    while most > LOOP_UNROLL and any(
        n.emitter is XlaEmitter.TRANSPOSE and _minor_size(n) < most for n in cluster.notable
    ):
        most //= 2
    return max(most, 8)


def _minor_size(transpose: Node) -> int:
    """The contiguous elements of a transpose's result."""
    order = memory_order(transpose.instruction)
    assert order is not None
    return order[0][-1] if order[0] else 1


def _concatenate(hero: Node, target: DeviceTarget, *, most: int) -> LaunchDimensions:
    """Threads iterate over the operand with the largest extent; each operand's extent must be a multiple of the unroll
    factor."""
    dimension = hero.instruction.ints("dimensions")[0]
    longest = max((o.shape for o in hero.operands), key=lambda s: s.dimensions[dimension])
    unroll = loop_unroll(longest, target, most=most)
    for operand in hero.operands:
        unroll = math.gcd(unroll, operand.shape.dimensions[dimension])
    return unrolled_dimensions(longest.element_count, max(1, unroll))


def _scatter(hero: Node, target: DeviceTarget, *, most: int) -> LaunchDimensions:
    """Threads iterate over the updates, a vector of one slice at a time; warps iterate over sorted, non-unique
    indices."""
    instruction = hero.instruction
    count = len(hero.operands) // 2
    operand, indices, updates = hero.operands[0].shape, hero.operands[count].shape, hero.operands[count + 1].shape
    window = instruction.ints("update_window_dims")
    extents = [updates.dimensions[d] for d in window]
    slices = math.prod(s for d, s in enumerate(updates.dimensions) if d not in window)
    if _is_set(instruction, "indices_are_sorted") and not _is_set(instruction, "unique_indices"):
        warps = SCATTER_WARPS * target.core_count
        if slices > warps and len(extents) == operand.rank:
            length = indices.dimensions[-1] if indices.rank > 1 else 1
            places = math.prod(operand.dimensions[d] - extents[d] + 1 for d in range(min(length, operand.rank)))
            per_warp = -(-slices // max(warps, places))
            vector = SCATTER_VECTOR_BITS // bits_of(indices)
            if length == 1 and per_warp > vector:
                per_warp = round_up(per_warp, vector)
            return LaunchDimensions(-(-slices // (per_warp * SCATTER_WARPS)), SCATTER_WARPS * WARP)
    unroll = math.gcd(math.prod(extents), loop_unroll(updates, target, most=most))
    launch = unrolled_dimensions(updates.element_count, max(1, unroll))
    return LaunchDimensions(launch.blocks, round_up(launch.threads, WARP))


def _is_set(instruction: Instruction, name: str) -> bool:
    return instruction.word(name) == "true" or instruction.value(name, False) is True


def _transpose(hero: Node, cluster: Cluster, target: DeviceTarget) -> LaunchDimensions:
    """One block of 128 threads per 32x32 tile; wider tiles for small elements while the device stays full."""
    tiled = tiled_transpose(hero.instruction)
    assert tiled is not None
    if tiled.packed_tile is not None:
        return LaunchDimensions(
            math.prod(-(-s // t) for s, t in zip(tiled.packed_sizes, tiled.packed_tile, strict=True)), LOOP_BLOCK
        )
    rank = len(tiled.sizes)
    sizes = tiled.operand_sizes
    if tiled.permutation[-1] == rank - 1:
        tiles = {rank - 2: TILE, tiled.permutation[rank - 2]: TILE, rank - 1: sizes[-1]}
        return LaunchDimensions(_tile_count(sizes, tiles), LOOP_BLOCK)
    swapped = (rank - 1, tiled.permutation[-1])
    blocks = _tile_count(sizes, dict.fromkeys(swapped, TILE))
    heroes = set(heroes_of(cluster))
    widths = [h.shape.type.bytes for h in heroes if not h.is_input and tiled_transpose(h.instruction) is not None]
    shared = TILE * (TILE + 1) * sum(widths)
    vector = MAX_VECTOR_BYTES // max(1, *widths)
    while vector > 1:
        per_thread = vector * vector
        enough_work = blocks * LOOP_BLOCK >= per_thread * target.core_count * target.threads_per_core_limit
        fits = shared * per_thread <= target.shared_memory_per_block
        if enough_work and fits and all(sizes[d] % vector == 0 for d in swapped):
            blocks = _tile_count(sizes, dict.fromkeys(swapped, TILE * vector))
            break
        vector //= 2
    return LaunchDimensions(blocks, LOOP_BLOCK)


def _tile_count(sizes: tuple[int, ...], tiles: dict[int, int]) -> int:
    return math.prod(-(-size // tiles.get(n, 1)) for n, size in enumerate(sizes))
