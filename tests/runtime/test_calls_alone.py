"""Collectives on one GPU of a module for several, against the NumPy interpreter."""

import types

import pytest

import hlo_opt
from hlo_opt.evaluate import evaluate, module_inputs
from hlo_opt.ir import Module
from hlo_opt.ops.calls.call import call_of
from hlo_opt.ops.calls.collectives import device_call
from tests.runtime.calls import gives_what_the_interpreter_gives

pytestmark = pytest.mark.filterwarnings("ignore::hlo_opt.diag.DeviceWarning")

ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"
GROUPS = "replica_groups={{0,1}}"
CASES = {
    "all-reduce": ("a = f32[4,3]{1,0}", f"f32[4,3]{{0,1}} all-reduce(a), {GROUPS}, to_apply=add"),
    "all-gather": ("a = bf16[4,3]{0,1}", f"bf16[4,6]{{1,0}} all-gather(a), {GROUPS}, dimensions={{1}}"),
    "reduce-scatter": (
        "a = f32[4,3]{1,0}",
        f"f32[2,3]{{1,0}} reduce-scatter(a), {GROUPS}, dimensions={{0}}, to_apply=add",
    ),
    "all-to-all": ("a = f32[4,3]{1,0}", f"f32[4,3]{{1,0}} all-to-all(a), {GROUPS}, dimensions={{0}}"),
    "sent": ("a = f32[4,3]{1,0}", "f32[4,3]{1,0} collective-permute(a), source_target_pairs={{0,0},{1,1}}"),
    "not_sent": ("a = f32[4,3]{1,0}", "f32[4,3]{1,0} collective-permute(a), source_target_pairs={{0,1},{1,0}}"),
    "narrow": ("a = u4[4]{0}", f"u4[8]{{0}} all-gather(a), {GROUPS}, dimensions={{0}}"),
    "broadcast": ("a = s32[5]{0}", f"s32[5]{{0}} collective-broadcast(a), {GROUPS}"),
}
PAIRS = {
    "collective-permute": (
        "(f32[4]{0}, f32[4]{0}, u32[], u32[]) collective-permute-start(a), source_target_pairs={{0,1},{1,0}}",
        "f32[4]{0} collective-permute-done(s)",
    ),
    "all-gather": (
        f"(f32[4]{{0}}, f32[8]{{0}}) all-gather-start(a), {GROUPS}, dimensions={{0}}",
        "f32[8]{0} all-gather-done(s)",
    ),
    "all-reduce": (f"f32[4]{{0}} all-reduce-start(a), {GROUPS}, to_apply=add", "f32[4]{0} all-reduce-done(s)"),
}


def module_of(parameter: str, body: str) -> Module:
    return hlo_opt.parse(f"HloModule m, replica_count=2\n{ADD}ENTRY e {{\n  {parameter} parameter(0)\n  {body}\n}}\n")


@pytest.mark.parametrize("name", CASES)
def test_a_device_alone_hears_from_nobody(name: str, fake: types.ModuleType) -> None:
    parameter, operation = CASES[name]
    module = module_of(parameter, f"ROOT r = {operation}")
    call = device_call(module.entry.root)
    assert call is not None
    gives_what_the_interpreter_gives(call, module, fake)


@pytest.mark.parametrize("name", PAIRS)
def test_pairs(name: str, fake: types.ModuleType) -> None:
    start, done = PAIRS[name]
    module = module_of("a = f32[4]{0}", f"s = {start}\n  ROOT d = {done}")
    inputs = module_inputs(module, 1)
    (got,), (want,) = hlo_opt.compile(module, "cupy")(*inputs), evaluate(module, inputs)
    assert got.shape == want.shape and (got == want).all()


def test_drivers_exchange_instead() -> None:
    module = module_of("a = f32[4,3]{1,0}", f"ROOT r = {CASES['all-reduce'][1]}")
    made = call_of(module.entry.root)
    assert made is not None and made.function == "exchange_call"


def test_other_instructions_have_none() -> None:
    assert device_call(module_of("a = f32[4]{0}", "ROOT r = f32[4]{0} negate(a)").entry.root) is None
