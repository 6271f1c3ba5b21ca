"""Conditionals whose branches make a result in the memory of an argument."""

import types
from pathlib import Path

import numpy as np
import pytest

import hlo_opt
from hlo_opt.runtime.host.library import has_compiler
from hlo_opt.runtime.schedule import build_schedule
from hlo_opt.runtime.schedule.ops import BranchOp, Copy, LoopOp
from tests.runtime.test_order import run_driver, same, text_of

BRANCHES = """same {
  ROOT c = V parameter(0)
}
update {
  a = (V, f32[1,128], s32[]) parameter(0)
  c = V get-tuple-element(a), index=0
  x = f32[1,128] get-tuple-element(a), index=1
  i = s32[] get-tuple-element(a), index=2
  ROOT u = V dynamic-update-slice(c, x, i, i)
}
read {
  a = (V, f32[1,128], s32[]) parameter(0)
  c = V get-tuple-element(a), index=0
  ROOT r = V reverse(c), dimensions={0}
}
both {
  a = (V, V) parameter(0)
  c = V get-tuple-element(a), index=0
  d = V get-tuple-element(a), index=1
  x = f32[1,128] slice(d), slice={[3:4], [0:128]}
  z = s32[] constant(2)
  o = s32[] constant(0)
  v = V dynamic-update-slice(c, x, z, o)
  w = f32[1,128] slice(d), slice={[2:3], [0:128]}
  ROOT u = V dynamic-update-slice(v, w, o, o)
}
inner {
  a = (V, f32[1,128], s32[]) parameter(0)
  c = V get-tuple-element(a), index=0
  i = s32[] get-tuple-element(a), index=2
  ROOT u = V conditional(i, c, a), branch_computations={same, update}
}
body {
  s = (s32[], V, f32[1,128]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  c = V get-tuple-element(s), index=1
  x = f32[1,128] get-tuple-element(s), index=2
  k = s32[] constant(1)
  j = s32[] add(i, k)
  m = s32[] and(i, k)
  a = (V, f32[1,128], s32[]) tuple(c, x, i)
  u = V conditional(m, c, a), branch_computations={same, update}
  ROOT t = (s32[], V, f32[1,128]) tuple(j, u, x)
}
condition {
  s = (s32[], V, f32[1,128]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT l = pred[] compare(i, n), direction=LT
}
"""
CHOICE = "a = (V, f32[1,128], s32[]) tuple(p, x, i)\nu = V conditional(i, p, a), branch_computations={same, update}\n"

CASES: dict[str, tuple[str, dict[int, int], bool]] = {
    "as it is, or updated": (CHOICE + "ROOT t = (V) tuple(u)", {0: 0}, True),
    "updated by each branch": (
        "a = (V, f32[1,128], s32[]) tuple(p, x, i)\n"
        "u = V conditional(i, a, a), branch_computations={update, update}\nROOT t = (V) tuple(u)",
        {0: 0},
        True,
    ),
    "not given away": (CHOICE + "ROOT t = (V) tuple(u)", {}, False),
    "of its own": (
        CHOICE.replace("p,", "n,").replace("a = ", "n = V negate(p)\na = ", 1) + "ROOT t = (V) tuple(u)",
        {},
        True,
    ),
    "and updated once more": (
        CHOICE + "w = V dynamic-update-slice(u, x, i, i)\nROOT t = (V) tuple(w)",
        {0: 0},
        True,
    ),
    "read before": (CHOICE + "r = V reverse(p), dimensions={0}\nROOT t = (V, V) tuple(u, r)", {0: 0}, True),
    "read with the result": (CHOICE + "r = V add(p, u)\nROOT t = (V, V) tuple(u, r)", {0: 0}, False),
    "a branch that reads elsewhere": (
        "a = (V, f32[1,128], s32[]) tuple(p, x, i)\n"
        "u = V conditional(i, p, a), branch_computations={same, read}\nROOT t = (V) tuple(u)",
        {0: 0},
        False,
    ),
    "an array that is two arguments": (
        "a = (V, V) tuple(p, p)\nu = V conditional(i, p, a), branch_computations={same, both}\nROOT t = (V) tuple(u)",
        {0: 0},
        False,
    ),
    "two arrays": (
        "a = (V, V) tuple(p, q)\nu = V conditional(i, p, a), branch_computations={same, both}\nROOT t = (V) tuple(u)",
        {0: 0},
        True,
    ),
    "one inside another": (
        "a = (V, f32[1,128], s32[]) tuple(p, x, i)\n"
        "u = V conditional(i, p, a), branch_computations={same, inner}\nROOT t = (V) tuple(u)",
        {0: 0},
        True,
    ),
    "a call": (
        "a = (V, f32[1,128], s32[]) tuple(p, x, i)\nu = V call(a), to_apply=update\nROOT t = (V) tuple(u)",
        {0: 0},
        True,
    ),
    "in a loop": (
        "z = s32[] constant(0)\ns = (s32[], V, f32[1,128]) tuple(z, p, x)\n"
        "l = (s32[], V, f32[1,128]) while(s), condition=condition, body=body\nu = V get-tuple-element(l), index=1\n"
        "ROOT t = (V) tuple(u)",
        {0: 0},
        True,
    ),
    "two callers, of which one keeps the array": (
        CHOICE
        + "b = (V, f32[1,128], s32[]) tuple(q, x, i)\nw = V conditional(i, q, b), branch_computations={same, update}\n"
        "v = V add(q, w)\nROOT t = (V, V) tuple(u, v)",
        {0: 0},
        True,
    ),
}


def arrays(position: int) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    drawn = [generator.integers(-9, 9, shape).astype(np.float32) for shape in ((64, 128), (64, 128), (1, 128))]
    return [*drawn, np.array(position, np.int32)]


@pytest.mark.parametrize("case", CASES)
def test_a_branch_makes_its_result_in_an_argument(case: str, fake: types.ModuleType, tmp_path: Path) -> None:
    body, aliases, held = CASES[case]
    module = hlo_opt.parse(text_of(body, aliases, BRANCHES.replace("V", "f32[64,128]")))
    schedule = build_schedule(module)
    every = [op for routine in schedule.routines.values() for op in routine.ops]
    assert any(op.held for op in every if isinstance(op, BranchOp)) == held
    assert [k for k, _ in schedule.entry.donated] == list(aliases) * held
    if held and not case.startswith("two callers"):
        assert not any(isinstance(op, Copy) or (isinstance(op, LoopOp) and op.copied) for op in every)
    same(run_driver(module, tmp_path), hlo_opt.evaluate(module, arrays(7)))
    executables = [hlo_opt.compile(module, "cupy")]
    if has_compiler():
        executables += [hlo_opt.compile(module), hlo_opt.compile(module, form="plain")]
    for position in (0, 1, 7):
        want = hlo_opt.evaluate(module, arrays(position))
        for executable in executables:
            kept = arrays(position)
            same(executable(*kept), want)
            same(kept, arrays(position))
            same(executable(*arrays(position), donate=True), want)


def test_both_forms_of_a_branch_run() -> None:
    """A caller that keeps its array runs the branch as it was."""
    body, aliases, _ = CASES["two callers, of which one keeps the array"]
    routines = build_schedule(hlo_opt.parse(text_of(body, aliases, BRANCHES.replace("V", "f32[64,128]")))).routines
    assert [key.donated for key in routines if key.computation.name == "update"] == [((0, 0),), ()]


def test_a_result_in_state_that_a_loop_owns_is_not_sought_further() -> None:
    """The loop owns an array that a kernel made; an input is given for the result, too."""
    body = (
        "n = V negate(p)\nz = s32[] constant(0)\ns = (s32[], V, f32[1,128]) tuple(z, n, x)\n"
        "l = (s32[], V, f32[1,128]) while(s), condition=condition, body=body\nu = V get-tuple-element(l), index=1\n"
        "ROOT t = (V) tuple(u)"
    )
    schedule = build_schedule(hlo_opt.parse(text_of(body, {1: 0}, BRANCHES.replace("V", "f32[64,128]"))))
    (loop,) = (op for op in schedule.entry.ops if isinstance(op, LoopOp))
    assert loop.owned == (1,) and schedule.entry.donated == ((1, 0),)  # n is made in q
