"""The loop plan: every thread computes some consecutive elements of each output, whatever they need.

Launch rule: xla/backends/gpu/codegen/emitters/loop.cc and xla/service/gpu/gpu_fusible.cc (ComputeLoopFusionConfig): four elements per thread once the
elements are enough to fill the device, one before that; 128 threads per block.
"""

from __future__ import annotations

import math
from typing import Any

from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.index_map import Expression, delinearize
from hlo_opt.plans.plan import Launch, Plan, Region, Segment

BLOCK = 128
_RESIDENT_THREADS = 132 * 2048  # of an H100 SXM, when no target says otherwise


def resident_threads(target: Any) -> int:
    """How many threads the device runs at a time."""
    cores = getattr(target, "core_count", None)
    threads = getattr(target, "threads_per_core_limit", None)
    return cores * threads if isinstance(cores, int) and isinstance(threads, int) else _RESIDENT_THREADS


def match(region: Region, target: Any = None) -> Plan:
    """The loop plan of a region. Outputs of one size share an index space; each further size is a segment with blocks of its own."""
    groups: dict[int, list[int]] = {}
    for position, root in enumerate(region.roots):
        groups.setdefault(next(root.shape.leaves()).element_count, []).append(position)
    parts = []
    for elements, positions in groups.items():
        vector = math.gcd(elements, 4) if elements >= resident_threads(target) else 1
        parts.append((elements // vector, vector, positions))
    block = min(BLOCK, max(1, *(threads for threads, _, _ in parts)))
    segments = []
    for threads, vector, positions in parts:
        hero = region.roots[positions[0]]
        space = next(hero.shape.leaves()).dimensions
        segments.append(Segment("loop", space, hero, tuple(positions), -(-threads // block), vector=vector))
    return Plan(region, Launch(sum(s.blocks for s in segments), block), tuple(segments))


def physical_index(shape: Shape, position: Expression) -> tuple[Expression, ...]:
    """The logical index of the element at a position in memory."""
    order = shape.minor_to_major[::-1]
    parts = dict(zip(order, delinearize(position, [shape.dimensions[d] for d in order]), strict=True))
    return tuple(parts[d] for d in range(shape.rank))


def root_index(hero: Instruction, root: Instruction, position: Expression) -> tuple[Expression, ...]:
    """Which element of a root the thread at a position writes: the hero's, or, in other dimensions, the one at the same place in memory."""
    first, shape = next(hero.shape.leaves()), next(root.shape.leaves())
    return physical_index(first if first.dimensions == shape.dimensions else shape, position)
