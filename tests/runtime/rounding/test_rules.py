"""Each rule of an elementwise operation on single values with bounds: what the result's bounds are, no wider and no
narrower."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from hlo_opt.ops.values import HIGH, LOW, MOVED, ROWS, VALUE, Spread
from hlo_opt.runtime.rounding.analysis import SpreadInterpreter

from .spreads import DTYPES, parsed, run

INF = math.inf
TYPES = DTYPES | {"pred": np.bool_, "s8": np.int8, "u8": np.uint8, "c128": np.complex128, "u32": np.uint32}
Bounds = tuple[object, object, object]


def value(bounds: object, element_type: str) -> object:
    """(low, value, high) as a value of one element whose moved values lie in between; a number as itself."""
    dtype = np.dtype(TYPES[element_type])
    if not isinstance(bounds, tuple):
        return np.array([bounds], dtype)
    low, middle, high = bounds
    moved = [low, middle, high, middle]
    rows = np.array([middle, low, high, *moved], dtype)
    assert rows.shape == (ROWS,)
    return Spread(rows.reshape(ROWS, 1))


def found(
    opcode: str,
    operands: Sequence[object],
    types: Sequence[str],
    result: str,
    attributes: str = "",
    same: bool = False,
    **options: bool,
) -> object:
    lines = [f"  p{n} = {t}[1]{{0}} parameter({n})" for n, t in enumerate(types)]
    names = [f"p{n}" for n in range(len(types))] * (2 if same else 1)
    body = "\n".join([*lines, f"  ROOT r = {result}[1]{{0}} {opcode}({', '.join(names)}){attributes}"])
    return run(parsed(body), [value(o, t) for o, t in zip(operands, types, strict=True)], **options)[0]


def bounds(made: object) -> tuple[object, object]:
    if not isinstance(made, Spread):
        return np.asarray(made)[0], np.asarray(made)[0]
    return made.rows[LOW][0], made.rows[HIGH][0]


PI = math.pi
FUNCTIONS: list[tuple[str, list[object], tuple[float, float]]] = [
    ("add", [(1, 2, 3), (10, 10, 11)], (11, 14)),
    ("add", [(1, 2, 3), 10], (11, 13)),
    ("subtract", [(1, 2, 3), (10, 10, 11)], (-10, -7)),
    ("subtract", [7, (10, 10, 11)], (-4, -3)),
    ("multiply", [(-1, 1, 2), (-3, 1, 4)], (-6, 8)),
    ("multiply", [(1, 2, 3), (4, 5, 6)], (4, 18)),
    ("multiply", [(-1, 1, 2), -2], (-4, 2)),
    ("divide", [(1, 2, 4), (2, 2, 4)], (0.25, 2)),
    ("divide", [(1, 2, 4), -2], (-2, -0.5)),
    ("divide", [(-1, 2, 4), (2, 2, 4)], (-0.5, 2)),
    ("divide", [(1, 2, 4), (-1, 1, 2)], (-INF, INF)),
    ("divide", [(1, 2, 4), (0, 1, 2)], (-INF, INF)),
    ("divide", [(1, 2, 4), (-2, -1, 0)], (-INF, INF)),
    ("divide", [1, (1, 2, 4)], (0.25, 1)),
    ("remainder", [(5, 5.5, 5.75), 2], (1, 1.75)),
    ("remainder", [(5, 6.5, 7), 2], (0, 2)),
    ("remainder", [(-7, -6.5, -5), 2], (-2, 0)),
    ("remainder", [(-1, 0.5, 1.5), 2], (-1, 1.5)),
    ("remainder", [(-3, 0.5, 1), (2, 2, 2.5)], (-2.5, 2.5)),
    ("remainder", [7, (2, 2, 3)], (0, 3)),
    ("maximum", [(1, 2, 3), (2, 2, 4)], (2, 4)),
    ("minimum", [(1, 2, 3), (2, 2, 4)], (1, 3)),
    ("clamp", [0, (-1, 0.5, 2), 1], (0, 1)),
    ("abs", [(-1, 0.5, 2)], (0, 2)),
    ("abs", [(-3, -2, -1)], (1, 3)),
    ("abs", [(0, 1, 2)], (0, 2)),
    ("negate", [(-1, 0.5, 2)], (-2, 1)),
    ("floor", [(0.5, 0.75, 1.5)], (0, 1)),
    ("ceil", [(0.5, 0.75, 1.5)], (1, 2)),
    ("sign", [(-1, 1, 2)], (-1, 1)),
    ("round-nearest-even", [(0.25, 0.5, 1.75)], (0, 2)),
    ("round-nearest-afz", [(0.25, 0.25, 0.5)], (0, 1)),
    ("copy", [(1, 2, 3)], (1, 3)),
    # functions that are rounded: up to their tolerance
    ("sqrt", [(4, 5, 9)], (2, 3)),
    ("rsqrt", [(4, 5, 16)], (0.25, 0.5)),
    ("exponential", [(0, 0.5, 1)], (1, math.e)),
    ("log", [(1, 2, 3)], (0, math.log(3))),
    ("tanh", [(-1, 0, 1)], (-math.tanh(1), math.tanh(1))),
    ("acos", [(-0.5, 0, 0.5)], (math.acos(0.5), math.acos(-0.5))),
    ("cosh", [(-1, 0.5, 2)], (1, math.cosh(2))),
    ("cosh", [(-2, -1.5, -1)], (math.cosh(1), math.cosh(2))),
    ("cosine", [(-0.5, 0, 0.5)], (math.cos(0.5), 1)),
    ("cosine", [(3, 3.25, 3.5)], (-1, math.cos(3.5))),
    ("cosine", [(0.5, 3, 7)], (-1, 1)),
    ("cosine", [(1, 1.5, 2)], (math.cos(2), math.cos(1))),
    ("cosine", [(4, 4.5, 5)], (math.cos(4), math.cos(5))),
    ("cosine", [(6, 6.25, 6.5)], (math.cos(6), 1)),
    ("cosine", [(-3.5, -3.25, -3)], (-1, math.cos(3.5))),
    ("sine", [(1, 1.5, 2)], (math.sin(1), 1)),
    ("sine", [(4, 4.5, 5)], (-1, math.sin(4))),
    ("sine", [(2, 3, 4)], (math.sin(4), math.sin(2))),
    ("sine", [(-0.5, 0, 0.5)], (-math.sin(0.5), math.sin(0.5))),
    ("tan", [(-1, 0, 1)], (-math.tan(1), math.tan(1))),
    ("tan", [(1, 1.5, 2)], (-INF, INF)),
    ("tan", [(2, 3, 4)], (math.tan(2), math.tan(4))),
    ("power", [(2, 2, 3), (1, 2, 2)], (2, 9)),
    ("power", [(0.5, 1, 2), (-1, 1, 2)], (0.25, 4)),
    ("power", [(-1, 1, 2), 2], (0, 4)),
    ("power", [(-1, 1, 2), 3], (-1, 8)),
    ("power", [(-1, 1, 2), -2], (-INF, INF)),
    ("power", [(1, 1, 2), -2], (0.25, 1)),
    ("power", [2, (1, 1, 3)], (2, 8)),
    ("atan2", [(1, 1, 2), (1, 1, 2)], (math.atan2(1, 2), math.atan2(2, 1))),
    ("atan2", [(-1, 0.5, 1), (-2, -1, -1)], (-PI, PI)),
    ("atan2", [(0, 0.5, 1), (-2, -1, -1)], (math.atan2(1, -1), PI)),
    ("atan2", [(-1, -0.5, 0), (-2, -1, -1)], (-PI, PI)),
    ("atan2", [(-1, 0.5, 1), (1, 1, 2)], (math.atan2(-1, 1), math.atan2(1, 1))),
]


@pytest.mark.parametrize(("opcode", "operands", "expected"), FUNCTIONS)
def test_bounds_of_a_function(opcode: str, operands: list[object], expected: tuple[float, float]) -> None:
    made = found(opcode, operands, ["f64"] * len(operands), "f64")
    low, high = bounds(made)
    close = 0 if opcode in EXACT else 1e-14
    assert low == pytest.approx(expected[0], rel=close, abs=close) and high == pytest.approx(
        expected[1], rel=close, abs=close
    )
    if close and math.isfinite(expected[0]) and isinstance(made, Spread):
        assert low <= expected[0] and high >= expected[1]
    if opcode in EXACT and math.isfinite(expected[0]):
        assert (low, high) == expected


EXACT = {
    "add",
    "subtract",
    "multiply",
    "divide",
    "remainder",
    "maximum",
    "minimum",
    "clamp",
    "abs",
    "negate",
    "floor",
    "ceil",
    "sign",
    "round-nearest-even",
    "round-nearest-afz",
    "copy",
}


@pytest.mark.parametrize(
    ("opcode", "given", "expected"),
    [
        ("subtract", (-1, 0.5, 2), (0, 0)),
        ("multiply", (-1, 0.5, 2), (0, 4)),
        ("multiply", (1, 2, 3), (1, 9)),
        ("multiply", (-3, -2, -1), (1, 9)),
        ("multiply", (0, 2, 3), (0, 9)),
        ("multiply", (-3, 1, 2), (0, 9)),
        ("add", (1, 2, 3), (2, 6)),
    ],
)
def test_an_operand_given_twice_is_one_value(opcode: str, given: Bounds, expected: tuple[float, float]) -> None:
    assert bounds(found(opcode, [given], ["f64"], "f64", same=True)) == expected


@pytest.mark.parametrize(
    ("direction", "left", "right", "expected"),
    [
        ("LT", (1, 2, 3), (4, 4, 5), (True, True)),
        ("LT", (1, 2, 3), (3, 4, 5), (False, True)),
        ("LT", (3, 3, 4), (1, 2, 3), (False, False)),
        ("LE", (1, 2, 3), (3, 4, 5), (True, True)),
        ("LE", (3, 3, 4), (1, 2, 3), (False, True)),
        ("LE", (4, 4, 5), (1, 2, 3), (False, False)),
        ("GT", (4, 4, 5), (1, 2, 3), (True, True)),
        ("GT", (3, 4, 5), (1, 2, 3), (False, True)),
        ("GE", (3, 4, 5), (1, 2, 3), (True, True)),
        ("GE", (1, 2, 3), (3, 4, 5), (False, True)),
        ("GE", (1, 2, 3), (4, 4, 5), (False, False)),
        ("EQ", (1, 2, 3), (4, 4, 5), (False, False)),
        ("EQ", (1, 2, 3), (3, 4, 5), (False, True)),
        ("EQ", (3, 4, 5), (1, 2, 3), (False, True)),
        ("NE", (1, 2, 3), (4, 4, 5), (True, True)),
        ("NE", (1, 2, 3), (3, 4, 5), (False, True)),
        ("LT", (1, 2, 3), 4, (True, True)),
        ("EQ", 4, (1, 2, 3), (False, False)),
        ("EQ", 3, (1, 2, 3), (False, True)),
    ],
)
@pytest.mark.parametrize("element_type", ["f64", "s32"])
def test_comparisons(
    direction: str, left: object, right: object, expected: tuple[bool, bool], element_type: str
) -> None:
    made = found("compare", [left, right], [element_type] * 2, "pred", f", direction={direction}")
    assert bounds(made) == expected


@pytest.mark.parametrize(
    ("direction", "holds"), [("LT", False), ("LE", True), ("EQ", True), ("NE", False), ("GE", True)]
)
def test_a_value_is_equal_to_itself(direction: str, holds: bool) -> None:
    assert bounds(found("compare", [(1, 2, 3)], ["f64"], "pred", f", direction={direction}", same=True)) == (
        holds,
        holds,
    )


def test_values_that_moved_together_are_equal() -> None:
    """As a maximum and the element that it came from; where nothing moved, or one alone did, it is open."""
    for left, right, equal in (((1, 2, 3), (1, 2, 3), True), ((2, 2, 2.5), (1, 2, 3), False)):
        assert bounds(found("compare", [left, right], ["f64"] * 2, "pred", ", direction=EQ")) == (equal, True)
        assert bounds(found("compare", [left, right], ["f64"] * 2, "pred", ", direction=NE")) == (False, not equal)


@pytest.mark.parametrize(
    ("predicate", "left", "right", "expected"),
    [
        (True, (1, 2, 3), (5, 6, 7), (1, 3)),
        (False, (1, 2, 3), (5, 6, 7), (5, 7)),
        ((False, True, True), (1, 2, 3), (5, 6, 7), (1, 7)),
        ((False, False, True), (5, 6, 7), (1, 2, 3), (1, 7)),
        ((False, True, True), 1, 2, (1, 2)),
        ((True, True, True), (1, 2, 3), (5, 6, 7), (1, 3)),
    ],
)
def test_choices(predicate: object, left: object, right: object, expected: tuple[float, float]) -> None:
    assert bounds(found("select", [predicate, left, right], ["pred", "f64", "f64"], "f64")) == expected


LEAST, MOST = -(2**31), 2**31 - 1


@pytest.mark.parametrize(
    ("opcode", "operands", "types", "result", "expected"),
    [
        ("add", [(1, 2, 3), (10, 10, 11)], ["s32"] * 2, "s32", (11, 14)),
        ("subtract", [(1, 2, 3), (10, 10, 11)], ["s32"] * 2, "s32", (-10, -7)),
        ("multiply", [(-1, 1, 2), (-3, 1, 4)], ["s32"] * 2, "s32", (-6, 8)),
        ("add", [(MOST - 1, MOST - 1, MOST), 0], ["s32"] * 2, "s32", (MOST - 1, MOST)),
        ("add", [(MOST - 1, MOST - 1, MOST), 1], ["s32"] * 2, "s32", (LEAST, MOST)),
        ("subtract", [(LEAST, LEAST, LEAST + 1), 1], ["s32"] * 2, "s32", (LEAST, MOST)),
        ("add", [(1, 2, 3), 255], ["u8"] * 2, "u8", (0, 255)),
        ("add", [(1, 2, 3), 252], ["u8"] * 2, "u8", (253, 255)),
        ("subtract", [(1, 2, 3), 1], ["u8"] * 2, "u8", (0, 2)),
        ("divide", [(1, 2, 3), 2], ["s32"] * 2, "s32", (LEAST, MOST)),
        ("and", [(1, 2, 3), 2], ["s32"] * 2, "s32", (LEAST, MOST)),
        ("maximum", [(1, 2, 3), 2], ["s32"] * 2, "s32", (2, 3)),
        ("minimum", [(1, 2, 3), 2], ["s32"] * 2, "s32", (1, 2)),
        ("clamp", [0, (-1, 0, 2), 1], ["s32"] * 3, "s32", (0, 1)),
        ("convert", [(-128, 0, 127)], ["s32"], "s8", (-128, 127)),
        ("convert", [(-3, 0, 5)], ["s32"], "s8", (-3, 5)),
        ("convert", [(0, 0, 128)], ["s32"], "s8", (-128, 127)),
        ("convert", [(-129, 0, 5)], ["s32"], "s8", (-128, 127)),
        ("convert", [(-3, 0, 5)], ["s32"], "f32", (-3, 5)),
        ("convert", [(1.5, 2, 3.25)], ["f32"], "s32", (1, 3)),
        ("convert", [(-1, 0, 1)], ["f32"], "pred", (False, True)),
        ("convert", [(1, 2, 3)], ["f32"], "pred", (True, True)),
        ("convert", [(0, 2, 3)], ["f32"], "pred", (False, True)),
        ("convert", [(-3, -2, 0)], ["f32"], "pred", (False, True)),
        ("convert", [(False, True, True)], ["pred"], "s32", (0, 1)),
        ("and", [(False, True, True), True], ["pred"] * 2, "pred", (False, True)),
        ("and", [(False, True, True), False], ["pred"] * 2, "pred", (False, False)),
        ("or", [(False, True, True), True], ["pred"] * 2, "pred", (True, True)),
        ("xor", [(False, True, True), True], ["pred"] * 2, "pred", (False, True)),
        ("not", [(False, True, True)], ["pred"], "pred", (False, True)),
        ("is-finite", [(1, 2, 3)], ["f32"], "pred", (True, True)),
        ("is-finite", [(1, 2, INF)], ["f32"], "pred", (False, True)),
        ("bitcast-convert", [(1, 2, 3)], ["f32"], "s32", (0x3F800000, 0x40400000)),
        ("bitcast-convert", [(0, 2, 3)], ["f32"], "s32", (0, 0x40400000)),
        ("bitcast-convert", [(-1, 2, 3)], ["f32"], "s32", (LEAST, MOST)),
        ("bitcast-convert", [(-1, -1, -1)], ["f32"], "u32", (0xBF800000, 0xBF800000)),
    ],
)  # fmt: skip
def test_whole_numbers_and_truths(
    opcode: str, operands: list[object], types: list[str], result: str, expected: tuple[object, object]
) -> None:
    assert bounds(found(opcode, operands, types, result)) == expected


@pytest.mark.parametrize("bits", [26, 27])
def test_products_that_a_float_does_not_hold_are_open(bits: int) -> None:
    """Bounds are made in f64, which has every whole number up to 2^52 only."""
    body = "  a = s64[1]{0} parameter(0)\n  ROOT r = s64[1]{0} multiply(a, a)"
    rows = np.array([2**bits - 1, 2**bits - 2, 2**bits - 1, *[2**bits - 1] * 4], np.int64).reshape(ROWS, 1)
    (made,) = run(parsed(body), [Spread(rows)])
    low, high = bounds(made)
    wanted = ((2**bits - 2) ** 2, (2**bits - 1) ** 2) if bits == 26 else (-(2**63), 2**63 - 1)
    assert (int(low), int(high)) == wanted  # type: ignore[call-overload]


def complex_of(low: complex, middle: complex, high: complex) -> Spread:
    rows = np.array([middle, low, high, low, middle, high, middle], np.complex128)
    return Spread(rows.reshape(ROWS, 1))


@pytest.mark.parametrize(
    ("opcode", "low", "high"),
    [("add", 11 + 22j, 14 + 26j), ("subtract", -10 - 20j, -7 - 16j),
        ("multiply", 1 * 10 - 4 * 22 + 1j * (1 * 20 + 2 * 10), 3 * 11 - 2 * 20 + 1j * (3 * 22 + 4 * 11))],
)  # fmt: skip
def test_complex_numbers_part_by_part(opcode: str, low: complex, high: complex) -> None:
    body = f"  a = c128[1]{{0}} parameter(0)\n  b = c128[1]{{0}} parameter(1)\n  ROOT r = c128[1]{{0}} {opcode}(a, b)"
    (made,) = run(parsed(body), [complex_of(1 + 2j, 2 + 3j, 3 + 4j), complex_of(10 + 20j, 10 + 21j, 11 + 22j)])
    assert bounds(made) == pytest.approx((low, high), rel=1e-14)


def test_parts_and_wholes() -> None:
    for opcode, wanted in (("real", (1.0, 3.0)), ("imag", (2.0, 4.0))):
        (made,) = run(
            parsed(f"  a = c128[1]{{0}} parameter(0)\n  ROOT r = f64[1]{{0}} {opcode}(a)"),
            [complex_of(1 + 2j, 2 + 3j, 3 + 4j)],
        )
        assert bounds(made) == wanted
    assert bounds(found("complex", [(1, 2, 3), (4, 5, 6)], ["f64"] * 2, "c128")) == (1 + 4j, 3 + 6j)
    equal = (
        "  a = c128[1]{0} parameter(0)\n  b = c128[1]{0} parameter(1)\n  ROOT r = pred[1]{0} compare(a, b), "
        "direction=EQ"
    )
    assert bounds(run(parsed(equal), [complex_of(1, 2, 3), np.array([7j])])[0]) == (False, True)
    assert bounds(run(parsed(equal), [np.array([7j]), np.array([7j])])[0]) == (True, True)
    chosen = (
        "  p = pred[1]{0} parameter(0)\n  a = c128[1]{0} parameter(1)\n  b = c128[1]{0} parameter(2)\n  ROOT r = "
        "c128[1]{0} select(p, a, b)"
    )
    given = [complex_of(1 + 2j, 2 + 3j, 3 + 4j), complex_of(10 + 20j, 10 + 21j, 11 + 22j)]
    assert bounds(run(parsed(chosen), [np.array([True]), *given])[0]) == (1 + 2j, 3 + 4j)
    anything = bounds(run(parsed(chosen), [value((False, True, True), "pred"), *given])[0])
    assert anything == (complex(-INF, -INF), complex(INF, INF))


def test_the_least_modulus_is_that_of_the_point_nearest_to_zero() -> None:
    modulus = parsed("  a = c128[1]{0} parameter(0)\n  ROOT r = f64[1]{0} abs(a)")
    spans = bounds(run(modulus, [complex_of(-3 - 4j, 0.125, 3 + 4j)])[0])
    assert spans[0] == pytest.approx(0, abs=1e-12) and spans[1] >= 5
    beside = bounds(run(modulus, [complex_of(2 - 4j, 2.5, 3 + 4j)])[0])
    assert beside[0] == pytest.approx(2, rel=1e-12) and beside[1] >= 5


# ---- how far rounding moves bounds


@pytest.mark.parametrize("element_type", ["f32", "f64"])
def test_a_function_moves_its_bounds_by_its_tolerance(element_type: str) -> None:
    from hlo_opt.ir import ELEMENT_TYPES
    from hlo_opt.ops import find

    dtype = TYPES[element_type]
    for opcode in ("exponential", "tanh", "log"):
        spec = find(opcode)
        assert spec is not None and spec.tolerance is not None
        made = found(opcode, [0.75], [element_type], element_type)
        assert isinstance(made, Spread)
        middle, low, high = (made.rows[k][0] for k in (VALUE, LOW, HIGH))
        step = np.spacing(np.abs(middle)) * dtype(spec.tolerance(ELEMENT_TYPES[element_type]))  # type: ignore[operator]
        assert (low, high) == (middle - step, middle + step)
        moved = made.rows[MOVED:][:, 0]
        assert ((low <= moved) & (moved <= high)).all() and (
            np.abs(moved - middle) <= 0.26 * step + np.spacing(np.abs(middle))
        ).all()


def test_zero_is_zero_everywhere_and_nothing_changes_its_sign() -> None:
    assert not isinstance(found("sine", [0.0], ["f64"], "f64"), Spread) or bounds(
        found("sine", [0.0], ["f64"], "f64")
    ) == (0, 0)
    tiny = 5e-324
    assert bounds(found("tanh", [tiny], ["f64"], "f64"))[0] >= 0
    assert bounds(found("tanh", [-tiny], ["f64"], "f64"))[1] <= 0


def test_a_rounding_elsewhere_is_one_ulp_of_the_result() -> None:
    for element_type, step in (("bf16", 2.0**-7), ("f32", 2.0**-23)):
        made = found("multiply", [1.0, 1.0], [element_type] * 2, element_type, rewritten=True)
        assert bounds(made) == (1 - step, 1 + step)
        assert isinstance(made, Spread) and (np.abs(made.rows[MOVED:].astype(np.float64) - 1) <= step).all()
        zero = found("multiply", [0.0, 1.0], [element_type] * 2, element_type, rewritten=True)
        assert bounds(zero) == (0, 0)
    assert bounds(found("maximum", [1.0, 1.0], ["f32"] * 2, "f32", rewritten=True)) == (1, 1)


@pytest.mark.parametrize(("low", "high"), [(-1.0, 3.0), (0.0, 2.0)])
def test_a_sampled_function_is_twice_as_wide_as_what_was_seen(low: float, high: float) -> None:
    """Of a complex power's parts nothing is known."""
    body = "  a = c128[1]{0} parameter(0)\n  ROOT r = c128[1]{0} log(a)"
    given = complex_of(2 + 1j, 2.5 + 1.5j, 3 + 2j)
    (made,) = run(parsed(body), [given])
    corners = [np.log(complex(x, y)) for x in (2, 3) for y in (1, 2)] + [np.log(2.5 + 1.5j)]
    middle = np.log(2.5 + 1.5j)
    for part in ("real", "imag"):
        seen = [getattr(c, part) for c in corners]
        at = getattr(middle, part)
        found_low, found_high = (getattr(b, part) for b in bounds(made))
        assert found_low == pytest.approx(at - 2 * (at - min(seen)), rel=1e-12)
        assert found_high == pytest.approx(at + 2 * (max(seen) - at), rel=1e-12)


@pytest.mark.parametrize(
    ("opcode", "operands", "types", "result", "ties"),
    [
        ("floor", [(0.5, 0.75, 1.5)], ["f64"], "f64", 1),
        ("floor", [(0.5, 0.75, 0.9)], ["f64"], "f64", 0),
        ("sign", [(-1, 1, 2)], ["f64"], "f64", 1),
        ("is-finite", [(1, 2, INF)], ["f64"], "pred", 1),
        ("convert", [(0.5, 0.75, 1.5)], ["f64"], "s32", 1),
        ("convert", [(0.5, 0.75, 1.5)], ["f64"], "f32", 0),
        ("convert", [(0.5, 0.75, 1.5)], ["f64"], "bf16", 0),
        ("add", [(1, 2, 3), 1], ["s32"] * 2, "s32", 0),
        ("and", [(False, True, True), True], ["pred"] * 2, "pred", 0),
    ],
)
def test_what_counts_as_a_tie(opcode: str, operands: list[object], types: list[str], result: str, ties: int) -> None:
    body = "\n".join(f"  p{n} = {t}[1]{{0}} parameter({n})" for n, t in enumerate(types))
    module = parsed(f"{body}\n  ROOT r = {result}[1]{{0}} {opcode}({', '.join(f'p{n}' for n in range(len(types)))})")
    analyst = SpreadInterpreter(np.random.default_rng(0))
    told: list[tuple[str, int]] = []
    analyst.tie = lambda instruction, elements: told.append((instruction.name, elements))  # type: ignore[method-assign]
    analyst.call(module.entry, [value(o, t) for o, t in zip(operands, types, strict=True)])
    assert told == [("r", 1)] * ties


def test_how_deep_a_value_is() -> None:
    module = parsed("  a = f64[1]{0} parameter(0)\n  b = f64[1]{0} parameter(1)\n  ROOT r = f64[1]{0} add(a, b)")
    one, other = value((1, 2, 3), "f64"), value((1, 2, 3), "f64")
    assert isinstance(one, Spread) and isinstance(other, Spread)
    other.depth = 2
    (made,) = run(module, [one, other])
    assert isinstance(made, Spread) and made.depth == 3
    (fresh,) = run(parsed("  a = f64[1]{0} parameter(0)\n  ROOT r = f64[1]{0} exponential(a)"), [np.array([0.5])])
    assert isinstance(fresh, Spread) and fresh.depth == 1


def test_a_narrow_function_is_computed_in_f32_and_rounded_once() -> None:
    (made,) = run(
        parsed("  a = bf16[1]{0} parameter(0)\n  ROOT r = bf16[1]{0} tanh(a)"), [value((0.5, 0.75, 1.0), "bf16")]
    )
    assert isinstance(made, Spread) and made.rows.dtype == TYPES["bf16"]
    assert bounds(made) == tuple(np.float32(math.tanh(x)).astype(TYPES["bf16"]) for x in (0.5, 1.0))
    (kept,) = run(
        parsed(
            "  p = pred[1]{0} parameter(0)\n  a = bf16[1]{0} parameter(1)\n  b = f16[1]{0} convert(a)\n  ROOT r = "
            "f16[1]{0} logistic(b)"
        ),
        [np.array([True]), value((0.5, 0.75, 1.0), "bf16")],
    )
    assert isinstance(kept, Spread) and kept.rows.dtype == np.float16


def test_an_element_that_no_simulated_backend_took_the_other_way_is_taken_so_by_one() -> None:
    from hlo_opt.runtime.rounding.elementwise import force

    class Noise:
        rewritten = False

        def __init__(self, sign: float) -> None:
            self.sign = sign

        def noise(self, shape: tuple[int, ...]) -> object:
            return np.full(shape, self.sign)

        def tie(self, instruction: object, elements: int) -> None: ...

    for dtype, low, middle, high, other in (
        (np.int32, 1, 1, 3, 2),
        (np.int32, 1, 3, 3, 2),
        (np.bool_, False, True, True, False),
        (np.float16, 1.0, 1.0, 2.0, 1.0009765625),
        (np.float16, 1.0, 2.0, 2.0, 1.9990234375),
    ):
        for sign, lane in ((1.0, 0), (-1.0, 1)):
            rows = np.array([middle, low, high, *[middle] * 4], dtype).reshape(ROWS, 1)
            force(Noise(sign), rows, np.array([True]))
            moved = rows[MOVED:][:, 0]
            assert moved[lane] == other and [m for k, m in enumerate(moved) if k != lane] == [middle] * 3
            rows = np.array([middle, low, high, *[middle] * 4], dtype).reshape(ROWS, 1)
            force(Noise(sign), rows, np.array([False]))
            assert (rows[MOVED:] == middle).all()
    rows = np.array([1, 1, 3, 3, 1, 1, 1], np.int32).reshape(ROWS, 1)
    force(Noise(1.0), rows, np.array([True]))
    assert list(rows[MOVED:][:, 0]) == [3, 1, 1, 1]
