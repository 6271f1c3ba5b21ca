"""Rules for tuples that are built only to be taken apart."""

from __future__ import annotations

from hlo_opt.ir import Instruction
from hlo_opt.ops.sets import tuple_elements, tuple_index
from hlo_opt.passes.simplify.rule import rule
from hlo_opt.passes.simplify.site import Site


@rule(
    "element-of-tuple",
    "get-tuple-element",
    "element n of tuple(x0, x1, ..) = xn",
    "a tuple keeps its values",
    of="tuple",
)
def element_of_tuple(i: Instruction, site: Site) -> Instruction | None:
    number, values = tuple_index(i), tuple_elements(i.operands[0])
    return None if number is None or values is None else values[number]


@rule("tuple-of-elements", "tuple", "tuple of all elements of x, in order = x", "it is put together again")
def tuple_of_elements(i: Instruction, site: Site) -> Instruction | None:
    if not i.operands:
        return None
    first = i.operands[0]
    if tuple_index(first) is None:
        return None
    whole = first.operands[0]
    if whole.shape.elements is None or len(whole.shape.elements) != len(i.operands) or i.is_root:
        return None
    for number, operand in enumerate(i.operands):
        if tuple_index(operand) != number or operand.operands[0] is not whole:
            return None
    return whole
