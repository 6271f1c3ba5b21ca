"""Loops whose lanes look up many cache lines: a thread gets fewer elements.

Where outputs follow memory, a thread with 16 bytes of them needs the fewest instructions. Where they are read from
places apart (pixels of three channels in means of 2 x 2, columns with a step, rows of three), each instruction reads
one element for each lane: the more elements a thread has, the further the lanes of a warp are apart, and the more cache
lines they touch. A multiprocessor looks up one line a cycle.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import variable
from hlo_opt.ops.lowering import Elementwise
from hlo_opt.ops.movement.memory import physical_index
from hlo_opt.ops.spec import find
from hlo_opt.plans.columns import WARP
from hlo_opt.plans.element_reads import read_at
from hlo_opt.plans.loop import BLOCK, Elements
from hlo_opt.plans.plan import Launch, Region
from hlo_opt.plans.reads import address_of, lays_of, traced
from hlo_opt.plans.samples import value_of
from hlo_opt.plans.walks import by_element

SAVED = 0.1
"""The least part of the lookups that fewer elements have to save: they also take more instructions."""
FEWEST, WORD = 2, 4
"""The fewest elements of a thread, and the fewest bytes that it writes of the widest output: with less, too few loads
are in flight."""
_SAMPLED, _FEW = 256, 0.25
"""Neighbours that are looked at, and the part of them that may be anywhere: the ends of rows."""


def narrowed(region: Region, part: Elements, target: DeviceTarget) -> Elements:
    """The part with half the elements per thread, as often as cache lines take longer than memory and that saves
    some."""
    needed = region.needed_by(part.roots)
    outputs = [leaf for n in part.roots for leaf in region.roots[n].shape.leaves()]
    least = max(FEWEST, WORD // max(s.type.bytes for s in outputs), *(s.type.per_byte for s in outputs))
    is_small = part.elements < part.vector * target.resident_threads
    if part.vector % (2 * least) or is_small or not any(_reads_apart(i, part.vector) for i in needed):
        return part
    inputs = [i.shape for i in needed if i.parameter_number is not None and i.shape.is_array]
    moved = sum(s.stored_bytes for s in (*outputs, *inputs)) / target.copied_per_second * target.lookups_per_second
    lookups = _lookups(region, part)
    while lookups > moved and part.vector % (2 * least) == 0:
        fewer = replace(part, vector=part.vector // 2)
        of_fewer = _lookups(region, fewer)
        if of_fewer > (1 - SAVED) * lookups:
            break
        part, lookups = fewer, of_fewer
    return part


def _lookups(region: Region, part: Elements) -> float:
    """Cache lines that all warps look up."""
    segment = part.segment(BLOCK)
    (walk,) = by_element(region, segment, Launch(segment.blocks, BLOCK))
    trace = traced(walk, set())
    lays = [*lays_of(trace, trace.reads, BLOCK), *lays_of(trace, trace.writes, BLOCK)]
    return sum(lay.count * lay.lines for lay in lays) * walk.threads / WARP


def _reads_apart(instruction: Instruction, vector: int) -> bool:
    """Whether neighbours of a result in memory are read one by one: from places that are no neighbours, by data or a
    loop, or from vectors that are not aligned."""
    spec = find(instruction.opcode)
    if spec is None or isinstance(spec.cuda, Elementwise) or not instruction.shape.is_array:
        return False
    count = instruction.shape.element_count
    if count < _SAMPLED:
        return False
    place = variable("place", count)
    index = physical_index(instruction.shape, place)
    first = count // (2 * vector) * vector
    sampled = np.arange(first, min(count, first + _SAMPLED))
    for number, operand in enumerate(instruction.operands):
        if not operand.shape.is_array or not operand.shape.rank:
            continue
        there = read_at(instruction, number, index)
        if there is None:
            return True
        read = np.broadcast_to(value_of(address_of(operand.shape, there), {"place": sampled}), sampled.shape)
        steps = np.diff(read)
        is_apart, is_odd = (steps < 0) | (steps > 1), (steps[::vector] == 1) & (read[:-1:vector] % vector > 0)
        if max(np.mean(is_apart), np.mean(is_odd)) > _FEW:
            return True
    return False
