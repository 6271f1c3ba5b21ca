"""Which inputs a result is an update of."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.ops.updates import updated

BODY = """HloModule m

body {{
  s = (f32[4], f32[]) parameter(0)
  a = f32[4] get-tuple-element(s), index=0
  b = f32[] get-tuple-element(s), index=1
  t = f32[4] tanh(a)
  ROOT r = (f32[4], f32[]) tuple(t, b)
}}

condition {{
  s = (f32[4], f32[]) parameter(0)
  b = f32[] get-tuple-element(s), index=1
  ROOT c = pred[] compare(b, b), direction=LT
}}

ENTRY e {{
  pair = (f32[4], f32[4]) parameter(0)
  x = f32[4] parameter(1)
  k = f32[] parameter(2)
  w = f32[4] get-tuple-element(pair), index=0
  m = f32[4] get-tuple-element(pair), index=1
  rate = f32[4] broadcast(k), dimensions={{}}
{}
}}
"""
CASES = {
    "plus": ("  ROOT r = f32[4] add(w, x)", [("x", 0), ("pair", 0)]),
    "a part of it": (" p = f32[4] multiply(rate, m)\n ROOT r = f32[4] subtract(p, x)", [("x", 0), ("pair", 1)]),
    "divided": (" p = f32[4] divide(m, rate)\n ROOT r = f32[4] add(p, rate)", [("pair", 1)]),
    "over a number": (" p = f32[4] divide(rate, m)\n ROOT r = f32[4] add(p, rate)", []),
    "only scaled": ("  ROOT r = f32[4] multiply(w, rate)", []),
    "a product": (" p = f32[4] multiply(w, x)\n ROOT r = f32[4] add(p, rate)", []),
    "converted": (" p = f64[4] convert(x)\n q = f64[4] add(p, p)\n ROOT r = f32[4] convert(q)", [("x", 0)]),
    "a function": (" p = f32[4] tanh(x)\n ROOT r = f32[4] add(p, rate)", []),
    "a loop": (
        " s = (f32[4], f32[]) tuple(m, k)\n l = (f32[4], f32[]) while(s), body=body, condition=condition\n"
        " ROOT r = f32[4] get-tuple-element(l), index=0",
        [("pair", 1)],
    ),
    "a loop that leaves it": (
        " s = (f32[4], f32[]) tuple(m, k)\n l = (f32[4], f32[]) while(s), body=body, condition=condition\n"
        " ROOT r = f32[] get-tuple-element(l), index=1",
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_sums_and_loops_are_updates(name: str) -> None:
    text, expected = CASES[name]
    root = hlo_opt.parse(BODY.format(text)).entry.root
    assert [(parameter.name, number) for parameter, number in updated(root, 0)] == expected
