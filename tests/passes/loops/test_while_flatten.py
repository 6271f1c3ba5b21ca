"""Loops within loops as one loop: which are, what they read and write, what stays, and that the values stay."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.graph.loops import derived_trip_count
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.fusion.summary import module_summary
from tests.small_modules import H100

STATE = "s32[], f32[8], f32[3,4,8], f32[3,4,8], f32[8]"
INNER = "s32[], f32[8], f32[4,8], f32[4,8], f32[8], f32[]"
BODY = """
  n = s32[] add(j, one)
  u = f32[1,8] dynamic-slice(xs, j, zero), dynamic_slice_sizes={1,8}
  v = f32[8] reshape(u)
  y = f32[8] multiply(x, v)
  z = f32[8] add(y, k)
  w = f32[1,8] reshape(z)
  out = f32[4,8] dynamic-update-slice(ys, w, j, zero)
"""
AROUND = """
  n = s32[] add(i, one)
  u = f32[1,4,8] dynamic-slice(xs, i, zero, zero), dynamic_slice_sizes={1,4,8}
  row = f32[4,8] reshape(u)
  f = f32[] convert(i)
  none = f32[] constant(0)
  empty = f32[4,8] broadcast(none), dimensions={}
"""
AFTER = """
  made = f32[8] get-tuple-element(inner), index=1
  part = f32[4,8] get-tuple-element(inner), index=3
  whole = f32[1,4,8] reshape(part)
  out = f32[3,4,8] dynamic-update-slice(ys, whole, i, zero, zero)
"""


def nest(*changes: tuple[str, str]) -> str:
    """A scan within a scan: a state of 8, a table of [3,4,8] that is read row by row, results of the same shape, an
    array and a number from outside."""
    text = f"""HloModule m

inner_body {{
  s = ({INNER}) parameter(0)
  j = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  xs = f32[4,8] get-tuple-element(s), index=2
  ys = f32[4,8] get-tuple-element(s), index=3
  k = f32[8] get-tuple-element(s), index=4
  f = f32[] get-tuple-element(s), index=5
  one = s32[] constant(1)
  zero = s32[] constant(0)
{BODY}  ROOT t = ({INNER}) tuple(n, z, xs, out, k, f)
}}

inner_condition {{
  s = ({INNER}) parameter(0)
  j = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(4)
  ROOT c = pred[] compare(j, limit), direction=LT
}}

body {{
  s = ({STATE}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  xs = f32[3,4,8] get-tuple-element(s), index=2
  ys = f32[3,4,8] get-tuple-element(s), index=3
  k = f32[8] get-tuple-element(s), index=4
  one = s32[] constant(1)
  zero = s32[] constant(0)
{AROUND}  start = ({INNER}) tuple(zero, x, row, empty, k, f)
  inner = ({INNER}) while(start), condition=inner_condition, body=inner_body
{AFTER}  ROOT t = ({STATE}) tuple(n, made, xs, out, k)
}}

condition {{
  s = ({STATE}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(3)
  ROOT c = pred[] compare(i, limit), direction=LT
}}

ENTRY e {{
  p = f32[8] parameter(0)
  xs = f32[3,4,8] parameter(1)
  k = f32[8] parameter(2)
  zero = s32[] constant(0)
  none = f32[] constant(7)
  ys = f32[3,4,8] broadcast(none), dimensions={{}}
  start = ({STATE}) tuple(zero, p, xs, ys, k)
  w = ({STATE}) while(start), condition=condition, body=body
  i = s32[] get-tuple-element(w), index=0
  made = f32[8] get-tuple-element(w), index=1
  out = f32[3,4,8] get-tuple-element(w), index=3
  same = f32[8] get-tuple-element(w), index=4
  ROOT r = (s32[], f32[8], f32[3,4,8], f32[8]) tuple(i, made, out, same)
}}
"""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def flattened(text: str) -> list[int | None]:
    """The rounds of the loops after the pass, which left the values as they were."""
    module = hlo_opt.parse(text)
    made, _ = hlo_opt.fuse(module, passes="while-flatten,dce")
    hlo_opt.verify(made)
    given = module_inputs(module, seed=2)
    for got, want in zip(hlo_opt.evaluate(made, given), hlo_opt.evaluate(module, given), strict=True):
        np.testing.assert_array_equal(got, want)
    return [derived_trip_count(i) for c in made.computations for i in c.instructions if i.opcode == "while"]


ONE = {
    "a scan within a scan": (),
    "the numbers of both rounds": (
        ("y = f32[8] multiply(x, v)", "g = f32[] convert(j)\n  h = f32[] add(f, g)\n  b = f32[8] broadcast(h), "
                                      "dimensions={}\n  a = f32[8] multiply(x, v)\n  y = f32[8] add(a, b)"),
    ),
    "a value of the last round": (("  ROOT t = (s32[], f32[8], f32[4,8], f32[4,8], f32[8], f32[]) tuple(n, z,",
        "  ROOT t = (s32[], f32[8], f32[4,8], f32[4,8], f32[8], f32[]) tuple(n, v,"),
            ("multiply(x, v)", "multiply(k, v)")),
    "rows of two": (
        ("dynamic-slice(xs, j, zero), dynamic_slice_sizes={1,8}",
            "dynamic-slice(xs, j2, zero), dynamic_slice_sizes={2,8}"),
        ("u = f32[1,8]", "two = s32[] constant(2)\n  j2 = s32[] multiply(j, two)\n  u = f32[2,8]"),
        ("v = f32[8] reshape(u)", "cut = f32[1,8] slice(u), slice={[1:2], [0:8]}\n  v = f32[8] reshape(cut)"),
        ("limit = s32[] constant(4)", "limit = s32[] constant(2)"),
        ("w = f32[1,8] reshape(z)", "w = f32[2,8] broadcast(z), dimensions={1}"),
        ("dynamic-update-slice(ys, w, j, zero)", "dynamic-update-slice(ys, w, j2, zero)"),
    ),
    "a row as it is": (
        ("  u = f32[1,8] dynamic-slice(xs, j, zero), "
         "dynamic_slice_sizes={1,8}", "  u = f32[1,8] slice(xs), slice={[1:2], [0:8]}"),
    ),
}  # fmt: skip

TWO = {
    "work in the outer round": (("part = f32[4,8] get-tuple-element(inner), index=3",
        "part0 = f32[4,8] get-tuple-element(inner), index=3\n  part = f32[4,8] negate(part0)"),),
    "a state that begins anew": (("tuple(zero, x, row, empty, k, f)", "tuple(zero, k, row, empty, k, f)"),),
    "a state that is read besides": (("f = f32[] convert(i)",
        "o = s32[8] broadcast(i), dimensions={}\n  q = f32[8] convert(o)\n  qx = f32[8] add(q, x)\n  cut = f32[1] slice(qx), slice={[0:1]}\n  f = f32[] reshape(cut)"),),
    "results that are read again": (("y = f32[8] multiply(x, v)",
        "m = f32[1,8] dynamic-slice(ys, zero, zero), dynamic_slice_sizes={1,8}\n  l = f32[8] reshape(m)\n  a = f32[8] multiply(x, v)\n  y = f32[8] add(a, l)"),),
    "not all of a row": (("limit = s32[] constant(4)", "limit = s32[] constant(3)"),),
    "rounds that nobody counts": (("ROOT c = pred[] compare(j, limit), direction=LT",
        "g = f32[8] get-tuple-element(s), index=1\n  d = f32[1] slice(g), slice={[0:1]}\n  e = f32[] reshape(d)\n  big = f32[] constant(1e30)\n  a = pred[] compare(e, big), direction=LT\n  b = pred[] compare(j, limit), direction=LT\n  ROOT c = pred[] and(a, b)"),),
    "dear work for all inner rounds": (("row = f32[4,8] reshape(u)",
        "row0 = f32[4,8] reshape(u)\n  row = f32[4,8] tanh(row0)"),),
    "rounds that wait": (("inner = (", "held = f32[8] negate(k)\n  inner = ("),
        ("body=inner_body", "body=inner_body, control-predecessors={held}")),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_two_loops_are_one(name: str) -> None:
    rounds = 6 if name == "rows of two" else 12
    assert flattened(nest(*ONE[name])) == [rounds]


@pytest.mark.parametrize("name", TWO)
def test_what_stays_two_loops(name: str) -> None:
    assert len(flattened(nest(*TWO[name]))) == 2


def test_three_loops_are_one() -> None:
    text = """HloModule m

one_round {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  y = f32[8] sine(x)
  ROOT t = (s32[], f32[8]) tuple(n, y)
}

condition {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(5)
  ROOT c = pred[] compare(i, limit), direction=LT
}
"""
    inner = "one_round"
    for name in ("two_rounds", "three_rounds"):
        text += f"""
{name} {{
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  zero = s32[] constant(0)
  n = s32[] add(i, one)
  start = (s32[], f32[8]) tuple(zero, x)
  w = (s32[], f32[8]) while(start), condition=condition, body={inner}
  y = f32[8] get-tuple-element(w), index=1
  ROOT t = (s32[], f32[8]) tuple(n, y)
}}
"""
        inner = name
    text += """
ENTRY e {
  p = f32[8] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[8]) tuple(zero, p)
  ROOT w = (s32[], f32[8]) while(start), condition=condition, body=three_rounds
}
"""
    assert flattened(text) == [125]


def test_a_scan_within_a_scan_is_one_launch() -> None:
    made, _ = hlo_opt.fuse(hlo_opt.parse(nest()))
    assert module_summary(made, H100).launches == 1
