"""Whether a module is as it was when a copy of it was made: a proof that needs no value numbering."""

from __future__ import annotations

from hlo_opt.ir import Called, Computation, Instruction, Module
from hlo_opt.ir.facts import SNAPSHOT


def identical(one: Module, other: Module) -> bool:
    """Whether a module and a copy have the same header, and the same computations of the same instructions in the same
    order, names aside. A constant is the same where both share its literal, as copies do. False says nothing."""
    if one.attributes != other.attributes or len(one.computations) != len(other.computations):
        return False
    there = dict(zip(one.computations, other.computations, strict=True))
    if there[one.entry] is not other.entry:
        return False
    if any(len(a.instructions) != len(b.instructions) for a, b in there.items()):  # seen at once
        return False
    return all(_same(a, b, there) for a, b in there.items())


def _same(one: Computation, other: Computation, there: dict[Computation, Computation]) -> bool:
    if one.attributes != other.attributes:
        return False
    if other.facts.get(SNAPSHOT) is one and [there.get(c) for c in one.called] == other.called:
        return True  # not edited since
    images: dict[Instruction, Instruction] = {}
    for a, b in zip(one.instructions, other.instructions, strict=True):
        images[a] = b
        if a.opcode != b.opcode or a.parameter_number != b.parameter_number or a.literal is not b.literal:
            return False
        if not (a.shape is b.shape or a.shape == b.shape) or len(a.operands) != len(b.operands):
            return False
        if [images.get(o) for o in a.operands] != b.operands:
            return False
        if [images.get(p) for p in a.control_predecessors] != b.control_predecessors:
            return False
        if not _same_attributes(a, b, there):
            return False
    return images[one.root] is other.root


def _same_attributes(one: Instruction, other: Instruction, there: dict[Computation, Computation]) -> bool:
    if one.attributes.keys() != other.attributes.keys():
        return False
    for name, value in one.attributes.items():
        theirs = other.attributes[name]
        if isinstance(value, Called):
            if not isinstance(theirs, Called) or value.is_list != theirs.is_list:
                return False
            if tuple([there.get(c) for c in value.computations]) != tuple(theirs.computations):
                return False
        elif value is not theirs and (isinstance(theirs, Called) or value.text != theirs.text):
            return False
    return True
