"""The NumPy meaning of conversions: saturation, reduced precision, random rounding, reinterpretation of bits."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from hlo_opt.ops.numeric import Call, integer_limits, narrow

if TYPE_CHECKING:
    from hlo_opt.ir import ElementType
    from hlo_opt.ir.values import Array

FORMATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}
"""Bits of exponent and mantissa of the types whose precision reduce-precision cuts in place; others are cut as the type that XLA widens them to."""


def convert(call: Call, value: Array) -> Array:
    """Floats to integers saturate and NaN becomes 0; everything but zero becomes true; integers are cut."""
    np, target = call.np, call.type
    if target.kind == "pred":
        return value != 0
    if target.is_integer and value.dtype.kind == "f":
        return saturate(call, value)
    if target.is_integer and target.bits < 8:
        return value.astype(np.int64).astype(np.uint64).astype(np.int8 if target.kind == "signed" else np.uint8)
    return value


def saturate(call: Call, value: Array) -> Array:
    """Floats as integers of the result's type: cut towards zero, held at the limits, 0 for NaN."""
    np, target = call.np, call.type
    low, high = integer_limits(target)
    dtype = np.dtype(f"{'u' if target.kind == 'unsigned' else ''}int{max(8, target.bits)}")
    # float(high) may round up to high + 1, which is still where saturation begins; low is a power of two or 0
    above, below = value >= float(high), value <= float(low)
    inside = np.where(above | below | np.isnan(value), value.dtype.type(0), value)
    result: Array = np.where(above, dtype.type(high), np.where(below, dtype.type(low), inside.astype(dtype)))
    return result


def widened_name(element_type: ElementType) -> str:
    """The float in which reduce-precision of a float that is not in `FORMATS` is computed.

    f16 holds all floats of 8 bits but the one that is all exponent (xla/service/float_normalization.cc).
    """
    return "f16" if element_type.bits == 8 and element_type.name != "f8e8m0fnu" else "f32"


def reduce_precision(call: Call, value: Array) -> Array:
    """Mantissa to nearest even, exponents above the range to infinity, at or below its least to zero; NaN stays.

    Source: xla/service/elemental_ir_emitter.cc, EmitReducePrecisionIR: on the bits of the value's own type, denormal numbers included.
    """
    np = call.np
    within = call.type.name
    if within not in FORMATS:
        within = widened_name(call.type)
        value = value.astype(np.float16 if within == "f16" else np.float32)
    exponent = call.instruction.attribute("exponent_bits", int)
    mantissa = call.instruction.attribute("mantissa_bits", int)
    own_exponent, own_mantissa = FORMATS[within]
    width = 8 * value.dtype.itemsize
    bits = np.ascontiguousarray(value).view(f"uint{width}").reshape(value.shape)
    unsigned = bits.dtype.type
    infinity = ((1 << own_exponent) - 1) << own_mantissa
    is_nan = (bits & unsigned((1 << (width - 1)) - 1)) > unsigned(infinity)
    result = bits
    if mantissa < own_mantissa:
        dropped = own_mantissa - mantissa
        last = (bits >> unsigned(dropped)) & unsigned(1)
        result = bits + (last + unsigned((1 << (dropped - 1)) - 1))
        result = result & unsigned((1 << width) - (1 << dropped))
    if exponent < own_exponent:
        bias, reduced = (1 << (own_exponent - 1)) - 1, (1 << (exponent - 1)) - 1
        signed_zero, found = result & unsigned(1 << (width - 1)), result & unsigned(infinity)
        result = np.where(found > unsigned((bias + reduced) << own_mantissa), signed_zero | unsigned(infinity), result)
        result = np.where(found <= unsigned((bias - reduced) << own_mantissa), signed_zero, result)
    kept = np.where(is_nan, bits, result)
    return np.ascontiguousarray(kept).view(value.dtype).reshape(value.shape)


def stochastic_convert(call: Call, value: Array, random: Array) -> Array:
    """The magnitude cut, and one more where the random number is below the fraction; limits saturate and NaN is 0.

    Source: xla/hlo/evaluator/hlo_evaluator_typed_visitor.h, HandleStochasticConvert.
    """
    np, target = call.np, call.type
    bits = call.instruction.operands[1].shape.type.bits
    low, high = integer_limits(target)
    plain = saturate(call, value)
    settled = np.isnan(value) | (value >= float(high)) | (value <= float(low))
    magnitude = np.abs(np.where(settled, value.dtype.type(0), value)).astype(np.float64)
    whole = np.floor(magnitude)
    threshold = np.ldexp(magnitude - whole, bits)
    inside = np.where(threshold >= 2.0**64, 0.0, threshold).astype(np.uint64)
    count = whole.astype(np.int64) + (random.astype(np.uint64) < inside)
    signed = np.where(np.signbit(value), -count, count)
    return np.where(settled, plain, narrow(signed, target).astype(plain.dtype))


def make_complex(call: Call, real: Array, imaginary: Array) -> Array:
    """real + i imaginary; a sum would lose signed zeros and infinities."""
    np = call.np
    result = np.empty(np.broadcast_shapes(real.shape, imaginary.shape), call.type.dtype)
    result.real, result.imag = real, imaginary
    return result


def bitcast_convert(call: Call, value: Array) -> Array:
    """The same bits as another type; a change of width takes away or adds a last dimension, little end first."""
    np, target = call.np, call.type
    source = call.operand_type
    if source.bits >= 8 and target.bits >= 8:
        # the operand's own dimensions: an interpreter may apply a scalar operation to a whole array
        sizes = value.shape if source.bits >= target.bits else value.shape[:-1]
        if source.bits > target.bits:
            sizes = (*sizes, source.bits // target.bits)
        return np.ascontiguousarray(value).reshape(-1).view(target.dtype).reshape(sizes)
    wide = bits_of(np, value, source.bits)
    if source.bits == target.bits:
        return from_bits(np, wide, call)
    if source.bits > target.bits:
        steps = np.arange(source.bits // target.bits, dtype=np.uint64) * np.uint64(target.bits)
        return from_bits(np, (wide[..., None] >> steps) & np.uint64((1 << target.bits) - 1), call)
    steps = np.arange(target.bits // source.bits, dtype=np.uint64) * np.uint64(source.bits)
    return from_bits(np, np.bitwise_or.reduce(wide << steps, axis=-1), call)


def bits_of(np: ModuleType, value: Array, bits: int) -> Array:
    """The bits of each element as a 64-bit unsigned integer."""
    size = value.dtype.itemsize
    whole: Array = np.ascontiguousarray(value).view(f"uint{size * 8}").astype(np.uint64).reshape(value.shape)
    return whole & np.uint64((1 << bits) - 1) if bits < 64 else whole


def from_bits(np: ModuleType, bits: Array, call: Call) -> Array:
    """Elements of the result's type from their bits in 64-bit unsigned integers."""
    target = call.type
    if target.kind == "signed" and target.bits < 8:
        bits = ((bits << np.uint64(64 - target.bits)).view(np.int64) >> np.int64(64 - target.bits)).view(np.uint64)
    if target.is_integer and target.bits < 8:
        return bits.astype(np.uint8).view(np.int8 if target.kind == "signed" else np.uint8)
    size = target.dtype.itemsize * 8
    result: Array = np.ascontiguousarray(bits.astype(f"uint{size}")).view(target.dtype).reshape(bits.shape)
    return result
