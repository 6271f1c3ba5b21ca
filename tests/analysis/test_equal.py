"""Values that are computed alike in one computation."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.analysis.graph.equal import Equal

TEXT = """HloModule m
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
plus {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(b, a)
}
most {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b)
}
atleast {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=GE
}
atmost {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LE
}
other {
  a = f32[4] parameter(0)
  ROOT c = f32[4] negate(a)
}
ENTRY e {
  p = f32[4,4] parameter(0)
  q = f32[4,4] parameter(1)
  z = f32[] constant(0)
  y = f32[] constant(0)
  x = f32[] constant(1)
  l = f32[4] constant({...})
  k = f32[4] constant({...})
  r = f32[4] reduce(p, z), dimensions={1}, to_apply=sum
  s = f32[4] reduce(p, y), dimensions={1}, to_apply=plus
  t = f32[4] reduce(p, y), dimensions={1}, to_apply=most
  u = f32[4] reduce(p, x), dimensions={1}, to_apply=sum
  v = f32[4] reduce(q, z), dimensions={1}, to_apply=sum
  w = f32[4] reduce(p, z), dimensions={0}, to_apply=sum
  h = f32[4,4] select-and-scatter(p, q, z), window={size=1x1}, select=atleast, scatter=sum
  i = f32[4,4] select-and-scatter(p, q, z), window={size=1x1}, select=atmost, scatter=sum
  j = f32[4,4] select-and-scatter(p, q, z), window={size=1x1}, select=atleast, scatter=plus
  m = f32[4,4] select-and-scatter(p, q, z), window={size=1x1}, select=atleast, scatter=most
  f = f32[4] call(r), to_apply=other
  ROOT g = f32[4] call(r), to_apply=other
}
"""


@pytest.mark.parametrize(
    ("one", "other", "are"),
    [
        ("r", "r", True), ("r", "s", True), ("r", "t", False), ("r", "u", False), ("r", "v", False),
        ("r", "w", False), ("z", "y", True), ("z", "x", False), ("l", "k", False), ("f", "g", False),
        ("h", "i", False), ("h", "j", True), ("h", "m", False),
    ],
)  # fmt: skip
def test_values(one: str, other: str, are: bool) -> None:
    named = {i.name: i for i in hlo_opt.parse(TEXT).entry.instructions}
    assert Equal()(named[one], named[other]) is are
