"""Which outputs of a launch may be made in the memory of an operand.

An output may where the thread that writes an element is the only one that reads the operand there, and reads it before
it writes: walks and their index maps say so. XLA's rule is narrower, elementwise operations all the way from the
operand to the result (`FusionCanShareBufferHint`, xla/service/gpu/buffer_sharing.cc).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.index_map import Expression
from hlo_opt.plans.kinds import kind_of
from hlo_opt.plans.plan import Plan
from hlo_opt.plans.reads import address_of, traced
from hlo_opt.plans.walks import Own, Walk

Sharing = frozenset[tuple[int, int]]
"""(output, parameter), both as numbers."""


@dataclass(frozen=True)
class _Read:
    """An element, by its place in memory, that threads of a segment read on one of its walks. What loops and data
    decide are variables of their own there."""

    walk: int
    place: Expression


def sharing_of(plan: Plan) -> Sharing:
    """The outputs that may be made in the memory of a parameter, each with every parameter for which that holds. They
    have one type and size, and elements of whole bytes."""
    region = plan.region
    firsts = [0, *itertools.accumulate(len(list(root.shape.leaves())) for root in region.roots)]
    readers: dict[Instruction, set[int]] = {}
    sharing: list[tuple[int, Instruction]] = []
    for position, segment in enumerate(plan.segments):
        kind = kind_of(segment.part)
        walks = kind.walks(region, segment, plan.launch)
        reads = _reads(walks)
        for parameter in region.parameters if reads is None else reads:
            readers.setdefault(parameter, set()).add(position)
        for own in () if reads is None else kind.own(region, segment, plan.launch, walks):
            output = firsts[own.root]
            shape = region.outputs[output]
            sharing += [
                (output, p)
                for p, read in (reads or {}).items()
                if _lie_alike(shape, p.shape) and _is_alone(own, shape, read, walks)
            ]
    numbers = {parameter: number for number, parameter in enumerate(region.parameters)}
    return frozenset((output, numbers[p]) for output, p in sharing if len(readers[p]) == 1)


def _reads(walks: Sequence[Walk]) -> dict[Instruction, list[_Read]] | None:
    """The reads of each parameter; None where there are too many to follow."""
    reads: dict[Instruction, list[_Read]] = {}
    for number, walk in enumerate(walks):
        trace = traced(walk, set())
        if not trace.is_whole:
            return None
        for read in trace.reads:
            assert read.operand is not None
            reads.setdefault(read.operand, []).append(_Read(number, address_of(read.shape, read.index)))
    return reads


def _is_alone(own: Own, shape: Shape, reads: Sequence[_Read], walks: Sequence[Walk]) -> bool:
    """Whether the thread that writes an element of an output is the only one that reads a parameter there, and does so
    before."""
    way, places = _way(walks[own.walk]), {address_of(shape, index) for index in own.indices}
    return all(read.walk <= own.walk and _way(walks[read.walk]) == way and read.place in places for read in reads)


def _way(walk: Walk) -> tuple[object, ...]:
    """The threads of a walk, as a key that is equal for equal walks."""
    return walk.threads, walk.items, walk.rounds, walk.places


def _lie_alike(output: Shape, parameter: Shape) -> bool:
    """Whether arrays have one type, elements of whole bytes, and as many."""
    is_plain = parameter.is_array and parameter.type is output.type and output.type.per_byte == 1
    return (
        is_plain and parameter.element_count == output.element_count and not any((*parameter.dynamic, *output.dynamic))
    )
