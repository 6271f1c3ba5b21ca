"""Inline the bodies of calls and fusions into their callers."""

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
"""The most instructions that inlining may add to a module: calls nested n deep, each twice, grow as 2^n."""


def is_plain_call(instruction: Instruction) -> bool:
    """Whether a call is equivalent to its inlined body."""
    body = body_of(instruction)
    if body is None or fused(instruction) is not None or instruction.control_predecessors or elsewhere(body):
        return False
    return _may_take_operands(instruction)


def is_plain_fusion(instruction: Instruction) -> bool:
    """Whether a fusion is a generated kernel that may be inlined, rather than a library call."""
    if fused(instruction) is None or instruction.control_predecessors:
        return False
    if "output_to_operand_aliasing" in instruction.attributes:
        return False
    return not is_boundary_fusion(instruction) and _may_take_operands(instruction)


def _may_take_operands(instruction: Instruction) -> bool:
    """Whether the body may replace the instruction: root and result have one layout, and so do parameters and operands,
    or no user of a parameter depends on its layout, as a bitcast would."""
    body = _body(instruction)
    if not instruction.shape.same_bytes(body.root.shape):
        return False
    others = other_layouts(instruction, body)
    return all(p is not body.root and all(map(_reads_elements, p.users)) for p in others)


def other_layouts(instruction: Instruction, body: Computation) -> list[Instruction]:
    """The parameters of a fusion's or call's body whose layout differs from the operand's."""
    pairs = zip(instruction.operands, body.parameters, strict=True)
    return [parameter for operand, parameter in pairs if not operand.shape.same_bytes(parameter.shape)]


def _reads_elements(user: Instruction) -> bool:
    """Whether the user reads elements by index only, whatever the layout, and does not return the operand itself."""
    spec = find(user.opcode)
    by_index = (OpKind.ELEMENTWISE, OpKind.MOVEMENT, OpKind.REDUCTION, OpKind.CONTRACTION, OpKind.INDEXING)
    return spec is not None and spec.kind in by_index and not spec.side_effects and not is_view(user.opcode)


def inline(module: Module, wanted: Callable[[Instruction], bool], step: Callable[[], bool] = lambda: True) -> bool:
    """Inline the instructions for which `wanted` is true (`is_plain_call`, `is_plain_fusion`), callees first, up to
    `GROWTH_LIMIT`.

    Then remove uncalled computations. `step` is asked before each one; False skips it. Returns whether anything
    changed.
    """
    edit.sort_computations(module)
    waited_for = {p for c in module.computations for i in c.instructions for p in i.control_predecessors}
    budget = GROWTH_LIMIT
    changed = False
    callers = Counter(callee for c in module.computations for callee in c.called)
    effects = effectful_computations(list(module.computations))
    for computation in list(module.computations):
        targets = [i for i in computation.instructions if wanted(i) and i not in waited_for]
        order = list(computation.instructions) if targets else []
        bodies: dict[Instruction, list[Instruction]] = {}
        for instruction in targets:
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
        if targets:
            edit.sort(computation)
    if changed:
        remove_uncalled(module)
        edit.sort_computations(module)  # copies of asynchronously called computations were appended last
    return changed


def _body(instruction: Instruction) -> Computation:
    body = body_of(instruction)
    assert body is not None
    return body


def _splice(
    instruction: Instruction, body: Computation, *, keep_names: bool, callers: Counter[Computation]
) -> list[Instruction]:
    """Copy the body into the caller and remove the instruction. Returns the copies, which belong where it was, to keep
    the order of effects.

    Copies keep their names when the body is removed. Otherwise computations that the body starts asynchronously are
    copied too, as each start needs its own.
    """
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
    callers.update(callee for copy in started.values() for callee in copy.called)
    edit.redirect_users(instruction, copies[body.root])
    edit.remove(instruction)
    return [copies[member] for member in body.instructions if member.parameter_number is None]


def _start_own(instruction: Instruction, started: dict[Computation, Computation]) -> None:
    """Give an async start copies of the computations it runs; `started` maps those copied so far."""
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
    """Give an instruction without a source line the line of the call it was inlined from."""
    try:
        own, outer = copy.metadata, call.metadata
    except ParseError:  # printed back as it was read
        return
    if own.source_file or own.stack_frame_id or not (outer.source_file or outer.stack_frame_id):
        return
    path = "/".join(part for part in (outer.op_name, own.op_name) if part)
    edit.set_attribute(copy, "metadata", Attribute.of(replace(outer, op_type=own.op_type, op_name=path)))


def remove_uncalled(module: Module) -> bool:
    """Remove computations that the entry does not reach."""
    needed = set(needed_first([module.entry], lambda c: c.called))
    dead = [c for c in module.computations if c not in needed]
    for computation in dead:
        edit.remove_computation(computation)
    return bool(dead)
