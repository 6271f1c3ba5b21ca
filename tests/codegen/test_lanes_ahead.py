"""Rows of the next round are asked of memory while lanes compute."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_opt.runtime.host.library import has_compiler
from tests.host_text import run_on_host

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

SCAN = """less {{
  s = (s32[], f32[{lanes}], f32[{steps},{lanes}{part}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({steps})
  ROOT c = pred[] compare(i, n), direction=LT
}}

step {{
  s = (s32[], f32[{lanes}], f32[{steps},{lanes}{part}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[{lanes}] get-tuple-element(s), index=1
  rows = f32[{steps},{lanes}{part}] get-tuple-element(s), index=2
  z = s32[] constant(0)
  one = s32[] constant(1)
  row = f32[1,{lanes}{part}] dynamic-slice(rows, i, z{start}), dynamic_slice_sizes={{1,{lanes}{part}}}
{taken}
  sine = f32[{lanes}] sine(x)
  y = f32[{lanes}] add(sine, own)
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[{lanes}], f32[{steps},{lanes}{part}]) tuple(j, y, rows)
}}

ENTRY e {{
  x = f32[{lanes}] parameter(0)
  rows = f32[{steps},{lanes}{part}] parameter(1)
  z = s32[] constant(0)
  t = (s32[], f32[{lanes}], f32[{steps},{lanes}{part}]) tuple(z, x, rows)
  w = (s32[], f32[{lanes}], f32[{steps},{lanes}{part}]) while(t), condition=less, body=step
  ROOT r = f32[{lanes}] get-tuple-element(w), index=1
}}
"""
PLAIN = "  own = f32[{lanes}] reshape(row)"
PAIRS = """  flat = f32[{lanes},2] reshape(row)
  a = f32[{lanes},1] slice(flat), slice={{[0:{lanes}], [0:1]}}
  b = f32[{lanes},1] slice(flat), slice={{[0:{lanes}], [1:2]}}
  d = f32[{lanes},1] subtract(a, b)
  own = f32[{lanes}] reshape(d)"""


def scan(steps: int, lanes: int, taken: str = PLAIN) -> str:
    """A loop that reads another row of an array in each round."""
    part, start = (",2", ", z") if taken is PAIRS else ("", "")
    return SCAN.format(steps=steps, lanes=lanes, part=part, start=start, taken=taken.format(lanes=lanes))


@pytest.mark.parametrize(
    ("steps", "lanes", "taken", "calls"),
    [(99, 4096, PLAIN, 1), (99, 4096, PAIRS, 1), (20, 4096, PLAIN, 0), (99, 5001, PLAIN, 1), (600, 1024, PLAIN, 0)],
    ids=["rows", "pairs of a lane", "few rows", "an odd number", "a chunk reads whole rows"],
)
def test_rows_of_large_arrays(steps: int, lanes: int, taken: str, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each array, however many of its elements a lane reads; not for an array that caches keep, nor
    where the next row follows in memory."""
    random = np.random.default_rng(0)
    x = random.standard_normal(lanes).astype(np.float32)
    rows = random.standard_normal((steps, lanes, 2)[: 3 if taken is PAIRS else 2]).astype(np.float32)
    result, text = run_on_host(scan(steps, lanes, taken), x, rows, monkeypatch=monkeypatch)
    want = x.copy()
    for row in rows:
        want = np.sin(want) + (row if row.ndim == 1 else row[:, 0] - row[:, 1])
    np.testing.assert_allclose(result, want, rtol=1e-3, atol=1e-3)
    assert text.count("hlo::ahead(") == calls
