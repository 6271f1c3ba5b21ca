"""Loops as one kernel: a `while` goes into a fusion, with its rounds, where a plan runs all of them in one launch and
that is estimated to take less time.

The fusion's computation keeps the loop, so that the result is the same graph. Constants, and arrays of one number, are
made inside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.analysis.graph.inlining import inline, is_plain_fusion, remove_uncalled
from hlo_opt.analysis.graph.loops import trip_count
from hlo_opt.analysis.properties import has_side_effect
from hlo_opt.fusion import outline
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Called, Computation, Instruction, Module, edit
from hlo_opt.ir.walk import executed_computations, needed_first
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.sets import fused, held, is_view, launches, looped, root_of, taken_element
from hlo_opt.passes.base import Pass, PassContext
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.plans.instructions import of_value
from hlo_opt.plans.lane_search import by_itself
from hlo_opt.plans.price import price
from hlo_opt.plans.sketch import candidate_of

MOST_INSIDE = 8
"""Operations that make an array which is made inside: broadcasts of numbers, counters."""


LITTLE = 4
"""Instructions of an element of such an operation."""
HOST_ROUND_TRIP_US = 10.0
"""Of each round of a loop that is not counted, an estimate: the host gets the byte that says whether there is another
one, and waits for it (xla/backends/gpu/runtime/while_thunk.cc)."""


@dataclass(frozen=True)
class WhileFusion(Pass):
    """Make one kernel of a loop whose lanes do not need each other, or which one block or all blocks of a launch can
    own, where that is estimated to take less time than a launch of each kernel in each round."""

    name: ClassVar[str] = "while-fusion"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    def run(self, module: Module, context: PassContext) -> bool:
        changed = False
        for computation in list(executed_computations(module)):
            for loop in [i for i in computation.instructions if looped(i) is not None]:
                candidate = _Candidate.of(loop, module)
                if candidate is not None and candidate.pays(context) and context.step():
                    candidate.put(context)
                    changed = True
        if changed:
            remove_uncalled(module)
            edit.sort_computations(module)
        return changed


def one_launch(loop: Instruction, context: PassContext) -> float | None:
    """The price, in microseconds, of all rounds of a loop in one launch; None where no plan runs them so."""
    module = loop.computation.module
    assert module is not None
    candidate = _Candidate.of(loop, module)
    made = None if candidate is None else candidate.plan(context)
    return None if made is None else price(made, context.options.target).us


@dataclass
class _Candidate:
    """A loop that may become a fusion. `elements` of its tuple are read, each by some instructions that take it out."""

    module: Module
    loop: Instruction
    elements: dict[int, list[Instruction]]

    @classmethod
    def of(cls, loop: Instruction, module: Module) -> _Candidate | None:
        """None where no kernel could have it, whatever it computes."""
        computation, results, start = loop.computation, _handed_on(loop.called_by("body")), loop.operands[0]
        given = held(start)
        if given is None or results is None or loop.control_predecessors or start.control_predecessors:
            return None
        for body in loop.called():
            for i in body.instructions:
                if has_side_effect(i) or i.control_predecessors or (fused(i) is not None and not is_plain_fusion(i)):
                    return None
        computation.index_users()
        awaited = {before for i in computation.instructions for before in i.control_predecessors}
        if loop in awaited or start in awaited:
            return None
        state = loop.called_by("body").parameters[0]
        found = cls(module, loop, {})
        for number, end in enumerate(results):
            is_kept = taken_element(end) == number and end.operands[0] is state
            shape = (loop.shape.elements or ())[number]
            if not given[number].shape.same_bytes(shape):
                return None
            if not end.shape.same_bytes(shape) and not (is_kept and _reads_by_index(loop, module)):
                return None
            takers = [user for user in loop.users if taken_element(user) == number]
            if any(user.control_predecessors or user in awaited for user in takers):
                return None
            if takers or found.is_read_whole:
                if is_kept:  # to hand it on would be another graph
                    return None
                found.elements[number] = takers
        return found if found.elements else None

    @property
    def is_read_whole(self) -> bool:
        """Whether somebody reads the loop's tuple itself."""
        return self.loop.is_root or any(taken_element(user) is None for user in self.loop.users)

    def pays(self, context: PassContext) -> bool:
        """Whether one launch has a plan, and takes less than the rounds of the loop."""
        target, made = context.options.target, self.plan(context)
        if made is None:
            return False
        state = FusionState(self.module, target, context.memory.known)
        rounds = trip_count(self.loop)  # without one a plan is priced with one round
        apart = math.fsum(state.prices.of(i).us for c in self.loop.called() for i in c.instructions if launches(i))
        return price(made, target).us < (apart + HOST_ROUND_TRIP_US if rounds is None else apart * rounds)

    def plan(self, context: PassContext) -> Plan | None:
        """One launch of all rounds, if there is one."""
        inside = Computation("candidate")
        fusion = candidate_of(inside, self._fill(inside))
        made = plan(region_of(self.module, fusion), context.options.target)
        return made if isinstance(made, Plan) else None

    def put(self, context: PassContext) -> None:
        """Put the fusion in the loop's place."""
        loop, computation, start = self.loop, self.loop.computation, self.loop.operands[0]
        self._open(context)
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
        if not start.users and not start.is_root:
            edit.remove(start)
        edit.sort(computation)

    def _open(self, context: PassContext) -> None:
        """Put what the loop's kernels hold into its rounds, which are its own then."""
        for name, value in list(self.loop.attributes.items()):
            if isinstance(value, Called) and any(map(self._is_shared, value.computations)):
                edit.set_attribute(self.loop, name, Called(*map(edit.clone_computation, value.computations)))
        bodies, origins = dict.fromkeys(self.loop.called()), context.origins
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
        """Write the fusion's computation. Returns the operands of the fusion."""
        operands: list[Instruction] = []
        copies: dict[Instruction, Instruction] = {}
        given = held(self.loop.operands[0]) or []
        for value in given:
            if value in copies:
                continue
            made = _made_of_numbers(value)
            if made is None:
                copies[value] = outline.parameter_for(inside, len(operands), value)
                operands.append(value)
                continue
            for i in made:
                if i not in copies:
                    copies[i] = edit.clone_into(inside, i, [copies[o] for o in i.operands])
            copies[value] = copies[made[-1]]
        start = edit.create_tuple(inside, [copies[v] for v in given])
        loop = outline.moved_into(inside, self.loop, [start])
        ends = [edit.create_element(loop, number) for number in self.elements]
        edit.set_root(inside, ends[0] if len(ends) == 1 else edit.create_tuple(inside, ends))
        return operands


def _reads_by_index(loop: Instruction, module: Module) -> bool:
    """Whether nothing in the rounds depends on how an array lies in memory."""
    return not any(is_view(i.opcode) for body in by_itself(module, loop).called() for i in body.instructions)


def _handed_on(body: Computation) -> list[Instruction] | None:
    """The elements of the tuple that a body ends with, which one of its kernels may make; None where they are made
    otherwise."""
    root = body.root
    if fused(root) is None:
        return held(root)
    made = held(root_of(root))
    return made and [m if m.parameter_number is None else root.operands[m.parameter_number] for m in made]


def _made_of_numbers(value: Instruction) -> list[Instruction] | None:
    """What makes a value out of constants alone, few operations, operands first; None where it is made otherwise."""
    is_made = fused(value) is not None and not value.operands and is_plain_fusion(value)
    order = needed_first([root_of(value) if is_made else value], lambda i: i.operands)
    return order if len(order) <= MOST_INSIDE and all(map(_is_number, order)) else None


def _is_number(i: Instruction) -> bool:
    """Whether it is a scalar constant, or moves what it is given, or computes little: rounds may read it often. What
    waits for something is made where it waits."""
    if i.control_predecessors:
        return False
    if i.literal is not None:
        return not i.literal.is_elided and i.shape.is_array and not i.shape.rank
    spec = find(i.opcode)
    kinds = (OpKind.MOVEMENT, OpKind.ELEMENTWISE)
    if spec is None or spec.kind not in kinds or not i.shape.is_array or i.parameter_number is not None:
        return False
    return of_value(i).slots <= LITTLE
