"""Which reducers commute."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.ops.reduction.symmetry import commutes

LOG_OF_SUM = """d = f32[] subtract(x, y)
  n = pred[] compare(d, d), direction=NE
  s = f32[] add(x, y)
  m = f32[] maximum(x, y)
  a = f32[] abs(d)
  b = f32[] negate(a)
  e = f32[] exponential(b)
  l = f32[] log-plus-one(e)
  t = f32[] add(m, l)
  ROOT r = f32[] select(n, s, t)"""


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("ROOT r = f32[] add(x, y)", True),
        (LOG_OF_SUM, True),
        ("d = f32[] subtract(x, y)\n  ROOT r = f32[] multiply(d, d)", False),  # it commutes for a reason not looked for
        ("d = f32[] subtract(x, y)\n  e = f32[] subtract(y, x)\n  ROOT r = f32[] multiply(d, e)", True),
        ("ROOT r = f32[] subtract(x, y)", False),
        ("c = pred[] compare(x, y), direction=GT\n  ROOT r = f32[] select(c, x, y)", False),
        ("z = f32[] constant(0)\n  c = pred[] compare(y, z), direction=EQ\n  ROOT r = f32[] select(c, x, y)", False),
        ("d = f32[] subtract(x, y)\n  z = f32[] constant(1)\n  c = pred[] compare(d, z), direction=EQ\n"
         "  s = f32[] add(x, y)\n  ROOT r = f32[] select(c, s, d)", False),
        ("ROOT r = f32[] negate(y)", False),
    ],
)  # fmt: skip
def test_commutes(body: str, wanted: bool) -> None:
    text = f"""HloModule m

f {{
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  {body}
}}

ENTRY e {{
  p = f32[8] parameter(0)
  i = f32[] constant(0)
  ROOT q = f32[] reduce(p, i), dimensions={{0}}, to_apply=f
}}
"""
    assert commutes(hlo_opt.parse(text).entry.root.called_by("to_apply")) is wanted
