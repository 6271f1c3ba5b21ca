"""Calls are put into their callers, with computations of their own for what they start."""

from __future__ import annotations

import numpy as np

import hlo_opt
from hlo_opt.analysis.graph.inlining import inline, is_plain_call

TWICE = """HloModule twice

inner {
  a = f32[4] parameter(0)
  ROOT n = f32[4] negate(a)
}

outer {
  a = f32[4] parameter(0)
  s = ((f32[4]), f32[4], u32[]) async-start(a), calls=inner
  ROOT d = f32[4] async-done(s)
}

called {
  a = f32[4] parameter(0)
  s = ((f32[4]), f32[4], u32[]) async-start(a), calls=outer
  u = ((f32[4]), f32[4], u32[]) async-update(s)
  ROOT d = f32[4] async-done(u)
}

ENTRY e {
  p = f32[4] parameter(0)
  x = f32[4] call(p), to_apply=called
  y = f32[4] call(x), to_apply=called
  ROOT t = (f32[4], f32[4]) tuple(x, y)
}
"""


def test_each_start_has_a_computation_of_its_own() -> None:
    module = hlo_opt.parse(TWICE)
    hlo_opt.verify(module)
    assert inline(module, is_plain_call)
    text = str(module)
    hlo_opt.verify(hlo_opt.parse(text))
    assert text.count(" call(") == 0 and text.count(" async-start(") == 4
    x, y = hlo_opt.evaluate(hlo_opt.parse(text), [np.float32([1, 2, 3, 4])])
    assert x.tolist() == [-1, -2, -3, -4] and y.tolist() == [1, 2, 3, 4]
    hlo_opt.fuse(hlo_opt.parse(TWICE))


FUSED = """HloModule fused

body {
  a = f32[64] parameter(0)
  b = f32[64] parameter(1)
  ROOT s = f32[64] subtract(a, b)
}

called {
  a = f32[64] parameter(0)
  b = f32[64] parameter(1)
  ROOT f = f32[64] fusion(a, b), kind=kLoop, calls=body
}

ENTRY e {
  p = f32[64] parameter(0)
  q = f32[64] parameter(1)
  n = f32[64] negate(p)
  m = f32[64] abs(q)
  x = f32[64] call(n, q), to_apply=called
  c = f32[64] reverse(x), dimensions={0}
  y = f32[64] call(c, m), to_apply=called
  ROOT t = (f32[64], f32[64]) tuple(c, y)
}
"""


def test_a_fusion_in_a_callee_that_is_called_twice_becomes_two() -> None:
    given = [np.arange(64, dtype=np.float32), np.arange(64, dtype=np.float32) ** 2 - 1000]
    module = hlo_opt.parse(FUSED)
    want = hlo_opt.evaluate(module, given)
    for passes in (None, "inline,instruction-fusion", "inline,priority-fusion,dce"):
        fused = hlo_opt.fuse(module, passes=passes)[0]
        read = hlo_opt.parse(str(fused))
        hlo_opt.verify(read)
        for got, wanted in zip(hlo_opt.evaluate(read, given), want, strict=True):
            np.testing.assert_array_equal(got, wanted)
