"""Calls and small loops in line: the whole program is one stretch, and computes the same."""

import types

import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate import evaluate
from hlo_opt.runtime.schedule import build_schedule, in_line
from hlo_opt.runtime.schedule.executor import Executor
from hlo_opt.runtime.schedule.ops import BranchOp, CallOp, ConstantOp, Copy, Free, LoopOp, Routine

NESTED = """HloModule m
inner {
  s = (s32[], f32[4]{0}, f32[8]{0}) parameter(0)
  j = s32[] get-tuple-element(s), index=0
  x = f32[4]{0} get-tuple-element(s), index=1
  rows = f32[8]{0} get-tuple-element(s), index=2
  one = s32[] constant(1)
  n = s32[] add(j, one)
  table = f32[4]{0} constant({1, 2, 3, 4})
  y = f32[4]{0} multiply(x, table)
  z = f32[4]{0} tanh(y)
  part = f32[1]{0} slice(z), slice={[1:2]}
  written = f32[8]{0} dynamic-update-slice(rows, part, j)
  ROOT r = (s32[], f32[4]{0}, f32[8]{0}) tuple(n, z, written)
}
fewer {
  s = (s32[], f32[4]{0}, f32[8]{0}) parameter(0)
  j = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(j, n), direction=LT
}
twice {
  x = f32[4]{0} parameter(0)
  ROOT d = f32[4]{0} add(x, x)
}
outer {
  s = (s32[], f32[4]{0}, f32[4]{0}, f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4]{0} get-tuple-element(s), index=1
  y = f32[4]{0} get-tuple-element(s), index=2
  rows = f32[8]{0} get-tuple-element(s), index=3
  one = s32[] constant(1)
  n = s32[] add(i, one)
  zero = s32[] constant(0)
  t = (s32[], f32[4]{0}, f32[8]{0}) tuple(zero, x, rows)
  l = (s32[], f32[4]{0}, f32[8]{0}) while(t), condition=fewer, body=inner
  z = f32[4]{0} get-tuple-element(l), index=1
  written = f32[8]{0} get-tuple-element(l), index=2
  d = f32[4]{0} call(z), to_apply=twice
  ROOT r = (s32[], f32[4]{0}, f32[4]{0}, f32[8]{0}) tuple(n, y, d, written)
}
few {
  s = (s32[], f32[4]{0}, f32[4]{0}, f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(TRIPS)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY e {
  a = f32[4]{0} parameter(0)
  b = f32[4]{0} parameter(1)
  rows = f32[8]{0} parameter(2)
  START
  t = (s32[], f32[4]{0}, f32[4]{0}, f32[8]{0}) tuple(start, a, b, rows)
  l = (s32[], f32[4]{0}, f32[4]{0}, f32[8]{0}) while(t), condition=few, body=outer
  x = f32[4]{0} get-tuple-element(l), index=1
  y = f32[4]{0} get-tuple-element(l), index=2
  written = f32[8]{0} get-tuple-element(l), index=3
  s = f32[4]{0} subtract(x, a)
  ROOT r = (f32[4]{0}, f32[4]{0}, f32[4]{0}, f32[8]{0}, f32[8]{0}) tuple(s, y, x, written, rows)
}
"""
"""A loop that exchanges two values, in it another one, which updates an array in place, and a call."""


def nested(trips: int = 3, start: str = "start = s32[] constant(0)") -> str:
    return NESTED.replace("TRIPS", str(trips)).replace("START", start)


def entry_of(text: str) -> Routine:
    schedule = build_schedule(hlo_opt.parse(text))
    return in_line.in_line(schedule.entry, schedule.routines, lambda _: True)


def inputs() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.uniform(-1, 1, n).astype(np.float32) for n in (4, 4, 8)]


@pytest.mark.parametrize("trips", [0, 1, 2, 5])
def test_loops_in_loops_and_calls_are_one_graph(trips: int, fake: types.ModuleType) -> None:
    module = hlo_opt.parse(nested(trips))
    given = inputs()
    want = evaluate(module, given)
    executable = hlo_opt.compile(module, "cupy")
    arrays = [fake.asarray(a) for a in given]
    for _ in range(3):
        fake.launched.clear()
        fake.graphs.clear()
        for ours in (executable(*given), executable.on_device(*arrays)):
            for got, expected in zip(ours, want, strict=True):
                assert np.allclose(got, expected, rtol=1e-6)
        assert 2 * executable.report()["launches"] == len(fake.launched)
        assert all(np.array_equal(a, b) for a, b in zip(arrays, given, strict=True))
    assert executable.report()["graphs"]["loops"] == 0 and len(fake.graphs) in (1, 2)
    run = executable.resident(given)
    for _ in range(3):
        run()
    assert executable.report()["graphs"]["runs"] == 1


def test_a_constant_of_a_body_is_there_once() -> None:
    (table,) = (
        o for op in entry_of(nested()).ops if isinstance(op, ConstantOp) for o in op.literals if o.shape.dimensions
    )
    assert table.shape.dimensions == (4,)


def test_a_constant_in_line_has_the_memory_of_the_one_in_its_routine(fake: types.ModuleType) -> None:
    executor = hlo_opt.compile(hlo_opt.parse(nested()), "cupy")._executor
    assert isinstance(executor, Executor) and executor.graphs is not None
    routines = [*executor.schedule.routines.values(), executor.graphs.in_line(executor.schedule.entry)]
    found = [
        executor.constant(op, routine.shapes)[0]
        for routine in routines
        for op in routine.ops
        if isinstance(op, ConstantOp) and op.literals[0].shape.dimensions
    ]
    assert len(found) == 2 and found[0] is found[1]


def test_an_array_updated_in_place_is_copied_once_for_all_iterations() -> None:
    ops = entry_of(nested()).ops
    assert sum(isinstance(op, Copy) for op in ops) == 1 and not any(isinstance(op, LoopOp | BranchOp) for op in ops)


def test_what_is_freed_is_not_used_again() -> None:
    freed: set[int] = set()
    for op in entry_of(nested()).ops:
        assert freed.isdisjoint((*op.inputs, *op.outputs))
        freed.update(op.inputs if isinstance(op, Free) else ())


def test_loops_of_many_or_unknown_iterations_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = nested(start="start = s32[] parameter(3)")
    (loop,) = (op for op in entry_of(unknown).ops if isinstance(op, LoopOp))
    assert loop.instruction.name == "l"
    monkeypatch.setattr(in_line, "MOST_IN_LINE", 20)
    (loop,) = (op for op in entry_of(nested(100)).ops if isinstance(op, LoopOp))
    assert loop.instruction.name == "l"


def test_a_loop_with_a_library_call_that_may_wait_stays() -> None:
    product = """  p = f32[] dot(x, table), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  spread = f32[4]{0} broadcast(p), dimensions={}
  z = f32[4]{0} multiply(y, spread)
"""
    schedule = build_schedule(hlo_opt.parse(nested().replace("  z = f32[4]{0} tanh(y)\n", product)))
    assert any(isinstance(op, CallOp) for _, op in schedule.ops())
    for places, stays in ((lambda _: True, False), (lambda _: False, True)):
        kept = in_line.in_line(schedule.entry, schedule.routines, places)
        assert any(isinstance(op, LoopOp) for op in kept.ops) == stays


def test_what_has_no_callees_stays_itself() -> None:
    schedule = build_schedule(hlo_opt.parse("HloModule m\nENTRY e {\n  ROOT a = f32[4]{0} parameter(0)\n}"))
    assert in_line.in_line(schedule.entry, schedule.routines, lambda _: True) is schedule.entry
