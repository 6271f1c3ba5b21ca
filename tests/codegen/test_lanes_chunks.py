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
