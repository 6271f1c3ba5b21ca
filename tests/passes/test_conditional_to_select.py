from __future__ import annotations

import numpy as np

import hlo_opt
from hlo_opt.analysis.targets import DEFAULT_TARGET, target
from hlo_opt.passes.conditional_to_select import ConditionalToSelect
from hlo_opt.passes.for_kernels import expanded
from hlo_opt.runtime.schedule import build_schedule
from hlo_opt.runtime.schedule.ops import Allocate, Free, LaunchOp

TARGET = target(DEFAULT_TARGET)

TEXT = """HloModule m

yes {
  x = f32[] parameter(0)
  ROOT r = f32[] negate(x)
}

no {
  x = () parameter(0)
  ROOT r = f32[] constant(7)
}

each {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = pred[] compare(a, b), direction=LT
  t = () tuple()
  ROOT r = f32[] conditional(c, b, t), true_computation=yes, false_computation=no
}

ENTRY e {
  p = f32[5]{0} parameter(0)
  q = f32[5]{0} parameter(1)
  ROOT r = f32[5]{0} map(p, q), dimensions={0}, to_apply=each
}
"""


def test_both_branches_are_computed_and_one_is_picked() -> None:
    original = hlo_opt.parse(TEXT)
    written = expanded(original, TARGET, (ConditionalToSelect(),))
    hlo_opt.verify(written)
    given = [np.array([1, 2, 3, 4, 5], np.float32), np.array([2, 1, 4, 3, 5], np.float32)]
    got, want = (hlo_opt.evaluate(m, given)[0] for m in (written, original))
    assert got.tolist() == want.tolist() == [-2, 7, -4, 7, 7]
    assert [type(op) for op in build_schedule(original).entry.ops] == [Allocate, LaunchOp, Free]


def test_branches_with_more_inside_stay() -> None:
    nested = TEXT.replace("ROOT r = f32[] negate(x)", "ROOT r = f32[] map(x), dimensions={}, to_apply=other").replace(
        "yes {", "other {\n  x = f32[] parameter(0)\n  ROOT r = f32[] negate(x)\n}\n\nyes {"
    )
    original = hlo_opt.parse(nested)
    assert expanded(original, TARGET, (ConditionalToSelect(),)) is original
