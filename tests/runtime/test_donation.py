"""Memory that steps take over: what loops update in place, what they begin with, and what must be copied."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.ir import Module
from hlo_opt.runtime.driver.writer import driver_of
from hlo_opt.runtime.host.library import has_compiler
from hlo_opt.runtime.schedule import build_schedule
from hlo_opt.runtime.schedule.ops import Copy, Launch, Loop

Array = np.ndarray[Any, Any]


def agrees(module: Module, *inputs: Array, backend: str = "host") -> None:
    """What `evaluate` says comes out, twice, and the inputs stay as they are."""
    hlo_opt.verify(module)
    before = [a.copy() for a in inputs]
    executable = hlo_opt.compile(module, backend=backend)
    for _ in range(2):
        for got, want in zip(executable(*inputs), hlo_opt.evaluate(module, inputs), strict=True):
            np.testing.assert_array_equal(got, want)
    for a, b in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not executable.report()["fallbacks"]


SCAN = """HloModule m

body {
  s = (s32[], f32[30,8], f32[30,8], f32[8]) parameter(0)
  k = s32[] get-tuple-element(s), index=0
  h = f32[30,8] get-tuple-element(s), index=1
  g = f32[30,8] get-tuple-element(s), index=2
  x = f32[8] get-tuple-element(s), index=3
  zero = s32[] constant(0)
  one = s32[] constant(1)
  n = s32[] add(k, one)
  y = f32[8] add(x, x)
  r = f32[1,8] reshape(x)
  u = f32[30,8] dynamic-update-slice(h, r, k, zero)
  o = f32[1,8] dynamic-slice(g, n, zero), dynamic_slice_sizes={1,8}
  v = f32[30,8] dynamic-update-slice(g, o, k, zero)
  w = f32[30,8] dynamic-update-slice(v, r, zero, zero)
  ROOT t = (s32[], f32[30,8], f32[30,8], f32[8]) tuple(n, u, w, y)
}

condition {
  s = (s32[], f32[30,8], f32[30,8], f32[8]) parameter(0)
  k = s32[] get-tuple-element(s), index=0
  n = s32[] constant(LAST)
  ROOT c = pred[] compare(k, n), direction=LT
}

ENTRY e {
  g = f32[30,8] parameter(0)
  x = f32[8] parameter(1)
  zero = s32[] constant(0)
  nil = f32[] constant(0)
  h = f32[30,8] broadcast(nil), dimensions={}
  t = (s32[], f32[30,8], f32[30,8], f32[8]) tuple(zero, h, g, x)
  l = (s32[], f32[30,8], f32[30,8], f32[8]) while(t), condition=condition, body=body
  a = f32[30,8] get-tuple-element(l), index=1
  b = f32[30,8] get-tuple-element(l), index=2
  ROOT r = (f32[30,8], f32[30,8], f32[30,8]) tuple(a, b, g)
}
"""


def scan(last: int) -> Module:
    return hlo_opt.parse(SCAN.replace("LAST", str(last)))


def test_a_loop_keeps_its_histories() -> None:
    schedule = build_schedule(scan(20))
    loop = next(s for s in schedule.entry.ops if isinstance(s, Loop))
    body = schedule.routines[loop.body]
    assert body.donated == loop.updated == (1, 2) and loop.owned == (1,) and loop.copied == (2,), (
        "the broadcast's memory is the loop's, the parameter's is not"
    )
    updates = [op for op in body.ops if isinstance(op, Launch) and op.kernel.aliases]
    assert len(updates) == 3 and not any(isinstance(op, Copy) for op in body.ops)
    assert ".copy()" in (text := driver_of(schedule, {k.symbol: "k.cu" for k in schedule.kernels}).text)
    assert text.count(".copy()") == 1


@pytest.mark.parametrize("last", [0, 1, 2, 20])
@pytest.mark.parametrize("backend", ["host", "cupy"])
def test_loops(backend: str, last: int, fake: types.ModuleType) -> None:
    if not has_compiler():
        pytest.skip("no C++ compiler")
    generator = np.random.default_rng(0)
    given = [generator.integers(0, 9, shape).astype(np.float32) for shape in ((30, 8), (8,))]
    agrees(scan(last), *given, backend=backend)
    if backend == "cupy" and last == 20:
        assert fake.graphs, "the loop ran step by step"


def test_a_value_returned_twice_is_no_single_memory(fake: types.ModuleType) -> None:
    """The second leaf still has the old value when the first one is updated."""
    text = SCAN.replace("tuple(n, u, w, y)", "tuple(n, u, u, y)").replace("LAST", "4")
    module = hlo_opt.parse(text)
    schedule = build_schedule(module)
    loop = next(s for s in schedule.entry.ops if isinstance(s, Loop))
    assert 1 not in schedule.routines[loop.body].donated
    if has_compiler():
        for backend in ("host", "cupy"):
            agrees(module, np.ones((30, 8), np.float32), np.arange(8, dtype=np.float32), backend=backend)


def test_nested_loops_hand_their_state_down(fake: types.ModuleType) -> None:
    """The outer loop's history is the inner loop's, which writes a row per step."""
    text = SCAN.replace("ENTRY e", "inner").replace(
        "  g = f32[30,8] parameter(0)\n  x = f32[8] parameter(1)\n  zero = s32[] constant(0)\n  nil = f32[] constant(0)\n"
        "  h = f32[30,8] broadcast(nil), dimensions={}\n",
        "  q = (s32[], f32[30,8], f32[30,8], f32[8]) parameter(0)\n  j = s32[] get-tuple-element(q), index=0\n  one = s32[] constant(1)\n"
        "  i = s32[] add(j, one)\n  h = f32[30,8] get-tuple-element(q), index=1\n  g = f32[30,8] get-tuple-element(q), index=2\n"
        "  x = f32[8] get-tuple-element(q), index=3\n  zero = s32[] constant(0)\n",
    )
    text = text.replace(
        "  ROOT r = (f32[30,8], f32[30,8], f32[30,8]) tuple(a, b, g)\n",
        "  y = f32[8] get-tuple-element(l), index=3\n  ROOT r = (s32[], f32[30,8], f32[30,8], f32[8]) tuple(i, a, b, y)\n",
    )
    entry = (
        SCAN[SCAN.index("ENTRY e") :]
        .replace("body=body", "body=inner")
        .replace("condition=condition", "condition=outer")
    )
    outer = (
        SCAN[SCAN.index("condition {") : SCAN.index("ENTRY e")].replace("condition {", "outer {").replace("LAST", "3")
    )
    module = hlo_opt.parse(text.replace("LAST", "4") + outer + entry)
    schedule = build_schedule(module)
    loop = next(s for s in schedule.entry.ops if isinstance(s, Loop))
    assert schedule.routines[loop.body].donated == (1, 2, 3)
    if has_compiler():
        for backend in ("host", "cupy"):
            agrees(module, np.ones((30, 8), np.float32), np.arange(8, dtype=np.float32), backend=backend)
