import numpy as np

from hlo_opt.ops.values import HIGH, LANES, LOW, MOVED, ROWS
from hlo_opt.runtime.rounding.calibration import LEAST, MOST, calibrated


def rows(value: np.ndarray, far: np.ndarray | float, moved: np.ndarray | float) -> np.ndarray:  # type: ignore[type-arg]
    """Bounds so far from a value, and moved values up to so far, one of them exactly."""
    rng = np.random.default_rng(0)
    made = np.repeat(value[None].astype(np.float64), ROWS, axis=0)
    made[LOW] -= far
    made[HIGH] += far
    made[MOVED:] += moved * rng.uniform(-1, 1, (LANES, *value.shape))
    made[MOVED:, ::3] = (value + moved)[::3]
    return made


def test_bounds_are_some_times_as_wide_as_the_moved_values() -> None:
    value = np.linspace(1, 2, 1000)
    made = calibrated(rows(value, 1.0, 1e-3))
    assert np.allclose(made[HIGH] - value, LEAST * 1e-3, rtol=1e-6) and np.allclose(
        value - made[LOW], LEAST * 1e-3, rtol=1e-6
    )
    alone = calibrated(rows(value[:1], 1.0, 1e-3))
    assert np.allclose(alone[HIGH] - value[:1], LEAST * 1e-3)


def test_what_one_source_moves_has_wider_bounds() -> None:
    value = np.linspace(1, 2, 1000)
    made = rows(value, 1.0, 0.0)
    made[MOVED:] += np.array([1e-3, -2e-4, 5e-4, 9e-4])[:, None]
    made = calibrated(made)
    assert np.allclose(made[HIGH] - value, MOST * 1e-3, rtol=1e-6)


def test_bounds_only_shrink() -> None:
    value = np.linspace(1, 2, 1000)
    before = rows(value, 1e-3, 1e-3)
    assert np.array_equal(calibrated(before), before)


def test_an_element_whose_moved_values_meet_it_is_as_open_as_its_like() -> None:
    value = np.ones(1000)
    moved = np.full(1000, 1e-3)
    moved[500] = 0
    made = calibrated(rows(value, 1.0, moved))
    assert np.allclose(made[HIGH][500] - 1, LEAST * 1e-3)


def test_elements_with_other_relative_radii_have_a_share_of_their_own() -> None:
    value = np.ones(2000)
    far = np.where(np.arange(2000) < 1000, 1e-1, 1e-6)
    moved = np.where(np.arange(2000) < 1000, 1e-4, 1e-6)
    made = calibrated(rows(value, far, moved))
    assert np.allclose(made[HIGH][:1000] - 1, LEAST * 1e-4, rtol=1e-3)
    assert np.allclose(made[HIGH][1000:] - 1, 1e-6, rtol=1e-3)


def test_what_is_certain_stays_so_and_what_is_open_stays_open() -> None:
    value = np.linspace(1, 2, 100)
    far = np.where(np.arange(100) % 2, 1.0, 0.0)
    made = calibrated(rows(value, far, 0.0).astype(np.float32))
    assert (made[LOW] == made[HIGH])[::2].all() and (made[LOW] < made[HIGH])[1::2].all()
    endless = rows(value, np.where(np.arange(100) == 7, np.inf, 1.0), 1e-3)
    made = calibrated(endless)
    assert np.isinf(made[HIGH][7]) and np.isfinite(np.delete(made[HIGH], 7)).all()
