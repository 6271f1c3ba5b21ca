"""Questions that rules ask about values: which number a value is, and which numbers it cannot be."""

from __future__ import annotations

import numpy as np

from hlo_opt.ir import ElementType, Instruction
from hlo_opt.ir.values import Array
from hlo_opt.ops.reduction.reducers import monoid
from hlo_opt.ops.sets import keeps_values


def is_a(value: Instruction, *opcodes: str) -> bool:
    return value.opcode in opcodes


def negated(value: Instruction) -> Instruction | None:
    """x where a value is -x. f8e8m0fnu has no signs: whatever is negated in it is NaN."""
    return value.operands[0] if value.opcode == "negate" and value.shape.type.name != "f8e8m0fnu" else None


def known(value: Instruction) -> Array | None:
    """The elements of a constant array; None for any other value, and for an elided constant."""
    literal = value.literal
    if literal is None or not value.shape.is_array or not literal.is_known:
        return None
    return np.asarray(literal.value)


NUMBERS = "constant broadcast reshape"
"""Opcodes of what may be one known number: see `uniform`."""


def uniform(value: Instruction) -> Array | None:
    """The number that all elements of a value are, as an array of rank 0, for constants and broadcast scalar constants;
    else None."""
    while is_a(value, "broadcast", "reshape") and value.operands[0].shape.element_count == 1:
        value = value.operands[0]
    elements = None if value.literal is None else known(value)
    if elements is None or not elements.size:
        return None
    flat = elements.reshape(-1)
    if flat.size > 1 and flat.tobytes() != flat[:1].tobytes() * flat.size:
        return None
    return flat[0:1].reshape(())


def is_number(value: Instruction, number: float) -> bool:
    """Whether all elements are known to be a number; 0 means positive zero."""
    element = uniform(value)
    if element is None or value.shape.type.kind == "pred" or not bool(element == number):
        return False
    if not value.shape.type.is_float:
        return True
    sign = bool(np.signbit(element.astype(np.float64)))
    return sign == bool(np.signbit(np.float64(number)))


def is_truth(value: Instruction, truth: bool) -> bool:
    """Whether all elements are known to be a truth value."""
    element = uniform(value)
    return element is not None and value.shape.type.kind == "pred" and bool(element) == truth


def is_integer(value: Instruction, number: int) -> bool:
    """As `is_number`, for integers only."""
    return value.shape.type.is_integer and is_number(value, number)


def all_ones(value: Instruction) -> bool:
    """Whether all bits of all elements, integers or truth values, are known to be set."""
    kind = value.shape.type
    if kind.kind == "pred":
        return is_truth(value, True)
    return kind.is_integer and is_number(value, -1 if kind.kind == "signed" else (1 << kind.bits) - 1)


def no_ones(value: Instruction) -> bool:
    """Whether all bits of all elements are known to be 0."""
    return is_truth(value, False) or is_integer(value, 0)


def exponent(value: Instruction) -> int | None:
    """k if all elements are known to be 2^k; without the greatest power of a signed integer, which is negative. Else
    None."""
    element = uniform(value)
    if element is None or not (value.shape.type.is_integer or value.shape.type.is_float):
        return None
    number = float(element.astype(np.float64)) if value.shape.type.is_float else int(element)
    if not np.isfinite(number) or number <= 0:
        return None
    mantissa, power = np.frexp(number)
    return int(power) - 1 if mantissa == 0.5 else None


def holds_all(narrow: ElementType, wide: ElementType) -> bool:
    """Whether a type holds each value of another one, so that converting there and back changes nothing."""
    if narrow == wide:
        return True
    if narrow.kind == "pred":
        return wide.is_integer or (wide.is_float and wide.bits >= 16)
    if narrow.is_integer and wide.is_integer:
        low, high = narrow.limits
        least, most = wide.limits
        return least <= low and high <= most
    if narrow.is_integer and wide.is_float:
        digits = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}.get(wide.name, 0)
        return narrow.bits - (narrow.kind == "signed") <= digits and max(narrow.limits) < 2**15
    if narrow.is_float and wide.is_float:
        return (narrow.name, wide.name) in _WIDER
    return False


_WIDER = {(n, w) for w in ("f32", "f64") for n in ("f16", "bf16", "f8e5m2", "f8e4m3fn")} | {
    ("f32", "f64"),
    ("f8e5m2", "f16"),
    ("f8e4m3fn", "f16"),
    ("f8e4m3fn", "bf16"),
    ("f8e5m2", "bf16"),
}


MOVES = frozenset({"reshape", "broadcast", "transpose", "copy", "slice", "reverse", "bitcast", "dynamic-slice"})
"""Operations whose elements are elements of their first operand."""
_DEEPEST = 8
"""The most operations that are followed before nothing is known."""


def never_negative_zero(value: Instruction) -> bool:
    """Whether no element can be -0: a square, an absolute value, an exponential, a sum that starts at +0, a converted
    integer, a known number."""
    for _ in range(_DEEPEST):
        if not (value.shape.type.is_float or value.shape.type.is_complex):
            return True
        if not keeps_values(value, MOVES):
            break
        value = value.operands[0]
    if value.shape.type.is_complex:
        return False
    element = uniform(value)
    if element is not None:
        return not (bool(element == 0) and bool(np.signbit(element.astype(np.float64))))
    if is_a(value, "abs", "exponential", "logistic", "iota"):
        return True
    if is_a(value, "convert"):
        return not value.operands[0].shape.type.is_float
    if is_a(value, "multiply"):
        return value.operands[0] is value.operands[1]
    if is_a(value, "add"):  # x + y is -0 only where both are
        return any(_is_plain(o) and never_negative_zero(o) for o in value.operands)
    if is_a(value, "reduce"):
        return (
            value.shape.is_array
            and monoid(value.called_by("to_apply")) == "add"
            and _is_plain(value.operands[1])
            and never_negative_zero(value.operands[1])
        )
    return False


def _is_plain(value: Instruction) -> bool:
    """Whether it is a known number, a square or such; operands are asked one level deep."""
    return uniform(value) is not None or is_a(value, "abs", "exponential", "logistic", "iota")


def never_negative(value: Instruction, deepest: int = 2) -> bool:
    """Whether no element can be below zero, or -0; it may be NaN."""
    for _ in range(_DEEPEST):
        if not keeps_values(value, MOVES):
            break
        value = value.operands[0]
    if value.shape.type.kind in ("unsigned", "pred"):
        return True
    if not value.shape.type.is_float:
        return False
    if is_a(value, "abs", "exponential", "logistic"):
        return True
    element = uniform(value)
    if element is not None:
        return not bool(np.signbit(element.astype(np.float64)))
    if is_a(value, "select"):
        return deepest > 0 and all(never_negative(o, deepest - 1) for o in value.operands[1:])
    return is_a(value, "multiply") and value.operands[0] is value.operands[1]


def loses_sign(fold: Instruction) -> bool:
    """Whether a fold of one element may change the sign of a zero: 0 + -0 is 0."""
    value, start = fold.operands[0], uniform(fold.operands[-1])
    if monoid(fold.called_by("to_apply")) != "add" or not value.shape.type.is_float:
        return False
    starts_negative = start is not None and bool(np.signbit(start.astype(np.float64)))
    return not starts_negative and not never_negative_zero(value)
