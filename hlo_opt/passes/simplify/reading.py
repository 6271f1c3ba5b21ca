"""What rules ask of values: numbers that are known, numbers that cannot be."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from hlo_opt.ir import ElementType, Instruction
from hlo_opt.ops.reduction.reducers import monoid
from hlo_opt.ops.sets import keeps_values

Array: TypeAlias = npt.NDArray[np.generic]


def is_a(value: Instruction, *opcodes: str) -> bool:
    return value.opcode in opcodes


def known(value: Instruction) -> Array | None:
    """The elements of a constant array; None for any other value, and for one that was left out of the text."""
    literal = value.literal
    if literal is None or not value.shape.is_array or not literal.is_known:
        return None
    return np.asarray(literal.value)


def uniform(value: Instruction) -> Array | None:
    """The number that all elements of a value are, as an array of rank 0, where it is known: of constants, and of
    scalar constants in other dimensions."""
    while is_a(value, "broadcast", "reshape") and value.operands[0].shape.element_count == 1:
        value = value.operands[0]
    found = None if value.literal is None else known(value)
    if found is None or not found.size:
        return None
    flat = found.reshape(-1)
    if flat.size > 1 and flat.tobytes() != flat[:1].tobytes() * flat.size:
        return None
    return flat[0:1].reshape(())


def is_number(value: Instruction, number: float) -> bool:
    """Whether all elements are a number, and known to be; 0 is the positive zero."""
    found = uniform(value)
    if found is None or value.shape.type.kind == "pred" or not bool(found == number):
        return False
    if not value.shape.type.is_float:
        return True
    sign = bool(np.signbit(found.astype(np.float64)))
    return sign == bool(np.signbit(np.float64(number)))


def is_truth(value: Instruction, truth: bool) -> bool:
    """Whether all elements are a truth value, and known to be."""
    found = uniform(value)
    return found is not None and value.shape.type.kind == "pred" and bool(found) == truth


def is_integer(value: Instruction, number: int) -> bool:
    """As `is_number`, for integers only."""
    return value.shape.type.is_integer and is_number(value, number)


def all_ones(value: Instruction) -> bool:
    """Whether all bits of all elements are set, of integers and truth values."""
    kind = value.shape.type
    if kind.kind == "pred":
        return is_truth(value, True)
    return kind.is_integer and is_number(value, -1 if kind.kind == "signed" else (1 << kind.bits) - 1)


def no_ones(value: Instruction) -> bool:
    """Whether no bit of any element is set."""
    return is_truth(value, False) or is_integer(value, 0)


def exponent(value: Instruction) -> int | None:
    """k where all elements are 2^k, and known to be; of signed integers the greatest power is left out, which is
    negative."""
    found = uniform(value)
    if found is None or not (value.shape.type.is_integer or value.shape.type.is_float):
        return None
    number = float(found.astype(np.float64)) if value.shape.type.is_float else int(found)
    if not np.isfinite(number) or number <= 0:
        return None
    mantissa, power = np.frexp(number)
    return int(power) - 1 if mantissa == 0.5 else None


def holds_all(narrow: ElementType, wide: ElementType) -> bool:
    """Whether each value of a type is one of the other, so that converting there and back changes nothing."""
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


_MOVES = frozenset({"reshape", "broadcast", "transpose", "copy", "slice", "reverse", "bitcast", "dynamic-slice"})
_DEEPEST = 8
"""Operations that are looked through before nothing is known any more."""


def never_negative_zero(value: Instruction) -> bool:
    """Whether no element can be -0: a square, an absolute value, an exponential, a sum that starts at +0, what was no
    float, a number that is known."""
    for _ in range(_DEEPEST):
        if not (value.shape.type.is_float or value.shape.type.is_complex):
            return True
        if not keeps_values(value, _MOVES):
            break
        value = value.operands[0]
    if value.shape.type.is_complex:
        return False
    found = uniform(value)
    if found is not None:
        return not (bool(found == 0) and bool(np.signbit(found.astype(np.float64))))
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
    """Whether it is a known number, a square or such: what is asked of operands goes no deeper than one operation."""
    return uniform(value) is not None or is_a(value, "abs", "exponential", "logistic", "iota")


def never_negative(value: Instruction, deepest: int = 2) -> bool:
    """Whether no element is below zero, or -0; it may be NaN."""
    for _ in range(_DEEPEST):
        if not keeps_values(value, _MOVES):
            break
        value = value.operands[0]
    if value.shape.type.kind in ("unsigned", "pred"):
        return True
    if not value.shape.type.is_float:
        return False
    if is_a(value, "abs", "exponential", "logistic"):
        return True
    found = uniform(value)
    if found is not None:
        return not bool(np.signbit(found.astype(np.float64)))
    if is_a(value, "select"):
        return deepest > 0 and all(never_negative(o, deepest - 1) for o in value.operands[1:])
    return is_a(value, "multiply") and value.operands[0] is value.operands[1]


def loses_sign(fold: Instruction) -> bool:
    """Whether a fold of single elements may change the sign of a zero: 0 + -0 is 0."""
    value, start = fold.operands[0], uniform(fold.operands[-1])
    if monoid(fold.called_by("to_apply")) != "add" or not value.shape.type.is_float:
        return False
    starts_negative = start is not None and bool(np.signbit(start.astype(np.float64)))
    return not starts_negative and not never_negative_zero(value)


def bounds(value: Instruction, deepest: int = 4) -> tuple[int, int] | None:
    """The least and the greatest number that integers can be, where that is less than their type allows."""
    while keeps_values(value, _MOVES):
        value = value.operands[0]
    kind, found = value.shape.type, known(value)
    if not kind.is_integer or not deepest:
        return None
    if found is not None:
        return (int(found.min()), int(found.max())) if 0 < found.size <= _MOST_READ else None
    if is_a(value, "iota"):
        last = value.shape.dimensions[value.attribute("iota_dimension", int)] - 1
        return (0, last) if 0 <= last <= kind.limits[1] else None
    if is_a(value, "remainder", "and"):
        return _bounds_of_rest(value, deepest)
    if is_a(value, "add", "multiply", "maximum", "minimum", "clamp"):
        sides = [bounds(o, deepest - 1) for o in value.operands]
        if is_a(value, "clamp"):
            low, _, high = sides
            return (low[0], high[1]) if low is not None and high is not None and low[1] <= high[0] else None
        if sides[0] is None or sides[1] is None:
            return None
        (a, b), (c, d) = sides[0], sides[1]
        ends = {
            "add": (a + c, b + d),
            "multiply": (min(a * c, a * d, b * c, b * d), max(a * c, a * d, b * c, b * d)),
            "maximum": (max(a, c), max(b, d)),
            "minimum": (min(a, c), min(b, d)),
        }[value.opcode]
        least, most = kind.limits
        return ends if least <= ends[0] and ends[1] <= most else None
    return None


_MOST_READ = 1 << 16
"""Elements of a constant that are looked at."""


def _bounds_of_rest(value: Instruction, deepest: int) -> tuple[int, int] | None:
    """Of x % n and x & n for a known n > 0; a remainder has the sign of x."""
    number = uniform(value.operands[1])
    if number is None or int(number) <= 0:
        return None
    most = int(number) - is_a(value, "remainder")
    if is_a(value, "and") or value.shape.type.kind == "unsigned":
        return 0, most
    inner = bounds(value.operands[0], deepest - 1)
    return (0 if inner is not None and inner[0] >= 0 else -most, most)
