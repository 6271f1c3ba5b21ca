"""Rules for arithmetic with neutral numbers, and for operations that undo each other."""

from __future__ import annotations

import numpy as np

from hlo_opt.ir import Instruction
from hlo_opt.passes.simplify.reading import (
    NUMBERS,
    exponent,
    is_a,
    is_number,
    negated,
    never_negative,
    never_negative_zero,
    uniform,
)
from hlo_opt.passes.simplify.rule import rule
from hlo_opt.passes.simplify.site import Site

_IEEE = "IEEE 754: the operation is defined by the exact result, which is the same"


def _other(i: Instruction, number: float) -> Instruction | None:
    """The other one of two operands, if one is this number."""
    left, right = i.operands
    if is_number(right, number):
        return left
    return right if is_number(left, number) else None


def _is_real(i: Instruction) -> bool:
    return i.shape.type.is_float or i.shape.type.is_integer


@rule("add-zero", "add", "x + -0 = x; x + 0 = x for integers and what is never -0", "only -0 + 0 is not -0", of=NUMBERS)
def add_zero(i: Instruction, site: Site) -> Instruction | None:
    if i.shape.type.is_integer:
        return _other(i, 0)
    if not i.shape.type.is_float:
        return None
    left = _other(i, -0.0)
    if left is not None:
        return left
    other = _other(i, 0.0)
    return other if other is not None and never_negative_zero(other) else None


@rule(
    "add-positive-zero", "add", "x + 0 = x", "as it is in real numbers", differs="-0 + 0 is 0, and stays -0", of=NUMBERS
)
def add_positive_zero(i: Instruction, site: Site) -> Instruction | None:
    return _other(i, 0.0) if i.shape.type.is_float else None


@rule("subtract-zero", "subtract", "x - 0 = x", "-0 - 0 is -0, too", of=NUMBERS)
def subtract_zero(i: Instruction, site: Site) -> Instruction | None:
    return i.operands[0] if _is_real(i) and is_number(i.operands[1], 0.0) else None


@rule(
    "subtract-from-zero",
    "subtract",
    "-0 - x = -x; 0 - x = -x for integers",
    "-0 - 0 is -0, and -0 - -0 is 0",
    of=NUMBERS,
)
def subtract_from_zero(i: Instruction, site: Site) -> Instruction | None:
    zero = -0.0 if i.shape.type.is_float else 0
    if not _is_real(i) or not is_number(i.operands[0], zero):
        return None
    return site.elementwise("negate", i.operands[1])


@rule("multiply-one", "multiply", "x * 1 = x", _IEEE, of=NUMBERS)
def multiply_one(i: Instruction, site: Site) -> Instruction | None:
    return _other(i, 1) if _is_real(i) else None


@rule(
    "multiply-minus-one",
    "multiply",
    "x * -1 = -x",
    "only the sign changes; of the least integer it does not, in both",
    of=NUMBERS,
)
def multiply_minus_one(i: Instruction, site: Site) -> Instruction | None:
    if not (i.shape.type.is_float or i.shape.type.kind == "signed"):
        return None
    other = _other(i, -1)
    return None if other is None else site.elementwise("negate", other)


@rule(
    "factors-together",
    "multiply",
    "(x * a) * b = x * (a * b) for known a = 2^k, k > 0, and |b| >= 1",
    "x * 2^k rounds nothing, and what overflows there does so later, too",
    of="multiply",
)
def factors_together(i: Instruction, site: Site) -> Instruction | None:
    for inner, outer in (i.operands, i.operands[::-1]):
        last = uniform(outer)
        if last is None or i.shape.type.name not in _LARGEST or not is_a(inner, "multiply"):
            continue
        for value, factor in (inner.operands, inner.operands[::-1]):
            k = exponent(factor)
            if k is None or k <= 0 or uniform(value) is not None:
                continue
            both = float(last.astype(np.float64)) * 2.0**k
            if abs(both) >= 2.0**k and np.frexp(abs(both))[1] <= _LARGEST[i.shape.type.name]:
                return site.elementwise("multiply", value, site.full(i.shape, both))
    return None


@rule("divide-one", "divide", "x / 1 = x", _IEEE, of=NUMBERS)
def divide_one(i: Instruction, site: Site) -> Instruction | None:
    return i.operands[0] if _is_real(i) and is_number(i.operands[1], 1) else None


@rule(
    "divide-by-power",
    "divide",
    "x / 2^k = x * 2^-k",
    "2^-k is a number of the type, so both round the same exact result",
    of=NUMBERS,
)
def divide_by_power(i: Instruction, site: Site) -> Instruction | None:
    kind, k = i.shape.type, exponent(i.operands[1])
    if kind.name not in ("f16", "bf16", "f32", "f64") or k is None or k == 0:
        return None
    if not -_LARGEST[kind.name] < k < _LARGEST[kind.name]:
        return None
    return site.elementwise("multiply", i.operands[0], site.full(i.operands[1].shape, 2.0**-k))


_LARGEST = {"f16": 14, "bf16": 126, "f32": 126, "f64": 1022}
"""The largest exponent of 2, by type, such that the reciprocal of the power is a normal number."""


@rule(
    "divide-by-constant",
    "divide",
    "x / c = x * (1 / c)",
    "as it is in real numbers",
    differs="rounds twice: up to a unit in the last place",
)
def divide_by_constant(i: Instruction, site: Site) -> Instruction | None:
    divisor = uniform(i.operands[1])
    if divisor is None or i.shape.type.name not in ("f32", "f64"):
        return None
    with np.errstate(all="ignore"):
        reciprocal = np.ones((), divisor.dtype) / divisor
    if not np.isfinite(reciprocal) or reciprocal == 0:
        return None
    return site.elementwise("multiply", i.operands[0], site.full(i.operands[1].shape, reciprocal))


@rule("negate-negate", "negate", "-(-x) = x", "the sign changes twice")
def negate_negate(i: Instruction, site: Site) -> Instruction | None:
    return negated(i.operands[0])


@rule("negate-subtract", "negate", "-(x - y) = y - x for integers", "integers wrap around in both")
def negate_subtract(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not i.shape.type.is_integer or not is_a(inner, "subtract"):
        return None
    return site.elementwise("subtract", inner.operands[1], inner.operands[0])


@rule("add-negated", "add", "x + -y = x - y", "subtraction is the addition of the opposite", of="negate")
def add_negated(i: Instruction, site: Site) -> Instruction | None:
    for value, other in (i.operands, i.operands[::-1]):
        opposite = negated(other)
        if opposite is not None:
            return site.elementwise("subtract", value, opposite)
    return None


@rule("subtract-negated", "subtract", "x - -y = x + y", "subtraction is the addition of the opposite", of="negate")
def subtract_negated(i: Instruction, site: Site) -> Instruction | None:
    left, opposite = i.operands[0], negated(i.operands[1])
    return None if opposite is None else site.elementwise("add", left, opposite)


@rule(
    "two-negated",
    "multiply divide",
    "-x * -y = x * y, -x / -y = x / y",
    "two signs change",
    of="negate",
)
def two_negated(i: Instruction, site: Site) -> Instruction | None:
    left, right = map(negated, i.operands)
    if left is None or right is None:
        return None
    if not (i.shape.type.is_float or (i.shape.type.is_integer and is_a(i, "multiply"))):
        return None
    return site.elementwise(i.opcode, left, right)


@rule("abs-of-sign", "abs", "|-x| = |x|, ||x|| = |x|", "the absolute value does not hang on the sign")
def abs_of_sign(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if is_a(inner, "abs") and inner.shape.same_values(i.shape):
        return inner
    opposite = negated(inner)
    if opposite is None or not i.shape.type.is_float:
        return None
    return site.elementwise("abs", opposite)


@rule("abs-of-square", "abs", "|x * x| = x * x, |exp x| = exp x", "the value has no sign to lose")
def abs_of_square(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    return inner if inner.shape.same_values(i.shape) and never_negative(inner) else None


@rule("square-of-abs", "multiply", "|x| * |x| = x * x, -x * -x = x * x", "the sign comes in twice", of="abs")
def square_of_abs(i: Instruction, site: Site) -> Instruction | None:
    left, right = i.operands
    if left is not right or not _is_real(i) or not is_a(left, "abs") or left.operands[0].shape.type != i.shape.type:
        return None
    return site.elementwise("multiply", left.operands[0], left.operands[0])


@rule(
    "square-of-root",
    "multiply",
    "sqrt x * sqrt x = x where x is an absolute value or such",
    "as it is in real numbers; no x is -0 or below",
    of="sqrt",
    differs="the root and the product round no more: up to two units in the last place",
)
def square_of_root(i: Instruction, site: Site) -> Instruction | None:
    left, right = i.operands
    if left is not right or not i.shape.type.is_float or not is_a(left, "sqrt"):
        return None
    return left.operands[0] if never_negative(left.operands[0]) else None


@rule("even-of-sign", "cosine", "cos -x = cos x, cos |x| = cos x", "cosine is even: it looks at no sign")
def even_of_sign(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    value = inner.operands[0] if is_a(inner, "abs") else negated(inner)
    if value is None or not i.shape.type.is_float or value.shape.type != i.shape.type:
        return None
    return site.again(i, [value])


@rule("power-one", "power", "x^1 = x", "pow(x, 1) is x, for NaN and infinities, too (C99, F.9.4.4)")
def power_one(i: Instruction, site: Site) -> Instruction | None:
    return i.operands[0] if i.shape.type.is_float and is_number(i.operands[1], 1) else None


@rule("power-zero", "power", "x^0 = 1", "pow(x, 0) is 1, for NaN, too (C99, F.9.4.4)")
def power_zero(i: Instruction, site: Site) -> Instruction | None:
    if not i.shape.type.is_float or not (is_number(i.operands[1], 0.0) or is_number(i.operands[1], -0.0)):
        return None
    return site.full(i.shape, 1)


@rule(
    "power-two",
    "power",
    "x^2 = x * x",
    "HLO leaves the last places of a power open, and x * x is the exact power, rounded",
)
def power_two(i: Instruction, site: Site) -> Instruction | None:
    if not i.shape.type.is_float or not is_number(i.operands[1], 2):
        return None
    return site.elementwise("multiply", i.operands[0], i.operands[0])


@rule(
    "power-minus-one",
    "power",
    "x^-1 = 1 / x",
    "HLO leaves the last places of a power open, and 1 / x is the exact one, rounded",
)
def power_minus_one(i: Instruction, site: Site) -> Instruction | None:
    if not i.shape.type.is_float or not is_number(i.operands[1], -1):
        return None
    return site.elementwise("divide", site.full(i.shape, 1), i.operands[0])


@rule(
    "power-three",
    "power",
    "x^3 = x * x * x",
    "as it is in real numbers",
    differs="rounds twice, and x * x may overflow or vanish first",
)
def power_three(i: Instruction, site: Site) -> Instruction | None:
    if not i.shape.type.is_float or not is_number(i.operands[1], 3):
        return None
    x = i.operands[0]
    return site.elementwise("multiply", x, site.elementwise("multiply", x, x))


@rule(
    "power-half",
    "power",
    "x^0.5 = sqrt x",
    "as it is in real numbers",
    differs="of -0 and of -infinity: 0 and infinity become -0 and NaN",
)
def power_half(i: Instruction, site: Site) -> Instruction | None:
    if not i.shape.type.is_float or not is_number(i.operands[1], 0.5):
        return None
    return site.elementwise("sqrt", i.operands[0])


@rule(
    "power-half-of-size",
    "power",
    "x^0.5 = sqrt x where x is an absolute value or such",
    "HLO leaves the last places of both open, and no x is -0 or below",
)
def power_half_of_size(i: Instruction, site: Site) -> Instruction | None:
    if not i.shape.type.is_float or not is_number(i.operands[1], 0.5) or not never_negative(i.operands[0]):
        return None
    return site.elementwise("sqrt", i.operands[0])


@rule(
    "part-of-complex", "real imag", "real (complex x, y) = x, imag (complex x, y) = y", "the parts are kept as they are"
)
def part_of_complex(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "complex"):
        return None
    return inner.operands[1 if is_a(i, "imag") else 0]


@rule("complex-of-parts", "complex", "complex (real z), (imag z) = z", "the parts are kept as they are")
def complex_of_parts(i: Instruction, site: Site) -> Instruction | None:
    left, right = i.operands
    if not is_a(left, "real") or not is_a(right, "imag") or left.operands[0] is not right.operands[0]:
        return None
    return left.operands[0] if left.operands[0].shape.same_values(i.shape) else None


@rule("real-of-real", "real", "real x = x for real x", "it has no other part")
def real_of_real(i: Instruction, site: Site) -> Instruction | None:
    return i.operands[0] if i.operands[0].shape.same_values(i.shape) else None


@rule("extreme-of-itself", "maximum minimum and or", "max(x, x) = x, and so on", "one of two equal values is the value")
def extreme_of_itself(i: Instruction, site: Site) -> Instruction | None:
    left, right = i.operands
    return left if left is right else None


@rule(
    "extreme-of-bound",
    "maximum minimum",
    "max(x, least) = x, max(x, greatest) = greatest for integers, and min the other way round",
    "no integer is below the least, nor above the greatest; -infinity and infinity bound what is no NaN, and NaN stays",
)
def extreme_of_bound(i: Instruction, site: Site) -> Instruction | None:
    kind = i.shape.type
    if not _is_real(i):
        return None
    low, high = (float("-inf"), float("inf")) if kind.is_float else kind.limits
    if kind.is_float and kind.name not in ("f16", "bf16", "f32", "f64"):
        return None
    neutral, final = (low, high) if is_a(i, "maximum") else (high, low)
    other = _other(i, neutral)
    if other is not None or kind.is_float:
        return other
    return site.full(i.shape, final) if _other(i, final) is not None else None


@rule(
    "extreme-of-extreme",
    "maximum minimum",
    "max(max(x, y), y) = max(x, y), and so on",
    "the greater of both is not below either, and NaN stays NaN",
)
def extreme_of_extreme(i: Instruction, site: Site) -> Instruction | None:
    for inner, other in (i.operands, i.operands[::-1]):
        if inner.opcode == i.opcode and any(o is other for o in inner.operands) and not i.shape.type.is_complex:
            return inner
    return None


@rule(
    "relu-of-square",
    "maximum",
    "max(x, 0) = x where x is a square, an absolute value or such",
    "x is not below 0, nor -0; NaN stays",
)
def relu_of_square(i: Instruction, site: Site) -> Instruction | None:
    if not i.shape.type.is_float and i.shape.type.kind != "unsigned":
        return None
    other = _other(i, 0.0)
    return other if other is not None and never_negative(other) else None


@rule("clamp-constant-bounds", "clamp", "clamp(least, x, greatest) = x for integers", "no integer lies outside")
def clamp_all(i: Instruction, site: Site) -> Instruction | None:
    low, value, high = i.operands
    if not i.shape.type.is_integer:
        return None
    least, most = i.shape.type.limits
    return value if is_number(low, least) and is_number(high, most) else None


@rule(
    "sign-of-sign",
    "sign ceil floor round-nearest-even round-nearest-afz",
    "floor(floor x) = floor x, and so on",
    "it is one of the values that the operation keeps",
)
def sign_of_sign(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    return inner if inner.opcode == i.opcode and i.shape.type.kind in ("signed", "float") else None


@rule(
    "extreme-of-rising",
    "maximum minimum",
    "max(f(x), f(y)) = f(max(x, y)) for tanh, cbrt, exp, erf and such, where nobody else reads them",
    "f grows with its operand and gives NaN for NaN only; HLO leaves its last places open",
)
def extreme_of_rising(i: Instruction, site: Site) -> Instruction | None:
    left, right = i.operands
    rising = is_a(left, "tanh", "cbrt", "exponential", "exponential-minus-one", "erf", "logistic", "floor", "ceil")
    if not rising or left.opcode != right.opcode or left is right or not i.shape.type.is_float:
        return None
    if len(left.users) > 1 or len(right.users) > 1:
        return None
    return site.again(left, [site.elementwise(i.opcode, left.operands[0], right.operands[0])])
