"""Traps of the NumPy meanings, each in its smallest form; `test_against_xla` has the whole table."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hlo_opt
from hlo_opt.ops import spec_of

INF, NAN = math.inf, math.nan


def signs(array: np.ndarray[Any, Any]) -> list[bool]:
    """Whether the sign bit is set, of zeros too."""
    return np.signbit(array.astype(np.float64)).tolist()


@pytest.mark.parametrize("name", ["f32", "f64", "bf16", "f8e5m2"])
def test_zero_is_greater_than_minus_zero(family: Any, name: str) -> None:
    left, right = [0.0, -0.0, -0.0, 0.0], [-0.0, 0.0, -0.0, 0.0]
    (greater,) = family.run(f"{name}[4] maximum({name}[4], {name}[4])", left, right)
    (smaller,) = family.run(f"{name}[4] minimum({name}[4], {name}[4])", left, right)
    assert signs(greater) == [False, False, True, False]
    assert signs(smaller) == [True, True, True, False]


def test_zero_is_greater_than_minus_zero_in_clamp_and_folds(family: Any) -> None:
    (held,) = family.run("f32[2] clamp(f32[2], f32[2], f32[2])", [-1.0, -1.0], [-0.0, 0.0], [0.0, -0.0])
    assert signs(held) == [True, True]
    text = "f32[3] reduce(f32[2,3], f32[]), dimensions={0}, to_apply=max"
    (folded,) = family.run(text, [[0.0, -0.0, -0.0], [-0.0, 0.0, -0.0]], -INF)
    assert signs(folded) == [False, False, True]
    text = "f32[2] reduce-window(f32[3], f32[]), window={size=2}, to_apply=max"
    assert signs(family.run(text, [0.0, -0.0, -0.0], -INF)[0]) == [False, True]


def test_a_type_without_nan_makes_minus_zero_of_it(family: Any) -> None:
    (made,) = family.run("f4e2m1fn[3] convert(f32[3])", [NAN, -NAN, 6.0])
    assert made.astype(float).tolist() == [0.0, 0.0, 6.0] and signs(made) == [True, True, False]


def test_the_modulus_of_a_number_with_a_nan_in_it(family: Any) -> None:
    (made,) = family.run("f32[3] abs(c64[3])", [complex(INF, NAN), complex(NAN, -INF), complex(-INF, 1)])
    assert np.isnan(made).tolist() == [True, True, False] and made[2] == INF


def test_log_plus_one_of_small_complex_numbers(family: Any) -> None:
    # |1 + z|^2 - 1 = 2 a + a^2 + b^2, whose halved logarithm is the real part
    a, b = 3.4e-4, -1.3e-3
    (made,) = family.run("c128[1] log-plus-one(c128[1])", [complex(a, b)])
    assert made[0].real == pytest.approx(math.log1p(a * (a + 2) + b * b) / 2, rel=1e-15)
    assert made[0].imag == pytest.approx(math.atan2(b, 1 + a), rel=1e-15)


def test_reduce_precision_of_eight_bits_works_in_f16(family: Any) -> None:
    tiny = float(ml_dtypes.finfo(ml_dtypes.float8_e5m2).smallest_subnormal)
    text = "f8e5m2[2] reduce-precision(f8e5m2[2]), exponent_bits=5, mantissa_bits=2"
    # its exponents are those of f16: nothing is cut, denormal numbers neither
    assert family.run(text, [tiny, 3 * tiny])[0].astype(float).tolist() == [tiny, 3 * tiny]


def test_bitcast_convert_keeps_complex_numbers_whole(family: Any) -> None:
    family.refuses("c128[2] bitcast-convert(c64[2,2])", "cannot take c64 to c128")


def test_bitcast_convert_of_narrow_integers(family: Any) -> None:
    (split,) = family.run("u4[2,2] bitcast-convert(u8[2])", [0x21, 0xF3])
    assert split.astype(int).tolist() == [[1, 2], [3, 15]]
    assert family.run("s8[2] bitcast-convert(u4[2,2])", split)[0].tolist() == [0x21, -13]


def test_total_order(family: Any) -> None:
    x = np.array([-NAN, -INF, -1.0, -1e-300, -0.0, 0.0, 1e-300, 1.0, INF, NAN])
    text = "pred[10,10] compare(f64[10,10], f64[10,10]), direction=LT, type=TOTALORDER"
    (made,) = family.run(text, np.broadcast_to(x[:, None], (10, 10)), np.broadcast_to(x, (10, 10)))
    assert np.array_equal(made, np.arange(10)[:, None] < np.arange(10))


def test_infinite_and_undefined_arguments_of_functions(family: Any) -> None:
    x = [INF, -INF, NAN, 0.0, -0.0, 2.0, -2.0]
    expected = {
        "acosh": [INF, NAN, NAN, NAN, NAN, math.acosh(2.0), NAN],
        "atanh": [NAN, NAN, NAN, 0.0, -0.0, NAN, NAN],
        "acos": [NAN, NAN, NAN, math.pi / 2, math.pi / 2, NAN, NAN],
        "erf": [1.0, -1.0, NAN, 0.0, -0.0, math.erf(2.0), -math.erf(2.0)],
    }
    for opcode, values in expected.items():
        np.testing.assert_allclose(family.run(f"f64[7] {opcode}(f64[7])", x)[0], values, 1e-15)


@pytest.mark.parametrize("opcode", ["acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh"])
def test_function_that_only_jax_lowers(family: Any, opcode: str) -> None:
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        for name, dtype in (("f32", np.float32), ("f64", np.float64)):
            x = np.random.default_rng(0).uniform(-3, 3, 50).astype(dtype)
            (made,) = family.run(f"{name}[50] {opcode}({name}[50])", x)
            _, root = family.module(f"{name}[50] {opcode}({name}[50])")
            tolerance = spec_of(root).tolerance
            assert tolerance is not None
            ulp = 3 * tolerance(root.shape.type) * float(np.finfo(dtype).eps)
            np.testing.assert_allclose(made, np.asarray(getattr(jax.lax, opcode)(x)), ulp, ulp)


def test_epsilon_of_a_batch_norm_has_32_bits(family: Any) -> None:
    text = "f64[1] batch-norm-inference(f64[1], f64[1], f64[1], f64[1], f64[1]), epsilon=0.001, feature_index=0"
    (made,) = family.run(text, [1.0], [1.0], [0.0], [0.0], [0.0])
    assert made[0] == pytest.approx(1 / math.sqrt(float(np.float32(0.001))), rel=1e-15)


def test_a_map_may_round_as_its_computation_does() -> None:
    text = (
        "HloModule m\n\nf {\n  x = f32[] parameter(0)\n  ROOT y = f32[] sine(x)\n}\n\nENTRY e {\n  p = f32[2] "
        "parameter(0)\n"
    )
    module = hlo_opt.parse(text + "  ROOT r = f32[2] map(p), dimensions={0}, to_apply=f\n}\n")
    tolerance = spec_of(module.entry.root).tolerance
    assert tolerance is not None and tolerance(module.entry.root.shape.type) == 0.0
