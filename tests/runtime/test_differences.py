import ml_dtypes
import numpy as np
import pytest

from hlo_opt.runtime.differences import FACTOR, Bound, bound_of, compare_output


def exact(array: np.ndarray) -> Bound:  # type: ignore[type-arg]
    return bound_of(array, [])


def test_without_tolerances_everything_must_be_equal() -> None:
    a = np.array([1.0, np.nan, np.inf, -0.0], np.float32)
    assert compare_output(0, a, a.copy(), exact(a)).ok
    b = a.copy()
    b[0] = np.nextafter(b[0], np.float32(2))
    report = compare_output(0, a, b, exact(a))
    assert not report.ok and report.differing == 1 and report.max_ulp == 1
    assert report.first is not None and report.first.index == (0,)


def test_the_first_difference_is_shown_with_all_its_dimensions() -> None:
    a = np.zeros((3, 4), np.int32)
    b = a.copy()
    b[1, 2] = 7
    b[2, 0] = 9
    report = compare_output(2, a, b, exact(a))
    assert report.first is not None
    assert str(report.first) == "out2[1, 2]: expected 0, got 7 (must be equal)"
    assert report.differing == 2 and report.max_error == 9


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinities_must_stand_in_the_same_places(bad: float) -> None:
    a = np.ones(5, np.float32)
    b = a.copy()
    b[3] = bad
    bound = bound_of(a, [a + np.float32(0.1)])
    for left, right in ((a, b), (b, a)):
        report = compare_output(0, left, right, bound_of(left, [left + np.float32(0.1)]))
        assert not report.ok and report.first is not None and report.first.index == (3,)
    near = compare_output(0, a, a + np.float32(0.2), bound)
    assert near.ok and near.share == pytest.approx(0.2 / (FACTOR * 0.1), rel=1e-5)
    assert compare_output(0, a, a, bound).share == 0


def test_a_bound_follows_what_moved_and_covers_neighbours() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=1000).astype(np.float32)
    moved = [(a * (1 + 1e-6 * rng.uniform(-1, 1, a.shape))).astype(np.float32) for _ in range(3)]
    bound = bound_of(a, moved)
    assert compare_output(0, a, (a * np.float32(1 + 2e-6)).astype(np.float32), bound).ok
    wrong = compare_output(0, a, (a * np.float32(1 + 1e-3)).astype(np.float32), bound)
    assert not wrong.ok and wrong.differing > 900


def test_one_element_that_jumped_does_not_excuse_the_others() -> None:
    a = np.ones(1000, np.float32)
    moved = np.nextafter(a, np.float32(2))
    moved[7] = 5.0
    bound = bound_of(a, [moved])
    wrong = a.copy()
    wrong[100:400] = 1.5
    assert not compare_output(0, a, wrong, bound).ok
    jumped = a.copy()
    jumped[9] = 5.0
    assert compare_output(0, a, jumped, bound).ok
    assert bound.allowed == int(FACTOR)


def test_integers_may_flip_only_where_the_original_itself_flips() -> None:
    a = np.arange(1000)
    moved = a.copy()
    moved[3] += 1
    other = a.copy()
    other[10:14] += 1
    assert compare_output(0, a, other, bound_of(a, [moved])).ok
    assert not compare_output(0, a, other, bound_of(a, [a])).ok
    assert not compare_output(0, a, a + 1, bound_of(a, [moved])).ok


def test_an_eighth_at_most_may_flip() -> None:
    a = np.zeros(16, np.int32)
    moved = a.copy()
    moved[0] = 1
    assert bound_of(a, [moved]).allowed == 2


def test_other_shapes_and_types_differ() -> None:
    a = np.zeros((2, 3), np.float32)
    for b in (np.zeros((3, 2), np.float32), np.zeros((2, 3))):
        report = compare_output(0, a, b, exact(a))
        assert not report.ok and "float32[2, 3]" in str(report.first)


def test_narrow_floats_and_complex_numbers() -> None:
    a = np.array([1.0, 2.0], ml_dtypes.bfloat16)
    assert compare_output(0, a, a, exact(a)).ok
    assert compare_output(0, a, np.array([1.0, 2.02], ml_dtypes.bfloat16), exact(a)).first is not None
    c = np.array([[1 + 1j]], np.complex64)
    report = compare_output(0, c, c + 1j, exact(c))
    assert report.first is not None and report.first.index == (0, 0)
