"""Short rows that each lane folds: copied as columns before lanes read them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
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


@pytest.mark.parametrize("terms", [4, 5, 8, 11, 16])
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
    assert (f"hlo::columns<{terms}, " in text) == ((kind, terms) != ("c128", 16))


@pytest.mark.parametrize("kind", ["s8", "f32"])
def test_places_of_the_least(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs of elements and places, of rows as long as a vector."""
    least = {"s8": 127}.get(kind, "inf")
    body = f"""first {{
  a = {kind}[] parameter(0)
  i = s32[] parameter(1)
  b = {kind}[] parameter(2)
  j = s32[] parameter(3)
  less = pred[] compare(a, b), direction=LT
  same = pred[] compare(a, b), direction=EQ
  before = pred[] compare(i, j), direction=LT
  tied = pred[] and(same, before)
  keep = pred[] or(less, tied)
  value = {kind}[] select(keep, a, b)
  place = s32[] select(keep, i, j)
  ROOT t = ({kind}[], s32[]) tuple(value, place)
}}
ENTRY e {{
  x = {kind}[3000,16] parameter(0)
  n = s32[3000,16] iota(), iota_dimension=1
  start = {kind}[] constant({least})
  zero = s32[] constant(0)
  r = ({kind}[3000], s32[3000]) reduce(x, n, start, zero), dimensions={{1}}, to_apply=first
  ROOT place = s32[3000] get-tuple-element(r), index=1
}}
"""
    x = drawn(kind, 3000, 16)
    found, text = run_on_host(body, x, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, x.argmin(1))
    assert "hlo::columns<16, " in text


@pytest.mark.parametrize("rows", [1280, 1003])
@pytest.mark.parametrize("terms", [4, 6, 16, 20, 64])
@pytest.mark.parametrize("kind", ["f32", "f64", "bf16"])
def test_greatest(kind: str, terms: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop over terms around one over lanes; NaN wins, and 0 over -0."""
    body = f"""greatest {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT s = {kind}[] maximum(a, b)
}}
ENTRY e {{
  x = {kind}[{rows},{terms}] parameter(0)
  least = {kind}[] constant(-inf)
  ROOT r = {kind}[{rows}] reduce(x, least), dimensions={{1}}, to_apply=greatest
}}
"""
    x = np.random.default_rng(0).integers(-9, 9, (rows, terms)).astype(KINDS.get(kind, ml_dtypes.bfloat16))
    x[3, terms - 1], x[5], x[5, 2] = np.nan, -0.0, 0.0
    found, text = run_on_host(body, x, monkeypatch=monkeypatch)
    assert np.isnan(found[3]) and not np.signbit(found[5])
    found[3] = x[3] = 0
    np.testing.assert_array_equal(found, x.max(1))
    assert (f"hlo::columns<{terms}, " in text) == ((kind, terms) != ("f64", 64))


@pytest.mark.parametrize("terms", [5, 16])
def test_two_folds_of_a_row_read_the_same_copies(terms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also around loops over lanes: of functions in a lane's own loop compilers make no vectors."""
    body = f"""more {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}
ENTRY e {{
  x = f32[3000,{terms}] parameter(0)
  y = f32[3000,{terms}] exponential(x)
  zero = f32[] constant(0)
  powers = f32[3000] reduce(y, zero), dimensions={{1}}, to_apply=more
  sums = f32[3000] reduce(x, zero), dimensions={{1}}, to_apply=more
  ROOT r = f32[3000] divide(powers, sums)
}}
"""
    x = np.random.default_rng(0).uniform(1, 2, (3000, terms)).astype(np.float32)
    found, text = run_on_host(body, x, monkeypatch=monkeypatch)
    np.testing.assert_allclose(found, np.exp(x).sum(1) / x.sum(1), rtol=1e-5)
    assert text.count("hlo::columns<") == 1 and text.count("#pragma omp simd") > 2


@pytest.mark.parametrize("terms", [3, 4, 6, 8, 11, 31])
@pytest.mark.parametrize(("kind", "rows"), [("f32", 1003), ("f32", 7), ("f16", 1003), ("bf16", 640)])
def test_rows_that_are_read_again_and_written(
    kind: str, terms: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A softmax: lanes keep what they have of a row beside each other, and their rows are turned back."""
    body = f"""greatest {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT s = {kind}[] maximum(a, b)
}}
more {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}
ENTRY e {{
  x = {kind}[{rows},{terms}] parameter(0)
  least = {kind}[] constant(-inf)
  top = {kind}[{rows}] reduce(x, least), dimensions={{1}}, to_apply=greatest
  tops = {kind}[{rows},{terms}] broadcast(top), dimensions={{0}}
  less = {kind}[{rows},{terms}] subtract(x, tops)
  power = {kind}[{rows},{terms}] exponential(less)
  wide = f32[{rows},{terms}] convert(power)
  zero = f32[] constant(0)
  sum = f32[{rows}] reduce(wide, zero), dimensions={{1}}, to_apply=more
  sums = f32[{rows},{terms}] broadcast(sum), dimensions={{0}}
  ROOT r = f32[{rows},{terms}] divide(wide, sums)
}}
"""
    x = np.random.default_rng(0).integers(-4, 4, (rows, terms)).astype(KINDS.get(kind, np.float16))
    x = x.astype(ml_dtypes.bfloat16) if kind == "bf16" else x
    found, text = run_on_host(body, x, monkeypatch=monkeypatch)
    power = np.exp((x - x.max(1, keepdims=True)).astype(np.float64))
    np.testing.assert_allclose(found, power / power.sum(1, keepdims=True), rtol=3e-2 if kind == "bf16" else 2e-3)
    assert (f"hlo::rows<{terms}, " in text) == (terms >= 4)


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
    """Sums go along them."""
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
