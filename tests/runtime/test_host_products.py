"""Products of f32 matrices that the host computes by itself: batches, several dimensions of a role, any layout."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import hlo_opt
from hlo_opt.runtime.host.library import has_compiler

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")

LAST_BY_FIRST = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"
CASES = {
    "batch": ((3, 5, 7), (3, 7, 4), (3, 5, 4), LAST_BY_FIRST),
    "a large batch": ((70, 40, 33), (70, 33, 50), (70, 40, 50), LAST_BY_FIRST),
    "two batch dimensions": (
        (3, 2, 5, 7),
        (3, 2, 7, 4),
        (3, 2, 5, 4),
        "lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_contracting_dims={2}",
    ),
    "two dimensions of rows": ((5, 3, 7), (7, 4), (5, 3, 4), "lhs_contracting_dims={2}, rhs_contracting_dims={0}"),
    "two of terms": ((5, 3, 7), (3, 7, 6), (5, 6), "lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}"),
    "vectors": ((17,), (17,), (), "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
    "few rows": ((3, 37), (37, 70), (3, 70), "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    "few rows of many terms": ((2, 801), (801, 65), (2, 65), "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    "a batch of rows": ((4, 1, 9), (4, 9, 33), (4, 1, 33), LAST_BY_FIRST),
    "few columns": ((70, 37), (37, 3), (70, 3), "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    "a long vector": ((301, 517), (517,), (301,), "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    "a vector before a matrix": ((517,), (517, 301), (301,), "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
    "a vector before rows": ((517,), (301, 517), (301,), "lhs_contracting_dims={0}, rhs_contracting_dims={1}"),
    "columns of a matrix": ((517, 301), (517,), (301,), "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
    "a vector": ((40, 33), (33,), (40,), "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
}


def shape(sizes: tuple[int, ...], order: tuple[int, ...]) -> str:
    layout = f"{{{','.join(map(str, order))}}}" if order else ""
    return f"f32[{','.join(map(str, sizes))}]{layout}"


def product(sizes: tuple[tuple[int, ...], ...], orders: tuple[tuple[int, ...], ...], attributes: str) -> str:
    left, right, made = map(shape, sizes, orders)
    return f"""HloModule m
ENTRY e {{
  x = {left} parameter(0)
  y = {right} parameter(1)
  ROOT d = {made} dot(x, y), {attributes}
}}
"""


@pytest.mark.parametrize("name", CASES)
def test_products(name: str) -> None:
    *sizes, attributes = CASES[name]
    plain = tuple(tuple(reversed(range(len(s)))) for s in sizes)
    every = itertools.product(*(itertools.permutations(order) for order in plain))
    for number, orders in enumerate(itertools.islice(every, 0, None, 37)):
        module = hlo_opt.parse(product(tuple(sizes), orders, attributes))
        generator = np.random.default_rng(number)
        inputs = [generator.normal(size=s).astype(np.float32) for s in sizes[:2]]
        executable = hlo_opt.compile(module, "host")
        for got, want in zip(executable(*inputs), hlo_opt.evaluate(module, inputs), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
        if orders == plain:
            assert executable.report()["routines"] == {"dot": ["a product of the host's own (host_product.h)"]}
