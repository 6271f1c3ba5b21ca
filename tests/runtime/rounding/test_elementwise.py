import numpy as np
import pytest

import hlo_opt
from hlo_opt.ops import OpKind, table
from hlo_opt.ops.values import HIGH, LOW, MOVED, VALUE, Spread
from hlo_opt.runtime.differences import ulp_of
from hlo_opt.runtime.rounding.analysis import analyse

from .spreads import DTYPES, holds, parsed, run, spread

POSITIVE = {"log", "rsqrt", "sqrt", "acosh", "log-plus-one", "power"}
UNIT = {"acos", "asin", "atanh"}
ONE = sorted(
    s.opcode
    for s in table()
    if s.kind is OpKind.ELEMENTWISE
    and s.arity.most == 1
    and "float" in s.accepts
    and s.opcode not in ("copy", "bitcast-convert", "convert", "reduce-precision", "stochastic-convert")
)
TWO = ["add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "power", "atan2"]


def values(opcode: str, dtype: object, count: int = 400) -> np.ndarray:  # type: ignore[type-arg]
    x = np.random.default_rng(7).normal(size=count) * 3
    if opcode in POSITIVE:
        x = np.abs(x) + (1.01 if opcode == "acosh" else 0.01)
    if opcode in UNIT:
        x = np.clip(x / 9, -0.98, 0.98)
    x[:3] = (0.5, 1.0, -1.0) if opcode not in POSITIVE | UNIT else 0.5 + (opcode == "acosh")
    return x.astype(dtype)  # type: ignore[no-any-return,call-overload]


@pytest.mark.parametrize("element_type", ["f32", "bf16"])
@pytest.mark.parametrize("opcode", [o for o in ONE if o not in ("is-finite", "real", "imag")])
def test_functions_of_values_within_bounds_are_within_bounds(opcode: str, element_type: str) -> None:
    body = f"  a = {element_type}[400]{{0}} parameter(0)\n  ROOT b = {element_type}[400]{{0}} {opcode}(a)"
    for radius in (1e-3, 0.3):
        holds(body, values(opcode, DTYPES[element_type]), radius=radius)


@pytest.mark.parametrize("element_type", ["f32", "bf16", "s32"])
@pytest.mark.parametrize("opcode", TWO)
def test_functions_of_two_values_within_bounds_are_within_bounds(opcode: str, element_type: str) -> None:
    if element_type == "s32" and opcode == "atan2":
        return
    t = f"{element_type}[400]{{0}}"
    body = f"  a = {t} parameter(0)\n  b = {t} parameter(1)\n  ROOT c = {t} {opcode}(a, b)"
    a, b = values(opcode, np.float64), values("add", np.float64)[::-1].copy()
    for radius in (1e-2, 0.4):
        holds(body, (a * 5).astype(DTYPES[element_type]), (b * 3).astype(DTYPES[element_type]), radius=radius)
    same = f"  a = {t} parameter(0)\n  ROOT c = {t} {opcode}(a, a)"
    holds(same, (a * 5).astype(DTYPES[element_type]), radius=0.3)


@pytest.mark.parametrize("direction", ["EQ", "NE", "LT", "LE", "GT", "GE"])
@pytest.mark.parametrize("element_type", ["f32", "s32"])
def test_comparisons_and_choices_are_open_where_bounds_lie_on_both_sides(direction: str, element_type: str) -> None:
    t = f"{element_type}[400]{{0}}"
    body = (
        f"  a = {t} parameter(0)\n  b = {t} parameter(1)\n  p = pred[400]{{0}} compare(a, b), direction={direction}\n"
    )
    body += f"  n = pred[400]{{0}} not(p)\n  c = {t} select(n, a, b)\n  ROOT t = (pred[400]{{0}}, {t}) tuple(p, c)"
    a = np.round(values("add", np.float64), 1) * (10 if element_type == "s32" else 1)
    made = holds(body, a.astype(DTYPES[element_type]), np.roll(a, 1).astype(DTYPES[element_type]), radius=0.2)
    assert isinstance(made[0], Spread) and 0 < np.mean(made[0].rows[LOW] != made[0].rows[HIGH]) < 0.5


@pytest.mark.parametrize("to", ["s32", "bf16", "pred", "f64"])
def test_conversions_hold_their_bounds(to: str) -> None:
    body = f"  a = f32[400]{{0}} parameter(0)\n  ROOT b = {to}[400]{{0}} convert(a)"
    holds(body, values("add", np.float32), radius=0.1)


def test_basic_arithmetic_adds_nothing_of_its_own() -> None:
    a = values("add", np.float32)
    body = (
        "  a = f32[400]{0} parameter(0)\n  b = f32[400]{0} multiply(a, a)\n  c = f32[400]{0} divide(b, a)\n  ROOT d = "
        "f32[400]{0} subtract(c, b)"
    )
    (made,) = run(parsed(body), [a])
    assert isinstance(made, np.ndarray) and np.array_equal(made, a * a / a - a * a, equal_nan=True)


def test_a_rounding_to_a_narrow_type_makes_most_elements_certain_again() -> None:
    a = values("add", DTYPES["bf16"], 20000)
    body = "  a = bf16[20000]{0} parameter(0)\n  ROOT b = bf16[20000]{0} exponential(a)"
    (made,) = run(parsed(body), [a])
    open_ = 0.0 if not isinstance(made, Spread) else float(np.mean(made.rows[LOW] != made.rows[HIGH]))
    assert open_ < 1e-3
    wide = body.replace("bf16", "f32")
    (made,) = run(parsed(wide), [a.astype(np.float32)])
    assert isinstance(made, Spread) and np.mean(made.rows[LOW] != made.rows[HIGH]) > 0.99


def test_an_open_element_is_taken_the_other_way_by_an_simulated_backend() -> None:
    rng = np.random.default_rng(0)
    a = values("add", np.float32)
    given = spread(rng, a, 1e-6)
    given.rows[MOVED:] = given.rows[0]
    body = "  a = f32[400]{0} parameter(0)\n  ROOT b = bf16[400]{0} convert(a)"
    (made,) = run(parsed(body), [given])
    if isinstance(made, Spread):
        open_ = made.rows[LOW] != made.rows[HIGH]
        assert (made.rows[MOVED:, open_] != made.rows[0, open_]).any(axis=0).all()


def test_what_one_value_is_equal_to_is_no_tie() -> None:
    rng = np.random.default_rng(0)
    body = (
        "  a = f32[5,80]{1,0} parameter(0)\n  k = f32[] constant(-inf)\n  m = f32[5]{0} reduce(a, k), dimensions={1}, "
        "to_apply=maximum_f32\n"
    )
    body += "  b = f32[5,80]{1,0} broadcast(m), dimensions={0}\n  ROOT p = pred[5,80]{1,0} compare(a, b), direction=EQ"
    a = rng.permutation(400).reshape(5, 80).astype(np.float32) + 7
    (made,) = run(parsed(body), [spread(rng, a, 1e-6)])
    rows = made.rows if isinstance(made, Spread) else np.stack([made] * 3)
    top = a == a.max(axis=1, keepdims=True)
    certain = rows[LOW] == rows[HIGH]
    assert certain[~top].all() and np.mean(certain[top]) > 0.5


def test_roundings_may_be_left_out_where_the_other_module_computes_otherwise() -> None:
    a = values("add", DTYPES["bf16"])
    body = "  a = bf16[400]{0} parameter(0)\n  ROOT b = bf16[400]{0} multiply(a, a)"
    assert isinstance(run(parsed(body), [a])[0], np.ndarray)
    (made,) = run(parsed(body), [a], rewritten=True)
    assert isinstance(made, Spread) and np.mean(made.rows[LOW] < made.rows[HIGH]) > 0.9


ENDS = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.5], np.float64)


def complex_ends() -> np.ndarray:  # type: ignore[type-arg]
    made = np.empty((ENDS.size, ENDS.size), np.complex128)
    made.real, made.imag = ENDS[:, None], ENDS
    return made


@pytest.mark.parametrize("opcode", ["exponential", "log", "sqrt", "rsqrt", "tanh", "sine", "cosine", "logistic"])
def test_infinities_and_nans_of_a_complex_function_are_not_set_aside(opcode: str) -> None:
    (made,) = run(
        parsed(f"  a = c128[6,6]{{1,0}} parameter(0)\n  ROOT r = c128[6,6]{{1,0}} {opcode}(a)"), [complex_ends()]
    )
    assert isinstance(made, Spread)
    low, value, high = (np.stack([made.rows[k].real, made.rows[k].imag]) for k in (LOW, VALUE, HIGH))
    same = (low == value) & (value == high) | (np.isnan(low) & np.isnan(value) & np.isnan(high))
    assert same[~np.isfinite(value)].all() and (high - low)[np.isfinite(value)].max() < 1e-10


def test_a_complex_power_is_as_uncertain_as_its_logarithm_times_the_exponent() -> None:
    body = "  a = c128[4]{0} parameter(0)\n  b = c128[4]{0} parameter(1)\n  ROOT r = c128[4]{0} power(a, b)"
    (made,) = run(parsed(body), [np.array([3 + 4j, 3 + 4j, 2, 0.7j]), np.array([2, 300, 1e200j, -1.5e308j])])
    assert isinstance(made, Spread)
    wide = np.abs(made.rows[HIGH] - made.rows[LOW]) / np.abs(made.rows[VALUE])
    assert wide[0] < 1e-13 < wide[1] < 1e-11
    assert np.isinf(made.rows[LOW].real[2:]).all() and np.isinf(made.rows[HIGH].imag[2:]).all()


def test_a_complex_angle_of_half_a_turn_may_be_the_other_way() -> None:
    body = "  a = c128[2]{0} parameter(0)\n  b = c128[2]{0} parameter(1)\n  ROOT r = c128[2]{0} atan2(a, b)"
    (made,) = run(parsed(body), [np.array([0, 1 + 0j]), np.array([-2, 1 + 0j])])
    assert isinstance(made, Spread)
    assert made.rows[LOW].real[0] <= -3.14 and made.rows[HIGH].real[0] >= 3.14
    assert abs(made.rows[LOW].real[1] - made.rows[HIGH].real[1]) < 1e-12


@pytest.mark.parametrize(
    ("opcode", "element_type", "allowed"),
    [("divide", "f32", 3), ("sqrt", "f32", 2), ("divide", "f64", 0), ("divide", "bf16", 0)],
)
def test_a_gpu_divides_and_takes_roots_within_tolerances_of_its_own(
    opcode: str, element_type: str, allowed: int
) -> None:
    second = ", y" if opcode == "divide" else ""
    shape = f"{element_type}[4096]{{0}}"
    module = hlo_opt.parse(
        f"HloModule m\nENTRY e {{\n  x = {shape} parameter(0)\n  y = {shape} parameter(1)\n  ROOT r = {shape} {opcode}(x{second})\n}}\n"
    )
    dtype = module.entry.root.shape.type.dtype
    random = np.random.default_rng(0)
    inputs = [random.uniform(1, 2, 4096).astype(dtype) for _ in range(2)]
    exact = analyse(module, inputs).outputs[0]
    assert isinstance(exact, Spread) == (opcode == "sqrt")
    made = analyse(module, inputs, precise=False).outputs[0]
    assert isinstance(made, Spread) == (allowed > 0)  # no quotient of two bf16 is near the middle of two others
    if isinstance(made, Spread):
        value, low, high = (made.rows[k].astype(np.float64) for k in (VALUE, LOW, HIGH))
        unit = ulp_of(made.rows[VALUE])
        assert ((high - low) / unit).max() <= 2 * allowed + 1e-9
        assert np.all(value - low >= (allowed - 1.01) * unit) and np.all(high - value >= allowed * unit * 0.49)
