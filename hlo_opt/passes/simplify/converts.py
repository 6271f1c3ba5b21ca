"""Rules for conversions: those that change nothing, and two that can be one."""

from __future__ import annotations

from hlo_opt.ir import Instruction
from hlo_opt.passes.simplify.reading import holds_all, is_a
from hlo_opt.passes.simplify.rule import rule
from hlo_opt.passes.simplify.site import Site


@rule(
    "convert-to-itself",
    "convert bitcast-convert copy",
    "convert, bitcast-convert and copy of a type to itself",
    "nothing changes",
)
def convert_to_itself(i: Instruction, site: Site) -> Instruction | None:
    operand = i.operands[0]
    return operand if operand.shape.same_values(i.shape) else None


@rule("bitcast-to-itself", "bitcast", "bitcast to the same type, dimensions and layout", "no byte moves")
def bitcast_to_itself(i: Instruction, site: Site) -> Instruction | None:
    operand = i.operands[0]
    return operand if operand.shape.same_bytes(i.shape) else None


@rule(
    "convert-there-and-back",
    "convert",
    "convert of a convert to a type that holds all values of the first: one convert, or none",
    "the first convert rounds nothing",
    of="convert",
)
def convert_there_and_back(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "convert"):
        return None
    first, between, last = inner.operands[0].shape.type, inner.shape.type, i.shape.type
    if not holds_all(first, between):
        return None
    if first == last:
        return inner.operands[0]
    if between.is_float and last.is_integer and not first.is_float:  # a float out of range does not wrap around
        return None
    if first.is_float and between.is_float and not (last.is_float or last.is_integer):
        return None
    if first.kind == "signed" and between.kind != last.kind and last.bits > between.bits:
        return None
    return site.convert(inner.operands[0], last)


@rule(
    "convert-rounded-back",
    "convert",
    "convert of a convert to a narrower float, back to the first type: none",
    "as it is in real numbers",
    differs="the rounding to the narrower type is gone: values are nearer to those of real numbers",
)
def convert_rounded_back(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "convert"):
        return None
    value = inner.operands[0]
    if value.shape.type != i.shape.type or not value.shape.type.is_float or not inner.shape.type.is_float:
        return None
    return value


@rule(
    "bitcast-convert-twice", "bitcast-convert", "bitcast-convert of a bitcast-convert: one", "the bits stay as they are"
)
def bitcast_convert_twice(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "bitcast-convert"):
        return None
    source = inner.operands[0]
    if source.shape.same_values(i.shape):
        return source
    if abs(source.shape.rank - i.shape.rank) > 1:  # bits of each element are split, or joined, once
        return None
    if source.shape.rank == i.shape.rank and source.shape.type.bits != i.shape.type.bits:
        return None
    return site.emit("bitcast-convert", i.shape, source)


@rule(
    "reduce-precision-of-all",
    "reduce-precision",
    "reduce-precision to all digits of the type, or twice to the same",
    "nothing is rounded",
)
def reduce_precision_of_all(i: Instruction, site: Site) -> Instruction | None:
    def digits(of: Instruction) -> tuple[int, int]:
        return of.attribute("exponent_bits", int), of.attribute("mantissa_bits", int)

    inner = i.operands[0]
    full = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}.get(i.shape.type.name)
    if digits(i) == full or (is_a(inner, "reduce-precision") and digits(i) == digits(inner)):
        return inner
    return None
