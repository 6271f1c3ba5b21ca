"""Who reads a buffer that a kernel updates in place."""

from __future__ import annotations

import pytest

import hlo_opt

TEXT = """HloModule m

place {
  p = f32[8,8]{1,0} parameter(0)
  u = f32[8,8]{1,0} parameter(1)
  i = s32[] parameter(2)
  v = f32[1,8]{1,0} slice(u), slice={[0:1], [0:8]}
  ROOT d = f32[8,8]{1,0} dynamic-update-slice(p, v, i, i)
}

ENTRY e {
  q = f32[64]{0} parameter(0)
  u = f32[8,8]{1,0} parameter(1)
  i = s32[] parameter(2)
  p = f32[8,8]{1,0} bitcast(q)
  d = f32[8,8]{1,0} fusion(p, u, i), kind=kLoop, calls=place
  n = f32[64]{0} negate(SOURCE)
  ROOT r = (f32[8,8]{1,0}, f32[64]{0}) tuple(d, n)
}
"""


@pytest.mark.parametrize(("source", "is_kept_apart"), [("q", True), ("b", False)])
def test_readers_of_what_the_buffer_is_a_view_of(source: str, is_kept_apart: bool) -> None:
    text = TEXT.replace("SOURCE", source).replace(
        "  d = f32[8,8]{1,0} fusion", "  b = f32[64]{0} bitcast(u)\n  d = f32[8,8]{1,0} fusion"
    )
    _, decisions = hlo_opt.fuse(hlo_opt.parse(text), passes="launch-packing", simplify="never")
    assert ("FUS632" in str([d.reasons for d in decisions])) is is_kept_apart
