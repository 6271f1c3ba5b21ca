"""What only hands its operand on costs nothing: no kernel, no library call, no copy."""

import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate import evaluate, module_inputs
from hlo_opt.ir import Module
from hlo_opt.ops.calls.collectives import forwards

ADD = "add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] add(x, y) }"
P = "f32[4,3]{1,0}"
PASSES = {
    "copied": f"t = ({P}, s32[2]{{0}}) tuple(a, b)\n  ROOT r = ({P}, s32[2]{{0}}) copy(t)",
    "marked": f'ROOT r = {P} custom-call(a), custom_call_target="Sharding", sharding={{replicated}}',
    "reduced": f"ROOT r = {P} all-reduce(a), replica_groups={{}}, to_apply=add",
    "reduced together": f"ROOT r = ({P}, {P}) all-reduce(a, a), replica_groups={{}}, to_apply=add",
    "laid out": "ROOT r = f32[4,3]{0,1} all-reduce(a), replica_groups={}, to_apply=add",
    "gathered": f"s = ({P}, {P}) all-gather-start(a), dimensions={{0}}\n  ROOT r = {P} all-gather-done(s)",
    "sent": f"s = ({P}, {P}) collective-permute-start(a), source_target_pairs={{{{0,0}}}}\n  ROOT r = {P} "
    f"collective-permute-done(s)",
}


def module_of(body: str, header: str = "") -> Module:
    return hlo_opt.parse(
        f"HloModule m{header}\n{ADD}\nENTRY e "
        f"{{\n  a = {P} parameter(0)\n  b = s32[2]{{0}} parameter(1)\n  {body}\n}}\n"
    )


@pytest.mark.parametrize("name", PASSES)
def test_operands_are_the_results(name: str) -> None:
    module = module_of(PASSES[name])
    executable = hlo_opt.compile(module, "host")
    inputs = module_inputs(module, 1)
    for got, want in zip(executable(*inputs), evaluate(module, inputs), strict=True):
        assert np.array_equal(got, want)
    report = executable.report()
    assert (report["launches"], report["library"], report["fallbacks"]) == (0, {}, {})


@pytest.mark.parametrize(
    ("body", "header"),
    [
        (PASSES["reduced"], ", replica_count=2"),
        (f"ROOT r = {P} collective-permute(a), source_target_pairs={{}}", ""),
        (f"ROOT r = {P} copy(a)", ""),
        ('ROOT r = f32[2]{0} custom-call(a), custom_call_target="Sharding"', ""),
        ("ROOT r = f32[8,3]{1,0} all-gather(a), dimensions={0}", ""),
        (f"ROOT r = {P} negate(a)", ""),
    ],
    ids=["several devices", "nobody sends", "an array is copied", "another shape", "a larger result", "no such thing"],
)
def test_what_does_something_is_not_handed_on(body: str, header: str) -> None:
    assert not forwards(module_of(body, header).entry.root)


def test_an_update_of_what_was_handed_on_leaves_the_operand_alone() -> None:
    module = module_of(
        f"c = {P} all-reduce(a), replica_groups={{}}, to_apply=add\n  i = s32[] constant(1)\n  u = f32[1,3] "
        f"constant({{{{7, 8, 9}}}})\n"
        f"  d = {P} dynamic-update-slice(c, u, i, i)\n  ROOT r = ({P}, {P}) tuple(a, d)"
    )
    inputs = module_inputs(module, 1)
    for got, want in zip(hlo_opt.compile(module, "host")(*inputs), evaluate(module, inputs), strict=True):
        assert np.array_equal(got, want)
