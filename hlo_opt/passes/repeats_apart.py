"""Values that a kernel computes many times become kernels of their own, for processors.

On a device a kernel that computes the pixels of a padded image again for each of 25 neighbours saves a launch and a
round through memory. On a processor a launch costs little, what was just written is in a cache, and elements that come
from one place or another keep a loop from being vector code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from hlo_opt.analysis.graph.inlining import is_plain_fusion
from hlo_opt.analysis.properties import has_side_effect
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.index_map import variable
from hlo_opt.ir.walk import needed_first
from hlo_opt.ops.lowering import Element
from hlo_opt.ops.movement.memory import physical_index
from hlo_opt.ops.sets import fused, is_elementwise, looped
from hlo_opt.passes.kernels_apart import KernelsApart, has, take_out
from hlo_opt.plans import Plan
from hlo_opt.plans import instructions as work_of
from hlo_opt.plans.kinds import kind_of
from hlo_opt.plans.reads import Trace, address_of, traced
from hlo_opt.plans.samples import value_of
from hlo_opt.plans.walks import ITEM, ROUND, THREAD, Walk

OFTEN = 2.0
"""How often a kernel computes each element of a value, at least, that may have a kernel of its own."""
MEMORY = 24.0
"""The work of an element that is written and read again from a cache, in instructions for each lane of a vector."""
LAUNCH = 400_000
"""The work that two processors do while a kernel starts and ends."""
PLACES = 20.0
"""The work of an element that comes from one array or another, in a loop that is no vector code for it."""
LANES = 64
"""Neighbouring lanes that are looked at."""
LONG = 100
"""Values of a kernel, above which its rows are not cut where conditions change (`codegen/lanes_parts`)."""


@dataclass(frozen=True)
class RepeatsApart(KernelsApart):
    """Take values out of the kernels that compute them many times."""

    name: ClassVar[str] = "repeats-apart"

    def may_hold(self, instruction: Instruction) -> bool:
        return _may_repeat(instruction)

    def change(self, kernel: Instruction, kernel_plan: Plan) -> Callable[[], object] | None:
        values = _to_take_out(kernel_plan)
        return partial(take_out, kernel, values) if values and has(kernel, values) else None


def _may_repeat(i: Instruction) -> bool:
    """Whether it is a kernel in which a value that is worked out is read in several ways that move elements."""
    body = fused(i) if is_plain_fusion(i) else None
    if body is None or any(looped(o) is not None or has_side_effect(o) for o in body.instructions):
        return False
    return any(
        v.parameter_number is None and v.literal is None and sum(not is_elementwise(u) for u in v.users) > 1
        for v in body.instructions
    )


def _to_take_out(kernel: Plan) -> list[Instruction]:
    """The value of a kernel whose being computed once saves most, and those of its shape beside it that save
    anything."""
    region = kernel.region
    traces = []
    for segment in kernel.segments:
        before = set[Element]()
        traces += [traced(walk, before) for walk in kind_of(segment.part).walks(region, segment, kernel.launch)]
    if not all(trace.is_whole for trace in traces):
        return []
    computed: dict[Instruction, float] = defaultdict(float)
    for trace in traces:
        lanes = trace.walk.threads * trace.walk.times
        for value, times in _times(trace):
            computed[value] += times * lanes
    length = sum(len(trace.values) for trace in traces)
    often = {v: times for v, times in computed.items() if times >= OFTEN * _elements(v) > 0 and v not in region.roots}
    gains = dict[Instruction, float]()
    for value, times in often.items():
        elements = _elements(value)
        if not any(_is_more(user, value) and often.get(user, 0.0) >= times for user in value.users):
            gain = (times - elements) * _work(value, length) - MEMORY * elements - LAUNCH
            if gain > 0:
                gains[value] = gain
    if not gains:
        return []
    best = max(gains, key=lambda value: gains[value])
    beside = [best]
    for value in sorted(gains, key=lambda value: -gains[value]):
        alike = value.shape.dimensions == best.shape.dimensions and value.shape.layout == best.shape.layout
        if alike and not any(_needs(one, other) for o in beside for one, other in ((o, value), (value, o))):
            beside.append(value)
    return beside


def _elements(value: Instruction) -> int:
    return value.shape.element_count if value.shape.is_array else 0


def _is_more(user: Instruction, value: Instruction) -> bool:
    """Whether an element of a user takes one of the value and more, so that the user is the better one to take out."""
    return is_elementwise(user) and _elements(user) == _elements(value)


def _times(trace: Trace) -> Iterator[tuple[Instruction, float]]:
    """How often a lane computes a value, at each of the indices at which it does. What is alike for neighbouring lanes,
    one of them finds."""
    lanes = {THREAD: np.arange(LANES), ITEM: np.asarray(0), ROUND: np.asarray(0)}
    env = lanes | {name: value_of(place, lanes) for name, place in trace.walk.places.items()}
    known = dict[tuple[int, Shape], float]()
    for value, index, share in trace.values:
        key = id(index), value.shape
        if value.shape.is_array and key not in known:
            places = value_of(address_of(value.shape, index), env)
            known[key] = len(set(places.flatten().tolist())) / LANES
        yield value, share * trace.times(index) * known.get(key, 1.0)


def _needs(value: Instruction, other: Instruction) -> bool:
    return other in needed_first([value], lambda i: i.operands)


def _work(value: Instruction, length: int) -> float:
    """Instructions of one lane for an element of a value, in a kernel that computes `length` values."""
    elements = value.shape.element_count
    place = variable(THREAD, elements)
    trace = traced(Walk(elements, [(value, physical_index(value.shape, place))]), set())
    return sum(times * _of(v, length) for v, times in _times(trace))


def _of(value: Instruction, length: int) -> float:
    work = work_of.of_value(value)
    places = PLACES if length > LONG and value.opcode in ("concatenate", "pad") else 0.0
    return work.slots + work.slow + places
