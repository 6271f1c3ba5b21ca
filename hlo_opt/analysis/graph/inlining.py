"""Put the bodies of calls and fusions back into their callers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from hlo_opt.analysis.properties import effectful_computations, elsewhere, is_boundary_fusion
from hlo_opt.diag import ParseError
from hlo_opt.ir import Attribute, Called, Computation, Instruction, Module, edit
from hlo_opt.ir.walk import needed_first
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.sets import body_of, fused, is_view
from hlo_opt.text.asynchronous import link

GROWTH_LIMIT = 200_000
"""Instructions that inlining may add to a module before it stops: calls nested n deep, each twice, grow as 2^n."""


def is_plain_call(instruction: Instruction) -> bool:
    """A call that means its body and nothing more."""
    body = body_of(instruction)
    if body is None or fused(instruction) is not None or instruction.control_predecessors or elsewhere(body):
        return False
    return _may_take_operands(instruction)


def is_plain_fusion(instruction: Instruction) -> bool:
    """A fusion that a generator of kernels made; one that stands for a library call is not plain."""
    if fused(instruction) is None or instruction.control_predecessors:
        return False
    if "output_to_operand_aliasing" in instruction.attributes:
        return False
    return not is_boundary_fusion(instruction) and _may_take_operands(instruction)


def _may_take_operands(instruction: Instruction) -> bool:
    """Whether the body may stand in the caller: its root lies in memory as the result does, and its parameters as the operands do, or nothing in the body can
    tell. What a bitcast makes of a value hangs on how the value lies."""
    body = _body(instruction)
    if not instruction.shape.same_bytes(body.root.shape):
        return False
    others = other_layouts(instruction, body)
    return all(p is not body.root and all(map(_reads_elements, p.users)) for p in others)


def other_layouts(instruction: Instruction, body: Computation) -> list[Instruction]:
    """The parameters of a fusion's or a call's body that lie in memory in another way than the operands do."""
    pairs = zip(instruction.operands, body.parameters, strict=True)
    return [parameter for operand, parameter in pairs if not operand.shape.same_bytes(parameter.shape)]


def _reads_elements(user: Instruction) -> bool:
    """Whether the user reads elements by their index only, wherever they lie, and hands no operand on."""
    spec = find(user.opcode)
    by_index = (OpKind.ELEMENTWISE, OpKind.MOVEMENT, OpKind.REDUCTION, OpKind.CONTRACTION, OpKind.INDEXING)
    return spec is not None and spec.kind in by_index and not spec.side_effects and not is_view(user.opcode)


def inline(module: Module, wanted: Callable[[Instruction], bool], step: Callable[[], bool] = lambda: True) -> bool:
    """Inline the instructions that are wanted (`is_plain_call`, `is_plain_fusion`), callees first, until `GROWTH_LIMIT`; then drop computations that nothing calls any more.

    `step` is asked before each of them; one that it is against stays. True when anything changed.
    """
    edit.sort_computations(module)
    waited_for = {p for c in module.computations for i in c.instructions for p in i.control_predecessors}
    budget = GROWTH_LIMIT
    changed = False
    callers = Counter(callee for c in module.computations for callee in c.called)
    effects = effectful_computations(list(module.computations))
    for computation in list(module.computations):
        found = [i for i in computation.instructions if wanted(i) and i not in waited_for]
        order = list(computation.instructions) if found else []
        bodies: dict[Instruction, list[Instruction]] = {}
        for instruction in found:
            body = _body(instruction)
            size = len(body.instructions)
            if size > budget or not step():
                continue
            alone = callers[body] == 1
            if not alone:
                budget -= size
                callers[body] -= 1
            bodies[instruction] = _splice(instruction, body, keep_names=alone, callers=callers)
            changed = True
        if any(_body(i) in effects for i in bodies):
            edit.arrange(computation, [member for i in order for member in bodies.get(i, (i,))])
        if found:
            edit.sort(computation)
    if changed:
        remove_uncalled(module)
        edit.sort_computations(module)  # copies of what is started come last, for now
    return changed


def _body(instruction: Instruction) -> Computation:
    body = body_of(instruction)
    assert body is not None
    return body


def _splice(
    instruction: Instruction, body: Computation, *, keep_names: bool, callers: Counter[Computation]
) -> list[Instruction]:
    """Copy the body and take the instruction out. The copies keep their names when the body dies; else what the body starts asynchronously is copied with it,
    for each start has a computation of its own. Returns the copies; they belong where the instruction stood, so that side effects keep the order of the
    text."""
    computation = instruction.computation
    module = computation.module
    assert module is not None
    computation.index_users()
    copies: dict[Instruction, Instruction] = {}
    started: dict[Computation, Computation] = {}
    for member in body.instructions:
        if member.parameter_number is not None:
            copies[member] = instruction.operands[member.parameter_number]
            continue
        name = member.name if keep_names else module.unique_name(member.name)
        copy = edit.copied(member, name, [copies[o] for o in member.operands])
        copy.control_predecessors = [copies[p] for p in member.control_predecessors]
        _inherit_source(copy, instruction)
        copies[member] = edit.append(computation, copy)
        if not keep_names:
            _start_own(copy, started)
    callers.update(callee for made in started.values() for callee in made.called)
    edit.redirect_users(instruction, copies[body.root])
    edit.remove(instruction)
    return [copies[member] for member in body.instructions if member.parameter_number is None]


def _start_own(instruction: Instruction, started: dict[Computation, Computation]) -> None:
    """Let a part of an asynchronous chain run a copy of what it runs; `started` has the copies."""
    todo = [instruction]
    while todo:
        part = todo.pop()
        if link(part.opcode) is None or find(part.opcode) is None:
            continue
        for name, value in list(part.attributes.items()):
            if not isinstance(value, Called):
                continue
            for computation in value.computations:
                if computation not in started:
                    started[computation] = edit.clone_computation(computation)
                    todo.extend(started[computation].instructions)
            edit.set_attribute(part, name, Called(*(started[c] for c in value.computations), is_list=value.is_list))


def _inherit_source(copy: Instruction, call: Instruction) -> None:
    """Give an instruction whose metadata name no source line the line of the call that it was inlined from."""
    try:
        own, outer = copy.metadata, call.metadata
    except ParseError:  # printed back as it was read
        return
    if own.source_file or own.stack_frame_id or not (outer.source_file or outer.stack_frame_id):
        return
    path = "/".join(part for part in (outer.op_name, own.op_name) if part)
    edit.set_attribute(copy, "metadata", Attribute.of(replace(outer, op_type=own.op_type, op_name=path)))


def remove_uncalled(module: Module) -> bool:
    """Drop computations that nothing reaches from the entry."""
    needed = set(needed_first([module.entry], lambda c: c.called))
    dead = [c for c in module.computations if c not in needed]
    for computation in dead:
        edit.remove_computation(computation)
    return bool(dead)
