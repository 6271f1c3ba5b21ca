import ml_dtypes
import numpy as np
import pytest

from hlo_opt.runtime.ulp import is_floating, ordinals, real_parts, ulp_distance, ulp_of

FLOATS = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16]


@pytest.mark.parametrize("dtype", FLOATS)
def test_neighbours_are_one_ulp_apart(dtype: type) -> None:
    values = np.array([1.0, -1.0, 3.5, 0.0, 1e-3, -2e3], dtype)
    up = np.nextafter(values, np.array(np.inf, dtype))
    assert (ulp_distance(values, up) == 1).all()
    assert (ulp_distance(values, values) == 0).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_ulp_of_is_the_gap_above(dtype: type) -> None:
    values = np.array([1.0, 1.5, 7.0, 1024.0, 1e-3], dtype)
    gap = np.nextafter(values, np.array(np.inf, dtype)).astype(np.float64) - values.astype(np.float64)
    assert np.array_equal(ulp_of(values), gap)


def test_zeros_are_equal_and_signs_count() -> None:
    assert ulp_distance(np.array([0.0]), np.array([-0.0]))[0] == 0
    tiny = np.array([np.float32(1e-45)])
    assert ulp_distance(tiny, -tiny)[0] == 2
    huge = np.array([1e308])
    assert ulp_distance(huge, -huge)[0] > 1e18


def test_nan_is_infinitely_far_from_numbers() -> None:
    a, b = np.array([np.nan, np.nan, 1.0], np.float32), np.array([np.nan, 1.0, np.nan], np.float32)
    assert ulp_distance(a, b).tolist() == [0.0, np.inf, np.inf]


def test_complex_numbers_are_pairs() -> None:
    assert real_parts(np.array([[1 + 2j]], np.complex64)).tolist() == [[[1.0, 2.0]]]
    assert is_floating(np.dtype(np.complex64)) and is_floating(np.dtype(ml_dtypes.float8_e5m2))
    assert not is_floating(np.dtype(np.int32)) and not is_floating(np.dtype(ml_dtypes.int4))


def test_four_bit_floats_have_their_sign_in_the_low_bits() -> None:
    values = np.array([-1.0, -0.5, 0.0, 0.5, 1.0], ml_dtypes.float4_e2m1fn)
    assert ordinals(values).tolist() == [-2, -1, 0, 1, 2]
