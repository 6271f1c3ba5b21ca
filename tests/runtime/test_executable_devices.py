"""Modules for several devices on every backend: each collective, against the interpreter."""

from __future__ import annotations

import types
import warnings

import numpy as np
import pytest

import hlo_opt
from hlo_opt.diag import DeviceWarning, EvaluationError
from hlo_opt.evaluate import device_inputs, evaluate_devices
from hlo_opt.ir import Module
from hlo_opt.runtime.executable import compile
from hlo_opt.runtime.host.library import has_compiler

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

COMPUTATIONS = """
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
largest {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] maximum(a, b)
}
gathers {
  a = f32[8]{0} parameter(0)
  ROOT g = f32[32]{0} all-gather(a), dimensions={0}, replica_groups={}
}
numbers {
  i = u32[] partition-id()
  j = u32[] replica-id()
  k = u32[] shift-left(j, i)
  b = u32[8]{0} broadcast(k), dimensions={}
  ROOT f = f32[8]{0} convert(b)
}
sums {
  a = f32[8]{0} parameter(0)
  n = f32[8]{0} negate(a)
  ROOT r = f32[8]{0} all-reduce(n), replica_groups={}, to_apply=add
}
body {
  s = (f32[8]{0}, s32[]) parameter(0)
  v = f32[8]{0} get-tuple-element(s), index=0
  i = s32[] get-tuple-element(s), index=1
  r = f32[8]{0} all-reduce-start(v), replica_groups={}, to_apply=add
  d = f32[8]{0} all-reduce-done(r)
  h = f32[] constant(0.25)
  hs = f32[8]{0} broadcast(h), dimensions={}
  m = f32[8]{0} multiply(d, hs)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (f32[8]{0}, s32[]) tuple(m, j)
}
condition {
  s = (f32[8]{0}, s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=1
  n = s32[] constant(3)
  ROOT l = pred[] compare(i, n), direction=LT
}
"""
ALL = "replica_groups={}"
TWO = "replica_groups={{0,1},{2,3}}"
GLOBAL = "channel_id=1, use_global_device_ids=true"
PAIRS = "source_target_pairs={{0,1},{1,2},{3,0}}"
CASES = {
    "all-reduce": f"ROOT r = f32[8]{{0}} all-reduce(p), {TWO}, to_apply=add",
    "all-reduce of two": f"""t = (f32[8]{{0}}, f32[4,4]{{1,0}}) all-reduce(p, q), {ALL}, to_apply=add
  a = f32[8]{{0}} get-tuple-element(t), index=0
  b = f32[4,4]{{1,0}} get-tuple-element(t), index=1
  ROOT r = (f32[4,4]{{1,0}}, f32[8]{{0}}) tuple(b, a)""",
    "all-reduce of integers": f"ROOT r = s32[8]{{0}} all-reduce(n), {TWO}, to_apply=largest",
    "older all-reduce-start": f"""s = (f32[8]{{0}}, f32[8]{{0}}) all-reduce-start(p), {TWO}, to_apply=add
  ROOT r = f32[8]{{0}} all-reduce-done(s)""",
    "all-gather": f"ROOT r = f32[8,4]{{0,1}} all-gather(q), dimensions={{0}}, {TWO}",
    "all-gather-start": f"""s = (f32[8]{{0}}, f32[32]{{0}}) all-gather-start(p), dimensions={{0}}, {ALL}
  ROOT r = f32[32]{{0}} all-gather-done(s)""",
    "reduce-scatter": f"ROOT r = f32[2,4]{{1,0}} reduce-scatter(q), dimensions={{0}}, {TWO}, to_apply=add",
    "reduce-scatter-start": f"""s = ((f32[8]{{0}}), f32[4]{{0}}) reduce-scatter-start(p), dimensions={{0}}, {TWO}, to_apply=add
  ROOT r = f32[4]{{0}} reduce-scatter-done(s)""",
    "all-to-all": f"ROOT r = f32[4,4]{{1,0}} all-to-all(q), dimensions={{1}}, {TWO}",
    "all-to-all of several": f"""m = f32[8]{{0}} negate(p)
  t = (f32[8]{{0}}, f32[8]{{0}}) all-to-all(p, m), {TWO}
  ROOT r = f32[8]{{0}} get-tuple-element(t), index=1""",
    "collective-permute": f"ROOT r = f32[8]{{0}} collective-permute(p), {PAIRS}",
    "collective-permute-start": f"""s = (f32[8]{{0}}, f32[8]{{0}}, u32[], u32[]) collective-permute-start(p), {PAIRS}
  ROOT r = f32[8]{{0}} collective-permute-done(s)""",
    "collective-broadcast": "ROOT r = f32[8]{0} collective-broadcast(p), replica_groups={{2,3},{1,0}}",
    "ragged-all-to-all": f"""z = f32[] constant(0)
  o = f32[8]{{0}} broadcast(z), dimensions={{}}
  io = s32[4]{{0}} constant({{0, 2, 4, 6}})
  ss = s32[4]{{0}} constant({{1, 2, 1, 2}})
  oo = s32[4]{{0}} constant({{0, 2, 4, 6}})
  rs = s32[4]{{0}} constant({{2, 2, 2, 2}})
  ROOT r = f32[8]{{0}} ragged-all-to-all(p, o, io, ss, oo, rs), {ALL}""",
    "asynchronous": """s = ((f32[8]{0}), f32[32]{0}, u32[]) async-start(p), calls=gathers
  u = ((f32[8]{0}), f32[32]{0}, u32[]) async-update(s)
  ROOT r = f32[32]{0} async-done(u)""",
    "in a fusion": "ROOT r = f32[8]{0} fusion(p), kind=kLoop, calls=sums",
    "in a loop": """z = s32[] constant(0)
  t = (f32[8]{0}, s32[]) tuple(p, z)
  w = (f32[8]{0}, s32[]) while(t), condition=condition, body=body
  ROOT r = f32[8]{0} get-tuple-element(w), index=0""",
    "in a conditional": """i = s32[] constant(1)
  ROOT r = f32[8]{0} conditional(i, p, p), branch_computations={sums, sums}""",
    "numbers in a fusion": "f = f32[8]{0} fusion(), kind=kLoop, calls=numbers\n  ROOT r = f32[8]{0} add(f, p)",
    "numbers": """i = u32[] replica-id()
  f = f32[] convert(i)
  b = f32[8]{0} broadcast(f), dimensions={}
  ROOT r = f32[8]{0} multiply(b, p)""",
}
HEADERS = {
    "replicas": ("replica_count=4", ""),
    "partitions": ("num_partitions=4", "channel_id=1"),
    "both": ("replica_count=2, num_partitions=2", GLOBAL),
}


def module_of(body: str, header: str = "replica_count=4") -> Module:
    return hlo_opt.parse(
        f"HloModule m, {header}\n{COMPUTATIONS}\nENTRY e "
        f"{{\n  p = f32[8]{{0}} parameter(0)\n  q = f32[4,4]{{0,1}} parameter(1)\n"
        f"  n = s32[8]{{0}} parameter(2)\n  {body}\n}}\n"
    )


def agrees(module: Module, backend: str, **options: bool) -> None:
    inputs = device_inputs(module, 3)
    wanted = evaluate_devices(module, inputs)
    executable = compile(module, backend, **options)
    for _ in range(2):  # the second time in memory that is there
        got = executable.run_devices(inputs)
        for mine, his in zip(got, wanted, strict=True):
            for one, other in zip(mine, his, strict=True):
                assert one.dtype == other.dtype and np.array_equal(one, other)
    assert executable.devices == len(got) == executable.report()["devices"]


@pytest.mark.parametrize("case", CASES)
def test_every_collective_on_the_host(case: str) -> None:
    agrees(module_of(CASES[case]), "host")


@pytest.mark.parametrize("case", ["all-reduce of two", "all-gather", "ragged-all-to-all", "in a loop", "numbers"])
def test_one_gpu_plays_the_devices(case: str, fake: types.ModuleType) -> None:
    agrees(module_of(CASES[case]), "cupy")


@pytest.mark.parametrize(
    "body",
    [
        f"ROOT r = f32[8]{{0}} all-reduce(p), replica_groups={{{{0,3}},{{1,2}}}}, {GLOBAL}, to_apply=add",
        "ROOT r = f32[8]{0} all-reduce(p), replica_groups={{0,1}}, to_apply=add",
        "ROOT r = f32[8]{0} all-reduce(p), replica_groups={{0},{1}}, channel_id=1, to_apply=add",
        "ROOT r = f32[4,8]{1,0} all-gather(q), dimensions={1}, channel_id=1, replica_groups={{0},{1}}",
        "ROOT r = f32[8]{0} collective-permute(p), channel_id=1, source_target_pairs={{0,1}}",
        CASES["numbers in a fusion"],
    ],
)
def test_replicas_and_partitions(body: str) -> None:
    agrees(module_of(body, "replica_count=2, num_partitions=2"), "host")


def test_under_the_sanitizers() -> None:
    agrees(
        module_of(CASES["in a loop"].replace("ROOT r", "x") + "\n  ROOT r = f32[8]{0} negate(x)"), "host", sanitize=True
    )


def test_devices_that_go_different_ways_are_told() -> None:
    body = """i = u32[] replica-id()
  s = s32[] convert(i)
  ROOT r = f32[8]{0} conditional(s, p, p), branch_computations={sums, sums.1}"""
    other = "sums.1 {\n  ROOT a = f32[8]{0} parameter(0)\n}\n"
    module = hlo_opt.parse(
        str(module_of(body.replace("sums.1", "sums")))
        .replace("ENTRY", other + "ENTRY", 1)
        .replace("{%sums, %sums}", "{%sums, sums.1}")
    )
    with pytest.raises(EvaluationError, match=r"HLO405.*wait for each other: device 0 at r; ended: 1, 2, 3"):
        compile(module, "host").run_devices(device_inputs(module))


def test_one_list_goes_to_all_and_global_arrays_are_cut() -> None:
    module = hlo_opt.parse(
        "HloModule m, num_partitions=2\n\nENTRY e {\n  p = f32[2]{0} parameter(0), sharding={devices=[2]<=[2]}\n"
        "  ROOT r = f32[2]{0} negate(p)\n}\n"
    )
    executable = compile(module, "host")
    (first,), (second,) = executable.run_devices([[np.arange(4, dtype=np.float32)]])
    assert first.tolist() == [0, -1] and second.tolist() == [-2, -3]
    (first,), (second,) = executable.run_devices([[np.arange(2, dtype=np.float32)]])
    assert first.tolist() == second.tolist() == [0, -1]
    with pytest.raises(EvaluationError, match=r"HLO401 the module runs on 2 devices, but inputs for 3 are given"):
        executable.run_devices([[np.zeros(2, np.float32)]] * 3)


@pytest.mark.parametrize("backend", ["host", "numpy"])
def test_one_device_alone_is_never_silent(backend: str) -> None:
    module = module_of(CASES["all-reduce"])
    own = device_inputs(module)[1]
    with pytest.warns(DeviceWarning, match=r"HLO406 this runs the first of the module's 4 devices \(4 x 1\) alone"):
        (got,) = compile(module, backend)(*own)
    assert np.array_equal(got, own[0])
    with pytest.warns(DeviceWarning):
        assert np.array_equal(hlo_opt.evaluate(module, own)[0], own[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing in it depends on other devices
        compile(module_of("ROOT r = f32[8]{0} negate(p)"), backend)(*own)


def test_what_is_reported_is_of_all_devices() -> None:
    module = module_of(
        "s = f32[8]{0} negate(p)\n  a = f32[8]{0} all-reduce(s), replica_groups={}, to_apply=add\n  ROOT r = f32[8]{0} "
        "negate(a)"
    )
    executable = compile(module, "host")
    inputs = device_inputs(module)
    executable.run_devices(inputs)
    report = executable.report()
    assert report["launches"] == 8 and report["memory"]["inputs"] == 4 * sum(a.nbytes for a in inputs[0])
    with pytest.warns(DeviceWarning):
        executable(*inputs[0])
    assert executable.report()["launches"] == 2
    assert executable.report()["memory"]["outputs"] * 4 == report["memory"]["outputs"]


@pytest.mark.parametrize("backend", ["host", "numpy"])
def test_limits_count_all_devices(backend: str) -> None:
    module = module_of("ROOT r = f32[8]{0} negate(p)")
    with pytest.raises(EvaluationError, match=r"HLO402 .* on 4 devices"):
        compile(module, backend, memory_limit=600)
    compile(module, backend, memory_limit=4000)
    loop = module_of(CASES["in a loop"])
    assert compile(loop, backend, max_steps=3).run_devices(device_inputs(loop))
    with pytest.raises(EvaluationError, match=r"HLO402 .*after 2 iterations"):
        compile(loop, backend, max_steps=2).run_devices(device_inputs(loop))
