"""Cases of the elementwise opcodes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hlo_opt.ir import ELEMENT_TYPES
from xla_cases.case import Case, makes, operation
from xla_cases.values import Array, binary, cast, numbers, patterns, product, specials, unary

UNARY = (
    "abs", "acos", "acosh", "asin", "asinh", "atanh", "cbrt", "ceil", "copy", "cosh", "cosine", "count-leading-zeros",
    "erf", "exponential",
    "exponential-minus-one", "floor", "imag", "is-finite", "log", "log-plus-one", "logistic", "negate", "not", "popcnt",
    "real",
    "round-nearest-afz", "round-nearest-even", "rsqrt", "sign", "sine", "sinh", "sqrt", "tan", "tanh",
)  # fmt: skip
BINARY = (
    "add", "and", "atan2", "divide", "maximum", "minimum", "mulhi", "multiply", "or", "power", "remainder",
    "shift-left", "shift-right-arithmetic",
    "shift-right-logical", "subtract", "xor",
)  # fmt: skip
PARTS = {"c64": "f32", "c128": "f64"}


def sized(name: str, array: Array) -> str:
    return f"{name}[{','.join(map(str, array.shape))}]"


@makes(*UNARY)
def one_operand(opcode: str, name: str) -> Iterator[Case]:
    x = unary(name)
    result = PARTS.get(name, name) if opcode in ("abs", "real", "imag") else "pred" if opcode == "is-finite" else name
    yield operation(opcode, name, [x], sized(result, x))


@makes(*BINARY)
def two_operands(opcode: str, name: str) -> Iterator[Case]:
    x, y = binary(name)
    yield operation(opcode, name, [x, y], sized(name, x))


@makes("complex")
def parts(opcode: str, name: str) -> Iterator[Case]:
    x, y = binary(name)
    whole = {part: name for name, part in PARTS.items()}
    yield operation(opcode, name, [x, y], sized(whole[name], x))


@makes("compare")
def compare(opcode: str, name: str) -> Iterator[Case]:
    x, y = binary(name)
    for direction in ("EQ", "NE") if name in PARTS else ("EQ", "NE", "GE", "GT", "LE", "LT"):
        yield operation(opcode, name, [x, y], sized("pred", x), f"direction={direction}")
        if ELEMENT_TYPES[name].is_float and direction in ("EQ", "GE", "LT"):
            yield operation(opcode, name, [x, y], sized("pred", x), f"direction={direction}, type=TOTALORDER")


@makes("select")
def select(opcode: str, name: str) -> Iterator[Case]:
    x, y = binary(name)
    chosen = np.arange(len(x)) % 3 == 0
    result = sized(name, x)
    yield operation(opcode, name, [chosen, x, y], result, label="each")
    yield operation(opcode, name, [np.array(False), x, y], result, label="by a scalar")


@makes("clamp")
def clamp(opcode: str, name: str) -> Iterator[Case]:
    few = specials(name)[:16]
    low, value, high = product(few, few, few)
    yield operation(opcode, name, [low, value, high], sized(name, value), label="each")
    few = np.sort(numbers(name, 9)) if name != "pred" else patterns(name)
    value = unary(name)
    yield operation(opcode, name, [few[0], value, few[-1]], sized(name, value), label="between scalars")


CONVERTED = [200.7, -200.7, 7.5, -8.5, 65519, 65520, 3e9, -3e9, 2.0**31, -(2.0**31), 2.0**63, 2.0**64, -(2.0**63), 1e30]
"""Values at the bounds of integer and float types."""


@makes("convert")
def convert(opcode: str, name: str) -> Iterator[Case]:
    """To every type: `type` is that of the operand."""
    source = ELEMENT_TYPES[name]
    x = np.concatenate([specials(name), numbers(name, 40)]) if source.bits > 16 else patterns(name)
    if source.is_float:
        x = np.concatenate([x, cast(CONVERTED, name)])
    for target in ELEMENT_TYPES.values():
        if target.numpy_name and target.bits != 6 and (target.is_complex or not source.is_complex):
            yield operation(opcode, name, [x], sized(target.name, x), label=f"to {target}")


@makes("bitcast-convert")
def bitcast_convert(opcode: str, name: str) -> Iterator[Case]:
    source = ELEMENT_TYPES[name]
    pool = patterns(name) if source.bits <= 8 else unary(name)
    x = np.resize(pool, 768)
    for target in ELEMENT_TYPES.values():
        if target.bits != source.bits and target.kind != "unsigned":
            continue  # the bits go through unsigned integers
        if (
            not target.numpy_name
            or target.bits == 6
            or source.is_complex != target.is_complex
            or ("pred" in (name, target.name) and name != target.name)
        ):
            continue
        wide, thin = max(source.bits, target.bits), min(source.bits, target.bits)
        if wide % thin or (source.is_complex and wide > thin):
            continue
        parts = wide // thin
        if target.bits == source.bits:
            yield operation(opcode, name, [x], sized(target.name, x), label=f"to {target}")
        elif target.bits < source.bits:
            yield operation(opcode, name, [x], f"{target}[{len(x)},{parts}]", label=f"to {target}")
        else:
            y = x.reshape(-1, parts)
            yield operation(opcode, name, [y], f"{target}[{len(y)}]", label=f"to {target}")


@makes("reduce-precision")
def reduce_precision(opcode: str, name: str) -> Iterator[Case]:
    x = unary(name)
    if ELEMENT_TYPES[name].bits > 16:
        edges = [65519.0, 65520.0, 6.1e-5, 6.2e-5, 480.0, 496.0, 1 + 2**-8, 1 + 3 * 2**-8, *(2.0 ** np.arange(-20, 20))]
        x = np.concatenate([x, cast(edges, name)])
    for exponent, mantissa in ((5, 10), (4, 3), (8, 0), (11, 52), (5, 2)):
        yield operation(opcode, name, [x], sized(name, x), f"exponent_bits={exponent}, mantissa_bits={mantissa}")


@makes("stochastic-convert")
def stochastic_convert(opcode: str, name: str) -> Iterator[Case]:
    bits = ELEMENT_TYPES[name].bits
    x, random = product(unary(name)[: 1 << 12], specials(f"u{bits}") if bits >= 8 else patterns(f"u{bits}"))
    for target in ("s4", "s8", "s64"):
        yield operation(opcode, name, [x, random], sized(target, x), label=f"to {target}")


@makes("map")
def map_(opcode: str, name: str) -> Iterator[Case]:
    x, y = binary(name)
    computation = f"first.{name} {{\n  a = {name}[] parameter(0)\n  ROOT b = {name}[] parameter(1)\n}}"
    yield operation(
        opcode, name, [x, y], sized(name, x), f"dimensions={{0}}, to_apply=first.{name}",
        computations={f"first.{name}": computation}
    )  # fmt: skip
