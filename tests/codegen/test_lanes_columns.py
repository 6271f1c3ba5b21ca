"""Short rows that each lane folds: copied as columns before lanes read them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_opt.runtime.host.library import has_compiler
from tests.host_text import run_on_host

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

KINDS = {"s8": np.int8, "s16": np.int16, "f32": np.float32, "f64": np.float64}
COMPLEX = {"c64": np.complex64, "c128": np.complex128}
"""Structs, of which compilers make no vectors."""
PRODUCTS = "dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"


def drawn(kind: str, *shape: int) -> Any:
    """No two sums or products of a row overflow."""
    return np.random.default_rng(0).integers(-9, 9, shape).astype((KINDS | COMPLEX)[kind])


@pytest.mark.parametrize("terms", [5, 8, 11])
@pytest.mark.parametrize("rows", [1280, 1003])
@pytest.mark.parametrize("kind", [*KINDS, *COMPLEX])
def test_sums(kind: str, rows: int, terms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight rows at a time, and those that are left one by one."""
    body = f"""add {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT s = {kind}[] add(a, b)
}}
ENTRY e {{
  x = {kind}[{rows},{terms}] parameter(0)
  y = {kind}[{rows},{terms}] multiply(x, x)
  zero = {kind}[] constant({"(0, 0)" if kind in COMPLEX else 0})
  ROOT r = {kind}[{rows}] reduce(y, zero), dimensions={{1}}, to_apply=add
}}
"""
    x = drawn(kind, rows, terms)
    found, text = run_on_host(body, x, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, (x * x).sum(1, dtype=x.dtype))
    assert f"hlo::columns<{terms}, " in text


@pytest.mark.parametrize(("rows", "terms"), [(64, 16), (40, 9), (130, 21)])
def test_matrices_with_vectors(rows: int, terms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vector is the same for all lanes of a matrix, and stays where it is."""
    body = f"""ENTRY e {{
  x = f32[500,{rows},{terms}] parameter(0)
  y = f32[500,{terms}] parameter(1)
  ROOT r = f32[500,{rows}] {PRODUCTS}
}}
"""
    x, y = drawn("f32", 500, rows, terms), drawn("f32", 500, terms)
    found, text = run_on_host(body, x, y, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, np.einsum("nij,nj->ni", x, y))
    assert "hlo::columns<" in text


def test_long_rows_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their copies would fill the first cache."""
    body = f"""ENTRY e {{
  x = f32[500,16,40] parameter(0)
  y = f32[500,40] parameter(1)
  ROOT r = f32[500,16] {PRODUCTS}
}}
"""
    x, y = drawn("f32", 500, 16, 40), drawn("f32", 500, 40)
    found, text = run_on_host(body, x, y, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, np.einsum("nij,nj->ni", x, y))
    assert "hlo::columns<" not in text
