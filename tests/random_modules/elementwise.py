"""Recipes of elementwise operations."""

from __future__ import annotations

from hlo_opt.ir import (
    ELEMENT_TYPES,
    Called,
    Instruction,
    Shape,
)
from random_modules.builder import (
    COMPLEX,
    EVERYTHING,
    FLOATS,
    INTEGERS,
    NUMBERS,
    PRED,
    U32,
    Builder,
    recipe,
)


def _unary(names: tuple[str, ...], *opcodes: str) -> None:
    @recipe(*opcodes)
    def make(b: Builder, opcode: str) -> Instruction:
        shape = b.array(names)
        return b.emit(opcode, shape, [b.value(shape)])


def _binary(names: tuple[str, ...], *opcodes: str) -> None:
    @recipe(*opcodes)
    def make(b: Builder, opcode: str) -> Instruction:
        shape = b.array(names)
        return b.emit(opcode, shape, [b.value(shape), b.value(shape)])


_unary(
    FLOATS,
    "ceil",
    "erf",
    "floor",
    "round-nearest-afz",
    "round-nearest-even",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atanh",
    "cosh",
    "sinh",
)
_unary(
    (*FLOATS, "c64"),
    "cosine",
    "exponential",
    "exponential-minus-one",
    "log",
    "log-plus-one",
    "logistic",
    "rsqrt",
    "sine",
    "sqrt",
    "tan",
    "tanh",
)
_unary(FLOATS, "cbrt")
_unary(("s8", "s16", "s32", "s64", *FLOATS), "sign")
_unary(NUMBERS, "negate")
_unary(INTEGERS, "count-leading-zeros", "popcnt")
_unary(("pred", *INTEGERS), "not")
_unary(EVERYTHING, "copy", "opt-barrier")
_binary(NUMBERS, "add", "multiply", "subtract", "divide", "power")
_binary((*INTEGERS, *FLOATS), "maximum", "minimum", "remainder")
_binary(FLOATS, "atan2")
_binary(("pred", *INTEGERS), "and", "or", "xor")
_binary(INTEGERS, "shift-left", "shift-right-arithmetic", "shift-right-logical", "mulhi")


@recipe("abs")
def _abs(b: Builder, opcode: str) -> Instruction:
    shape = b.array((*INTEGERS, *FLOATS))
    return b.emit(opcode, shape, [b.value(shape)])


@recipe("real", "imag")
def _part(b: Builder, opcode: str) -> Instruction:
    shape = b.array(COMPLEX)
    part = ELEMENT_TYPES["f32" if shape.type.bits == 64 else "f64"]
    return b.emit(opcode, shape.with_type(part), [b.value(shape)])


@recipe("complex")
def _complex(b: Builder, opcode: str) -> Instruction:
    shape = b.array(("f32", "f64"))
    whole = ELEMENT_TYPES["c64" if shape.type.bits == 32 else "c128"]
    return b.emit(opcode, shape.with_type(whole), [b.value(shape), b.value(shape)])


@recipe("is-finite")
def _is_finite(b: Builder, opcode: str) -> Instruction:
    shape = b.array(FLOATS)
    return b.emit(opcode, shape.with_type(PRED.type), [b.value(shape)])


@recipe("compare")
def _compare(b: Builder, opcode: str) -> Instruction:
    shape = b.array((*INTEGERS, *FLOATS))
    direction = b.pick(("EQ", "NE", "LT", "LE", "GT", "GE"))
    return b.emit(opcode, shape.with_type(PRED.type), [b.value(shape), b.value(shape)], direction=direction)


@recipe("select")
def _select(b: Builder, opcode: str) -> Instruction:
    shape = b.array(EVERYTHING)
    return b.emit(opcode, shape, [b.value(shape.with_type(PRED.type)), b.value(shape), b.value(shape)])


@recipe("clamp")
def _clamp(b: Builder, opcode: str) -> Instruction:
    shape = b.array((*INTEGERS, *FLOATS))
    bound = shape if b.flag() else Shape(shape.type)
    return b.emit(opcode, shape, [b.value(bound), b.value(shape), b.value(bound)])


@recipe("convert")
def _convert(b: Builder, opcode: str) -> Instruction:
    shape = b.array((*INTEGERS, *FLOATS))
    return b.emit(opcode, shape.with_type(ELEMENT_TYPES[b.pick(NUMBERS)]), [b.value(shape)])


@recipe("bitcast-convert")
def _bitcast_convert(b: Builder, opcode: str) -> Instruction:
    shape = b.array(("s32", "u32", "f32"))
    return b.emit(opcode, shape.with_type(ELEMENT_TYPES[b.pick(("s32", "u32", "f32"))]), [b.value(shape)])


@recipe("stochastic-convert")
def _stochastic_convert(b: Builder, opcode: str) -> Instruction:
    shape = b.array(("f32",))
    target = shape.with_type(ELEMENT_TYPES[b.pick(("s8", "s16", "bf16"))])
    return b.emit(opcode, target, [b.value(shape), b.value(shape.with_type(U32.type))])


@recipe("reduce-precision")
def _reduce_precision(b: Builder, opcode: str) -> Instruction:
    shape = b.array(FLOATS)
    return b.emit(opcode, shape, [b.value(shape)], exponent_bits=b.number(1, 8), mantissa_bits=b.number(0, 7))


@recipe("map")
def _map(b: Builder, opcode: str) -> Instruction:
    shape = b.array(FLOATS)
    body = b.unary(Shape(shape.type), "negate")
    return b.emit(opcode, shape, [b.value(shape)], dimensions=tuple(range(shape.rank)), to_apply=Called(body))
