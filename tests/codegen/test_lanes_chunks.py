"""Where elements are cut into chunks."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_opt.runtime.host.library import has_compiler
from tests.host_text import run_on_host

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")


@pytest.mark.parametrize(("columns", "by_rows"), [(1000, True), (1024, False), (48, False)])
def test_chunks_are_rows_where_their_parts_would_be_short(
    columns: int, by_rows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block's 128 elements are 16 times 8 of a row of 1,000; what is done once in a chunk then takes longer than the
    rest."""
    body = f"""ENTRY e {{
  p = s32[200,{columns}] parameter(0)
  i = s32[200,{columns}] iota(), iota_dimension=0
  j = s32[200,{columns}] iota(), iota_dimension=1
  m = s32[200,{columns}] multiply(i, j)
  ROOT r = s32[200,{columns}] add(p, m)
}}
"""
    x = np.arange(200 * columns, dtype=np.int32).reshape(200, columns)
    found, text = run_on_host(body, x, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, x + np.outer(np.arange(200), np.arange(columns)))
    assert ("const long long hlo_row," in text) == by_rows


@pytest.mark.parametrize("columns", [1024, 2048, 2560])
def test_long_rows_have_a_part_for_each_end(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No lane asks whether it is at an end of its row, also where a row is several chunks."""
    shape = f"s32[6,{columns}]"
    body = f"""ENTRY e {{
  p = {shape} parameter(0)
  z = s32[] constant(0)
  l = {shape} pad(p, z), padding=0_0x1_-1
  r = {shape} pad(p, z), padding=0_0x-1_1
  s = {shape} add(l, r)
  ROOT y = {shape} subtract(s, p)
}}
"""
    x = np.arange(6 * columns, dtype=np.int32).reshape(6, columns) ** 2
    found, text = run_on_host(body, x, monkeypatch=monkeypatch)
    wide = np.pad(x, ((0, 0), (1, 1)))
    np.testing.assert_array_equal(found, wide[:, :-2] + wide[:, 2:] - x)
    assert text.count("hlo_low") > 0
