"""XLA's model of a Triton kernel: each block computes one tile of the result, and the tiles of operands that it needs.

Source: xla/service/gpu/model/gpu_indexing_performance_model.cc, triton_emitter_constraints.cc,
xla/codegen/tiling/symbolic_tile_analysis.cc.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from hlo_opt.analysis.graph.cluster import Cluster, Node
from hlo_opt.analysis.memory.traffic import per_element, reducer_flops
from hlo_opt.analysis.properties import GENERIC_TRITON, fusion_backend_kind
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.analysis.xla.tiled_cluster import ClusterTiles, TiledCluster, TiledNode, padded, tile_cluster
from hlo_opt.analysis.xla.timing import RESOLUTION, KernelEstimate, compute_ns, overlapped, read_ns, write_ns
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.walk import operands_first
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.call_config import field
from hlo_opt.ops.emission import HEROES, XlaEmitter
from hlo_opt.ops.sets import is_elementwise

REGISTER_SHARE = 0.4
"""The share of a block's registers that a tile may occupy."""
MAX_TILINGS = 20000
"""The most tilings tried; no real kernel comes near."""
_WARPS = ((256, 1), (1024, 2), (4096, 4))
MOST_WARPS = 8


@dataclass(frozen=True, slots=True)
class TileSizes:
    """The tile of the result that a block computes, and its number of warps."""

    sizes: tuple[int, ...]
    warps: int


def configured_tiles(fusion: Instruction) -> TileSizes | None:
    """Tile and warps in the backend config of a Triton fusion; None for other fusions, or a config without them."""
    if fusion.word("kind") != "kCustom" or fusion_backend_kind(fusion) != GENERIC_TRITON:
        return None
    sizes, warps = field(fusion, "output_tiles", "sizes"), field(fusion, "num_warps") or ""
    if sizes is None:
        return None
    written = [n.strip(' "') for n in sizes.split(",")] if sizes.strip() else []
    shape = fusion.shape
    if not shape.is_array or len(written) != shape.rank or not all(re.fullmatch(r"[1-9]\d{0,17}", n) for n in written):
        return None
    numbers = tuple(map(int, written))
    return TileSizes(numbers, max(1, int(warps)) if re.fullmatch(r"\d{1,3}", warps) else MOST_WARPS)


_IMPOSSIBLE = KernelEstimate(math.inf, 0.0, 0.0, 0.0)


def tiled_kernel(cluster: Cluster, target: DeviceTarget, tiles: TileSizes) -> KernelEstimate:
    """The estimate with a given tiling; infinite where the tile exceeds the registers, or the kernel does not tile."""
    tiled = tile_cluster(cluster)
    if tiled is None:
        return _IMPOSSIBLE
    price = _price(tiled, ClusterTiles(tiled, tiles.sizes), target, tiles.warps)
    return _IMPOSSIBLE if price is None else price


def best_tiled_kernel(cluster: Cluster, target: DeviceTarget) -> KernelEstimate:
    """The estimate with the best valid tiling; infinite where there is none."""
    return best_tiling(cluster, target)[1]


BestTiling = tuple[TileSizes | None, KernelEstimate]

MAX_REMEMBERED = 16384
_best_of: dict[tuple[object, ...], BestTiling] = {}
"""Cache by structure: a model's layers repeat kernels."""


def best_tiling(cluster: Cluster, target: DeviceTarget) -> BestTiling:
    """The best valid tiling (powers of two or whole dimensions) and its estimate; None and infinity where there is
    none."""
    key = (target, *structure(cluster, target.compute_capability))
    best = _best_of.get(key)
    if best is None:
        if len(_best_of) >= MAX_REMEMBERED:
            _best_of.clear()
        best = _best_of[key] = _search(cluster, target)
    return best


def structure(cluster: Cluster, capability: int) -> tuple[object, ...]:
    """The key of an estimate: operations, shapes and connections, but not names or which values are read."""
    nodes = operands_first(cluster.roots)  # independent of how the cluster was built
    position = {node: n for n, node in enumerate(nodes)}
    parts: list[object] = [position[root] for root in cluster.roots]
    for node in nodes:
        if node.is_input:
            parts.append(node.shape)
            continue
        instruction = node.instruction
        parts.append((node.opcode, node.shape, *[position[o] for o in node.operands]))
        for name in ("dimensions", "slice"):
            if name in instruction.attributes:
                parts.append(instruction.attributes[name].text)
        if node.emitter is XlaEmitter.REDUCTION:
            parts.append(reducer_flops(instruction.called_by("to_apply"), capability))
    return tuple(parts)


def _search(cluster: Cluster, target: DeviceTarget) -> BestTiling:
    tiled = tile_cluster(cluster)
    best: BestTiling = (None, _IMPOSSIBLE)
    if tiled is None:
        return best
    choices = [_tile_choices(d) for d in tiled.root.shape.dimensions]
    if math.prod(len(c) for c in choices) > MAX_TILINGS:
        return best
    room = REGISTER_SHARE * target.registers_per_block_limit
    for sizes in itertools.product(*[reversed(c) for c in choices]):  # good ones early; of equal ones the smallest
        if padded(sizes) > room or _write_ns(tiled, sizes, target) - RESOLUTION > 1000 * best[1].us:
            continue
        tiles = ClusterTiles(tiled, sizes)
        if not tiles.is_valid():
            continue
        warps = next((warps for limit, warps in _WARPS if tiles.largest <= limit), MOST_WARPS)
        price = _price(tiled, tiles, target, warps, best[1].us)
        if price is not None and price.us <= best[1].us:
            best = (TileSizes(sizes, warps), price)
    return best


def _write_ns(tiled: TiledCluster, sizes: tuple[int, ...], target: DeviceTarget) -> float:
    """The time to write the result, a lower bound of the kernel's."""
    root = tiled.root.shape
    strides = tiled.fixed_strides[tiled.nodes[-1].index]
    assert strides is not None, "the result's own indices are simple"
    return write_ns(root.byte_size, target, _transaction_use(root, sizes, strides, target))


def _tile_choices(extent: int) -> list[int]:
    """Powers of two below the extent, and the extent (PossibleTileSizesForOneDimension)."""
    if extent < 2:
        return [1] if extent == 1 else []
    return [1 << n for n in range((extent - 1).bit_length())] + [extent]


def flops_per_tile_element(instruction: Instruction, capability: int) -> float:
    """Operations per element of a tile (FlopsPerElement)."""
    spec = find(instruction.opcode)
    if spec is not None and (spec.moves_data or spec.kind in (OpKind.MOVEMENT, OpKind.CONTROL)):
        return 0.0
    if is_elementwise(instruction):
        return float(per_element(instruction, capability))
    if HEROES.get(instruction.opcode) is XlaEmitter.REDUCTION:
        operand_count = instruction.operands[0].shape.element_count
        result_count = next(instruction.shape.leaves()).element_count
        reducer = reducer_flops(instruction.called_by("to_apply"), capability)
        return (operand_count // max(1, result_count) - 1) * reducer
    return 0.0


RememberedReads = dict[tuple[Shape, tuple[int, ...], tuple[int, ...], int], tuple[float, int]]
"""Nanoseconds and bytes of an array that all blocks read, by its shape, the extents and strides of a tile, and the
blocks: kernels that grow try the same tilings of the same arrays again."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over the nodes of a kernel that do not depend on the tiling.

    each    operations per element of each node's tile, or KEPT
    flops   by index, the operations of the nodes as the first path reaches them
    kept    the indices of such nodes whose tiles are loaded or generated and stay in registers
    inputs  such nodes that are read
    alike   how many of them are read at an index and have a shape
    times   what is known of reads on the target
    """

    each: list[int]
    flops: dict[int, int]
    kept: set[int]
    inputs: list[TiledNode]
    alike: dict[tuple[int, Shape], int]
    times: RememberedReads

    @classmethod
    def of(cls, tiled: TiledCluster, target: DeviceTarget) -> Sums:
        each = [
            KEPT
            if node.is_input or not (node.operands or node.instruction.literal)
            else int(flops_per_tile_element(node.instruction, target.compute_capability))
            for node in [tiled_node.node for tiled_node in tiled.nodes]
        ]
        sums = cls(each, {}, set(), [], {}, _reads_known(target))
        seen: set[Node] = set()
        for number, tiled_node in enumerate(tiled.nodes):
            if tiled_node.node in seen:
                continue
            seen.add(tiled_node.node)
            index = tiled_node.index
            if each[number] >= 0:
                sums.flops[index] = sums.flops.get(index, 0) + each[number]
                continue
            sums.kept.add(index)
            if tiled_node.node.is_input:
                sums.inputs.append(tiled_node)
                alike = index, tiled_node.node.shape
                sums.alike[alike] = sums.alike.get(alike, 0) + 1
        return sums


KEPT = -1
"""Marks, in place of an operation count, a tile that is loaded or generated and stays in registers."""


def _price(
    tiled: TiledCluster, tiles: ClusterTiles, target: DeviceTarget, warps: int, most: float = math.inf
) -> KernelEstimate | None:
    """The time of all blocks; None where a tile that must stay in registers does not fit, or the time is certainly
    above `most` microseconds: with what the first path to each node computes and reads, before the other paths are
    gone through. More work never takes less time."""
    blocks = tiles.blocks
    room = REGISTER_SHARE * target.registers_per_block_limit
    if padded(tiles.sizes) > room:
        return None
    sums = tiled.sums
    if sums is None:
        sums = tiled.sums = Sums.of(tiled, target)
    sizes_of = tiles.padded
    if any(sizes_of[index] > room for index in sums.kept):
        return None
    elements = sum([sizes_of[index] * each for index, each in sums.flops.items()])
    read, total = 0.0, 0  # in quarters of a nanosecond: exact, in any order
    known = sums.times
    for (index, shape), count in sums.alike.items():
        key = shape, tiles.extents[index], tiles.strides(index), blocks
        price = known.get(key)
        if price is None:
            if len(known) >= MAX_REMEMBERED:
                known.clear()
            size, used = _read(shape, index, tiles, target)
            price = known[key] = read_ns(min(shape.byte_size, size), size, used, blocks, target), size
        read += count * price[0]
        total += count * price[1]
    written = _write_ns(tiled, tiles.sizes, target)
    threads = warps * target.threads_per_warp
    us = overlapped(compute_ns(blocks * elements, blocks, threads, target), read + written) / 1000
    if us > most:
        return None
    more, inputs = 0, list[TiledNode]()
    for number in tiles.distinct():
        flops_each, tiled_node = sums.each[number], tiled.nodes[number]
        if flops_each >= 0:
            more += sizes_of[tiled_node.index] * flops_each
            continue
        if sizes_of[tiled_node.index] > room:
            return None
        if tiled_node.node.is_input:
            inputs.append(tiled_node)
    if inputs:
        read, total = _reads((*sums.inputs, *inputs), tiles, target)
    flops = blocks * (elements + more)
    us = overlapped(compute_ns(flops, blocks, threads, target), read + written) / 1000
    return KernelEstimate(us, float(total), float(tiled.root.shape.byte_size), float(flops))


@functools.lru_cache(maxsize=4)
def _reads_known(target: DeviceTarget) -> RememberedReads:
    return {}


def _read(shape: Shape, index: int, tiles: ClusterTiles, target: DeviceTarget) -> tuple[int, float]:
    """The bytes of an array that all blocks read at an index, and their share of the memory transactions."""
    sizes = tiles.extents[index]
    size = tiles.blocks * math.prod(map(min, sizes, shape.dimensions)) * shape.type.bytes
    return size, _transaction_use(shape, sizes, tiles.strides(index), target)


def _reads(inputs: Iterable[TiledNode], tiles: ClusterTiles, target: DeviceTarget) -> tuple[float, int]:
    """Nanoseconds and bytes of inputs, of which one may be read in several tiles."""
    sizes: dict[Node, tuple[int, float]] = {}
    for tiled_node in inputs:
        node = tiled_node.node
        size, used = _read(node.shape, tiled_node.index, tiles, target)
        earlier, worst = sizes.get(node, (0, 1.0))
        sizes[node] = earlier + size, min(worst, used)
    times = [read_ns(min(n.shape.byte_size, s), s, used, tiles.blocks, target) for n, (s, used) in sizes.items()]
    return sum(times), sum(size for size, _ in sizes.values())


def _transaction_use(shape: Shape, sizes: tuple[int, ...], strides: tuple[int, ...], target: DeviceTarget) -> float:
    """The used share of the memory transactions that load a tile, from its contiguous part."""
    contiguous = 1
    for dimension in shape.minor_to_major:
        if strides[dimension] != 1:
            break
        extent = shape.dimensions[dimension]
        contiguous *= min(sizes[dimension], extent)
        if sizes[dimension] < extent:
            break
    wanted = contiguous * shape.type.bytes
    if not wanted:
        return 1.0
    step = target.dram_transaction_bytes
    return wanted / (step * -(-wanted // step))
