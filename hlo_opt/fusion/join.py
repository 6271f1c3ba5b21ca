"""Joining: an instruction moves into a fusion that keeps writing its value. The fusion gets a tuple at its root and an output more.

Source: HloFusionInstruction::FuseInstructionIntoMultiOutput and MergeFusionInstructionIntoMultiOutput in xla/hlo/ir/hlo_instructions.cc.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.outline import Origins, original_name, parameter_for, start_fusion, take_in
from hlo_opt.ir import Attribute, Computation, Instruction, edit
from hlo_opt.ops.sets import fused, held, taken_element


def join(
    engine: Engine, other: Instruction, host: Instruction, known: Mapping[str, object] = MappingProxyType({})
) -> Instruction:
    """Compute `other` inside the kernel of `host` and write both. Returns the host's fusion, made when it is a plain instruction. `known` is what the
    state can keep about it (`FusionState.joined`).

    Neither may be reached from the other, but that `host` may read `other` itself. One with a tuple as its result must be read element by element.
    """
    state = engine.state
    for name in (original_name(other, engine.origins), original_name(host, engine.origins)):
        engine.context.fused_by.setdefault(name, engine.rule)
    fusion = host
    readers = [
        (changed, user)
        for changed in (other, host)
        if not changed.shape.is_tuple
        for user in changed.users
        if user is not other and user is not host
    ]
    after = state.joined(other, host, known)
    if fused(host) is None:
        fusion = start_fusion(host)
        if host in engine.origins:
            engine.origins[fusion.called_by("calls").root] = engine.origins[host]
    engine.made[fusion] = None
    called, first = _write_too(other, fusion, engine.origins)
    if called is not None:
        engine.orphans.append(called)
    after(fusion)
    elements = {n: u for u in fusion.users if (n := taken_element(u)) is not None} if readers else {}
    for changed, user in readers:
        state.replaced(changed, elements[first if changed is other else 0], user)
    engine.made.pop(other, None)
    return fusion


def _write_too(other: Instruction, fusion: Instruction, origins: Origins) -> tuple[Computation | None, int]:
    """Move `other` into the fusion as further outputs. Returns its computation, where it was a fusion, and the number of the first new output."""
    body = fusion.called_by("calls")
    body.index_users()
    given = list(zip(fusion.operands, body.parameters, strict=True))
    replaced = [parameter for operand, parameter in given if operand is other]
    given = [(operand, parameter) for operand, parameter in given if operand is not other]
    places = dict(given)
    for operand in other.operands:
        if operand not in places:
            places[operand] = parameter_for(body, len(given), operand)
            given.append((operand, places[operand]))
    made = take_in(other, [places[o] for o in other.operands], body, origins)
    for parameter in replaced:
        edit.redirect_users(parameter, made)
        edit.remove(parameter)
    for number, (_, parameter) in enumerate(given):  # an operand that the fusion was given twice has two
        parameter.parameter_number = number
    _write_tuple(body, made, origins)
    first = _lead_out(fusion, other, body)
    edit.set_operands(fusion, [operand for operand, _ in given])
    called = fused(other)
    _redirect(other, fusion, first)
    edit.remove(other)
    return called, first


def _write_tuple(body: Computation, made: Instruction, origins: Origins) -> None:
    """The root becomes a tuple of what was written and what `made` gives."""
    old = body.root
    outputs = [*_elements(old), *_elements(made)]
    root = edit.create_tuple(body, outputs, root=True)
    origins[root] = original_name(outputs[0], origins)
    for tuple_shaped in (old, made):
        if held(tuple_shaped) is not None and not tuple_shaped.users:
            edit.remove(tuple_shaped)


def _elements(root: Instruction) -> list[Instruction]:
    elements = held(root)
    if elements is not None:
        return list(elements)
    if not root.shape.is_tuple:
        return [root]
    return [edit.create_element(root, number) for number in range(len(root.shape.elements or ()))]


def _lead_out(fusion: Instruction, other: Instruction, body: Computation) -> int:
    """Give the fusion the shape of its new root; its users read elements from now on. Returns the number of the first new output."""
    before = fusion.shape
    fusion.shape = body.root.shape
    if before.is_tuple:
        return len(before.elements or ())
    users = list(fusion.users)
    was_root = fusion.is_root
    if users or was_root:
        element = edit.create_element(fusion, 0)
        for user in users:
            for position, operand in enumerate(user.operands):
                if operand is fusion:
                    edit.replace_operand(user, position, element)
        if was_root:
            edit.set_root(fusion.computation, element)
    return 1


def _redirect(other: Instruction, fusion: Instruction, first: int) -> None:
    """The users of `other` read the fusion's outputs from `first` on."""
    if not other.shape.is_tuple:
        if other.users or other.is_root:
            edit.redirect_users(other, edit.create_element(fusion, first))
        return
    for user in list(other.users):
        edit.set_operands(user, [fusion])
        edit.set_attribute(user, "index", Attribute.of(first + user.attribute("index", int)))


def is_read_by_element(instruction: Instruction) -> bool:
    """Whether nothing but get-tuple-elements reads a tuple, so that it may become a longer one."""
    if not instruction.shape.is_tuple:
        return True
    return not instruction.is_root and all(taken_element(u) is not None for u in instruction.users)
