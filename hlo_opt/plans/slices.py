"""Loops whose threads have the same elements of several slices of the outputs.

A value that does not depend on the major-most dimension of the outputs, such as a bias by distance that all images of
a batch share, is computed again for each of its indices by a plain loop. A thread that has the same elements of several
slices along that dimension computes it once for all of them. This pays where instructions, not memory, take the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import variable
from hlo_opt.plans import loop
from hlo_opt.plans.instructions import of_value
from hlo_opt.plans.lookups import narrowed
from hlo_opt.plans.loop import Elements, index_in_slice, major_dimension
from hlo_opt.plans.plan import Launch, Region, Segment
from hlo_opt.plans.reads import traced
from hlo_opt.plans.walks import Walk, leaves_at, neighbours

MOST_SLICES = 8
"""The most slices of a thread."""
BUSY = 6
"""Instructions for each byte that is moved, from which a loop is not just waiting for memory: an H100 has time for some
nine."""
SAVED = 0.2
"""The least part of the instructions that slices have to save: they also take registers."""
MOST_BYTES = 128
"""The most bytes that a thread reads and writes for its elements: all are in registers together. With twice as many, a
bias by distance spills."""
MOST_RESULTS = 32
"""The most results of a thread: each is computed in a register of its own. With twice as many of f16, images that
are enlarged by gathers spill on an A100."""
FULL = 2
"""How often the threads of slices have to fill the device, at least."""


def match(region: Region, roots: Sequence[int], target: DeviceTarget) -> list[Elements]:
    """The outputs of a region as loops, in slices where that saves work, or with fewer elements per thread where that
    saves lookups of cache lines."""
    parts = loop.match(region, roots, target)
    if target.in_lanes:
        return parts
    sliced = [_in_slices(region, part, target) for part in parts]
    return [part if part.slices > 1 else narrowed(region, part, target) for part in sliced]


def _in_slices(region: Region, part: Elements, target: DeviceTarget) -> Elements:
    needed = region.needed_by(part.roots)
    if not _may_save(needed, part.elements):
        return part
    outputs = [leaf for n in part.roots for leaf in region.roots[n].shape.leaves()]
    inputs = [i.shape for i in needed if i.parameter_number is not None and i.shape.is_array]
    bytes_moved = sum(s.type.bytes for s in (*outputs, *inputs) if s.element_count >= part.elements)
    alone = _instructions(region, part)
    if alone < BUSY * bytes_moved:
        return part
    extents = [s.dimensions[major_dimension(s)] for s in outputs if s.rank]
    for slices in range(MOST_SLICES, 1, -1):
        results, threads = slices * part.vector, part.elements // (slices * part.vector)
        few = results * len(part.roots) <= MOST_RESULTS and results * bytes_moved <= MOST_BYTES
        fits = few and threads >= FULL * target.resident_threads
        if fits and len(extents) == len(outputs) and not any(extent % slices for extent in extents):
            sliced = replace(part, slices=slices)
            if _instructions(region, sliced) <= (1 - SAVED) * alone:
                return sliced
            break
    return part


def _may_save(needed: Sequence[Instruction], elements: int) -> bool:
    """Whether a value with fewer elements than the outputs takes many instructions."""
    small = (i for i in needed if i.parameter_number is None and i.literal is None and i.shape.is_array)
    return sum(of_value(i).slots for i in small if 1 < i.shape.element_count <= elements // 2) >= BUSY


def _instructions(region: Region, part: Elements) -> float:
    """Instructions for an element of the outputs, without its accesses."""
    (walk,) = _walks(region, part)
    trace = traced(walk, set())
    work = sum(of_value(value).slots * share * trace.times(index) for value, index, share in trace.values)
    return work / (part.vector * part.slices)


def walks(region: Region, segment: Segment[Elements], launch: Launch) -> list[Walk]:
    """The walk in which each thread computes neighbouring elements of each slice."""
    return _walks(region, segment.part)


def _walks(region: Region, part: Elements) -> list[Walk]:
    threads, place = max(1, part.in_vectors), variable("place", part.of_slice)
    wanted = [
        (region.roots[n], index_in_slice(part.hero, region.roots[n], place, number, part.slices))
        for number in range(part.slices)
        for n in part.roots
    ]
    places = {"place": neighbours(threads, part.vector)}
    return [Walk(threads, wanted, leaves_at(wanted), places=places, items=part.vector)]
