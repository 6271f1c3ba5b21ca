"""Value bounds of operations, for drawing inputs. Rules beside the op table.

Bounds are those of real arithmetic: they ignore NaN and rounding, so correctness must not depend on them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence

from hlo_opt.ir import Instruction, Shape
from hlo_opt.ops.wishes import ANYTHING, Bounds, reducer

BoundsRule = Callable[[Instruction, Sequence[Bounds]], Bounds]

LARGEST_CONSTANT = 1 << 16
"""The most elements of a constant that are examined."""


def bounds_of(instruction: Instruction, operands: Sequence[Bounds]) -> Bounds:
    """Bounds of an operation with one array result, from its operands'; (-inf, inf) where unknown."""
    if not instruction.shape.is_array:
        return ANYTHING
    rule = _RULES.get(instruction.opcode)
    low, high = ANYTHING if rule is None else rule(instruction, operands)
    if math.isnan(low) or math.isnan(high):
        low, high = ANYTHING
    least, most = type_bounds(instruction.shape)
    if low < least or high > most:  # the integer may wrap around
        return least, most
    return low, high


def type_bounds(shape: Shape) -> Bounds:
    """The range of an integer type; (-inf, inf) for other types."""
    if not shape.is_array:
        return ANYTHING
    element_type = shape.type
    if element_type.kind == "pred":
        return 0.0, 1.0
    if element_type.is_integer:
        low, high = element_type.limits
        return float(low), float(high)
    return ANYTHING


def _constant(i: Instruction, operands: Sequence[Bounds]) -> Bounds:
    if i.literal is None or i.literal.is_elided or i.shape.type.is_complex or i.shape.element_count > LARGEST_CONSTANT:
        return ANYTHING
    value = i.literal.value
    if isinstance(value, tuple) or not value.size:
        return ANYTHING
    if value.dtype.kind == "b":
        return float(value.min()), float(value.max())
    wide = value.astype(float)
    return float(wide.min()), float(wide.max())


def _iota(i: Instruction, operands: Sequence[Bounds]) -> Bounds:
    dimension = i.value("iota_dimension", 0)
    sizes = i.shape.dimensions
    if not isinstance(dimension, int) or dimension >= len(sizes):
        return ANYTHING
    last = max(sizes[dimension] - 1, 0)
    if i.shape.type.is_integer and last > i.shape.type.limits[1]:  # it wraps around
        return ANYTHING
    return 0.0, float(last)


def _first(i: Instruction, operands: Sequence[Bounds]) -> Bounds:
    return operands[0]


def _hull(i: Instruction, operands: Sequence[Bounds]) -> Bounds:
    return min(low for low, _ in operands), max(high for _, high in operands)


def _add(i: Instruction, operands: Sequence[Bounds]) -> Bounds:
    (a, b), (c, d) = operands
    return a + c, b + d


def _subtract(i: Instruction, operands: Sequence[Bounds]) -> Bounds:
    (a, b), (c, d) = operands
    return a - d, b - c


def _multiply(i: Instruction, operands: Sequence[Bounds]) -> Bounds:
    (a, b), (c, d) = operands
    corners = [x * y if x and y else 0.0 for x in (a, b) for y in (c, d)]
    low, high = min(corners), max(corners)
    return (max(low, 0.0), high) if i.operands[0] is i.operands[1] else (low, high)


def _divide(i: Instruction, operands: Sequence[Bounds]) -> Bounds:
    (a, b), (c, d) = operands
    if not c > 0:
        return (0.0, math.inf) if a >= 0 and c >= 0 else ANYTHING
    corners = [0.0 if math.isinf(y) else x / y for x in (a, b) for y in (c, d)]
    return min(corners), max(corners)


def _abs(i: Instruction, operands: Sequence[Bounds]) -> Bounds:
    low, high = operands[0]
    return (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))


def _maximum(i: Instruction, operands: Sequence[Bounds]) -> Bounds:
    return max(low for low, _ in operands), max(high for _, high in operands)


def _minimum(i: Instruction, operands: Sequence[Bounds]) -> Bounds:
    return min(low for low, _ in operands), min(high for _, high in operands)


def _clamp(i: Instruction, operands: Sequence[Bounds]) -> Bounds:
    return max(operands[0][0], min(operands[1][0], operands[2][0])), min(
        operands[2][1], max(operands[1][1], operands[0][1])
    )


def _and(i: Instruction, operands: Sequence[Bounds]) -> Bounds:
    if any(low < 0 for low, _ in operands):
        return ANYTHING
    return 0.0, min(high for _, high in operands)


def _or(i: Instruction, operands: Sequence[Bounds]) -> Bounds:
    """Or of non-negative integers keeps all bits, and never exceeds the sum."""
    if any(low < 0 for low, _ in operands):
        return ANYTHING
    return max(low for low, _ in operands), sum(high for _, high in operands)


def _bitcast_convert(i: Instruction, operands: Sequence[Bounds]) -> Bounds:
    """Positive floats order like their bits."""
    source, (low, high) = i.operands[0].shape.type, operands[0]
    words = {("u32", "f32"): ("<I", "<f"), ("u64", "f64"): ("<Q", "<d"), ("u16", "f16"): ("<H", "<e")}
    formats = words.get((source.name, i.shape.type.name))
    if formats is None or high >= 2.0 ** (source.bits - 1):
        return ANYTHING
    word, real = formats
    ends = [struct.unpack(real, struct.pack(word, int(end)))[0] for end in (low, high)]
    return ends[0], ends[1]


def _shift_right(i: Instruction, operands: Sequence[Bounds]) -> Bounds:
    (_, high), (amount, most) = operands
    bits = i.shape.type.bits
    if i.shape.type.kind != "unsigned" or amount != most or not 0 <= amount < bits:
        return ANYTHING
    return 0.0, float(int(min(high, 2.0**bits - 1)) >> int(amount))


def _monotonic(function: Callable[[float], float], low: float, high: float) -> BoundsRule:
    """The rule of a non-decreasing function with values in [low, high]."""

    def rule(i: Instruction, operands: Sequence[Bounds]) -> Bounds:
        if i.shape.type.is_complex:
            return ANYTHING
        ends = []
        for end, limit in zip(operands[0], (low, high), strict=True):
            try:
                ends.append(min(max(function(end), low), high))
            except (ValueError, OverflowError):
                ends.append(limit)
        return ends[0], ends[1]

    return rule


def _within(low: float, high: float) -> BoundsRule:
    return lambda i, operands: (low, high)


def _power(i: Instruction, operands: Sequence[Bounds]) -> Bounds:
    exponent, most = operands[1]
    if exponent == most and exponent == 2:
        return 0.0, math.inf
    return (0.0, math.inf) if operands[0][0] >= 0 else ANYTHING


def _reduce(i: Instruction, operands: Sequence[Bounds]) -> Bounds:
    if len(operands) != 2:
        return ANYTHING
    with_, (values, init) = reducer(i), operands
    if with_ in ("maximum", "minimum"):
        return (_maximum if with_ == "maximum" else _minimum)(i, operands)
    if with_ == "add" and values[0] >= 0 and init[0] >= 0:
        return 0.0, math.inf
    return ANYTHING


_RULES: Mapping[str, BoundsRule] = {
    **dict.fromkeys(
        ("reshape", "transpose", "broadcast", "slice", "copy", "reverse", "convert"), lambda i, operands: operands[0]
    ),
    **dict.fromkeys(
        ("reduce-precision", "gather", "dynamic-slice", "sort", "all-gather", "collective-permute"), _first
    ),
    **dict.fromkeys(("concatenate", "pad"), _hull),
    **dict.fromkeys(("sine", "cosine", "tanh", "erf", "sign"), _within(-1.0, 1.0)),
    **dict.fromkeys(("popcnt", "count-leading-zeros"), _within(0.0, 64.0)),
    **dict.fromkeys(("reduce", "reduce-window"), _reduce),
    "abs": _abs,
    "add": _add,
    "and": _and,
    "bitcast-convert": _bitcast_convert,
    "ceil": _monotonic(math.ceil, -math.inf, math.inf),
    "clamp": _clamp,
    "constant": _constant,
    "divide": _divide,
    "exponential": _monotonic(math.exp, 0.0, math.inf),
    "exponential-minus-one": _monotonic(math.expm1, -1.0, math.inf),
    "floor": _monotonic(math.floor, -math.inf, math.inf),
    "iota": _iota,
    "log": _monotonic(math.log, -math.inf, math.inf),
    "logistic": _within(0.0, 1.0),
    "maximum": _maximum,
    "minimum": _minimum,
    "multiply": _multiply,
    "negate": lambda i, operands: (-operands[0][1], -operands[0][0]),
    "or": _or,
    "power": _power,
    "rsqrt": _within(0.0, math.inf),
    "select": lambda i, operands: _hull(i, operands[1:]),
    "shift-right-logical": _shift_right,
    "sqrt": _monotonic(math.sqrt, 0.0, math.inf),
    "subtract": _subtract,
}
