"""Kernels of depthwise convolutions, as a C++ compiler runs them, beside the evaluator."""

import subprocess

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.codegen.depthwise import depthwise_kernel
from hlo_opt.codegen.device_code import definitions
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.evaluate import evaluate, module_inputs
from hlo_opt.ir import Module
from hlo_opt.ops.calls.collectives import device_call
from hlo_opt.plans.depthwise import depthwise_plan
from hlo_opt.runtime.host.library import HostLibrary, find_compiler

CASES = [
    ("f32[2,13,11,10]", "f32[3,5,1,10]", "f32[2,13,11,10]",
     "size=3x5 pad=1_1x2_2}, dim_labels=b01f_01io->b01f, feature_group_count=10"),
    ("bf16[3,37,12]", "bf16[4,1,12]", "bf16[3,37,12]",
     "size=4 pad=9_0 rhs_dilate=3}, dim_labels=b0f_0io->b0f, feature_group_count=12"),
    ("f64[2,3,9,8,5]", "f64[5,1,2,3,3]", "f64[2,4,5,3,5]",
     "size=2x3x3 stride=1x2x3 pad=1_1x1_1x2_-1 rhs_reversal=1x0x1}, dim_labels=b012f_oi012->b012f, "
     "feature_group_count=5"),
    ("f32[2,5,13,16]", "f32[5,1,3,3]", "f32[2,5,13,16]",
     "size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01, feature_group_count=5"),
    ("bf16[2,6,4,24]", "bf16[6,1,2,5]", "bf16[2,6,5,11]",
     "size=2x5 stride=1x2 pad=1_1x-1_2}, dim_labels=bf01_oi01->bf01, feature_group_count=6"),
    ("f64[1,3,2,300]", "f64[1,3,1,4]", "f64[1,3,2,300]",
     "size=1x4 pad=0_0x6_0 rhs_dilate=1x2 rhs_reversal=0x1}, dim_labels=bf01_io01->bf01, feature_group_count=3"),
    ("f32[2,6,7,8]", "f32[3,4,1,8]", "f32[2,13,14,8]",
     "size=3x4 pad=2_2x1_3 lhs_dilate=2x2 rhs_reversal=1x1}, dim_labels=b01f_01io->b01f, feature_group_count=8"),
    ("f32[2,6,8]", "f32[4,1,8]", "f32[2,17,8]",
     "size=4 pad=-2_10 lhs_dilate=3 rhs_dilate=2}, dim_labels=b0f_0io->b0f, feature_group_count=8"),
    ("f16[1,300,264]", "f16[3,1,264]", "f32[1,298,264]",
     "size=3}, dim_labels=b0f_0io->b0f, feature_group_count=264"),
]  # fmt: skip


def made(left: str, right: str, result: str, how: str) -> tuple[Module, Kernel]:
    module = hlo_opt.parse(
        f"HloModule m\nENTRY e {{\n  a = {left} parameter(0)\n  b = {right} parameter(1)\n"
        f"  ROOT c = {result} convolution(a, b), window={{{how}\n}}\n"
    )
    call = device_call(module.entry.root)
    assert call is not None
    plan = depthwise_plan(call, target("h100_sxm"))
    assert plan is not None
    return module, depthwise_kernel(plan)


@pytest.mark.parametrize("case", CASES)
def test_the_kernel_gives_what_the_convolution_is(case: tuple[str, str, str, str]) -> None:
    module, kernel = made(*case)
    inputs = module_inputs(module, 1)
    wanted = np.asarray(evaluate(module, inputs)[0])
    out = np.empty_like(wanted)
    HostLibrary([kernel], form="plain").launch(kernel, [np.ascontiguousarray(a) for a in inputs], [out])
    tolerance = {2: 1e-2, 4: 1e-5, 8: 1e-12}[wanted.dtype.itemsize]
    assert np.allclose(out.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance)


def test_equal_convolutions_share_a_kernel_and_others_do_not() -> None:
    first, second, other = (made(*case)[1] for case in (CASES[0], CASES[0], CASES[1]))
    assert first.symbol == second.symbol != other.symbol


@pytest.mark.parametrize(("row", "aligned"), [("float, 2", 8), ("float, 8", 16), ("double, 4", 16)])
def test_what_moves_together_is_aligned_as_arrays_are(row: str, aligned: int) -> None:
    text = "#define __align__(bytes) __attribute__((aligned(bytes)))\n" + definitions()["hlo_neighbours"]
    text += f"static_assert(alignof(hlo_neighbours<{row}>) == {aligned});\n"
    command = [*find_compiler(), "-std=c++17", "-x", "c++", "-fsyntax-only", "-"]
    assert not subprocess.run(command, input=text, text=True, capture_output=True, check=False).stderr
