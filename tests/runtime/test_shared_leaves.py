"""Loops whose state begins with one array in several leaves: one of these has its memory, the others get copies."""

from __future__ import annotations

import types

import numpy as np
import pytest

import hlo_opt
from hlo_opt.runtime.host.library import has_compiler
from hlo_opt.runtime.schedule import build_schedule
from hlo_opt.runtime.schedule.ops import LoopOp

TEXT = """HloModule m

condition {
  s = (s32[], V, V, V) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(7)
  ROOT l = pred[] compare(i, n), direction=LT
}

body {
  s = (s32[], V, V, V) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = V get-tuple-element(s), index=1
  y = V get-tuple-element(s), index=2
  z = V get-tuple-element(s), index=3
  one = s32[] constant(1)
  zero = s32[] constant(0)
  j = s32[] add(i, one)
  a = f32[1,16]{1,0} dynamic-slice(x, i, zero), dynamic_slice_sizes={1,16}
  b = f32[1,16]{1,0} dynamic-slice(y, i, zero), dynamic_slice_sizes={1,16}
  c = f32[1,16]{1,0} dynamic-slice(z, i, zero), dynamic_slice_sizes={1,16}
  ab = f32[1,16]{1,0} add(a, b)
  bc = f32[1,16]{1,0} multiply(b, c)
  u = V dynamic-update-slice(x, ab, j, zero)
  v = V dynamic-update-slice(y, bc, j, zero)
  ROOT t = (s32[], V, V, V) tuple(j, u, v, THIRD)
}

ENTRY e {
  p = V parameter(0)
  start = s32[] constant(0)
  q = V add(p, p)
  s = (s32[], V, V, V) tuple(start, STATE)
  l = (s32[], V, V, V) while(s), condition=condition, body=body
  x = V get-tuple-element(l), index=1
  y = V get-tuple-element(l), index=2
  z = V get-tuple-element(l), index=3
  ROOT r = (V, V, V) tuple(x, y, z)
}
"""


def text_of(state: str, third: str, header: str = "") -> str:
    text = TEXT.replace("STATE", state).replace("THIRD", third).replace("V", "f32[16,16]{1,0}")
    return text.replace("HloModule m", f"HloModule m{header}")


DONATED = ", input_output_alias={ {1}: (0, {}, may-alias) }"
CASES = {
    "two updated": (text_of("q, q, p", "z"), (1,), (2,)),
    "one that rounds hand on": (text_of("q, q, q", "z"), (), (1, 2)),
    "one that rounds make anew": (text_of("q, q, q", "w"), (), (1, 2)),
    "given away": (text_of("p, p, q", "z", DONATED), (2,), (1,)),
}
NEW = "  w = f32[16,16]{1,0} negate(z)\n  ROOT t"


@pytest.mark.parametrize("case", CASES)
def test_one_leaf_has_the_memory(case: str, fake: types.ModuleType) -> None:
    text, owned, copied = CASES[case]
    module = hlo_opt.parse(text.replace("  ROOT t", NEW, 1))
    (loop,) = (op for op in build_schedule(module).entry.ops if isinstance(op, LoopOp))
    assert set(owned) == set(loop.owned) & {1, 2} and loop.copied == copied
    given = np.random.default_rng(1).integers(-3, 4, (16, 16)).astype(np.float32)
    want = hlo_opt.evaluate(module, [given])
    if not has_compiler():
        pytest.skip("no C++ compiler")
    for form in (hlo_opt.compile(module), hlo_opt.compile(module, form="plain"), hlo_opt.compile(module, "cupy")):
        for donate in (False, True):
            for a, b in zip(form(given.copy(), donate=donate), want, strict=True):
                np.testing.assert_array_equal(a, b)
