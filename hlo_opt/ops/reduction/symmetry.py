"""Whether a reducer of two scalars commutes, so that elements may be folded in any order.

The values of both calls, `f(x, y)` and `f(y, x)`, are numbered, equal ones alike. Operands of commutative operations
are sorted; a difference is the negative of the other one, which `abs` and comparisons for equality do not see. So the
reducer of `cumlogsumexp` commutes. A reducer that commutes for another reason is not recognised.
"""

from __future__ import annotations

from hlo_opt.ir import Computation, Instruction
from hlo_opt.ops.spec import OpKind, find

SignedNumber = tuple[int, bool]
"""The number of a value, and whether its negative is meant."""


def commutes(reducer: Computation) -> bool:
    """Whether the reducer has two parameters and one result, is elementwise, and gives the same for both orders."""
    if len(reducer.parameters) != 2 or not reducer.root.shape.is_array or not all(map(_is_plain, reducer.instructions)):
        return False
    numbers: dict[object, int] = {}
    return _result(reducer, (0, 1), numbers) == _result(reducer, (1, 0), numbers)


def _is_plain(i: Instruction) -> bool:
    if i.parameter_number is not None or i.literal is not None:
        return i.literal is None or not i.literal.is_elided
    spec = find(i.opcode)
    return spec is not None and spec.kind is OpKind.ELEMENTWISE and not list(i.called())


def _result(reducer: Computation, order: tuple[int, int], numbers: dict[object, int]) -> SignedNumber:
    """The result if parameter `k` is the value `order[k]`. `numbers` gains the values on the way."""
    values: dict[Instruction, SignedNumber] = {}
    for i in reducer.instructions:
        if i.parameter_number is not None:
            values[i] = numbers.setdefault(order[i.parameter_number], len(numbers)), False
        elif i.literal is not None:
            values[i] = numbers.setdefault((str(i.shape), str(i.literal.value)), len(numbers)), False
        else:
            values[i] = _of_operation(i, [values[o] for o in i.operands], numbers)
    return values[reducer.root]


def _of_operation(i: Instruction, operands: list[SignedNumber], numbers: dict[object, int]) -> SignedNumber:
    spec = find(i.opcode)
    is_equality = i.opcode == "compare" and i.word("direction") in ("EQ", "NE")
    if i.opcode == "negate":
        number, is_negative = operands[0]
        return number, not is_negative
    if i.opcode == "abs" or (is_equality and all(is_negative for _, is_negative in operands)):
        operands = [(number, False) for number, _ in operands]
    is_negative = i.opcode == "subtract" and operands[1] < operands[0]
    if is_negative or is_equality or (spec is not None and spec.commutative):
        operands = sorted(operands)
    attributes = sorted(f"{name}={value}" for name, value in i.attributes.items())
    key = (i.opcode, str(i.shape), *attributes, *operands)
    return numbers.setdefault(key, len(numbers)), is_negative
