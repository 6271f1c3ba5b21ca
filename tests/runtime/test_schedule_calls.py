"""Steps of what is neither a kernel nor a library call by itself: fusions around library calls, asynchronous
operations, markers, loops that stand still."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.runtime.host.library import HostDevice, HostLibrary, has_compiler
from hlo_opt.runtime.numpy import Reference
from hlo_opt.runtime.schedule import build_schedule
from hlo_opt.runtime.schedule.executor import Executor
from hlo_opt.runtime.schedule.ops import CallOp, LaunchOp

needs_compiler = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")

AROUND = """HloModule m

f {
  p = f32[8,16]{1,0} parameter(0)
  q = f32[16,4]{1,0} parameter(1)
  c = f32[8,4]{1,0} convolution(p, q), dim_labels=bf_io->bf
  ROOT n = f32[8,4]{1,0} negate(c)
}

ENTRY e {
  p = f32[8,16]{1,0} parameter(0)
  q = f32[16,4]{1,0} parameter(1)
  ROOT r = f32[8,4]{1,0} fusion(p, q), kind=KIND, calls=f
}
"""
TUPLES = """HloModule m

f {
  t = (f32[3]{0}, f32[3]{0}) parameter(0)
  x = f32[3]{0} get-tuple-element(t), index=0
  y = f32[3]{0} get-tuple-element(t), index=1
  ROOT a = f32[3]{0} subtract(x, y)
}

ENTRY e {
  p = f32[3]{0} parameter(0)
  q = f32[3]{0} parameter(1)
  t = (f32[3]{0}, f32[3]{0}) tuple(p, q)
  ROOT r = f32[3]{0} fusion(t), kind=kLoop, calls=f
}
"""
LATER = """HloModule m

work {
  p = f32[3]{0} parameter(0)
  q = f32[3]{0} parameter(1)
  ROOT r = f32[3]{0} divide(p, q)
}

ENTRY e {
  p = f32[3]{0} parameter(0)
  q = f32[3]{0} parameter(1)
  s = ((f32[3]{0}, f32[3]{0}), f32[3]{0}, u32[]) async-start(p, q), calls=work
  u = ((f32[3]{0}, f32[3]{0}), f32[3]{0}, u32[]) async-update(s)
  ROOT d = f32[3]{0} async-done(u)
}
"""
SHORT = """HloModule m

ENTRY e {
  p = f32[3]{0} parameter(0)
  q = f32[3]{0} parameter(1)
  s = ((f32[3]{0}, f32[3]{0}), f32[3]{0}) subtract-start(p, q)
  ROOT d = f32[3]{0} subtract-done(s)
}
"""
MARKED = """HloModule m

ENTRY e {
  p = f32[3]{0:T(128)} parameter(0)
  q = f32[3]{0} parameter(1)
  h = f32[3]{0:T(128)S(5)} custom-call(p), custom_call_target="MoveToHost"
  t = (f32[3]{0:T(128)S(5)}, f32[3]{0}) tuple(h, q)
  b = (f32[3]{0:T(128)S(5)}, f32[3]{0}) custom-call(t), custom_call_target="ShardBarrierFrom", custom_call_has_side_effect=true
  x = f32[3]{0:T(128)S(5)} get-tuple-element(b), index=0
  y = f32[3]{0} get-tuple-element(b), index=1
  m = f32[3]{0} custom-call(), custom_call_target="AllocateBuffer"
  a = f32[3]{0} add(x, y)
  ROOT r = f32[3]{0} add(a, m)
}
"""


@needs_compiler
@pytest.mark.parametrize("text", [TUPLES, LATER, SHORT, MARKED], ids=["tuples", "later", "short", "marked"])
def test_nothing_is_left_to_the_interpreter(text: str) -> None:
    module = hlo_opt.parse(text)
    executable = hlo_opt.compile(module, "host")
    given = [np.array([1, 5, 6], np.float32), np.array([2, 4, -8], np.float32)]
    np.testing.assert_array_equal(executable(*given)[0], hlo_opt.evaluate(module, given)[0])
    assert not executable.report()["fallbacks"]


@needs_compiler
@pytest.mark.parametrize("kind", ["kOutput", "kLoop", "kCustom"])
def test_a_fusion_around_a_library_call_is_its_operations(kind: str) -> None:
    module = hlo_opt.parse(AROUND.replace("KIND", kind))
    executable = hlo_opt.compile(module, "host")
    given = [np.random.default_rng(k).normal(size=s).astype(np.float32) for k, s in enumerate(((8, 16), (16, 4)))]
    np.testing.assert_allclose(executable(*given)[0], -(given[0] @ given[1]), rtol=1e-5, atol=1e-5)
    report = executable.report()
    assert report["library"] == {"convolution": 1} and report["launches"] == 1 and not report["fallbacks"]


def test_a_fusion_of_a_library_call_alone_is_that_call() -> None:
    text = (
        AROUND.replace("KIND", "kCustom")
        .replace("  c = ", "  ROOT c = ")
        .replace("  ROOT n = f32[8,4]{1,0} negate(c)\n", "")
    )
    schedule = build_schedule(hlo_opt.parse(text))
    assert [op.instruction.opcode for _, op in schedule.ops() if op.instruction.opcode != "fusion"] == ["convolution"]
    assert schedule.library_calls("library") == {"convolution": 1}


def test_functions_of_libraries_are_library_calls() -> None:
    text = (
        "HloModule m\n\nENTRY e {\n  p = f32[4,4]{1,0} parameter(0)\n  ROOT r = (f32[4,4]{1,0}, f32[4]{0}) "
        'custom-call(p), custom_call_target="Qr"\n}\n'
    )
    schedule = build_schedule(hlo_opt.parse(text))
    assert schedule.library_calls("library") == {"Qr": 1} and not schedule.library_calls("fallback")


def test_an_all_reduce_of_one_device_keeps_its_operands_type() -> None:
    text = """HloModule m

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}

ENTRY e {
  p = bf16[2]{0} parameter(0)
  a = f32[2]{0} all-reduce(p), replica_groups={}, to_apply=add
  ROOT r = f32[2]{0} all-reduce(a), replica_groups={}, to_apply=add
}
"""
    entry = build_schedule(hlo_opt.parse(text)).entry
    assert entry.results == entry.inputs
    assert [s.kind for s in entry.ops if isinstance(s, CallOp)] == ["empty"] * 2 == ["empty" for _ in entry.ops]


SAME_TEXT = """HloModule m

ENTRY e {
  p = f32[3,4,4]{2,1,0} parameter(0)
  q = f32[6,8]{1,0} parameter(1)
  a = f32[48]{0} reshape(p)
  b = f32[48]{0} reshape(q)
  ROOT r = (f32[48]{0}, f32[48]{0}) tuple(a, b)
}
"""


@needs_compiler
def test_kernels_of_one_text_read_arrays_of_other_dimensions() -> None:
    module = hlo_opt.parse(SAME_TEXT)
    schedule = build_schedule(module)
    assert len(schedule.kernels) == 1 and sum(isinstance(op, LaunchOp) for op in schedule.entry.ops) == 2
    given = [np.arange(48, dtype=np.float32).reshape(s) for s in ((3, 4, 4), (6, 8))]
    for found in hlo_opt.compile(module, "host")(*given):
        assert found.tolist() == list(range(48))


STILL = """HloModule m

body {
  s = (s32[], f32[2]{0}, f32[2]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[2]{0} get-tuple-element(s), index=1
  y = f32[2]{0} get-tuple-element(s), index=2
  limit = s32[] constant(5)
  one = s32[] constant(1)
  more = s32[] add(i, one)
  next = s32[] minimum(more, limit)
  ROOT r = (s32[], f32[2]{0}, f32[2]{0}) tuple(next, y, y)
}

condition {
  s = (s32[], f32[2]{0}, f32[2]{0}) parameter(0)
  ROOT yes = pred[] constant(true)
}

ENTRY e {
  x = f32[2]{0} parameter(0)
  y = f32[2]{0} parameter(1)
  zero = s32[] constant(0)
  s = (s32[], f32[2]{0}, f32[2]{0}) tuple(zero, x, y)
  ROOT w = (s32[], f32[2]{0}, f32[2]{0}) while(s), condition=condition, body=body
}
"""


@needs_compiler
@pytest.mark.parametrize("step_by_step", [False, True])
def test_a_loop_whose_state_stands_still_goes_on(step_by_step: bool) -> None:
    module = hlo_opt.parse(STILL)
    given = [np.array([1, 2], np.float32), np.array([3, 4], np.float32)]
    with pytest.raises(hlo_opt.EvaluationError, match="goes on after 100 iterations"):
        hlo_opt.evaluate(module, given, max_steps=100)
    with pytest.raises(hlo_opt.EvaluationError, match="goes on after 100 iterations"):
        if step_by_step:
            schedule = build_schedule(module)
            Executor(schedule, HostDevice(HostLibrary(schedule.kernels), Reference(module)), 100).run(given)
        else:
            hlo_opt.compile(module, "host", max_steps=100)(*given)
