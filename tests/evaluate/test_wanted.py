"""Wishes are followed through calls, fusions, branches and loops."""

from __future__ import annotations

from hlo_opt import parse
from hlo_opt.evaluate.wanted import FEW, wanted
from hlo_opt.ops.wishes import WishForm

LOOP = """HloModule m

condition {
  s = (s32[], s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  ROOT c = pred[] compare(i, n), direction=LT
}

body {
  s = (s32[], s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  n = s32[] get-tuple-element(s), index=1
  x = f32[4] get-tuple-element(s), index=2
  y = f32[4] log(x)
  ROOT t = (s32[], s32[], f32[4]) tuple(j, n, y)
}

ENTRY e {
  zero = s32[] constant(0)
  n = s32[] parameter(0)
  x = f32[4] parameter(1)
  t = (s32[], s32[], f32[4]) tuple(zero, n, x)
  w = (s32[], s32[], f32[4]) while(t), condition=condition, body=body
  ROOT r = f32[4] get-tuple-element(w), index=2
}
"""

BRANCHES = """HloModule m

inner {
  x = f32[4] parameter(0)
  ROOT y = f32[4] rsqrt(x)
}

one {
  x = f32[4] parameter(0)
  ROOT f = f32[4] fusion(x), kind=kLoop, calls=inner
}

two {
  x = f32[4] parameter(0)
  ROOT n = f32[4] negate(x)
}

ENTRY e {
  p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[4] get-tuple-element(p), index=1
  y = f32[4] parameter(1)
  ROOT c = f32[4] conditional(i, x, y), branch_computations={one, two}
}
"""


def test_loops_ask_for_a_few_rounds_and_for_what_their_body_likes() -> None:
    n, x = wanted(parse(LOOP))
    assert n.high == FEW and x.low == 0.0


def test_branches_ask_for_their_operands_and_for_an_index() -> None:
    index, x, y = wanted(parse(BRANCHES))
    assert (index.low, index.high, index.form) == (0.0, 1.0, WishForm.INDEX)
    assert x.low == 0.0 and y.low < 0


def test_calls_that_double_at_every_level_are_given_up() -> None:
    levels = ["c0 {\n  x = f32[4] parameter(0)\n  ROOT y = f32[4] log(x)\n}\n"]
    for n in range(1, 40):
        levels.append(
            f"c{n} {{\n  x = f32[4] parameter(0)\n  a = f32[4] call(x), to_apply=c{n - 1}\n"
            f"  ROOT b = f32[4] call(a), to_apply=c{n - 1}\n}}\n"
        )
    entry = "ENTRY e {\n  x = f32[4] parameter(0)\n  ROOT y = f32[4] call(x), to_apply=c39\n}\n"
    assert len(wanted(parse("HloModule m\n\n" + "\n".join(levels) + "\n" + entry))) == 1
