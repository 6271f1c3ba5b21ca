"""Changes of type and representation: convert, bitcast-convert, reduce-precision, stochastic-convert, complex parts,
copy, map.

Floats saturate to integers; bits are reinterpreted in little-endian order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hlo_opt.ir import ELEMENT_TYPES, ElementType, IndexMap, Instruction, Shape
from hlo_opt.ir.index_map import constant, dimensions, identity, variable
from hlo_opt.ops import faces
from hlo_opt.ops.code import Code, code
from hlo_opt.ops.elementwise.arithmetic import every
from hlo_opt.ops.elementwise.declare import (
    INTEGERS,
    array_operands,
    check_kind,
    elementwise,
    elementwise_index,
    same_dimensions,
    same_type,
)
from hlo_opt.ops.faces import lazy
from hlo_opt.ops.lowering import Elementwise, Index, KernelBuilder, compute_type, is_rounded
from hlo_opt.ops.numeric import Call, narrow
from hlo_opt.ops.omitted import as_operand
from hlo_opt.ops.spec import Arity, Calling, Evaluator, OpKind, ShapeError, declare

if TYPE_CHECKING:
    from hlo_opt.ir import ElementType
    from hlo_opt.ir.values import Array


FORMATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}
"""Exponent and mantissa bits of types that reduce-precision rounds in place. Others are rounded in the type XLA widens
them to."""


def convert(call: Call, value: Array) -> Array:
    """Floats saturate to integers and NaN becomes 0; nonzero becomes true; integers are truncated."""
    np, target = call.np, call.type
    if target.kind == "pred":
        return value != 0
    if target.is_integer and value.dtype.kind == "f":
        return saturate(call, value)
    if target.is_integer and target.bits < 8:
        return value.astype(np.int64).astype(np.uint64).astype(np.int8 if target.kind == "signed" else np.uint8)
    return value


def saturate(call: Call, value: Array) -> Array:
    """Floats to integers of the result's type: truncated, saturated, NaN to 0."""
    np, target = call.np, call.type
    low, high = target.limits
    dtype = np.dtype(f"{'u' if target.kind == 'unsigned' else ''}int{max(8, target.bits)}")
    # float(high) may round up to high + 1, which is still where saturation begins; low is a power of two or 0
    above, below = value >= float(high), value <= float(low)
    inside = np.where(above | below | np.isnan(value), value.dtype.type(0), value)
    result: Array = np.where(above, dtype.type(high), np.where(below, dtype.type(low), inside.astype(dtype)))
    return result


def widened_name(element_type: ElementType) -> str:
    """The float type in which reduce-precision of a type outside `FORMATS` computes.

    f16 represents all 8-bit floats except f8e8m0fnu, which has only exponent bits (xla/service/float_normalization.cc).
    """
    return "f16" if element_type.bits == 8 and element_type.name != "f8e8m0fnu" else "f32"


def reduce_precision(call: Call, value: Array) -> Array:
    """Round the mantissa to nearest even; overflow to infinity, underflow to zero; NaN stays NaN.

    Works on the bits of the value's own type, denormals included. Source: xla/service/elemental_ir_emitter.cc,
    EmitReducePrecisionIR.
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
        signed_zero, masked = result & unsigned(1 << (width - 1)), result & unsigned(infinity)
        result = np.where(masked > unsigned((bias + reduced) << own_mantissa), signed_zero | unsigned(infinity), result)
        result = np.where(masked <= unsigned((bias - reduced) << own_mantissa), signed_zero, result)
    kept = np.where(is_nan, bits, result)
    return np.ascontiguousarray(kept).view(value.dtype).reshape(value.shape)


def stochastic_convert(call: Call, value: Array, random: Array) -> Array:
    """Truncate the magnitude, and add 1 where the random number is below the fraction; saturating, NaN to 0.

    Source: xla/hlo/evaluator/hlo_evaluator_typed_visitor.h, HandleStochasticConvert.
    """
    np, target = call.np, call.type
    bits = call.instruction.operands[1].shape.type.bits
    low, high = target.limits
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
    """real + i imaginary, built from parts: a sum would lose signed zeros and infinities."""
    np = call.np
    result = np.empty(np.broadcast_shapes(real.shape, imaginary.shape), call.type.dtype)
    result.real, result.imag = real, imaginary
    return result


def bitcast_convert(call: Call, value: Array) -> Array:
    """The bits as another type. A change of width removes or adds a last dimension, in little-endian order."""
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
    """Elements of the result's type from bits in 64-bit unsigned integers."""
    target = call.type
    if target.kind == "signed" and target.bits < 8:
        bits = ((bits << np.uint64(64 - target.bits)).view(np.int64) >> np.int64(64 - target.bits)).view(np.uint64)
    if target.is_integer and target.bits < 8:
        return bits.astype(np.uint8).view(np.int8 if target.kind == "signed" else np.uint8)
    size = target.dtype.itemsize * 8
    result: Array = np.ascontiguousarray(bits.astype(f"uint{size}")).view(target.dtype).reshape(bits.shape)
    return result


def _declared(instruction: Instruction) -> ElementType:
    """The declared element type. Raises ShapeError where the declared shape is not an array."""
    if not instruction.shape.is_array:
        raise ShapeError(f"the result of {instruction.opcode} must be an array, not {instruction.shape}")
    return instruction.shape.type


def _infer_convert(instruction: Instruction) -> Shape:
    (operand,) = array_operands(instruction)
    target = _declared(instruction)
    if operand.type.is_complex and not target.is_complex:
        raise ShapeError(f"convert cannot take {operand.type} to {target}; use real or imag")
    return same_dimensions("convert", [operand], target)


def _convert_texts(instruction: Instruction) -> Mapping[str, str]:
    source = instruction.operands[0].shape.type
    if (source.name, instruction.shape.type.name) == ("f64", "f32"):
        return {"float": "hlo_rounded<{T}>({0})"}
    if source.is_complex:
        return {"complex": "({T}){0}"}
    if source.kind == "pred":  # GCC compiles a cast of a bool through byte vectors
        chosen = "{0} ? ({T})1 : ({T})0"
        return {"pred": "{0}", "complex": "({T}){0}", **every(chosen, "float", *INTEGERS)}
    whole = "hlo_float_to_integer<{W}>({0})" if source.is_float else "({T}){0}"
    return {"pred": "{0} != 0", **every("({T}){0}", "float", "complex"), **every(whole, *INTEGERS)}


elementwise(
    "convert",
    1,
    convert,
    one_step=True,
    ways="WRAPPING",
    omitted=None,
    spread=faces.Spreading(
        faces.interval("convert"),
        faces.interval("convert_integer"),
        rounds=True,
        keeps=True,
        decides=lambda instruction: not instruction.shape.type.is_float,
    ),
    slow=True,
    infer=_infer_convert,
    cuda=Elementwise(_convert_texts),
)


def bits_text(element_type: ElementType, text: str = "{}") -> str:
    """The C++ template of a value's bits as an unsigned integer; the value is in its compute type. A bf16 is the upper
    half of its register: rounding would give every NaN the same bits."""
    if element_type.name == "bf16":
        return f"hlo_upper_bf16({text})"
    if is_rounded(element_type) and element_type.is_float:
        return f"hlo_store_{element_type}({text})"
    if element_type.is_float:
        return f"hlo_bit_cast<unsigned {'int' if element_type.bits == 32 else 'long long'}>({text})"
    if element_type.bits < 8:
        return f"(unsigned char)({text} & {(1 << element_type.bits) - 1})"
    return f"({_unsigned(element_type.bits)}){text}"


def value_text(element_type: ElementType, text: str = "{}") -> str:
    """The C++ template of a value, in its compute type, from an unsigned integer with its bits."""
    if is_rounded(element_type):
        return f"hlo_{'load' if element_type.is_float else 'round'}_{element_type}({text})"
    if element_type.is_float:
        return f"hlo_bit_cast<{compute_type(element_type)}>({text})"
    return f"({compute_type(element_type)})({text})"


def _unsigned(bits: int) -> str:
    return str(compute_type(ELEMENT_TYPES[f"u{bits}"]))


def _infer_reduce_precision(instruction: Instruction) -> Shape:
    (operand,) = array_operands(instruction)
    check_kind("reduce-precision", operand.type, ("float",))
    if instruction.attribute("exponent_bits", int) < 1 or instruction.attribute("mantissa_bits", int) < 0:
        raise ShapeError("reduce-precision needs exponent_bits of at least 1 and mantissa_bits of at least 0")
    return same_dimensions("reduce-precision", [operand], operand.type)


def _reduce_precision_texts(instruction: Instruction) -> Mapping[str, str]:
    element_type = instruction.shape.type
    if element_type.name not in FORMATS:
        element_type = ELEMENT_TYPES[widened_name(element_type)]
    own_exponent, own_mantissa = FORMATS[element_type.name]
    exponent = min(own_exponent, instruction.attribute("exponent_bits", int))
    mantissa = min(own_mantissa, instruction.attribute("mantissa_bits", int))
    formats = f"{_unsigned(element_type.bits)}, {own_exponent}, {own_mantissa}, {exponent}, {mantissa}"
    return {"float": value_text(element_type, f"hlo_reduce_precision<{formats}>({bits_text(element_type, '{0}')})")}


elementwise(
    "reduce-precision",
    1,
    reduce_precision,
    spread=faces.RISING.but(rounds=True),
    accepts=("float",),
    infer=_infer_reduce_precision,
    precision="own",
    cuda=Elementwise(_reduce_precision_texts),
    attributes={"exponent_bits": True, "mantissa_bits": True},
)


_AS_WIDE_AS_BITS = tuple(t.name for t in ELEMENT_TYPES.values() if t.is_float and f"u{t.bits}" in ELEMENT_TYPES)
"""Floats with an unsigned integer type of the same width for random bits."""


def _infer_stochastic_convert(instruction: Instruction) -> Shape:
    operand, random = array_operands(instruction)
    check_kind("stochastic-convert", operand.type, _AS_WIDE_AS_BITS)
    if random.type.kind != "unsigned" or random.type.bits != operand.type.bits:
        raise ShapeError(
            f"stochastic-convert of {operand.type} needs u{operand.type.bits} random bits, not {random.type}"
        )
    return same_dimensions("stochastic-convert", [operand, random], _declared(instruction))


elementwise(
    "stochastic-convert",
    2,
    stochastic_convert,
    omitted=None,
    accepts=_AS_WIDE_AS_BITS,
    infer=_infer_stochastic_convert,
    cuda=Elementwise(
        lambda i: {"signed": f"hlo_stochastic_convert<{{T}}, {{bits}}, {i.operands[1].shape.type.bits}>({{0}}, {{1}})"}
    ),
)


_PARTS = ("f32", "f64")


def _infer_complex(instruction: Instruction) -> Shape:
    shapes = array_operands(instruction)
    element_type = same_type("complex", shapes)
    check_kind("complex", element_type, _PARTS)
    return same_dimensions("complex", shapes, ELEMENT_TYPES["c64" if element_type.bits == 32 else "c128"])


elementwise(
    "complex",
    2,
    make_complex,
    spread=faces.BY_PARTS,
    accepts=_PARTS,
    infer=_infer_complex,
    cuda={"complex": "{T}({0}, {1})"},
)
for _opcode, _meaning, _of_float, _of_complex in (
    ("real", lambda call, x: call.np.real(x), "{0}", "({0}).re"),
    ("imag", lambda call, x: call.np.imag(x), "({T})0", "({0}).im"),
):
    elementwise(
        _opcode,
        1,
        _meaning,
        one_step=True,
        spread=faces.BY_PARTS,
        accepts=("float", "complex"),
        result="real",
        by=0,
        cuda={"float": _of_float, "complex": _of_complex},
    )


def _infer_copy(instruction: Instruction) -> Shape:
    """The operand's shape, which may be a tuple (xla/service/shape_inference.cc, InferUnaryOpShape)."""
    shape = instruction.operands[0].shape
    return shape.without_layout() if shape.is_tuple else array_operands(instruction)[0].without_layout()


elementwise(
    "copy",
    1,
    lambda call, x: x,
    omitted=as_operand(),
    spread=faces.ORDERED.but(complex=faces.ORDERED.real),
    infer=_infer_copy,
    precision="own",
    cuda=every("{0}", "pred", "float", "complex", *INTEGERS),
)


def _infer_bitcast_convert(instruction: Instruction) -> Shape:
    (operand,) = array_operands(instruction)
    target = _declared(instruction)
    if operand.type.bits == target.bits and operand.type.is_complex == target.is_complex:
        return same_dimensions("bitcast-convert", [operand], target)
    if operand.type.is_complex or target.is_complex:
        raise ShapeError(f"bitcast-convert cannot take {operand.type} to {target}")
    wide, thin = max(operand.type.bits, target.bits), min(operand.type.bits, target.bits)
    if wide % thin:
        raise ShapeError(f"bitcast-convert cannot take {operand.type} to {target}: one width must divide the other")
    if target.bits < operand.type.bits:
        return Shape(target, (*operand.dimensions, wide // thin))
    if not operand.rank or operand.dimensions[-1] != wide // thin:
        raise ShapeError(f"bitcast-convert to {target} needs a last dimension of {wide // thin}, not {operand}")
    return Shape(target, operand.dimensions[:-1])


def _bitcast_convert_index(instruction: Instruction, operand: int) -> IndexMap:
    source, result = instruction.operands[operand].shape, instruction.shape
    if source.rank == result.rank:
        return identity(result.dimensions)
    if source.rank < result.rank:
        return IndexMap(dimensions(result.dimensions)[:-1])
    parts = source.dimensions[-1]
    return IndexMap((*dimensions(result.dimensions), variable("s0", parts)), symbols=(parts,))


def _bitcast_convert_text(builder: KernelBuilder, instruction: Instruction, index: Index) -> Code:
    operand = instruction.operands[0]
    source, target = operand.shape.type, instruction.shape.type
    if source == target:
        return builder.value(operand, index)
    if source.bits == target.bits:
        return code(value_text(target, bits_text(source)), builder.value(operand, index))
    if source.bits > target.bits:
        return split_bits(source, target, builder.value(operand, index[:-1]), builder.text(index[-1]))
    count = target.bits // source.bits
    return joined_bits(source, target, [builder.value(operand, (*index, constant(k))) for k in range(count)])


def split_bits(source: ElementType, target: ElementType, whole: Code, number: Code) -> Code:
    """The element of a narrower type that has part `number` of a value's bits; part 0 is the lowest."""
    lane = f"{bits_text(source)} >> ({target.bits} * ({{}}))"
    if target.bits < 8:
        lane = f"({lane}) & {(1 << target.bits) - 1}"
    return code(value_text(target, f"({_unsigned(max(8, target.bits))})({lane})"), whole, number)


def joined_bits(source: ElementType, target: ElementType, parts: Sequence[Code]) -> Code:
    """The element of a type at least as wide whose bits are those of several elements, the first one lowest."""
    wide = _unsigned(max(8, target.bits))
    moved = [f"(({wide}){bits_text(source)} << {source.bits * k})" for k in range(len(parts))]
    return code(value_text(target, " | ".join(moved)), *parts)


elementwise(
    "bitcast-convert",
    1,
    bitcast_convert,
    aligned=faces.same_width,
    omitted=None,
    spread=faces.one("reinterpreted", integer=faces.interval("reinterpreted")),
    infer=_infer_bitcast_convert,
    index=_bitcast_convert_index,
    precision="own",
    cuda=_bitcast_convert_text,
)


def _infer_map(instruction: Instruction) -> Shape:
    shapes = array_operands(instruction)
    computation = instruction.called_by("to_apply")
    if len(computation.parameters) != len(shapes):
        raise ShapeError(
            f"map has {len(shapes)} operands and {computation.name} {len(computation.parameters)} parameters"
        )
    root = computation.root.shape
    if not root.is_array or root.rank:
        raise ShapeError(f"map needs a computation that returns a scalar; {computation.name} returns {root}")
    return same_dimensions("map", shapes, root.type)


def _calls_of_map(instruction: Instruction) -> Iterator[Calling]:
    """One element of each operand, for one element of the result."""
    shape = instruction.shape
    element_shapes = [Shape(o.shape.type) if o.shape.is_array else o.shape for o in instruction.operands]
    for callee in instruction.called():
        yield callee, element_shapes, Shape(shape.type) if shape.is_array else None


def _evaluate_map(evaluator: Evaluator, instruction: Instruction, values: list[Any]) -> Any:
    import numpy as np

    arrays = [np.asarray(value) for value in values]
    return evaluator.map_elements(instruction.called_by("to_apply"), arrays)[0]


def _map_text(builder: KernelBuilder, instruction: Instruction, index: Index) -> Code:
    values = [builder.value(operand, index) for operand in instruction.operands]
    return builder.apply(instruction.called_by("to_apply"), values)[0]


declare(
    "map",
    OpKind.ELEMENTWISE,
    Arity(1, None),
    {"dimensions": False, "to_apply": True},
    infer=_infer_map,
    evaluate=_evaluate_map,
    index=elementwise_index,
    cuda=_map_text,
    flops=lambda instruction: float(
        instruction.shape.element_count * max(1, len(instruction.called_by("to_apply").instructions))
    ),
    calls=_calls_of_map,
    # the called computation's operations have their own tolerances
    tolerance=lambda element_type: 0.0,
    scratch=lazy("scratch", "applied"),
)
