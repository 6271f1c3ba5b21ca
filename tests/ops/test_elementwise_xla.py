"""Elementwise evaluation against XLA:CPU: one module per opcode, with a result for each type."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jaxlib")

from hlo_opt.ir import ELEMENT_TYPES, Attribute, Instruction, array
from hlo_opt.ops import find, spec_of
from scripts.xla_cpu import Program

INTEGERS = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "s4", "u4")
FLOATS = ("f32", "f64", "bf16", "f16")
EIGHT_BITS = ("f8e5m2", "f8e4m3fn", "f8e4m3", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz", "f8e3m4")
COMPLEX = ("c64", "c128")
COUNT = 96

Array = np.ndarray[Any, Any]


def values_of(name: str, seed: int = 0) -> Array:
    """Values of a type: the special ones and random ones, in an order that the seed gives."""
    element_type = ELEMENT_TYPES[name]
    generator = np.random.default_rng(seed)
    if name == "pred":
        return generator.integers(0, 2, COUNT).astype(bool)
    if element_type.is_integer:
        bits, unsigned = element_type.bits, element_type.kind == "unsigned"
        low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        wanted = (low, low + 1, high, high - 1, 0, 1, 2, 3, 5, -1, -2, -3, bits - 1, bits, bits + 1)
        special = np.array([v for v in wanted if low <= v <= high], np.uint64 if unsigned else np.int64)
        half = (COUNT - special.size) // 2
        drawn = generator.integers(low, high, half, special.dtype, endpoint=True)
        small = generator.integers(max(low, -4), min(high, 12), COUNT - special.size - half, special.dtype)
        return generator.permutation(np.concatenate([special, drawn, small])).astype(element_type.dtype)
    if element_type.is_complex:
        drawn = generator.normal(0, 2, COUNT) + 1j * generator.normal(0, 2, COUNT)
        return np.asarray(drawn).astype(element_type.dtype)
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 3, 0.49999997, 448, 1e4]
    drawn = generator.normal(0, 4, COUNT - len(special))
    with np.errstate(all="ignore"):
        return np.asarray(generator.permutation(np.concatenate([special, drawn]))).astype(element_type.dtype)


@dataclass
class Case:
    """One operation, its inputs, and how far XLA may be from us in ULP."""

    instruction: Instruction
    inputs: list[Array]
    ulp: float


def case(
    opcode: str, result: str, inputs: list[Array], shape: tuple[int, ...] | None = None, ulp: float | None = None, **attributes: Any
) -> Case:  # fmt: skip
    names = {element_type.dtype: name for name, element_type in ELEMENT_TYPES.items() if element_type.numpy_name}
    parameters = [
        Instruction(f"p{k}", "parameter", array(ELEMENT_TYPES[names[x.dtype]], *x.shape), parameter_number=k)
        for k, x in enumerate(inputs)
    ]
    made = {k: Attribute.of(v) for k, v in attributes.items()}
    declared = array(ELEMENT_TYPES[result], *(inputs[0].shape if shape is None else shape))
    instruction = Instruction("r", opcode, declared, parameters, made)
    if ulp is None:
        tolerance = spec_of(instruction).tolerance
        assert tolerance is not None
        # XLA:CPU's own approximations err as much again
        ulp = 3 * tolerance(ELEMENT_TYPES[result])
    return Case(instruction, inputs, ulp)


def text_of(cases: list[Case]) -> str:
    lines, results = [], []
    for number, one in enumerate(cases):
        names = [f"p{number}.{k}" for k in range(len(one.inputs))]
        for name, operand in zip(names, one.instruction.operands, strict=True):
            position = sum(line.count("parameter(") for line in lines)
            lines.append(f"  {name} = {operand.shape} parameter({position})")
        attributes = "".join(f", {n}={value.text}" for n, value in one.instruction.attributes.items())
        results.append(f"r{number}")
        lines.append(f"  r{number} = {one.instruction.shape} {one.instruction.opcode}({', '.join(names)}){attributes}")
    shapes = ", ".join(str(one.instruction.shape) for one in cases)
    lines.append(f"  ROOT t = ({shapes}) tuple({', '.join(results)})")
    return "HloModule m\n\nENTRY e {\n" + "\n".join(lines) + "\n}\n"


def evaluated(one: Case) -> Array:
    spec = spec_of(one.instruction)
    assert spec.infer is not None and spec.evaluate is not None
    declared = one.instruction.shape
    inferred = spec.infer(one.instruction)
    assert inferred.same_values(declared), f"{inferred} inferred, {declared} declared"
    result = spec.evaluate(None, one.instruction, one.inputs)  # type: ignore[arg-type]
    assert result.dtype == declared.type.dtype and result.shape == declared.dimensions
    return np.asarray(result)


def assert_close(one: Case, ours: Array, theirs: Array) -> None:
    import ml_dtypes

    element_type, what = one.instruction.shape.type, str(one.instruction)
    if not (element_type.is_float or element_type.is_complex):
        np.testing.assert_array_equal(ours.astype(object), theirs.astype(object), what)
        return
    if element_type.is_complex:
        relative = (4 + one.ulp) * np.finfo(ours.dtype).eps * 8
        np.testing.assert_allclose(ours, theirs, relative, relative, err_msg=what)
        return
    info = ml_dtypes.finfo(ours.dtype)
    # XLA:CPU flushes denormal numbers
    tiny = float(info.smallest_normal) if element_type.bits >= 32 else 0.0
    mine, other = ours.astype(np.float64), theirs.astype(np.float64)
    np.testing.assert_allclose(mine, other, one.ulp * float(info.eps), tiny, err_msg=what)


def check(cases: list[Case]) -> None:
    results = Program(text_of(cases))([x for one in cases for x in one.inputs])
    for one, theirs in zip(cases, results, strict=True):
        assert_close(one, evaluated(one), theirs)


BINARY = {
    **dict.fromkeys(("add", "multiply", "maximum", "minimum"), ("pred", *INTEGERS, *FLOATS, *EIGHT_BITS)),
    **dict.fromkeys(("subtract", "divide", "power"), (*INTEGERS, *FLOATS, "f8e5m2", "f8e4m3fn")),
    "remainder": (*INTEGERS, *FLOATS),
    **dict.fromkeys(("shift-left", "shift-right-logical", "shift-right-arithmetic"), INTEGERS),
    **dict.fromkeys(("and", "or", "xor"), ("pred", *INTEGERS)),
    "atan2": FLOATS,
}


@pytest.mark.parametrize("opcode", BINARY)
def test_binary(opcode: str) -> None:
    check([case(opcode, t, [values_of(t, 1), values_of(t, 2)]) for t in BINARY[opcode]])


ROUNDING = ("ceil", "floor", "round-nearest-even", "round-nearest-afz")
FUNCTIONS = ("cbrt", "erf", "cosine", "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "rsqrt", "sine", "sqrt", "tan", "tanh")  # fmt: skip
UNARY = {
    **dict.fromkeys((*ROUNDING, "copy", "real", "imag"), (*FLOATS, *EIGHT_BITS)),
    **dict.fromkeys(("negate", "abs", "sign"), ("s8", "s16", "s32", "s64", "s4", *FLOATS, *EIGHT_BITS)),
    "not": ("pred", *INTEGERS),
    # XLA:CPU counts ones of s4 in eight bits
    "popcnt": [t for t in INTEGERS if t != "s4"],
    "count-leading-zeros": INTEGERS,
    **dict.fromkeys(FUNCTIONS, FLOATS),
    # XLA:CPU computes it with f16 steps, which overflow
    "logistic": ("f32", "f64", "bf16"),
}


@pytest.mark.parametrize("opcode", UNARY)
def test_unary(opcode: str) -> None:
    check([case(opcode, t, [values_of(t, 3)]) for t in UNARY[opcode]])


def test_is_finite() -> None:
    check([case("is-finite", "pred", [values_of(t)]) for t in (*FLOATS, "f8e5m2", "f8e4m3fn")])


COMPLEX_FUNCTIONS = [f for f in (*FUNCTIONS, "sign", "negate", "copy") if f not in ("cbrt", "erf")]


@pytest.mark.parametrize("name", COMPLEX)
def test_complex(name: str) -> None:
    part = {"c64": "f32", "c128": "f64"}[name]
    x, y = values_of(name, 4), values_of(name, 5)
    check(
        [
            *(case(f, name, [x]) for f in COMPLEX_FUNCTIONS),
            *(case(f, part, [x]) for f in ("abs", "real", "imag")),
            *(case(f, name, [x, y]) for f in ("add", "subtract", "multiply", "divide", "power")),
            case("complex", name, [values_of(part, 6), values_of(part, 7)]),
            *(case("compare", "pred", [x, y], direction=d) for d in ("EQ", "NE")),
        ]
    )


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_zeros_and_infinities(name: str) -> None:
    parts = [0.0, -0.0, 1.0, -2.0, math.inf, -math.inf, math.nan, 3.5]
    values = np.array([complex(a, b) for a in parts for b in parts], ELEMENT_TYPES[name].dtype)
    x, y = np.repeat(values, values.size), np.tile(values, values.size)
    finite = np.array([complex(a, b) for a in parts[:4] for b in parts[:4]], ELEMENT_TYPES[name].dtype)
    a, b = np.repeat(finite, finite.size), np.tile(finite, finite.size)
    check(
        [
            *(case(f, name, [x, y]) for f in ("add", "multiply", "divide")),
            *(case(f, name, [finite]) for f in ("sqrt", "sign", "exponential", "sine", "tanh")),
            case("power", name, [a, b]),
        ]
    )


@pytest.mark.parametrize("opcode", ["acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh"])
def test_function_that_only_jax_lowers(opcode: str) -> None:
    import jax

    with jax.enable_x64(True):
        for name in ("f32", "f64"):
            one = case(opcode, name, [np.random.default_rng(0).uniform(-3, 3, 50).astype(ELEMENT_TYPES[name].dtype)])
            assert_close(one, evaluated(one), np.asarray(getattr(jax.lax, opcode)(one.inputs[0])))


def test_infinite_and_undefined_arguments_of_functions() -> None:
    x = np.array([math.inf, -math.inf, math.nan, 0.0, -0.0, 2.0, -2.0], np.float64)
    expected = {
        "acosh": [math.inf, math.nan, math.nan, math.nan, math.nan, math.acosh(2.0), math.nan],
        "atanh": [math.nan, math.nan, math.nan, 0.0, -0.0, math.nan, math.nan],
        "acos": [math.nan, math.nan, math.nan, math.pi / 2, math.pi / 2, math.nan, math.nan],
        "erf": [1.0, -1.0, math.nan, 0.0, -0.0, math.erf(2.0), -math.erf(2.0)],
    }
    for opcode, values in expected.items():
        np.testing.assert_allclose(evaluated(case(opcode, "f64", [x])), values, 1e-15)


@pytest.mark.parametrize("direction", ["EQ", "NE", "GE", "GT", "LE", "LT"])
def test_compare(direction: str) -> None:
    cases = []
    for name in ("pred", *INTEGERS, *FLOATS, *EIGHT_BITS):
        x, y = values_of(name, 8), values_of(name, 9)
        y[::5] = x[::5]
        cases.append(case("compare", "pred", [x, y], direction=direction))
        if name in FLOATS:
            cases.append(case("compare", "pred", [x, y], direction=direction, type="TOTALORDER"))
    check(cases)


def test_total_order() -> None:
    x = np.array([-math.nan, -math.inf, -1.0, -1e-300, -0.0, 0.0, 1e-300, 1.0, math.inf, math.nan])
    left, right = np.repeat(x, x.size), np.tile(x, x.size)
    one = case("compare", "pred", [left, right], direction="LT", type="TOTALORDER")
    places = np.arange(x.size)
    np.testing.assert_array_equal(evaluated(one), np.repeat(places, x.size) < np.tile(places, x.size))


def test_select_and_clamp() -> None:
    cases = []
    for name in ("pred", *INTEGERS, *FLOATS, *EIGHT_BITS, *COMPLEX):
        x, y = values_of(name, 10), values_of(name, 11)
        cases.append(case("select", name, [values_of("pred", 12), x, y], shape=x.shape))
        cases.append(case("select", name, [np.asarray(True), x, y], shape=x.shape))
        if name not in ("pred", *COMPLEX):
            cases.append(case("clamp", name, [values_of(name, 13), x, y], shape=x.shape))
            low, high = sorted(v for v in y if v == v)[5], sorted(v for v in y if v == v)[60]
            cases.append(case("clamp", name, [np.asarray(low, y.dtype), x, np.asarray(high, y.dtype)], shape=x.shape))
    check(cases)


CONVERTED = ("pred", *INTEGERS, *FLOATS, *EIGHT_BITS)


@pytest.mark.parametrize("name", CONVERTED)
def test_convert(name: str) -> None:
    x = values_of(name, 14)
    if ELEMENT_TYPES[name].is_float:
        with np.errstate(all="ignore"):
            large = np.array(
                [200.7, -200.7, 7.5, -8.5, 3e9, -3e9, 1e30, -1e30, 65519, 65520, 2.0**31, 2.0**63, 2.0**64]
            )
            x = np.concatenate([x, large.astype(x.dtype)])
    check([case("convert", t, [x]) for t in CONVERTED])


def test_convert_to_complex() -> None:
    cases = [
        case("convert", t, [values_of(name, 15)]) for t in COMPLEX for name in ("s32", "f32", "bf16", "pred", *COMPLEX)
    ]
    check(cases)


@pytest.mark.parametrize(("exponent", "mantissa"), [(5, 10), (8, 7), (4, 3), (8, 0), (11, 23), (2, 2)])
def test_reduce_precision(exponent: int, mantissa: int) -> None:
    with np.errstate(all="ignore"):
        x = np.concatenate(
            [values_of("f64", 16), 2.0 ** np.arange(-40.0, 40.0), 3.0 * 2.0 ** np.arange(-20.0, 20.0) + 1e-3]
        )
        x = np.concatenate([x, [65519.0, 65520.0, 6.1e-5, 6.2e-5, 480.0, 496.0, 1 + 2**-8, 1 + 3 * 2**-8]])
        cases = [
            case(
                "reduce-precision",
                t,
                [x.astype(ELEMENT_TYPES[t].dtype)],
                exponent_bits=exponent,
                mantissa_bits=mantissa,
            )
            for t in FLOATS
        ]
    check(cases)


def test_bitcast_convert() -> None:
    pairs = [("f32", "s32"), ("s32", "f32"), ("f16", "u16"), ("bf16", "s16"), ("u16", "bf16"), ("u8", "s8"), ("f64", "u64"), ("s64", "f64"), ("f8e5m2", "u8"), ("u8", "f8e4m3fn")]  # fmt: skip
    cases = [case("bitcast-convert", t, [values_of(s, 17)]) for s, t in pairs]
    for source, target in (("u64", "u32"), ("f64", "s32"), ("u32", "u8"), ("f32", "bf16"), ("s64", "f16")):
        parts = ELEMENT_TYPES[source].bits // ELEMENT_TYPES[target].bits
        cases.append(case("bitcast-convert", target, [values_of(source, 18)], shape=(COUNT, parts)))
        thin = values_of(target, 19).reshape(-1, parts)
        cases.append(case("bitcast-convert", source, [thin], shape=(COUNT // parts,)))
    results = Program(text_of(cases))([x for one in cases for x in one.inputs])
    for one, theirs in zip(cases, results, strict=True):
        assert evaluated(one).tobytes() == theirs.tobytes(), str(one.instruction)


def test_bitcast_convert_of_narrow_integers() -> None:
    one = case("bitcast-convert", "u4", [np.array([0x21, 0xF3], np.uint8)], shape=(2, 2))
    assert evaluated(one).astype(int).tolist() == [[1, 2], [3, 15]]
    back = case("bitcast-convert", "s8", [evaluated(one)], shape=(2,))
    assert evaluated(back).tolist() == [0x21, -13]


def test_every_elementwise_opcode_is_judged_here() -> None:
    from hlo_opt.ops import OpKind, table

    judged = {
        *BINARY,
        *UNARY,
        "is-finite",
        "complex",
        "compare",
        "select",
        "clamp",
        "convert",
        "reduce-precision",
        "bitcast-convert",
    }
    elsewhere = {"map", "mulhi", "stochastic-convert", "acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh"}
    assert {s.opcode for s in table() if s.kind is OpKind.ELEMENTWISE} == judged | elsewhere
    assert find("softsign") is None
