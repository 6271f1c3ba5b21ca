"""Launch dimensions of reductions: rows, several rows to a warp, columns; and how many groups of results a kernel holds.

Source: xla/backends/gpu/codegen/emitters/reduction.cc, reduction_base.cc (GroupDisjointReductions).
"""

from __future__ import annotations

from hlo_opt.analysis.graph.cluster import Cluster, Node
from hlo_opt.analysis.memory.geometry import LaunchDimensions, round_up, smallest_bits
from hlo_opt.analysis.memory.reductions import WARP, ReductionForm
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.analysis.xla.heroes import hero_of, is_real_reduction

BLOCK = 128


def reduction_dimensions(form: ReductionForm, hero: Node, cluster: Cluster, target: DeviceTarget) -> LaunchDimensions:
    """The launch of a kernel whose hero is a reduction of a form; results that share no work are groups in a further dimension of the grid."""
    if form.is_row:
        launch = _multi_row(form, cluster, target) or _rows(form)
    else:
        launch = _column(form, hero, cluster)
    return LaunchDimensions(launch.blocks * disjoint_groups(cluster), launch.threads)


def _rows(form: ReductionForm) -> LaunchDimensions:
    """A warp or more per row, 16 elements per thread; short rows share a block of 256 threads."""
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
    """How many groups of results share no work: each group is computed by blocks of its own.

    Results that are no reductions stay together, and so do results with a common value above them, other than a broadcast constant or scalar, of
    which each reduction may keep its own.
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
