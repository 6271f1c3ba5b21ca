"""Loops as one kernel: a `while` and its rounds go into a fusion, where a plan runs all of them in one launch and that
is estimated to take less time.

The fusion's computation keeps the loop, so that the result is the same graph. Constants, and arrays of one number, are
created inside.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.analysis.graph.inlining import inline, is_plain_fusion, remove_uncalled
from hlo_opt.analysis.graph.loops import trip_count
from hlo_opt.analysis.properties import has_side_effect
from hlo_opt.fusion import outline
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Called, Computation, Instruction, Module, edit
from hlo_opt.ir.walk import executed_computations, operands_first
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.sets import fused, is_view, launches, looped, root_of, tuple_elements, tuple_index
from hlo_opt.passes.base import Pass, PassContext
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.plans.instructions import LITTLE, of_value
from hlo_opt.plans.opened_loop import by_itself
from hlo_opt.plans.price import price
from hlo_opt.plans.sketch import candidate_of

MOST_INSIDE = 8
"""The most operations that compute an array inside: broadcasts of numbers, counters."""

EVEN = 1.02
"""The most that one launch may take, relative to those of all rounds: of two that are nearly equal it is the one that
no host has to feed."""
HOST_ROUND_TRIP_US = 10.0
"""The estimated cost of the host in each round of a loop that is not counted: it waits for the byte that says whether
there is another round (xla/backends/gpu/runtime/while_thunk.cc)."""


@dataclass(frozen=True)
class WhileFusion(Pass):
    """Turn a loop into one kernel, where its lanes are independent or one block, or all blocks of a launch, can run it,
    and where that is estimated to take less time than launching each kernel in each iteration."""

    name: ClassVar[str] = "while-fusion"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    def run(self, module: Module, context: PassContext) -> bool:
        changed, inside = False, set[Computation]()
        for computation in list(executed_computations(module)):
            if computation in inside:
                continue
            for loop in [i for i in computation.instructions if looped(i) is not None]:
                candidate = _Candidate.of(loop, module)
                if candidate is None or candidate.is_forbidden(context):
                    continue
                if candidate.pays(context) and context.step():
                    candidate.put(context)
                    inside.update(_bodies(loop))
                    changed = True
        if changed:
            remove_uncalled(module)
            edit.sort_computations(module)
        return changed


def one_launch(loop: Instruction, context: PassContext) -> float | None:
    """The price, in microseconds, of all rounds of a loop in one launch; None without such a plan."""
    module = loop.computation.module
    assert module is not None
    candidate = _Candidate.of(loop, module)
    kernel_plan = None if candidate is None else candidate.plan(context)
    return None if kernel_plan is None else price(kernel_plan, context.options.target).us


@dataclass
class _Candidate:
    """A loop that may become a fusion.

    start     the elements of its tuple before the first round (see `_start_elements`)
    elements  those that are read after the last one, each with the get-tuple-elements that read it
    """

    module: Module
    loop: Instruction
    start: list[Instruction]
    elements: dict[int, list[Instruction]]

    @classmethod
    def of(cls, loop: Instruction, module: Module) -> _Candidate | None:
        """The candidate of a loop; None where no kernel could hold it, whatever it computes."""
        computation, results, start = loop.computation, _handed_on(loop.called_by("body")), loop.operands[0]
        start_values = _start_elements(start)
        if start_values is None or results is None or loop.control_predecessors:
            return None
        for i in [i for body in _bodies(loop) for i in body.instructions]:
            if has_side_effect(i) or i.control_predecessors or (fused(i) is not None and not is_plain_fusion(i)):
                return None
        computation.index_users()
        awaited = {before for i in computation.instructions for before in i.control_predecessors}
        if loop in awaited:
            return None
        if tuple_elements(start) is not None and (start.control_predecessors or start in awaited):  # it would go
            return None
        state = loop.called_by("body").parameters[0]
        candidate = cls(module, loop, start_values, {})
        for number, end in enumerate(results):
            is_kept = tuple_index(end) == number and end.operands[0] is state
            shape = (loop.shape.elements or ())[number]
            if not start_values[number].shape.same_bytes(shape):
                return None
            if not end.shape.same_bytes(shape) and not (is_kept and _reads_by_index(loop, module)):
                return None
            takers = [user for user in loop.users if tuple_index(user) == number]
            if any(user.control_predecessors or user in awaited for user in takers):
                return None
            if takers or candidate.is_read_whole:
                if is_kept:  # to hand it on would be another graph
                    return None
                candidate.elements[number] = takers
        return candidate if candidate.elements else None

    @property
    def is_read_whole(self) -> bool:
        """Whether something reads the loop's tuple itself."""
        return self.loop.is_root or any(tuple_index(user) is None for user in self.loop.users)

    def is_forbidden(self, context: PassContext) -> bool:
        """Whether the user forbids an edge between two instructions of the rounds: one kernel would hold both."""
        separated = context.options.separated
        if not separated or "FUS505" in context.options.disabled:
            return False
        inside = {context.origins.get(i, i.name) for i in _members(self.loop)}
        return any(producer in inside and consumer in inside for producer, consumer in separated)

    def pays(self, context: PassContext) -> bool:
        """Whether one launch has a plan, and takes less time than the rounds of the loop."""
        target, kernel_plan = context.options.target, self.plan(context)
        if kernel_plan is None:
            return False
        state = FusionState(self.module, target, context.memory.known)
        rounds = trip_count(self.loop)  # without one a plan is priced with one round
        apart = _us_of_round(self.loop, state)
        return price(kernel_plan, target).us < (apart + HOST_ROUND_TRIP_US if rounds is None else EVEN * apart * rounds)

    def plan(self, context: PassContext) -> Plan | None:
        """The plan of one launch of all rounds; None without one."""
        inside = Computation("candidate")
        fusion = candidate_of(inside, self._fill(inside))
        kernel_plan = plan(region_of(self.module, fusion), context.options.target)
        return kernel_plan if isinstance(kernel_plan, Plan) else None

    def put(self, context: PassContext) -> None:
        """Replace the loop by the fusion."""
        loop, computation, start = self.loop, self.loop.computation, self.loop.operands[0]
        self._open(context)
        self.start = [v if v.parent else edit.create_element(start, n) for n, v in enumerate(self.start)]
        inside = edit.new_computation(self.module, "fused_computation")
        operands = self._fill(inside)
        fusion = outline.fusion_of(inside, loop, operands)
        fusion.name = self.module.unique_name("loop_while_fusion")
        values = dict.fromkeys(self.elements, fusion)
        if len(values) > 1:
            values = {number: edit.create_element(fusion, place) for place, number in enumerate(self.elements)}
        for number, users in self.elements.items():
            for user in users:
                edit.redirect_users(user, values[number])
                edit.remove(user)
        if self.is_read_whole:
            edit.redirect_users(loop, edit.create_tuple(computation, [values[n] for n in range(len(values))]))
        edit.remove(loop)
        if tuple_elements(start) is not None and not start.users and not start.is_root:
            edit.remove(start)
        edit.sort(computation)

    def _open(self, context: PassContext) -> None:
        """Inline the kernels of the loop into its rounds."""
        for name, value in list(self.loop.attributes.items()):
            if isinstance(value, Called) and any(map(self._is_shared, value.computations)):
                edit.set_attribute(self.loop, name, Called(*map(edit.clone_computation, value.computations)))
        bodies, origins = dict.fromkeys(_bodies(self.loop)), context.origins
        for kernel in [i for body in bodies for i in body.instructions if launches(i)]:
            context.fused_by.setdefault(outline.original_name(kernel, origins), WhileFusion.name)
        named = {i.name: origin for i, origin in origins.items()}
        while inline(self.module, lambda i: i.parent in bodies and is_plain_fusion(i)):
            pass
        for i in [i for body in bodies for i in body.instructions]:
            if i.name in named:
                origins[i] = named[i.name]

    def _is_shared(self, computation: Computation) -> bool:
        return sum(c.called.count(computation) for c in self.module.computations) > 1

    def _fill(self, inside: Computation) -> list[Instruction]:
        """Fill the fusion's computation. Returns the operands of the fusion."""
        operands: list[Instruction] = []
        copies: dict[Instruction, Instruction] = {}
        for value in self.start:
            if value in copies:
                continue
            members = _from_numbers(value)
            if members is None:
                copies[value] = outline.parameter_for(inside, len(operands), value)
                operands.append(value)
                continue
            for i in members:
                if i not in copies:
                    copies[i] = edit.clone_into(inside, i, [copies[o] for o in i.operands])
            copies[value] = copies[members[-1]]
        start = edit.create_tuple(inside, [copies[v] for v in self.start])
        loop = outline.moved_into(inside, self.loop, [start])
        ends = [edit.create_element(loop, number) for number in self.elements]
        edit.set_root(inside, ends[0] if len(ends) == 1 else edit.create_tuple(inside, ends))
        return operands


def _start_elements(start: Instruction) -> list[Instruction] | None:
    """The elements of a tuple; get-tuple-elements that no computation has yet, where no instruction puts it together,
    such as a parameter or a result of another loop. None for what is no tuple of arrays."""
    elements = start.shape.elements
    if elements is None or not all(shape.is_array for shape in elements):
        return None
    return tuple_elements(start) or [edit.element_of(start, number) for number in range(len(elements))]


def _us_of_round(loop: Instruction, state: FusionState) -> float:
    """The estimated microseconds of the kernels of one round, with those of the loops in it."""
    kernels = [i for c in loop.called() for i in c.instructions if launches(i)]
    us = math.fsum(state.prices.of(i).us for i in kernels)
    numbers = [state.prices.of(i).us for i in kernels if all(s.element_count == 1 for s in i.shape.leaves())]
    us -= math.fsum(sorted(numbers)[:-1])  # counters and conditions share a launch
    for inner in [i for c in loop.called() for i in c.instructions if looped(i) is not None]:
        rounds = trip_count(inner)
        us += _us_of_round(inner, state) * (rounds or 1) + (HOST_ROUND_TRIP_US if rounds is None else 0)
    return us


def _bodies(loop: Instruction) -> Iterator[Computation]:
    """The computations of a loop, and those of the loops in it."""
    for body in loop.called():
        yield body
        for i in body.instructions:
            if looped(i) is not None:
                yield from _bodies(i)


def _members(loop: Instruction) -> Iterator[Instruction]:
    """What rounds compute, also inside their kernels and in loops of theirs."""
    for body in loop.called():
        for i in body.instructions:
            yield i
            if fused(i) is not None or looped(i) is not None:
                yield from _members(i)


def _reads_by_index(loop: Instruction, module: Module) -> bool:
    """Whether nothing in the rounds depends on an array's layout."""
    return not any(is_view(i.opcode) for body in by_itself(module, loop).called() for i in body.instructions)


def _handed_on(body: Computation) -> list[Instruction] | None:
    """The elements of a body's result, which may be the result of one of its kernels; None where they are unknown."""
    root = body.root
    if fused(root) is None:
        return tuple_elements(root)
    elements = tuple_elements(root_of(root))
    return elements and [m if m.parameter_number is None else root.operands[m.parameter_number] for m in elements]


def _from_numbers(value: Instruction) -> list[Instruction] | None:
    """The few operations that compute a value from constants alone, operands first; None for any other value."""
    is_made = fused(value) is not None and not value.operands and is_plain_fusion(value)
    order = operands_first([root_of(value) if is_made else value])
    return order if len(order) <= MOST_INSIDE and all(map(_is_number, order)) else None


def _is_number(i: Instruction) -> bool:
    """Whether it is a scalar constant, moves its operand, or computes little: rounds may read it often. An operation
    with control predecessors stays where it is."""
    if i.control_predecessors:
        return False
    if i.literal is not None:
        return not i.literal.is_elided and i.shape.is_array and not i.shape.rank
    spec = find(i.opcode)
    kinds = (OpKind.MOVEMENT, OpKind.ELEMENTWISE)
    if spec is None or spec.kind not in kinds or not i.shape.is_array or i.parameter_number is not None:
        return False
    return of_value(i).slots <= LITTLE
