"""Calls are put into their callers, with computations of their own for what they start."""

from __future__ import annotations

import numpy as np

import hlo_opt
from hlo_opt.analysis.inlining import inline_calls

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
    assert inline_calls(module)
    text = str(module)
    hlo_opt.verify(hlo_opt.parse(text))
    assert text.count(" call(") == 0 and text.count(" async-start(") == 4
    x, y = hlo_opt.evaluate(hlo_opt.parse(text), [np.float32([1, 2, 3, 4])])
    assert x.tolist() == [-1, -2, -3, -4] and y.tolist() == [1, 2, 3, 4]
    hlo_opt.fuse(hlo_opt.parse(TWICE))
