"""NumPy helpers of `evaluate` faces: the types to compute in, one rounding per operation, integer rules.

NumPy and ml_dtypes are imported on evaluation only, not with the table: `hlo-opt --help` must be quick. The rules are
those of xla/hlo/evaluator/hlo_evaluator_typed_visitor.h; where XLA:CPU differs, XLA:CPU's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from hlo_opt.ir.element_type import ElementType
from hlo_opt.ir.module import Instruction
from hlo_opt.ir.values import Array

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from hlo_opt.ops.spec import Evaluator


@dataclass(frozen=True, slots=True)
class Call:
    """The context of an elementwise evaluation: NumPy, the instruction, the evaluator."""

    np: ModuleType
    instruction: Instruction
    evaluator: Evaluator

    @property
    def type(self) -> ElementType:
        """The element type of the result."""
        return self.instruction.shape.type

    @property
    def operand_type(self) -> ElementType:
        """The element type of the first operand."""
        return self.instruction.operands[0].shape.type


def widen(value: ArrayLike, *, further: bool = False) -> Array:
    """The value in a type that NumPy computes in: narrow floats as f32, integers below 8 bits as 8 bits.

    `further` widens f32 and c64 to f64 and c128: NumPy's f32 functions differ between processors, rounded f64 ones
    hardly.
    """
    import numpy as np

    array = np.asarray(value)
    if array.dtype.name in _NARROW_INTEGERS:
        return array.astype(_NARROW_INTEGERS[array.dtype.name])
    if array.dtype.kind not in "biufc" or (array.dtype.kind == "f" and array.dtype.itemsize < 4):
        array = array.astype(np.float32)
    kind, size = array.dtype.kind, array.dtype.itemsize
    if further and kind == "f" and size < 8:
        return array.astype(np.float64)
    if further and kind == "c" and size < 16:
        return array.astype(np.complex128)
    return array


_NARROW_INTEGERS = {"int2": "int8", "int4": "int8", "uint2": "uint8", "uint4": "uint8"}


def narrow(value: Array, element_type: ElementType) -> Array:
    """The value in the element type: floats rounded to nearest even, integers wrapped.

    f64 rounds to floats below f32 via f32, as in XLA:CPU. NaN becomes -0 in f4e2m1fn, which has no NaN.
    """
    import numpy as np

    array = np.asarray(value)
    dtype = element_type.dtype
    if array.dtype == dtype:
        return array
    if element_type.is_narrow_float and array.dtype.kind in "iub":
        array = array.astype(np.float32)
    elif element_type.is_narrow_float and array.dtype != np.float32:
        array = widen(array).astype(np.float32)
    if element_type.name == "f4e2m1fn" and np.isnan(array).any():
        array = np.where(np.isnan(array), np.float32(-0.0), array)
    return array.astype(dtype)


def unsigned_bits(call: Call, value: Array, bits: int, dtype: str = "uint64") -> Array:
    """The low `bits` bits of integers, as unsigned integers of at least that width."""
    np = call.np
    unsigned = np.dtype(dtype)
    if unsigned.itemsize == value.dtype.itemsize:
        wide = value.view(unsigned)
    else:
        wide = value.astype(np.uint64 if value.dtype.kind == "u" else np.int64).astype(unsigned)
    result: Array = wide if bits == 8 * unsigned.itemsize else wide & unsigned.type((1 << bits) - 1)
    return result


def divide(call: Call, left: Array, right: Array) -> Array:
    """x/0 is all ones; the least integer divided by -1 is itself; floats as in IEEE 754."""
    np = call.np
    if call.type.is_complex:
        return complex_divide(np, left, right)
    if not call.type.is_integer:
        return left / right
    zero = right == 0
    safe = np.where(zero, right.dtype.type(1), right)
    if call.type.kind == "unsigned":
        return np.where(zero, left.dtype.type(call.type.limits[1]), left // safe)
    minus = safe == -1
    safe = np.where(minus, safe.dtype.type(1), safe)
    quotient = left // safe
    rest = left - quotient * safe
    quotient = np.where((rest != 0) & ((left < 0) != (safe < 0)), quotient + safe.dtype.type(1), quotient)
    return np.where(zero, left.dtype.type(-1), np.where(minus, -left, quotient))


def complex_divide(np: ModuleType, left: Array, right: Array) -> Array:
    """Division with C99's results (annex G.5.1) instead of NaN for zero and infinite parts, as XLA."""
    a, b, c, d = left.real, left.imag, right.real, right.imag
    exact = np.asarray(left / right)
    lost = np.isnan(exact.real) & np.isnan(exact.imag)
    lost |= (right == 0) & ~np.isfinite(exact)
    if not lost.any():
        return exact

    def unit(part: Array) -> Array:
        """1 for infinity and 0 for others, keeping the sign."""
        result: Array = np.copysign(np.isinf(part).astype(part.dtype), part)
        return result

    def product(scale: Array, a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array]:
        return scale * (a * c + b * d), scale * (b * c - a * d)

    by_zero = (right == 0) & ~(np.isnan(a) & np.isnan(b))
    infinite = (np.isinf(a) | np.isinf(b)) & np.isfinite(c) & np.isfinite(d)
    by_infinity = (np.isinf(c) | np.isinf(d)) & np.isfinite(a) & np.isfinite(b)
    infinity = np.copysign(a.dtype.type(np.inf), c)
    cases = [by_zero, infinite, by_infinity]
    limits = [
        (infinity * a, infinity * b),
        product(a.dtype.type(np.inf), unit(a), unit(b), c, d),
        product(a.dtype.type(0), a, b, unit(c), unit(d)),
    ]
    result = np.array(np.broadcast_to(exact, lost.shape))
    result.real = np.where(lost, np.select(cases, [f[0] for f in limits], exact.real), exact.real)
    result.imag = np.where(lost, np.select(cases, [f[1] for f in limits], exact.imag), exact.imag)
    return result


def remainder(call: Call, left: Array, right: Array) -> Array:
    """The sign is the dividend's; x%0 is x, and x%-1 is 0."""
    np = call.np
    if not call.type.is_integer:
        return np.fmod(left, right)
    special = right == 0
    if call.type.kind == "signed":
        special |= right == -1
    rest = np.fmod(left, np.where(special, right.dtype.type(1), right))
    return np.where(right == 0, left, rest)


def power(call: Call, base: Array, exponent: Array) -> Array:
    """C's pow; for integers, squaring over the low six bits of the exponent (xla/service/elemental_ir_emitter.cc).

    As there, an exponent with its top bit set is negative even in unsigned types; then only powers of 1 and -1 are not
    0.
    """
    np = call.np
    if call.type.is_complex:
        # exp(y log 0) has no limit where y is not real
        undefined = (base == 0) & (exponent.imag != 0)
        return np.where(undefined, complex(np.nan, np.nan), np.power(base, exponent))
    if not call.type.is_integer:
        return np.power(base, exponent)
    one = base.dtype.type(1)
    result, square, rest = np.full_like(base + exponent, 1), base, exponent
    for _ in range(6):
        result = np.where((rest & one) == one, result * square, result)
        square = square * square
        rest = rest >> one
    all_ones = ~base.dtype.type(0)
    alternating = np.where((exponent & one) == one, all_ones, one)
    negative = np.where(base == all_ones, alternating, np.where(base == one, one, base.dtype.type(0)))
    width = 8 * exponent.dtype.itemsize
    is_negative = (unsigned_bits(call, exponent, width) >> np.uint64(width - 1)) != 0
    return np.where(is_negative, negative, result)


def maximum(left: Array, right: Array) -> Array:
    """NaN propagates from either side, and 0 beats -0, which `np.maximum` leaves open."""
    import numpy as np

    result = np.maximum(left, right)
    if result.dtype.kind != "f" or result.all():
        return result
    # the sum of two zeros is -0 only where both are
    return np.where((result == 0) & (left == right), left + right, result)


def minimum(left: Array, right: Array) -> Array:
    """NaN propagates from either side, and -0 beats 0."""
    import numpy as np

    result = np.minimum(left, right)
    if result.dtype.kind != "f" or result.all():
        return result
    return np.where((result == 0) & (left == right), -(-left - right), result)


def shift(call: Call, function: Callable[[Array, Array], Array], value: Array, amount: Array) -> Array:
    """Shift by NumPy's `left_shift` or `right_shift`, filling with zeros. Amounts are unsigned; from the width on, the
    result is 0."""
    np, bits = call.np, call.type.bits
    unsigned = np.dtype(f"uint{max(8, bits)}")
    value, amount = unsigned_bits(call, value, bits, unsigned), unsigned_bits(call, amount, bits, unsigned)
    inside = amount < bits
    if inside.all():
        return wrap(call, function(value, amount))
    zero = unsigned.type(0)
    return wrap(call, np.where(inside, function(value, np.where(inside, amount, zero)), zero))


def shift_right_arithmetic(call: Call, value: Array, amount: Array) -> Array:
    """Fills with copies of the top bit, also for unsigned types, as LLVM's ashr does in XLA."""
    np, bits = call.np, call.type.bits
    count = np.minimum(unsigned_bits(call, amount, bits), np.uint64(bits - 1)).astype(np.int64)
    top = (unsigned_bits(call, value, bits) << np.uint64(64 - bits)).view(np.int64)
    return wrap(call, ((top >> np.int64(64 - bits)) >> count).view(np.uint64))


def wrap(call: Call, bits: Array) -> Array:
    """Unsigned integers truncated to the result's integer type; below 8 bits, to a value in 8 bits."""
    np, element_type = call.np, call.type
    if element_type.bits >= 8:
        return bits.astype(f"uint{element_type.bits}", copy=False).view(element_type.dtype)
    low = (bits.astype(np.uint64) << np.uint64(64 - element_type.bits)).view(np.int64)
    shifted = low >> np.int64(64 - element_type.bits)
    result: Array = shifted if element_type.kind == "signed" else shifted & np.int64((1 << element_type.bits) - 1)
    return result.astype(np.int8)


def population_count(call: Call, value: Array) -> Array:
    """The number of set bits."""
    return call.np.bitwise_count(unsigned_bits(call, value, call.type.bits))


def count_leading_zeros(call: Call, value: Array) -> Array:
    """The number of leading zeros; the width for 0."""
    np, bits = call.np, call.type.bits
    rest = unsigned_bits(call, value, bits)
    for step in (1, 2, 4, 8, 16, 32):
        rest = rest | (rest >> np.uint64(step))
    return bits - np.bitwise_count(rest).astype(np.int64)


def multiply_high(call: Call, left: Array, right: Array) -> Array:
    """The upper half of the double-width product."""
    np, bits = call.np, call.type.bits
    signed = call.type.kind == "signed"
    if bits <= 32:
        wide = np.int64 if signed else np.uint64
        return (left.astype(wide) * right.astype(wide)) >> wide(bits)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a, b = unsigned_bits(call, left, 64), unsigned_bits(call, right, 64)
    a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
    middle = a1 * b0 + ((a0 * b0) >> half)
    carry = a0 * b1 + (middle & low)
    high = a1 * b1 + (middle >> half) + (carry >> half)
    if not signed:
        return high
    high = high - np.where(left < 0, b, np.uint64(0)) - np.where(right < 0, a, np.uint64(0))
    return high.view(np.int64)


def absolute(call: Call, value: Array) -> Array:
    """The modulus; NaN where a part of a complex number is, as in XLA; the least integer is unchanged."""
    np = call.np
    if value.dtype.kind == "u":
        return value
    if value.dtype.kind != "c":
        return np.abs(value)
    # for complex numbers `np.abs` is up to 2 ULP off on some processors
    return np.where(np.isnan(value), value.real.dtype.type(np.nan), np.hypot(value.real, value.imag))


def sign(call: Call, value: Array) -> Array:
    """-1, 0 or 1; floats keep NaN and the sign of zero; complex numbers are divided by their modulus."""
    np = call.np
    if value.dtype.kind == "f":
        return np.where((value == 0) | np.isnan(value), value, np.copysign(value.dtype.type(1), value))
    if value.dtype.kind == "c":
        modulus = np.abs(value)
        divisor = np.where(modulus == 0, modulus + 1, modulus)
        result = np.empty_like(value)
        result.real, result.imag = value.real / divisor, value.imag / divisor
        return result
    return np.sign(value)


def round_away(call: Call, value: Array) -> Array:
    """The nearest integer, ties away from zero."""
    np = call.np
    whole = np.trunc(value)
    up = (np.abs(value - whole) >= 0.5).astype(value.dtype)
    return np.copysign(np.abs(whole) + up, value)


def reciprocal(call: Call, value: Array) -> Array:
    """1 / x"""
    one = value.dtype.type(1)
    return complex_divide(call.np, call.np.asarray(one), value) if value.dtype.kind == "c" else one / value


def square_root(call: Call, value: Array) -> Array:
    """The principal root. Like XLA, treats an imaginary part of -0 as 0."""
    if value.dtype.kind == "c":
        value = value.copy()
        value.imag = value.imag + 0.0
    return call.np.sqrt(value)


def log_plus_one(call: Call, value: Array) -> Array:
    """log(1 + x); for complex numbers near 0 via |1 + z|^2 - 1, since NumPy's form cancels."""
    np = call.np
    if value.dtype.kind != "c":
        return np.log1p(value)
    excess = value.real * (value.real + 2) + value.imag * value.imag
    result = np.empty_like(value)
    result.real = np.where(np.abs(excess) < 0.5, np.log1p(excess) / 2, np.log(np.hypot(value.real + 1, value.imag)))
    result.imag = np.arctan2(value.imag, value.real + 1)
    return result


def error_function(call: Call, value: Array) -> Array:
    """The C library's erf, which NumPy lacks."""
    np = call.np
    flat = np.fromiter(map(math.erf, value.ravel().tolist()), np.float64, value.size)
    return flat.reshape(value.shape)


def atan2(call: Call, y: Array, x: Array) -> Array:
    """C's atan2; for complex numbers -i log((x + iy) / sqrt(x^2 + y^2))."""
    np = call.np
    if y.dtype.kind == "c":
        return -1j * np.log((x + 1j * y) / np.sqrt(x * x + y * y))
    return np.arctan2(y, x)


def compare(call: Call, left: Array, right: Array) -> Array:
    """EQ, NE, GE, GT, LE, LT. With NaN only NE is true, unless type=TOTALORDER. Operands are as they are stored."""
    is_total = call.operand_type.is_float and call.instruction.word("type") == "TOTALORDER"
    if not is_total or left.dtype != right.dtype:
        left, right = widen(left), widen(right)
    if is_total:
        left, right = total_order(left), total_order(right)
    return getattr(call.np, COMPARISONS[call.instruction.word("direction")])(left, right)


def total_order(value: Array) -> Array:
    """Integers that order like XLA's total order of floats: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN.

    NaNs order by their bits, which widening changes. Types without a negative zero are ordered as f32, as in XLA:CPU.
    """
    import numpy as np

    from hlo_opt.library.order import bit_order

    array = np.asarray(value)
    size = array.dtype.itemsize
    zero = np.float32(-0.0).astype(array.dtype).tobytes()
    if zero != bytes(size - 1) + b"\x80":  # little end first
        array, size = array.astype(np.float32), 4
    bits = np.ascontiguousarray(array).view(f"int{8 * size}").reshape(array.shape)
    return bit_order(np, bits)


COMPARISONS = {"EQ": "equal", "NE": "not_equal"}
COMPARISONS |= {"GE": "greater_equal", "GT": "greater", "LE": "less_equal", "LT": "less"}
"""The functions of NumPy and CuPy by direction."""
