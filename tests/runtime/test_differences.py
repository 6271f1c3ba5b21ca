import ml_dtypes
import numpy as np
import pytest

from hlo_opt.runtime.differences import (
    Enclosure,
    compare_output,
    is_floating,
    ordinals,
    real_parts,
    ulp_distance,
    ulp_of,
    ulps,
)

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


def around(array: np.ndarray, far: float) -> Enclosure:  # type: ignore[type-arg]
    return Enclosure((array - far).astype(array.dtype), (array + far).astype(array.dtype))


def test_without_bounds_everything_must_be_equal() -> None:
    a = np.array([1.0, np.nan, np.inf, -0.0], np.float32)
    assert compare_output(0, a, a.copy()).ok and compare_output(0, a, np.abs(a)).ok
    b = a.copy()
    b[0] = np.nextafter(b[0], np.float32(2))
    report = compare_output(0, a, b)
    assert not report.ok and report.differing == 1 and report.max_ulp == 1
    assert report.first is not None and report.first.index == (0,)


def test_the_first_difference_is_shown_with_all_its_dimensions() -> None:
    a = np.zeros((3, 4), np.int32)
    b = a.copy()
    b[1, 2] = 7
    b[2, 0] = 9
    report = compare_output(2, a, b)
    assert report.first is not None
    assert str(report.first) == "out2[1, 2]: expected 0, got 7 (must be equal)"
    assert report.differing == 2 and report.max_error == 9


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinities_must_stand_in_the_same_places(bad: float) -> None:
    a = np.ones(5, np.float32)
    b = a.copy()
    b[3] = bad
    for left, right in ((a, b), (b, a)):
        report = compare_output(0, left, right, around(left, 0.1))
        assert not report.ok and report.first is not None and report.first.index == (3,)
    near = compare_output(0, a, a + np.float32(0.05), around(a, 0.1))
    assert near.ok and near.share == pytest.approx(0.5, rel=1e-4) and near.rounded == 5
    assert near.max_relative == pytest.approx(0.05, rel=1e-4)
    assert compare_output(0, a, a, around(a, 0.1)).share == 0


def test_each_element_has_its_own_bound_and_none_is_excused() -> None:
    a = np.ones(1000, np.float32)
    bounds = around(a, 1e-6)
    bounds.low[7], bounds.high[7] = 0, 5
    jumped = a.copy()
    jumped[7] = 4.5
    report = compare_output(0, a, jumped, bounds)
    assert report.ok and report.share == pytest.approx(3.5 / 4)
    jumped[7], jumped[8] = 1, 1.5
    report = compare_output(0, a, jumped, bounds)
    assert report.differing == 1 and report.first is not None and report.first.index == (8,)
    assert report.first.ulp > report.first.bound > 1


def test_a_complex_number_of_which_both_parts_differ_is_one_element() -> None:
    a = np.ones(4, np.complex64)
    b = a.copy()
    b[1:3] = 2 + 2j
    report = compare_output(0, a, b)
    assert report.differing == 2 and report.first is not None and report.first.index == (1,)


def test_elements_that_are_set_aside_may_be_anything_and_are_counted() -> None:
    a = np.ones(10, np.float32)
    bounds = around(a, 0.0)
    bounds.low[2:4], bounds.high[2:4] = -np.inf, np.inf
    wrong = a.copy()
    wrong[2:4] = (np.nan, 1e30)
    report = compare_output(0, a, wrong, bounds)
    assert report.ok and report.set_aside == 2 and report.loose == pytest.approx(0.2)
    wrong[4] = 2
    assert not compare_output(0, a, wrong, bounds).ok


def test_integers_may_differ_only_where_they_are_open() -> None:
    a = np.arange(10)
    bounds = Enclosure(a.copy(), a.copy())
    bounds.high[3] += 1
    other = a.copy()
    other[3] += 1
    report = compare_output(0, a, other, bounds)
    assert report.ok and report.set_aside == 1 and report.loose == pytest.approx(0.1)
    other[4] += 1
    assert not compare_output(0, a, other, bounds).ok


def test_what_is_loose_counts_by_its_magnitude() -> None:
    a = np.array([1, 1, 8], np.float32)
    assert around(a, 0.2).loose_share(a) == pytest.approx(0.2)
    assert around(a, 0.5).loose_share(a) == 1
    assert around(a, 0.01).loose_share(a) == 0
    zeros = np.zeros(4, np.float32)
    assert Enclosure.exact(zeros).loose_share(zeros) == 0 and around(zeros, 0.1).loose_share(zeros) == 1
    scalar = np.array(2, np.float32)
    assert around(scalar, 0.2).loose_share(scalar) == 1


def test_other_shapes_and_types_differ() -> None:
    a = np.zeros((2, 3), np.float32)
    for b in (np.zeros((3, 2), np.float32), np.zeros((2, 3))):
        report = compare_output(0, a, b)
        assert not report.ok and "float32[2, 3]" in str(report.first)


def test_narrow_floats_and_complex_numbers() -> None:
    a = np.array([1.0, 2.0], ml_dtypes.bfloat16)
    assert compare_output(0, a, a).ok
    assert compare_output(0, a, np.array([1.0, 2.02], ml_dtypes.bfloat16)).first is not None
    c = np.array([[1 + 1j]], np.complex64)
    report = compare_output(0, c, c + 1j)
    assert report.first is not None and report.first.index == (0, 0)


def test_units_in_the_last_place_are_written_out() -> None:
    shown = [ulps(v) for v in (0.5, 164.96, 9999.6, 1.6649e6, float("inf"))]
    assert shown == ["0.5", "165", "10,000", "1,665,000", "inf"]
