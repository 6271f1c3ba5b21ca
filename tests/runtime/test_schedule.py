import numpy as np
import pytest

import hlo_opt
from hlo_opt.runtime.schedule import Schedule, build_schedule
from hlo_opt.runtime.schedule.ops import (
    AliasOp,
    Allocate,
    BranchOp,
    CallOp,
    ConstantOp,
    Free,
    LaunchOp,
    LoopOp,
    Op,
    Relayout,
    Routine,
)

LOOP = """HloModule loop

body {
  state = (s32[], f32[4]{0}) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[4]{0} get-tuple-element(state), index=1
  doubled = f32[4]{0} add(x, x)
  ROOT result = (s32[], f32[4]{0}) tuple(next, doubled)
}

condition {
  state = (s32[], f32[4]{0}) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  limit = s32[] constant(3)
  ROOT less = pred[] compare(i, limit), direction=LT
}

ENTRY main {
  x = f32[4]{0} parameter(0)
  zero = s32[] constant(0)
  first = (s32[], f32[4]{0}) tuple(zero, x)
  last = (s32[], f32[4]{0}) while(first), condition=condition, body=body
  ROOT y = f32[4]{0} get-tuple-element(last), index=1
}
"""

BRANCHES = """HloModule branches

double {
  x = f32[4]{0} parameter(0)
  ROOT y = f32[4]{0} add(x, x)
}

square {
  x = f32[4]{0} parameter(0)
  ROOT y = f32[4]{0} multiply(x, x)
}

ENTRY main {
  x = f32[4]{0} parameter(0)
  which = s32[] parameter(1)
  chosen = f32[4]{0} conditional(which, x, x), branch_computations={double, square}
  ROOT called = f32[4]{0} call(chosen), to_apply=square
}
"""


def schedule_of(text: str) -> Schedule:
    return build_schedule(hlo_opt.parse(text))


def work(routine: Routine) -> list[Op]:
    """Its operations but those that only give memory and take it back."""
    return [op for op in routine.ops if not isinstance(op, Allocate | Free)]


def by_name(routine: Routine) -> dict[str, object]:
    return {op.instruction.name: op for op in work(routine)}


def test_tuples_need_no_operations_and_a_loop_runs_on_leaves() -> None:
    schedule = schedule_of(LOOP)
    constant, loop = work(schedule.entry)
    assert isinstance(constant, ConstantOp) and isinstance(loop, LoopOp)
    assert loop.inputs == (constant.outputs[0], schedule.entry.inputs[0])
    assert schedule.entry.results == loop.outputs[1:]
    assert [k.computation.name for k in schedule.routines] == ["main", "condition", "body"]
    body = next(r for k, r in schedule.routines.items() if k.computation.name == "body")
    assert len(body.inputs) == 2 and len(body.results) == 2
    assert sum(isinstance(s, LaunchOp) for s in body.ops) == 2


def test_equal_instructions_share_a_kernel() -> None:
    schedule = schedule_of(
        """HloModule m
ENTRY e {
  a = f32[8]{0} parameter(0)
  b = f32[8]{0} parameter(1)
  c = f32[8]{0} add(a, b)
  d = f32[8]{0} add(c, b)
  ROOT e = f32[8]{0} multiply(c, d)
}
"""
    )
    c, d, e = (s.kernel for s in schedule.entry.ops if isinstance(s, LaunchOp))
    assert c is d and e is not c
    assert len(schedule.kernels) == 2 == len({k.symbol for k in schedule.kernels})


def test_branches_take_their_own_arguments() -> None:
    schedule = schedule_of(BRANCHES)
    chosen, called = work(schedule.entry)
    x, which = schedule.entry.inputs
    assert isinstance(chosen, BranchOp) and chosen.selector == which and chosen.arguments == ((x,), (x,))
    assert [k.computation.name for k in chosen.branches] == ["double", "square"]
    assert isinstance(called, BranchOp) and called.selector is None and called.arguments == (chosen.outputs,)


def test_buffers_are_freed_after_their_last_use() -> None:
    schedule = schedule_of(
        """HloModule m
ENTRY e {
  a = f32[8]{0} parameter(0)
  b = f32[8]{0} negate(a)
  c = f32[8]{0} exponential(b)
  d = f32[8]{0} add(c, b)
  unused = f32[8]{0} tanh(d)
  ROOT r = (f32[8]{0}, f32[8]{0}) tuple(d, a)
}
"""
    )
    b, c, d, unused = (op.outputs[0] for op in schedule.entry.ops if isinstance(op, LaunchOp))
    order = [
        op.outputs if isinstance(op, LaunchOp) else op.inputs
        for op in schedule.entry.ops
        if not isinstance(op, Allocate)
    ]
    assert order == [(b,), (c,), (d,), (b, c), (unused,), (unused,)]


def test_what_is_no_kernel_is_a_library_call_or_a_reported_fallback() -> None:
    schedule = schedule_of(
        """HloModule m
ENTRY e {
  a = f32[8,8]{1,0} parameter(0)
  d = f32[8,8]{1,0} dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[8,0]{1,0} slice(d), slice={[0:8], [0:0]}
  n = f32[8,0]{1,0} negate(z)
  v = f32[64]{0} bitcast(d)
  t = u32[] partition-id()
  ROOT r = (f32[64]{0}, f32[8,0]{1,0}, u32[]) tuple(v, n, t)
}
"""
    )
    ops = by_name(schedule.entry)
    dot, empty = ops["d"], ops["n"]
    assert isinstance(dot, CallOp) and (dot.kind, dot.call) == ("library", "dot")
    assert isinstance(empty, CallOp) and empty.kind == "empty"
    assert isinstance(ops["v"], AliasOp) and isinstance(ops["t"], ConstantOp)
    assert schedule.library_calls("library") == {"dot": 1} and schedule.library_calls("fallback") == {}


CROSSED = """HloModule crossed

double {
  x = f32[3,5]{0,1} parameter(0)
  ROOT y = f32[3,5]{0,1} add(x, x)
}

ENTRY main {
  x = f32[3,5]{1,0} parameter(0)
  t = (f32[3,5]{0,1}, f32[3,5]{1,0}) tuple(x, x)
  a = f32[3,5]{0,1} get-tuple-element(t), index=0
  called = f32[3,5]{1,0} call(a), to_apply=double
  again = f32[3,5]{0,1} call(x), to_apply=double
  ROOT sum = f32[3,5]{1,0} subtract(called, again)
}
"""


def test_elements_move_where_layouts_change_in_passing() -> None:
    module = hlo_opt.parse(CROSSED)
    schedule = build_schedule(module)
    moved = [s for s in schedule.entry.ops if isinstance(s, Relayout)]
    assert [(schedule.entry.shapes[s.inputs[0]].minor_to_major) for s in moved] == [(1, 0), (1, 0)]
    assert len(schedule.routines) == 3, "one routine of `double` per layout of its result"
    assert len([op for _, op in schedule.ops() if not isinstance(op, Allocate)]) == 4, "no instruction twice"
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    exe = hlo_opt.compile(module, "host")
    assert np.array_equal(exe(x)[0], np.zeros((3, 5)))
    assert exe.report()["launches"] == 3


def test_a_loop_whose_state_changes_its_layout() -> None:
    text = LOOP.replace("f32[4]{0}", "f32[3,4]{1,0}").replace(
        "x = f32[3,4]{1,0} get-tuple-element(state)", "x = f32[3,4]{0,1} get-tuple-element(state)"
    )
    text = text.replace("doubled = f32[3,4]{1,0}", "doubled = f32[3,4]{0,1}")
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert np.array_equal(hlo_opt.compile(hlo_opt.parse(text), "host")(x)[0], 8 * x)


def test_a_conditional_without_arguments_for_each_branch_is_refused() -> None:
    module = hlo_opt.parse(BRANCHES)
    chosen = next(i for i in module.entry.instructions if i.opcode == "conditional")
    del chosen.operands[2]
    with pytest.raises(hlo_opt.EvaluationError, match="2 branches for 1 arguments"):
        build_schedule(module)


def test_a_copy_in_two_steps_is_a_kernel() -> None:
    text = """HloModule m

ENTRY e {
  p = f32[3,5]{1,0} parameter(0)
  s = (f32[3,5]{0,1}, f32[3,5]{1,0}, u32[]) copy-start(p)
  d = f32[3,5]{0,1} copy-done(s)
  a = f32[3,5]{1,0} get-tuple-element(s), index=1
  ROOT r = (f32[3,5]{0,1}, f32[3,5]{1,0}) tuple(d, a)
}
"""
    executable = hlo_opt.compile(hlo_opt.parse(text), backend="host")
    given = np.arange(15, dtype=np.float32).reshape(3, 5)
    for out in executable(given):
        np.testing.assert_array_equal(out, given)
    assert not executable.report()["fallbacks"] and executable.report()["launches"] == 1
