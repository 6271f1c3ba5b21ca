"""Changed copies of a module: which instruction is changed, what they are compared with, and how many there are."""

from __future__ import annotations

from typing import Any

import pytest

from hlo_opt import parse
from hlo_opt.passes.run import report_on, run
from hlo_opt.report.lint.base import LEAST_SHARE, MOST_TRIED, Finding, FusedProgram, rule_specs
from hlo_opt.report.lint.check import lint


def found(code: str, text: str, **options: Any) -> list[Finding]:
    return lint(report_on(run(parse(text), **options)), [code])


def test_names_may_repeat_between_computations() -> None:
    text = rule_specs()["LNT101"].example
    largest = "f {\n  c = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT m = f32[] maximum(c, y)\n}\n\nENTRY"
    both = text.replace("ENTRY", largest).replace(
        "ROOT d =", "z = f32[] constant(0)\n  r = f32[] reduce(w, z), dimensions={0,1}, to_apply=f\n  d ="
    )
    both = both.rstrip().removesuffix("}") + "  ROOT t = (f32[8192,1024]{1,0}, f32[]) tuple(d, r)\n}\n"
    assert [f.name for f in found("LNT101", both)] == ["c"]


def test_what_a_change_saves_does_not_hang_on_steps_that_were_not_done() -> None:
    text = rule_specs()["LNT101"].example.replace("ROOT d =", "d =").rstrip().removesuffix("}")
    text += "  y = f32[8192,1024]{1,0} sine(d)\n  ROOT z = f32[8192,1024]{1,0} tanh(y)\n}\n"
    (whole,), (stopped,) = found("LNT101", text), found("LNT101", text, stop_after_step=0)
    assert stopped.us == pytest.approx(whole.us)


NESTED = """
HloModule nested

inner_body {
  x = f32[512,512]{1,0} parameter(0)
  ROOT d = f32[512,512]{1,0} dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

inner_condition {
  x = f32[512,512]{1,0} parameter(0)
  s = f32[1,1]{1,0} slice(x), slice={[0:1],[0:1]}
  f = f32[] reshape(s)
  n = f32[] constant(10)
  ROOT c = pred[] compare(f, n), direction=LT
}

body {
  s = (s32[], f32[512,512]{1,0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[512,512]{1,0} get-tuple-element(s), index=1
  y = f32[512,512]{1,0} sine(x)
  inner = f32[512,512]{1,0} while(y), condition=inner_condition, body=inner_body
  ROOT t = (s32[], f32[512,512]{1,0}) tuple(j, inner)
}

condition {
  s = (s32[], f32[512,512]{1,0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(100)
  ROOT c = pred[] compare(i, n), direction=LT
}

ENTRY e {
  x = f32[512,512]{1,0} parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[512,512]{1,0}) tuple(z, x)
  outer = (s32[], f32[512,512]{1,0}) while(t), condition=condition, body=body
  ROOT r = f32[512,512]{1,0} get-tuple-element(outer), index=1
}
"""


def test_no_promise_where_the_rounds_of_a_copied_loop_are_not_known() -> None:
    told = {f.name: f for f in found("LNT105", NESTED, trip_counts={"inner": 1000})}
    assert not told["outer"].saves


def test_the_dearest_places_are_tried_and_the_others_counted() -> None:
    program = FusedProgram(report_on(run(parse(rule_specs()["LNT101"].example))))
    least = LEAST_SHARE * program.summary.est_us
    places = [(least * n, n) for n in range(MOST_TRIED + 4)]
    assert program.worth_trying("LNT101", places) == list(range(MOST_TRIED + 3, 3, -1))
    assert program.untried == {"LNT101": 3}, "what takes next to nothing is worth no try"
