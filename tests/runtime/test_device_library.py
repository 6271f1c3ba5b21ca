"""The GPU library calls with NumPy standing in for CuPy: both have these functions."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hlo_opt.library.arrays import flat, logical, narrowed, widened
from hlo_opt.library.order import sorting_key
from hlo_opt.library.products import dot, dot_call


def test_bf16_widens_exactly_and_narrows_to_nearest_even() -> None:
    rng = np.random.default_rng(0)
    values = np.concatenate(
        [rng.normal(size=1000), [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3.4e38, 1 + 2**-8, 1 + 3 * 2**-8]]
    )
    single = values.astype(np.float32)
    expected = single.astype(ml_dtypes.bfloat16)
    got = narrowed(np, single, "bf16", "uint16").view(ml_dtypes.bfloat16)
    assert np.array_equal(np.isnan(got), np.isnan(expected))
    kept = ~np.isnan(expected)
    assert np.array_equal(got[kept].view(np.uint16), expected[kept].view(np.uint16))
    wide = widened(np, expected.view(np.uint16), "bf16")
    assert np.array_equal(wide[kept], expected[kept].astype(np.float32))


@pytest.mark.parametrize(
    ("lhs", "rhs", "batch", "contracting", "subscripts"),
    [
        ((3, 4), (4, 5), ((), ()), ((1,), (0,)), "ij,jk->ik"),
        ((4, 3), (5, 4), ((), ()), ((0,), (1,)), "ji,kj->ik"),
        ((2, 3, 4), (2, 4, 5), ((0,), (0,)), ((2,), (1,)), "bij,bjk->bik"),
        ((3, 2, 4), (4, 5, 2), ((1,), (2,)), ((2,), (0,)), "ibj,jkb->bik"),
        ((3, 2, 4), (4, 2), ((), ()), ((1, 2), (1, 0)), "ibj,jb->i"),
        ((4,), (4,), ((), ()), ((0,), (0,)), "i,i->"),
        ((3,), (4,), ((), ()), ((), ()), "i,j->ij"),
    ],
)
def test_dot_is_einsum(lhs, rhs, batch, contracting, subscripts) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(1)
    left, right = rng.integers(-4, 5, lhs).astype(np.float32), rng.integers(-4, 5, rhs).astype(np.float32)
    assert np.array_equal(dot(np, left, right, batch, contracting, "float32"), np.einsum(subscripts, left, right))


def test_dot_over_nothing_is_zero() -> None:
    result = dot(np, np.ones((2, 0), np.float32), np.ones((0, 3), np.float32), ((), ()), ((1,), (0,)), "float32")
    assert np.array_equal(result, np.zeros((2, 3)))


def test_dot_call_respect_layouts_and_types() -> None:
    rng = np.random.default_rng(2)
    left, right = (rng.integers(-4, 5, s).astype(ml_dtypes.bfloat16) for s in ((3, 4), (4, 5)))
    shapes = (
        ("bf16", "uint16", (3, 4), (0, 1)),
        ("bf16", "uint16", (4, 5), (1, 0)),
        ("f32", "float32", (3, 5), (0, 1)),
    )
    (got,) = dot_call(
        np,
        [flat(np, left, (0, 1)).view(np.uint16), flat(np, right, (1, 0)).view(np.uint16)],
        shapes,
        ((), ()),
        ((1,), (0,)),
        "float32",
    )
    expected = left.astype(np.float32) @ right.astype(np.float32)
    assert got.dtype == np.float32 and np.array_equal(logical(got, (3, 5), (0, 1)), expected)


def test_predicates_multiply_by_and_and_add_by_or() -> None:
    shapes = (("pred", "bool", (1, 2), (1, 0)), ("pred", "bool", (2, 1), (1, 0)), ("pred", "bool", (1, 1), (1, 0)))
    args = (((), ()), ((1,), (0,)), "int32")
    assert dot_call(np, [np.array([True, True]), np.array([True, True])], shapes, *args)[0].tolist() == [True]
    assert dot_call(np, [np.array([True, False]), np.array([False, True])], shapes, *args)[0].tolist() == [False]


@pytest.mark.parametrize("descends", [False, True])
def test_denormal_numbers_are_sorted(fake: Any, descends: bool) -> None:
    values = np.array([1e-40, 0.0, -3e-41, 2e-45, -0.0, -1.0, 1e-38], np.float32)
    order = np.argsort(np.asarray(sorting_key(fake, fake.asarray(values), False, descends)), kind="stable")
    assert np.array_equal(order, np.argsort(-values if descends else values, kind="stable"))
