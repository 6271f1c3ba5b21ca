"""Recipes of elementwise operations, each on the interval where it is continuous and far from overflow.

Single operations on special values (NaN, infinities, signed zeros, denormals, the ends of the types) are compared type
by type in tests/ops/test_against_xla.py; here they are combined.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hlo_opt.ir import ELEMENT_TYPES, ElementType, Instruction, Shape
from random_modules.comparable.known import BOUND, TRUTH, Known, Number, corners, finite, largest, limits, wrapped
from random_modules.comparable.writer import COMPLEX, FLOATS, INTEGERS, MOVED, NUMBERS, PRED, Writer, family

ARITHMETIC = (*FLOATS, *FLOATS, *INTEGERS, *COMPLEX)

UNARY: dict[str, tuple[Number, Number, Callable[[float], float]]] = {
    "acos": (-0.9, 0.9, math.acos),
    "acosh": (1.5, 30.0, math.acosh),
    "asin": (-0.9, 0.9, math.asin),
    "asinh": (-30.0, 30.0, math.asinh),
    "atanh": (-0.9, 0.9, math.atanh),
    "cbrt": (0.1, 64.0, lambda x: x ** (1 / 3)),
    "cosh": (-3.0, 3.0, math.cosh),
    "cosine": (-6.0, 6.0, math.cos),
    "erf": (-3.0, 3.0, math.erf),
    "exponential": (-4.0, 4.0, math.exp),
    "exponential-minus-one": (-4.0, 4.0, math.expm1),
    "log": (0.1, 64.0, math.log),
    "log-plus-one": (-0.8, 64.0, math.log1p),
    "logistic": (-8.0, 8.0, lambda x: 1 / (1 + math.exp(-x))),
    "rsqrt": (0.1, 64.0, lambda x: x**-0.5),
    "sine": (-6.0, 6.0, math.sin),
    "sinh": (-3.0, 3.0, math.sinh),
    "sqrt": (0.01, 64.0, math.sqrt),
    "tan": (-1.2, 1.2, math.tan),
    "tanh": (-4.0, 4.0, math.tanh),
}
"""The interval of the operand and the function; the result's interval is that of a few points."""


def _image(function: Callable[[float], float], low: Number, high: Number) -> Known:
    points = [function(low + (high - low) * k / 16) for k in range(17)]
    margin = 0.05 * (max(points) - min(points)) + 1e-3
    return Known(min(points) - margin, max(points) + margin, False)


def _real(w: Writer, opcode: str) -> None:
    low, high, function = UNARY[opcode]
    shape = w.array(FLOATS)
    w.keep(w.emit(opcode, shape, [w.take(shape, low, high)]), _image(function, low, high))


family("elementwise functions", *UNARY)(_real)


@family("complex numbers", "complex", "real", "imag")
def _complex(w: Writer, opcode: str) -> None:
    if opcode == "complex":
        shape = w.array(("f32", "f64"))
        parts = [w.take(shape, -4.0, 4.0) for _ in range(2)]
        made = w.emit(opcode, shape.with_type(ELEMENT_TYPES["c64" if shape.type.bits == 32 else "c128"]), parts)
        w.moved(made, *parts)
        return
    shape = w.array(COMPLEX)
    part = w.take(shape)
    w.moved(w.emit(opcode, shape.with_type(ELEMENT_TYPES["f32" if shape.type.bits == 64 else "f64"]), [part]), part)


def _also_complex(opcode: str) -> None:
    @family("elementwise functions", opcode)
    def make(w: Writer, opcode: str) -> None:
        if w.number(0, 4):
            _real(w, opcode)
            return
        shape = w.array(COMPLEX)
        w.keep(w.emit(opcode, shape, [w.take(shape, -1.0, 1.0)]), Known(-4.0, 4.0, False))


for _opcode in ("exponential", "sine", "cosine", "tanh"):
    _also_complex(_opcode)


@family("elementwise arithmetic", "negate", "abs", "sign")
def _exact_unary(w: Writer, opcode: str) -> None:
    names = ("s32", "s8", "s16", "s64", *FLOATS)
    shape = w.array(names)
    value = w.take(shape, exact=opcode == "sign")
    known = w.known[value]
    made = w.emit(opcode, shape, [value])
    if opcode == "sign":
        w.keep(made, Known(-1, 1, True))
    elif shape.type.is_integer:
        w.keep(made, wrapped(shape.type, -largest(known), largest(known)))
    elif opcode == "negate":
        w.keep(made, Known(-known.high, -known.low, known.exact))
    else:
        w.keep(made, Known(0, largest(known), known.exact))


@family("rounding", "ceil", "floor", "round-nearest-afz", "round-nearest-even", "is-finite", "reduce-precision")
def _rounding(w: Writer, opcode: str) -> None:
    """Steps: only for values that no implementation rounds otherwise."""
    shape = w.array(FLOATS if opcode != "reduce-precision" else ("f32", "f64"))
    value = w.take(shape, exact=True)
    known = w.known[value]
    if opcode == "is-finite":
        w.keep(w.emit(opcode, shape.with_type(PRED.type), [value]), TRUTH)
    elif opcode == "reduce-precision":
        bits = {"exponent_bits": w.number(5, 8), "mantissa_bits": w.number(2, 10)}
        w.keep(w.emit(opcode, shape, [value], **bits), Known(1.25 * known.low - 1, 1.25 * known.high + 1, True))
    else:
        w.keep(w.emit(opcode, shape, [value]), Known(known.low - 1, known.high + 1, True))


@family("elementwise arithmetic", "add", "subtract", "multiply")
def _arithmetic(w: Writer, opcode: str) -> None:
    shape = w.array(ARITHMETIC)
    left, right = w.take(shape), w.take(shape)
    made = w.emit(opcode, shape, [left, right])
    a, b = w.known[left], w.known[right]
    function = {"add": lambda x, y: x + y, "subtract": lambda x, y: x - y, "multiply": lambda x, y: x * y}[opcode]
    low, high = corners(function, a, b)
    if shape.type.is_complex:
        size = 2 * largest(a) * largest(b) if opcode == "multiply" else largest(a) + largest(b)
        low, high = -size, size
    w.keep(made, wrapped(shape.type, low, high) if shape.type.is_integer else Known(low, high, False))


@family("elementwise arithmetic", "divide", "remainder")
def _divide(w: Writer, opcode: str) -> None:
    """Integers by anything, zero too: HLO says what comes out. The remainder of floats has steps."""
    shape = w.array((*INTEGERS, *FLOATS))
    if shape.type.is_integer:
        left, right = w.take(shape), w.take(shape)
        w.keep(w.emit(opcode, shape, [left, right]), Known(*limits(shape.type), True))
        return
    steps = opcode == "remainder"
    left, right = w.take(shape, exact=steps), w.take(shape, 0.5, 8.0, exact=steps)
    bound = 8.0 if steps else 2 * largest(w.known[left])
    w.keep(w.emit(opcode, shape, [left, right]), Known(-bound, bound, False))


@family("elementwise functions", "power", "atan2")
def _power(w: Writer, opcode: str) -> None:
    """Integers to a power that is not negative, which HLO leaves open; angles away from the negative axis, where they
    jump."""
    if opcode == "atan2":
        shape = w.array(FLOATS)
        operands = [w.take(shape, -8.0, 8.0), w.take(shape, 0.1, 8.0)]
        w.keep(w.emit(opcode, shape, operands), Known(-1.6, 1.6, False))
        return
    shape = w.array((*INTEGERS, *FLOATS))
    if shape.type.is_integer:
        operands = [w.take(shape), w.take(shape, 0, 9)]
        w.keep(w.emit(opcode, shape, operands), Known(*limits(shape.type), True))
        return
    operands = [w.take(shape, 0.5, 3.0), w.take(shape, -3.0, 3.0)]
    w.keep(w.emit(opcode, shape, operands), Known(0.03, 28.0, False))


@family("elementwise arithmetic", "maximum", "minimum")
def _maximum(w: Writer, opcode: str) -> None:
    shape = w.array((*FLOATS, *INTEGERS))
    operands = [w.take(shape), w.take(shape)]
    w.moved(w.emit(opcode, shape, operands), *operands)


@family("bits", "and", "or", "xor", "not", "mulhi")
def _bitwise(w: Writer, opcode: str) -> None:
    shape = w.array(INTEGERS if opcode == "mulhi" else ("pred", *INTEGERS))
    operands = [w.take(shape) for _ in range(1 if opcode == "not" else 2)]
    w.keep(w.emit(opcode, shape, operands), Known(*limits(shape.type), True))


@family("bits", "shift-left", "shift-right-arithmetic", "shift-right-logical", "popcnt", "count-leading-zeros")
def _shift(w: Writer, opcode: str) -> None:
    shape = w.array(INTEGERS)
    if opcode == "count-leading-zeros":
        # of negative constants XLA's evaluator, which folds them, counts as many below zero
        operands = [w.take(shape, 0)]
    else:
        operands = [w.take(shape), *([] if opcode == "popcnt" else [w.take(shape, 0, shape.type.bits + 2)])]
    w.keep(w.emit(opcode, shape, operands), Known(*limits(shape.type), True))


@family("comparison", "compare")
def _compare(w: Writer, opcode: str) -> None:
    shape = w.array((*INTEGERS, *FLOATS, "pred"))
    operands = [w.take(shape, exact=True) for _ in range(2)]
    direction = w.pick(("EQ", "NE", "LT", "LE", "GT", "GE"))
    kind = "TOTALORDER" if shape.type.is_float and not w.number(0, 3) else None
    w.keep(w.emit(opcode, shape.with_type(PRED.type), operands, direction=direction, type=kind), TRUTH)


@family("comparison", "select")
def _select(w: Writer, opcode: str) -> None:
    shape = w.array(MOVED)
    mask = w.take(Shape(PRED.type) if w.flag() else shape.with_type(PRED.type))
    operands = [w.take(shape), w.take(shape)]
    w.moved(w.emit(opcode, shape, [mask, *operands]), *operands)


@family("comparison", "clamp")
def _clamp(w: Writer, opcode: str) -> None:
    shape = w.array((*INTEGERS, *FLOATS))
    bound = shape if w.flag() else Shape(shape.type)
    operands = [w.take(bound), w.take(shape), w.take(bound)]
    w.moved(w.emit(opcode, shape, operands), *operands)


@family("conversion", "convert")
def _convert(w: Writer, opcode: str) -> None:
    source = w.array((*MOVED, *COMPLEX))
    target = ELEMENT_TYPES[w.pick(NUMBERS if not source.type.is_complex else COMPLEX)]
    value = _convertible(w, source, target)
    known = w.known[value]
    w.keep(w.emit(opcode, source.with_type(target), [value]), _converted(known, source.type, target))


def _convertible(w: Writer, source: Shape, target: ElementType) -> Instruction:
    """Floats that become integers must not be rounded differently before."""
    if source.type.is_float and not (target.is_float or target.is_complex):
        least, most = limits(target)
        least, most = max(least, -100), min(most, 100)
        low, high = limits(source.type)
        return w.take(source, max(low, least), min(high, most), exact=True)
    return w.take(source)


def _converted(known: Known, source: ElementType, target: ElementType) -> Known:
    if target.is_integer:
        low, high = (int(known.low) - 1, int(known.high) + 1) if source.is_float else (known.low, known.high)
        return wrapped(target, low, high)
    if source.is_integer or source.kind == "pred":
        low, high = finite(float(known.low)), finite(float(known.high))
        if target.bits == 16 and target.name == "f16" and max(-low, high) > 60000:
            return Known(-1e30, 1e30, False)
        return Known(low, high, largest(known) <= 256)
    widens = target.bits >= source.bits and (source.name, target.name) not in (("f16", "bf16"), ("bf16", "f16"))
    return known if widens else known.inexact()


@family("conversion", "bitcast-convert")
def _bitcast_convert(w: Writer, opcode: str) -> None:
    """Integers as integers, and exact floats as integers; any bits as floats would be NaN or far too large."""
    shape = w.array(("s32", "u32", "f32", "s16", "u16", "s8", "u8", "f64", "s64"))
    bits = shape.type.bits
    target = ELEMENT_TYPES[w.pick(("s", "u")) + str(bits)]
    value = w.take(shape, exact=True)
    w.keep(w.emit(opcode, shape.with_type(target), [value]), Known(*limits(target), True))


@family("conversion", "stochastic-convert")
def _stochastic_convert(w: Writer, opcode: str) -> None:
    shape = w.array(("f32",))
    operands = [w.take(shape, exact=True), w.take(shape.with_type(ELEMENT_TYPES["u32"]))]
    target = ELEMENT_TYPES[w.pick(("s8", "s16", "s32"))]
    w.keep(w.emit(opcode, shape.with_type(target), operands), Known(-int(BOUND) - 1, int(BOUND) + 1, True))


@family("map", "map")
def _map(w: Writer, opcode: str) -> None:
    shape = w.array((*FLOATS, *INTEGERS))
    count = w.number(1, 3)
    operands = [w.take(shape) for _ in range(count)]
    scalar = Shape(shape.type)
    with w.computation([scalar] * count, [w.known[o] for o in operands]) as parameters:
        scalars(w, scalar, 3)
        root = next(i for i in reversed([*parameters, *w.frame.values]) if i.shape == scalar)
        known = w.known[root]
        body = w.finish(root)
    w.keep(w.emit(opcode, shape, operands, dimensions=tuple(range(shape.rank)), to_apply=body), known)


def _scalar_binary(opcode: str) -> Callable[[Writer, Shape], None]:
    def make(w: Writer, scalar: Shape) -> None:
        left, right = w.take(scalar), w.take(scalar)
        a, b = w.known[left], w.known[right]
        bound = max(largest(a) * largest(b), largest(a) + largest(b))
        known = wrapped(scalar.type, -bound, bound) if scalar.type.is_integer else Known(-bound, bound, False)
        w.keep(
            w.emit(opcode, scalar, [left, right]),
            known if scalar.type.is_integer or opcode not in ("maximum", "minimum") else a.union(b),
        )

    return make


RECIPES_OF_SCALARS = {
    opcode: _scalar_binary(opcode) for opcode in ("add", "subtract", "multiply", "maximum", "minimum")
}


def scalars(w: Writer, scalar: Shape, most: int = 2) -> None:
    """A few operations on scalars in the computation that is being written."""
    for _ in range(w.number(0, most)):
        RECIPES_OF_SCALARS[w.pick(sorted(RECIPES_OF_SCALARS))](w, scalar)
