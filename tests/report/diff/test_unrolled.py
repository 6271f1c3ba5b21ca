"""Loops that came, went, or run in another number of rounds: what is inside belongs to them."""

from __future__ import annotations

import pytest

from hlo_opt.report.diff.comparison import diff


def loop(rounds: int, *lines: str) -> str:
    """A module with a loop of so many rounds over an array, and the lines that make `y` of `x`."""
    body = "\n  ".join(lines)
    return f"""HloModule m

round {{
  s = (s32[], f32[4096,256]{{1,0}}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[4096,256]{{1,0}} get-tuple-element(s), index=1
  {body}
  ROOT t = (s32[], f32[4096,256]{{1,0}}) tuple(j, y)
}}

going {{
  s = (s32[], f32[4096,256]{{1,0}}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({rounds})
  ROOT l = pred[] compare(i, n), direction=LT
}}

ENTRY e {{
  p = f32[4096,256]{{1,0}} parameter(0)
  z = s32[] constant(0)
  s = (s32[], f32[4096,256]{{1,0}}) tuple(z, p)
  ROOT w = (s32[], f32[4096,256]{{1,0}}) while(s), condition=going, body=round
}}
"""


ROLLED = loop(8, "y = f32[4096,256]{1,0} tanh(x)")
BY_TWO = loop(4, "a = f32[4096,256]{1,0} tanh(x)", "y = f32[4096,256]{1,0} tanh(a)")
STRAIGHT = """HloModule m

ENTRY e {
  p = f32[4096,256]{1,0} parameter(0)
  a = f32[4096,256]{1,0} tanh(p)
  b = f32[4096,256]{1,0} tanh(a)
  n = s32[] constant(8)
  ROOT r = (s32[], f32[4096,256]{1,0}) tuple(n, b)
}
"""


def test_a_loop_that_is_unrolled_is_one_difference_and_says_its_rounds() -> None:
    (difference,) = diff(ROLLED, BY_TWO, fuse="never").differences
    first = difference.changes[0]
    assert first.name == "w" and [(d.what, d.old, d.new) for d in first.details] == [("rounds", "8", "4")]
    assert {c.name for c in difference.changes} > {"w", "n"}


@pytest.mark.parametrize(("old", "new"), [(ROLLED, STRAIGHT), (STRAIGHT, ROLLED)])
def test_kernels_of_a_loop_that_went_or_came_belong_to_it(old: str, new: str) -> None:
    found = diff(old, new, fuse="never")
    (difference,) = [d for d in found.differences if d.groups]
    assert difference.changes[0].name == "w"
    assert difference.us == pytest.approx(found.new.summary.est_us - found.old.summary.est_us)


def test_parameters_of_a_loop_come_after_what_changed_about_it() -> None:
    wide = ROLLED.replace("f32[4096,256]", "f32[4096,512]")
    (difference,) = diff(ROLLED, wide, fuse="never").differences
    names = [c.name for c in difference.changes]
    assert names.index("w") < names.index("s") and names[0] == "p"


def test_another_constant_that_ends_a_loop_is_said_before_its_rounds() -> None:
    (difference,) = diff(ROLLED, ROLLED.replace("constant(8)", "constant(9)"), fuse="never").differences
    assert [c.name for c in difference.changes] == ["n", "w"]
