"""Stretches that round to f16, as vectors of eight: to the bit what a lane at a time gives, with the processor's
conversions and without, in places of memory that are no whole vectors too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hlo_opt.codegen import lanes, lanes_chunk_text
from hlo_opt.codegen.lanes import shim
from hlo_opt.runtime.host.library import has_compiler
from tests.host_text import run_on_host

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

EVERY = np.arange(65536, dtype=np.uint16).view(np.float16)
LINES = {
    "sums": "a = T add(p, q)\n  b = T multiply(a, p)\n  ROOT r = T subtract(b, q)",
    "signs": "a = T multiply(p, q)\n  b = T negate(a)\n  c = T abs(q)\n  d = T add(b, c)\n  ROOT r = T divide(d, p)",
    "functions": "a = T exponential(p)\n  b = T tanh(q)\n  c = T multiply(a, b)\n  d = T sqrt(p)\n"
    "  ROOT r = T add(c, d)",
    "functions of two": "a = T atan2(p, q)\n  b = T remainder(p, q)\n  c = T add(a, b)\n  ROOT r = T multiply(c, p)",
    "choices": "a = T add(p, q)\n  b = B compare(a, q), direction=LT\n  c = B compare(p, q), direction=NE\n"
    "  d = B and(b, c)\n  e = B not(d)\n  f = T select(e, p, a)\n  g = T multiply(f, q)\n  h = T maximum(g, p)\n"
    "  ROOT r = T minimum(h, q)",
    "limits": "k = f16[] constant(-inf)\n  l = T broadcast(k), dimensions={}\n  m = f16[] constant(0.1)\n"
    "  n = T broadcast(m), dimensions={}\n  a = T multiply(p, n)\n  b = B compare(a, q), direction=GE\n"
    "  c = T select(b, a, l)\n  ROOT r = T add(c, n)",
}


@pytest.fixture(params=["native", "without instructions"])
def processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The one at hand, or one that converts no f16."""
    if request.param != "native":
        monkeypatch.setattr(lanes, "shim", lambda name: "#undef __F16C__\n" * (name == lanes.SHIMS[0]) + shim(name))
    yield request.param


def bits(found: Any) -> Any:
    """Of all numbers; any NaN is one."""
    return np.where(np.isnan(found), np.float16(np.nan), found).view(np.uint16)


@pytest.mark.parametrize("size", [65536, 65531])
@pytest.mark.parametrize("lines", LINES.values(), ids=LINES)
def test_operations(lines: str, size: int, processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = f"ENTRY e {{\n  p = T parameter(0)\n  q = T parameter(1)\n  {lines}\n}}\n"
    body = body.replace(" T ", f" f16[{size}]{{0}} ").replace(" B ", f" pred[{size}]{{0}} ")
    p, q = EVERY[:size], np.random.default_rng(1).permutation(EVERY)[:size]
    found, text = run_on_host(body, p, q, monkeypatch=monkeypatch)
    assert "hlo::Eight" in text
    monkeypatch.setattr(lanes_chunk_text, "eight_lines", lambda items, where: None)
    expected, text = run_on_host(body, p, q, monkeypatch=monkeypatch)
    assert "hlo::Eight" not in text
    assert np.array_equal(bits(found), bits(expected))


def test_a_loop_keeps_what_it_hands_on(processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds whose state is f16, and rows of memory that each of them reads and writes."""
    size = 1003
    row, rows, state = f"f16[{size}]{{0}}", f"f16[5,{size}]{{1,0}}", f"(s32[], f16[{size}]{{0}}, f16[5,{size}]{{1,0}})"
    body = f"""\
less {{
  s = ({state[1:-1]}, {rows}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT r = pred[] compare(i, n), direction=LT
}}

step {{
  s = ({state[1:-1]}, {rows}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  y = {row} get-tuple-element(s), index=1
  out = {rows} get-tuple-element(s), index=2
  xs = {rows} get-tuple-element(s), index=3
  zero = s32[] constant(0)
  one = s32[] constant(1)
  x = f16[1,{size}]{{1,0}} dynamic-slice(xs, i, zero), dynamic_slice_sizes={{1,{size}}}
  flat = {row} reshape(x)
  half = f16[] constant(0.75)
  halves = {row} broadcast(half), dimensions={{}}
  a = {row} multiply(y, halves)
  b = {row} add(a, flat)
  c = f16[1,{size}]{{1,0}} reshape(b)
  written = {rows} dynamic-update-slice(out, c, i, zero)
  next = s32[] add(i, one)
  ROOT r = ({state[1:-1]}, {rows}) tuple(next, b, written, xs)
}}

ENTRY e {{
  y = {row} parameter(0)
  xs = {rows} parameter(1)
  zero = s32[] constant(0)
  nothing = f16[] constant(0)
  out = {rows} broadcast(nothing), dimensions={{}}
  first = ({state[1:-1]}, {rows}) tuple(zero, y, out, xs)
  loop = ({state[1:-1]}, {rows}) while(first), condition=less, body=step
  last = {row} get-tuple-element(loop), index=1
  all = {rows} get-tuple-element(loop), index=2
  ROOT r = ({row}, {rows}) tuple(last, all)
}}
"""
    generator = np.random.default_rng(2)
    y, xs = (generator.standard_normal(s).astype(np.float16) for s in (size, (5, size)))
    (last, found), text = run_on_host(body, y, xs, monkeypatch=monkeypatch)
    assert "hlo::read_f16(" in text and "hlo::write_f16(" in text
    for x, made in zip(xs, found, strict=True):
        y = y * np.float16(0.75) + x
        assert np.array_equal(made, y)
    assert np.array_equal(last, y)
