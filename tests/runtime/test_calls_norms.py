"""Batch normalisation as CuPy computes them, against the NumPy interpreter."""

import types

import pytest

import hlo_opt
from hlo_opt.ir import Module
from hlo_opt.runtime.calls import call_of
from tests.runtime.calls import gives_what_the_interpreter_gives

NORMS = {
    "training": (
        "f32[4,3,5]{2,0,1} f32[3]{0} f32[3]{0}",
        "(f32[4,3,5]{0,1,2}, f32[3]{0}, f32[3]{0}) batch-norm-training(p0, p1, p2), epsilon=0.001, feature_index=1",
    ),
    "training_bf16": (
        "bf16[6,4]{1,0} bf16[4]{0} bf16[4]{0}",
        "(bf16[6,4]{1,0}, bf16[4]{0}, bf16[4]{0}) batch-norm-training(p0, p1, p2), epsilon=0.01, feature_index=1",
    ),
    "inference": (
        "f64[4,3]{1,0} f64[4]{0} f64[4]{0} f64[4]{0} f64[4]{0}",
        "f64[4,3]{0,1} batch-norm-inference(p0, p1, p2, p3, p4), epsilon=10, feature_index=0",
    ),
    "grad": (
        "f32[4,3,5]{2,1,0} f32[5]{0} f32[5]{0} f32[5]{0} f32[4,3,5]{2,1,0}",
        "(f32[4,3,5]{2,1,0}, f32[5]{0}, f32[5]{0}) batch-norm-grad(p0, p1, p2, p3, p4), epsilon=10, feature_index=2",
    ),
}


def module_of(kinds: str, root: str) -> Module:
    given = "\n".join(f"  p{k} = {kind} parameter({k})" for k, kind in enumerate(kinds.split()))
    return hlo_opt.parse(f"HloModule m\nENTRY e {{\n{given}\n  ROOT r = {root}\n}}\n")


@pytest.mark.parametrize("name", NORMS)
def test_batch_norm(name: str, fake: types.ModuleType) -> None:
    module = module_of(*NORMS[name])
    call = call_of(module.entry.root)
    assert call is not None
    gives_what_the_interpreter_gives(call, module, fake)
