import numpy as np
import pytest

from hlo_opt.library.linear import eliminated, swapped_order


@pytest.mark.parametrize("shape", [(2, 4, 4), (1, 5, 3), (3, 2, 6), (2, 0, 3)])
def test_the_factors_give_the_rows_in_their_order(shape: tuple[int, int, int]) -> None:
    a = np.random.default_rng(0).normal(size=shape)
    made, pivots, state = eliminated(np, a.copy())
    steps = min(shape[1:])
    lower = np.tril(made, -1)[:, :, :steps] + np.eye(shape[1], steps)
    order = swapped_order(np, pivots - 1, shape[1])
    assert not state.any()
    assert np.allclose(lower @ np.triu(made)[:, :steps], np.take_along_axis(a, order[..., None], 1))


def test_the_first_zero_pivot_is_told() -> None:
    _, _, state = eliminated(np, np.array([[[1.0, 2.0], [2.0, 4.0]], [[0.0, 1.0], [0.0, 1.0]]]))
    assert state.tolist() == [2, 1]
