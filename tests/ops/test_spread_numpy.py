import ml_dtypes
import numpy as np
import pytest

from hlo_opt.ir import ELEMENT_TYPES
from hlo_opt.ops.spread import aligned, aside, by_rows, element_type_of, limits, ordered, set_aside, settled
from hlo_opt.ops.values import HIGH, LOW, ROWS, Spread


def rows(*values: float, dtype: object = np.float32) -> np.ndarray:  # type: ignore[type-arg]
    return np.repeat(np.array(values, dtype)[None], ROWS, axis=0)  # type: ignore[call-overload,no-any-return]


def test_every_type_is_found_by_how_numpy_holds_it() -> None:
    for element_type in ELEMENT_TYPES.values():
        try:
            dtype = element_type.dtype
        except TypeError:
            continue
        assert element_type_of(dtype) == element_type


def test_what_is_certain_is_an_array_again() -> None:
    made = rows(1.0, np.nan)
    assert isinstance(settled(made), np.ndarray)
    made[HIGH, 0] = 2
    assert isinstance(settled(made), Spread)


@pytest.mark.parametrize(
    "dtype", [np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.int8, np.uint64, np.bool_]
)
def test_elements_that_are_set_aside_may_be_anything(dtype: object) -> None:
    made = rows(1, 0, dtype=dtype)
    set_aside(made, np.array([True, False]), element_type_of(made.dtype))
    assert made[LOW, 0] < made[HIGH, 0] and made[LOW, 1] == made[HIGH, 1]
    if made.dtype.kind in "iu":
        assert (made[LOW, 0], made[HIGH, 0]) == limits(element_type_of(made.dtype))


def test_nan_in_a_bound_sets_an_element_aside_and_the_value_lies_within() -> None:
    made = rows(1.0, 2.0, np.nan)
    made[LOW, 0], made[HIGH, 1] = np.nan, 1.5
    ordered(made, ELEMENT_TYPES["f32"])
    assert list(aside(made)) == [True, False, False]
    assert made[HIGH, 1] == 2 and made[LOW, 1] == 2 and np.isnan(made[HIGH, 2])


def test_rows_go_one_by_one_through_what_takes_no_rows() -> None:
    made = rows(1.0, 2.0)
    made[HIGH] += 1
    found = by_rows(lambda row: (row[0][::-1], row[1]), [Spread(made), np.float32(3)])
    assert isinstance(found[0], Spread) and np.array_equal(found[0].rows, made[:, ::-1]) and found[1] == 3


def test_scalars_broadcast_against_arrays() -> None:
    a, b = aligned([Spread(rows(1.0, 2.0)), Spread(rows(5.0)[:, 0])])
    assert (a + b).shape == (ROWS, 2)
