"""Batch normalisations become kernels: the same values, and no library call."""

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.targets import DEFAULT_TARGET, target
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.ir import Module
from hlo_opt.passes.batch_norm_expander import BatchNormExpander
from hlo_opt.passes.for_kernels import expanded
from hlo_opt.runtime.check.compare import check

TARGET = target(DEFAULT_TARGET)

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
def test_kernels_compute_what_the_operation_means(name: str) -> None:
    module = module_of(*NORMS[name])
    hlo_opt.verify(expanded(module, TARGET, (BatchNormExpander(),)))
    found = check(module, module, backend="host")
    assert found.ok and not found.weak, str(found)
    assert found.report["library"] == {} and found.report["fallbacks"] == {} and found.report["launches"] > 1


def test_a_variance_beside_a_large_mean_keeps_its_digits() -> None:
    module = module_of(*NORMS["training"])
    x = np.random.default_rng(1).normal(3000, 1, (4, 3, 5)).astype(np.float32)
    _, _, variance = hlo_opt.compile(module, "host")(x, np.ones(3, np.float32), np.zeros(3, np.float32))
    assert np.allclose(variance, x.astype(np.float64).var(axis=(0, 2)), rtol=1e-4)


def test_norms_share_their_sum_and_other_modules_stay_as_they_are() -> None:
    both = hlo_opt.parse(
        "HloModule m\nENTRY e {\n  x = f32[4,3] parameter(0)\n  s = f32[3] parameter(1)\n"
        "  a = (f32[4,3], f32[3], f32[3]) batch-norm-training(x, s, s), epsilon=0.1, feature_index=1\n"
        "  b = (f32[4,3], f32[3], f32[3]) batch-norm-training(x, s, s), epsilon=0.2, feature_index=1\n"
        "  ROOT r = ((f32[4,3], f32[3], f32[3]), (f32[4,3], f32[3], f32[3])) tuple(a, b)\n}\n"
    )
    made = expanded(both, TARGET, (BatchNormExpander(),))
    assert len(list(made.computations)) == 2 and expanded(made, TARGET, (BatchNormExpander(),)) is made
    assert [i.opcode for i in both.entry.instructions].count("batch-norm-training") == 2


def test_a_norm_and_what_follows_it_are_one_kernel() -> None:
    module = hlo_opt.parse(
        "HloModule m\nENTRY e {\n  x = f32[16,64,28,28]{3,2,1,0} parameter(0)\n  s = f32[64]{0} parameter(1)\n"
        "  n = (f32[16,64,28,28]{3,2,1,0}, f32[64]{0}, f32[64]{0}) batch-norm-training(x, s, s), epsilon=0.1, "
        "feature_index=1\n  y = f32[16,64,28,28]{3,2,1,0} get-tuple-element(n), index=0\n"
        "  ROOT r = f32[16,64,28,28]{3,2,1,0} tanh(y)\n}\n"
    )
    made, _ = hlo_opt.fuse(module, target=TARGET)
    assert [i.opcode for i in made.entry.instructions if i.parameter_number is None] == ["fusion"]
    inputs = module_inputs(module, seed=1)
    for got, want in zip(hlo_opt.evaluate(made, inputs), hlo_opt.evaluate(module, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
