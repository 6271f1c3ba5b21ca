"""Branches in the rounds of loops as selects: which are, and that the values stay."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate.inputs import module_inputs

BRANCHES = """
first {
  s = (f32[8], f32[8]) parameter(0)
  x = f32[8] get-tuple-element(s), index=0
  v = f32[8] get-tuple-element(s), index=1
  y = f32[8] add(x, v)
  ROOT t = (f32[8], f32[8]) tuple(y, v)
}

second {
  s = (f32[8], f32[8]) parameter(0)
  x = f32[8] get-tuple-element(s), index=0
  v = f32[8] get-tuple-element(s), index=1
  w = f32[8] negate(v)
  ROOT t = (f32[8], f32[8]) tuple(x, w)
}

third {
  ROOT s = (f32[8], f32[8]) parameter(0)
}
"""
LOOP = """
body {
  s = (s32[], f32[8], f32[8]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  v = f32[8] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(n, one)
  limit = s32[] constant(2)
  low = pred[] compare(n, limit), direction=LT
  t = (f32[8], f32[8]) tuple(x, v)
  c = (f32[8], f32[8]) CONDITIONAL
  y = f32[8] get-tuple-element(c), index=0
  w = f32[8] get-tuple-element(c), index=1
  ROOT r = (s32[], f32[8], f32[8]) tuple(next, y, w)
}

condition {
  s = (s32[], f32[8], f32[8]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(5)
  ROOT c = pred[] compare(n, limit), direction=LT
}

ENTRY e {
  x = f32[8] parameter(0)
  v = f32[8] parameter(1)
  start = s32[] constant(-2)
  t = (s32[], f32[8], f32[8]) tuple(start, x, v)
  w = (s32[], f32[8], f32[8]) while(t), condition=condition, body=body
  ROOT r = f32[8] get-tuple-element(w), index=1
}
"""
BY_NUMBER = "conditional(n, t, t, t), branch_computations={first, second, third}"
BY_TRUTH = "conditional(low, t, t), true_computation=first, false_computation=second"
ONE_TWICE = "conditional(n, t, t, t), branch_computations={first, second, first}"


def module_of(conditional: str, branches: str = BRANCHES) -> hlo_opt.Module:
    return hlo_opt.parse(f"HloModule m\n{branches}{LOOP}".replace("CONDITIONAL", conditional))


@pytest.mark.parametrize("conditional", [BY_NUMBER, BY_TRUTH, ONE_TWICE])
def test_values_stay(conditional: str) -> None:
    """Numbers from -2 to 4: below, at and beyond those of the branches."""
    module = module_of(conditional)
    fused, _ = hlo_opt.fuse(module, passes="while-select,dce", simplify="never")
    hlo_opt.verify(fused)
    assert "conditional(" in str(module) and "conditional(" not in str(fused)
    given = module_inputs(module, seed=0)
    for got, want in zip(hlo_opt.evaluate(fused, given), hlo_opt.evaluate(module, given), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("conditional", [BY_NUMBER, BY_TRUTH, ONE_TWICE])
def test_the_loop_is_one_kernel_then(conditional: str) -> None:
    fused, _ = hlo_opt.fuse(module_of(conditional))
    assert [i.opcode for i in fused.entry.instructions] == ["parameter", "parameter", "fusion"]


@pytest.mark.parametrize(
    "line",
    [
        "w = f32[8] sort(v), dimensions={0}, to_apply=less",
        "w = f32[8] map(v), dimensions={0}, to_apply=minus",
        "w = f32[8] negate(v), control-predecessors={x}",
    ],
)
def test_what_does_more_than_move_and_compute_elements_stays(line: str) -> None:
    helpers = """
less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT l = pred[] compare(a, b), direction=LT
}

minus {
  a = f32[] parameter(0)
  ROOT n = f32[] negate(a)
}
"""
    branches = helpers + BRANCHES.replace("w = f32[8] negate(v)", line)
    fused, _ = hlo_opt.fuse(module_of(BY_TRUTH, branches), passes="while-select,dce", simplify="never")
    assert "conditional(" in str(fused)


def test_branches_with_much_to_do_stay() -> None:
    """What is not taken costs nothing."""
    big = f"HloModule m\n{BRANCHES}{LOOP}".replace("CONDITIONAL", BY_TRUTH).replace("f32[8]", "f32[300000]")
    fused, _ = hlo_opt.fuse(hlo_opt.parse(big), passes="while-select,dce", simplify="never")
    assert "conditional(" in str(fused)


def test_outside_of_loops_branches_stay() -> None:
    entry = """
ENTRY e {
  low = pred[] parameter(0)
  t = (f32[8], f32[8]) parameter(1)
  ROOT c = (f32[8], f32[8]) conditional(low, t, t), true_computation=first, false_computation=second
}
"""
    module = hlo_opt.parse(f"HloModule m\n{BRANCHES}{entry}")
    fused, _ = hlo_opt.fuse(module, passes="while-select,dce", simplify="never")
    assert "conditional(" in str(fused)
