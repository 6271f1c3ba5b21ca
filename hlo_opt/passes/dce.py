"""Dead code elimination. Source: xla/hlo/transforms/simplifiers/hlo_dce.cc."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.analysis.graph.inlining import remove_uncalled
from hlo_opt.analysis.properties import Effects, has_side_effect, is_boundary_fusion
from hlo_opt.ir import Attribute, Computation, Instruction, Module, Shape, edit
from hlo_opt.ir.facts import NO_DEAD_VALUES
from hlo_opt.ir.walk import edited_since
from hlo_opt.ops.sets import fused, tuple_elements, tuple_index
from hlo_opt.passes.base import Pass, PassContext
from hlo_opt.plans.cumulative import lines_of

BY_NUMBER = frozenset({"output_to_operand_aliasing", "sharding"})
"""Attributes of a fusion that name its results by their numbers."""


@dataclass(frozen=True)
class DeadCodeElimination(Pass):
    """Remove what nothing uses, also among the outputs and operands of fusions. Parameters, side effects and ends of
    control dependencies stay. It cleans up after rewrites, so it does not count as a step."""

    name: ClassVar[str] = "dce"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"
    idempotent: ClassVar[bool] = True
    only_removes: ClassVar[bool] = True

    def run(self, module: Module, context: PassContext) -> bool:
        effects = Effects(module)
        changed = remove_uncalled(module)
        swept = False
        for computation in edited_since(module, NO_DEAD_VALUES):
            swept |= sweep(computation, effects)
            while several := _with_several_outputs(computation):
                if not sum(narrow(fusion, effects) for fusion in several):
                    break
                sweep(computation, effects)
                swept = True
            if not several:  # else a computation may have lost its last caller
                computation.facts[NO_DEAD_VALUES] = True
        if swept:
            remove_uncalled(module)
        return changed or swept


def sweep(computation: Computation, effects: set[Computation] | Effects) -> bool:
    """Remove what nothing uses from a computation. `effects` are computations that hold side effects. True when
    anything was removed."""
    ordered = _waited_for(computation)
    todo = [i for i in computation.instructions if not i.users]
    changed = False
    while todo:
        instruction = todo.pop()
        if instruction.parent is None or instruction.is_root:
            continue
        if instruction.parameter_number is not None or instruction in ordered or instruction.control_predecessors:
            continue
        if has_side_effect(instruction) or not effects.isdisjoint(instruction.called()):
            continue
        operands = list(instruction.operands)
        edit.remove(instruction)
        changed = True
        todo.extend(o for o in operands if not o.users)
    return changed


def _waited_for(computation: Computation) -> set[Instruction]:
    """What others wait for without reading it."""
    return {p for i in computation.instructions for p in i.control_predecessors}


def _with_several_outputs(computation: Computation) -> list[Instruction]:
    """Fusions with several outputs whose users each read one of them, users first. None that waits or is waited for:
    the proof knows these by all of their outputs."""
    if not computation.called:  # as most
        return []
    ordered = _waited_for(computation)
    return [
        i
        for i in reversed(list(computation.instructions))
        if i.shape.elements is not None
        and fused(i) is not None
        and not (i.is_root or is_boundary_fusion(i) or i in ordered or i.control_predecessors)
        and all(tuple_index(user) is not None for user in i.users)
    ]


def narrow(fusion: Instruction, effects: set[Computation] | Effects) -> bool:
    """Let a fusion write only the outputs that are read, and read only the operands that these need. True when anything
    changed."""
    body = fusion.called_by("calls")
    count, readers = _output_count(body.root), {user: tuple_index(user) or 0 for user in fusion.users}
    read = sorted(set(readers.values()))
    if not read or len(read) >= count or not BY_NUMBER.isdisjoint(fusion.attributes):
        return False
    assert body.module is not None
    if sum(c.called.count(body) for c in body.module.computations) > 1:
        return False
    root = body.root
    if root.users or any(user.control_predecessors for user in readers):
        return False
    outputs = tuple_elements(root)
    kept = [edit.create_element(root, n) if outputs is None else outputs[n] for n in read]
    if len(kept) == 1 and kept[0].parameter_number is not None:  # it would only copy: not decided here
        return False
    if len(kept) > 1:
        edit.create_tuple(body, kept, root=True)
        edit.set_shape(fusion, Shape.tuple_of(*((fusion.shape.elements or ())[number] for number in read)))
        for user, number in readers.items():
            edit.set_attribute(user, "index", Attribute.of(read.index(number)))
    else:
        edit.set_root(body, kept[0])
        edit.set_shape(fusion, (fusion.shape.elements or ())[read[0]])
        for user in readers:
            edit.replace_all_uses(user, fusion)
            edit.remove(user)
    if outputs is not None:
        edit.remove(root)
    sweep(body, effects)
    drop_unread(fusion, body)
    return True


def _output_count(root: Instruction) -> int:
    """The number of results of a fusion's root that the fusion may do without one by one; 0 where it may not."""
    outputs = tuple_elements(root)
    if outputs is not None:
        return len(outputs)
    # windows of neighbours keep all results: with one left, passes would compute them again in each reader
    is_apart = root.opcode == "sort" or lines_of(root) is not None
    return len(root.shape.elements or ()) if is_apart else 0


def drop_unread(fusion: Instruction, body: Computation) -> None:
    """Remove operands of a fusion that its computation does not read."""
    pairs = list(zip(fusion.operands, body.parameters, strict=True))
    for _, parameter in pairs:
        if not parameter.users and not parameter.is_root:
            edit.remove(parameter)
    read = [(operand, parameter) for operand, parameter in pairs if parameter.parent is body]
    for number, (_, parameter) in enumerate(read):
        parameter.parameter_number = number
    edit.set_operands(fusion, [operand for operand, _ in read])
