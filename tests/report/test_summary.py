import pytest

import hlo_opt
from hlo_opt.passes.explain import explain_module
from hlo_opt.report.summary import summary_page

LOOP = """HloModule m

body {
  s = (s32[], f32[4]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[4]{0} get-tuple-element(s), index=1
  y = f32[4]{0} negate(x)
  ROOT t = (s32[], f32[4]{0}) tuple(j, y)
}

condition {
  s = (s32[], f32[4]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(ROUNDS)
  ROOT r = pred[] compare(i, n), direction=LT
}

ENTRY e {
  p = f32[4]{0} parameter(0)
  i = s32[] constant(0)
  s = (s32[], f32[4]{0}) tuple(i, p)
  ROOT w = (s32[], f32[4]{0}) while(s), condition=condition, body=body
}
"""


@pytest.mark.parametrize(("rounds", "told"), [("7", True), ("1", False)])
def test_a_loop_with_several_rounds_has_a_word_on_what_is_counted(rounds, told):
    report = explain_module(hlo_opt.parse(LOOP.replace("ROUNDS", rounds)))
    page = str(summary_page(report))
    assert ("kernels and bytes count its body once" in page) is told
