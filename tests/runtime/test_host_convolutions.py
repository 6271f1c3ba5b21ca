"""Convolutions that the host computes by itself: any layout, padding, stride, dilation, and windows that
are turned around."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hlo_opt
from hlo_opt.runtime.host.library import has_compiler
from hlo_opt.runtime.host.words import host_routines

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")

CASES = {
    "channels last": ("f32[2,9,8,5]", "f32[3,3,5,7]", "f32[2,9,8,7]",
        "{size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"),
    "channels first": ("f32[2,5,9,8]", "f32[7,5,3,2]", "f32[2,7,7,7]", "{size=3x2}, dim_labels=bf01_oi01->bf01"),
    "many channels first": ("f32[2,17,9,21]", "f32[7,17,3,2]", "f32[2,7,5,20]",
        "{size=3x2 stride=2x1 pad=1_1x0_0}, dim_labels=bf01_oi01->bf01"),
    "many channels first, a dilated window": ("f32[2,16,5,18]", "f32[40,16,3,3]", "f32[2,40,3,18]",
        "{size=3x3 pad=1_1x2_2 rhs_dilate=2x2 rhs_reversal=1x0}, dim_labels=bf01_oi01->bf01"),
    "many channels first, in groups": ("f32[2,32,6,5]", "f32[6,16,3,3]", "f32[2,6,6,5]",
        "{size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01, feature_group_count=2"),
    "many channels first, three dimensions": ("f32[1,20,4,5,6]", "f32[3,20,2,2,2]", "f32[1,3,3,4,5]",
        "{size=2x2x2}, dim_labels=bf012_oi012->bf012"),
    "many features": ("f32[3,6,6,70]", "f32[3,3,70,40]", "f32[3,6,6,40]",
        "{size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"),
    "strides": ("f32[2,9,9,4]", "f32[3,3,4,33]", "f32[2,4,5,33]",
        "{size=3x3 stride=2x2 pad=0_0x1_1}, dim_labels=b01f_01io->b01f"),
    "a dilated window": ("f32[1,9,9,3]", "f32[3,3,3,2]", "f32[1,5,9,2]",
        "{size=3x3 pad=0_0x2_2 rhs_dilate=2x2}, dim_labels=b01f_01io->b01f"),
    "a dilated image": ("f32[2,4,4,3]", "f32[3,3,3,5]", "f32[2,8,8,5]",
        "{size=3x3 pad=1_2x2_1 lhs_dilate=2x2}, dim_labels=b01f_01io->b01f"),
    "an image dilated by as much as the window": ("f32[2,5,4,3]", "f32[3,2,3,5]", "f32[2,13,9,5]",
        "{size=3x2 pad=0_2x2_1 lhs_dilate=3x2}, dim_labels=b01f_01io->b01f"),
    "an image dilated by more than the window": ("f32[1,5,4,3]", "f32[2,3,3,2]", "f32[1,14,11,2]",
        "{size=2x3 pad=1_1x3_3 lhs_dilate=3x2}, dim_labels=b01f_01io->b01f"),
    "a dilated image, turned around": ("f32[2,5,4,3]", "f32[5,4,3,5]", "f32[2,9,8,5]",
        "{size=5x4 pad=2_2x2_2 lhs_dilate=2x2 rhs_reversal=1x1}, dim_labels=b01f_01io->b01f"),
    "a dilated image, cut": ("f32[2,6,6,3]", "f32[4,4,3,5]", "f32[2,5,7,5]",
        "{size=4x4 pad=-1_-2x-1_0 lhs_dilate=2x2}, dim_labels=b01f_01io->b01f"),
    "both dilated": ("f32[1,5,5,3]", "f32[3,3,3,2]", "f32[1,7,7,2]",
        "{size=3x3 pad=1_1x1_1 lhs_dilate=2x2 rhs_dilate=2x2}, dim_labels=b01f_01io->b01f"),
    "turned around": ("f32[2,9,8,5]", "f32[3,2,5,7]", "f32[2,9,7,7]",
        "{size=3x2 pad=1_1x0_0 rhs_reversal=1x1}, dim_labels=b01f_01io->b01f"),
    "cut by negative padding": ("f32[2,9,8,5]", "f32[3,3,5,7]", "f32[2,5,7,7]",
        "{size=3x3 pad=-1_-1x1_0}, dim_labels=b01f_01io->b01f"),
    "a gradient of weights": ("f32[2,7,6,16]", "f32[2,7,6,5]", "f32[3,3,16,5]",
        "{size=7x6 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf"),
    "a gradient of weights, 13 features": ("f32[3,20,9,13]", "f32[3,20,9,40]", "f32[3,1,13,40]",
        "{size=20x9 pad=1_1x0_0}, dim_labels=f01b_i01o->01bf"),
    "a gradient of weights, channels first": ("f32[3,5,20,19]", "f32[3,7,20,19]", "f32[7,5,3,3]",
        "{size=20x19 pad=1_1x1_1}, dim_labels=fb01_io01->fb01"),
    "a gradient of weights, one channel": ("f32[5,14,13,1]", "f32[5,14,13,33]", "f32[3,4,1,33]",
        "{size=14x13 pad=1_1x0_3}, dim_labels=f01b_i01o->01bf"),
    "a gradient of weights, three channels, strides": ("f32[9,21,25,3]", "f32[9,10,12,16]", "f32[3,3,3,16]",
        "{size=10x12 pad=0_0x1_-1 rhs_dilate=2x2}, dim_labels=f01b_i01o->01bf"),
    "long windows": ("f32[2,3,900]", "f32[2,5,420]", "f32[5,3,39]",
        "{size=420 stride=2 pad=15_1 rhs_dilate=2 rhs_reversal=1}, dim_labels=fb0_io0->fb0"),
    "long windows in groups": ("f32[2,6,900]", "f32[12,3,400]", "f32[2,12,501]",
        "{size=400}, dim_labels=bf0_oi0->bf0, feature_group_count=2"),
    "one dimension": ("f32[2,30,5]", "f32[4,5,3]", "f32[2,27,3]", "{size=4}, dim_labels=b0f_0io->b0f"),
    "a line": ("f32[1,2500,1]", "f32[40,1,1]", "f32[1,2539,1]",
        "{size=40 pad=39_39 rhs_reversal=1}, dim_labels=b0f_0io->b0f"),
    "lines of few features": ("f32[2,3,7,2000]", "f32[2,3,3,5]", "f32[2,2,7,1996]",
        "{size=3x5 pad=1_1x-1_1 rhs_dilate=1x1}, dim_labels=bf01_oi01->bf01"),
    "lines of a dilated image": ("f32[1,2,5,30]", "f32[1,2,2,3]", "f32[1,1,14,34]",
        "{size=2x3 pad=1_1x3_3 lhs_dilate=3x1}, dim_labels=bf01_oi01->bf01"),
    "three dimensions": ("f32[1,5,6,7,2]", "f32[2,2,2,2,3]", "f32[1,4,5,6,3]",
        "{size=2x2x2}, dim_labels=b012f_012io->b012f"),
    "channels": ("f32[2,9,8,83]", "f32[3,3,1,83]", "f32[2,9,8,83]",
        "{size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, feature_group_count=83"),
    "channels, strides and gaps": ("f32[2,9,8,5]", "f32[3,3,1,5]", "f32[2,4,7,5]",
        "{size=3x3 stride=2x2 pad=0_0x1_1 lhs_dilate=1x2 rhs_reversal=1x1}, dim_labels=b01f_01io->b01f, feature_group_count=5"),
    "channels first, each alone": ("f32[2,6,9,8]", "f32[6,1,3,3]", "f32[2,6,7,6]",
        "{size=3x3}, dim_labels=bf01_oi01->bf01, feature_group_count=6"),
    "patches": ("f32[2,9,8,5]", "f32[45,1,3,3]", "f32[2,7,6,45]",
        "{size=3x3}, dim_labels=b01f_oi01->b01f, feature_group_count=5"),
    "groups of features": ("f32[2,9,8,12]", "f32[3,3,4,21]", "f32[2,9,8,21]",
        "{size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, feature_group_count=3"),
    "groups of features of a dilated image": ("f32[2,5,4,6]", "f32[3,3,2,9]", "f32[2,9,7,9]",
        "{size=3x3 pad=1_1x1_1 lhs_dilate=2x2}, dim_labels=b01f_01io->b01f, feature_group_count=3"),
    "groups of the batch": ("f32[6,9,8,4]", "f32[3,3,4,9]", "f32[2,7,6,9]",
        "{size=3x3}, dim_labels=b01f_01io->b01f, batch_group_count=3"),
    "a gradient of the weights of channels": ("f32[2,9,8,37]", "f32[9,8,2,37]", "f32[3,3,1,37]",
        "{size=9x8 pad=1_1x1_1}, dim_labels=f01b_01io->01bf, batch_group_count=37"),
    "groups without a window": ("f32[4,6]", "f32[3,4]", "f32[4,4]", "{}, dim_labels=bf_io->bf, feature_group_count=2"),
    "a gradient of the weights": ("f32[6,9,9,4]", "f32[7,7,6,5]", "f32[3,3,4,5]",
        "{size=7x7}, dim_labels=f01b_01io->01bf"),
}  # fmt: skip


def module_of(image: str, weights: str, result: str, rest: str) -> Any:
    return hlo_opt.parse(
        f"HloModule m\nENTRY e {{\n  x = {image} parameter(0)\n  y = {weights} parameter(1)\n"
        f"  ROOT c = {result} convolution(x, y), window={rest}\n}}\n"
    )


@pytest.mark.parametrize("name", CASES)
def test_convolutions(name: str) -> None:
    module = module_of(*CASES[name])
    generator = np.random.default_rng(1)
    inputs = [generator.normal(size=p.shape.dimensions).astype(np.float32) for p in module.entry.parameters]
    executable = hlo_opt.compile(module, "host")
    assert "host_convolution.h" in str(host_routines(executable.schedule))
    for got, want in zip(executable(*inputs), hlo_opt.evaluate(module, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_narrow_floats_are_widened() -> None:
    """And the sums narrowed once."""
    image, weights, result, rest = (part.replace("f32", "bf16") for part in CASES["many features"])
    module = module_of(image, weights, result, rest)
    generator = np.random.default_rng(1)
    inputs = [generator.normal(size=p.shape.dimensions).astype(ml_dtypes.bfloat16) for p in module.entry.parameters]
    executable = hlo_opt.compile(module, "host")
    assert "host_convolution.h" in str(host_routines(executable.schedule))
    (got,), (want,) = executable(*inputs), hlo_opt.evaluate(module, inputs)
    np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), rtol=1e-2, atol=1e-2)


def test_layouts_are_strides() -> None:
    image, weights, result, rest = CASES["channels last"]
    module = module_of(f"{image}{{0,2,1,3}}", f"{weights}{{0,1,3,2}}", f"{result}{{1,3,2,0}}", rest)
    generator = np.random.default_rng(1)
    inputs = [generator.normal(size=p.shape.dimensions).astype(np.float32) for p in module.entry.parameters]
    (got,), (want,) = hlo_opt.compile(module, "host")(*inputs), hlo_opt.evaluate(module, inputs)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
