"""dot, ragged-dot, scaled-dot and convolution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_opt.ops import ShapeError, spec_of

PLAIN = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
BATCH = "lhs_batch_dims={0,2}, rhs_batch_dims={1,0}, lhs_contracting_dims={1}, rhs_contracting_dims={3}"
DOTS = [
    f"f32[4,3] dot(f32[4,5], f32[5,3]), {PLAIN}",
    f"f32[2,3,4,6] dot(f32[2,5,3,4], f32[3,2,6,5]), {BATCH}",
    "f32[] dot(f32[5], f32[5]), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    "f32[4,3] dot(f32[4], f32[3]), lhs_contracting_dims={}, rhs_contracting_dims={}",
]
TYPES = [
    f"s32[4,3] dot(s8[4,5], s8[5,3]), {PLAIN}",
    f"s32[4,3] dot(s32[4,5], s32[5,3]), {PLAIN}",
    f"bf16[4,3] dot(bf16[4,5], bf16[5,3]), {PLAIN}",
    f"f32[4,3] dot(bf16[4,5], bf16[5,3]), {PLAIN}",
    f"f64[4,3] dot(f64[4,5], f64[5,3]), {PLAIN}",
]
CONVOLUTIONS = [
    "f32[2,4,4,3] convolution(f32[2,5,5,2], f32[2,2,2,3]), window={size=2x2}, dim_labels=b01f_01io->b01f",
    "f32[2,3,3,5] convolution(f32[2,4,5,6], f32[3,4,3,2]), window={size=3x2 stride=2x1 pad=1_0x0_0}, dim_labels=bf01_oi01->bf01",
    "f32[1,7,2] convolution(f32[1,4,3], f32[2,3,2]), window={size=2 lhs_dilate=2 rhs_dilate=2 pad=1_1 rhs_reversal=1},"
    " dim_labels=b0f_0io->b0f",
    "f32[2,4,6] convolution(f32[2,5,4], f32[2,2,6]), window={size=2}, dim_labels=b0f_0io->b0f, feature_group_count=2",
    "f32[2,4,6] convolution(f32[4,5,3], f32[2,3,6]), window={size=2}, dim_labels=b0f_0io->b0f, batch_group_count=2",
    "f32[2,1,1,3] convolution(f32[2,5,5,2], f32[5,5,2,3]), window={size=5x5}, dim_labels=b01f_01io->b01f",
]


@pytest.mark.parametrize("text", DOTS)
def test_index_maps(family: Any, text: str) -> None:
    family.infers(text)
    family.reads_what_its_map_says(text, others=1.0)


@pytest.mark.parametrize("text", [*TYPES, CONVOLUTIONS[0], *CONVOLUTIONS[3:]])
def test_shapes(family: Any, text: str) -> None:
    family.infers(text)


def convolutions(family: Any) -> list[str]:
    """The cases with the shapes that the table infers."""
    found = []
    for text in CONVOLUTIONS:
        _, root = family.module(text)
        infer = spec_of(root).infer
        assert infer is not None
        found.append(f"{infer(root)} {text.split(' ', 1)[1]}")
    return found


def test_xla_agrees_on_dots(family: Any) -> None:
    family.agrees_with_xla([*DOTS, *TYPES], tolerance=1e-2)


def test_xla_agrees_on_convolutions(family: Any) -> None:
    family.agrees_with_xla(convolutions(family), tolerance=1e-5)


def test_kernels_agree(family: Any) -> None:
    family.agrees_with_kernels([*DOTS, *TYPES], tolerance=1e-2)


def test_integer_dots_wrap(family: Any) -> None:
    (got,) = family.run(
        "s8[1] dot(s8[1,2], s8[2]), lhs_contracting_dims={1}, rhs_contracting_dims={0}", [[100, 100]], [1, 1]
    )
    assert got.tolist() == [-56]


def test_ragged_dot(family: Any) -> None:
    text = f"f32[5,2] ragged-dot(f32[5,3], f32[2,3,2], s32[2]), lhs_ragged_dims={{0}}, rhs_group_dims={{0}}, {PLAIN}"
    text = text.replace("rhs_contracting_dims={0}", "rhs_contracting_dims={1}")
    lhs, rhs = np.arange(15, dtype=np.float32).reshape(5, 3), np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    (got,) = family.run(text, lhs, rhs, [2, 2])
    expected = np.concatenate([lhs[:2] @ rhs[0], lhs[2:4] @ rhs[1], np.zeros((1, 2))])
    assert np.array_equal(got, expected)


def test_scaled_dot(family: Any) -> None:
    text = f"f32[2,3] scaled-dot(f32[2,4], f32[4,3], f32[2,2], f32[1,3]), {PLAIN}"
    lhs, rhs = np.ones((2, 4), np.float32), np.ones((4, 3), np.float32)
    left, right = np.array([[1, 2], [3, 4]], np.float32), np.array([[1, 10, 100]], np.float32)
    (got,) = family.run(text, lhs, rhs, left, right)
    assert got.tolist() == [[6, 60, 600], [14, 140, 1400]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"f32[4,3] dot(f32[4,5], f32[6,3]), {PLAIN}", "contracting dimensions differ"),
        ("f32[4] dot(f32[4,5], f32[5]), lhs_contracting_dims={1}, rhs_contracting_dims={}", "1 and 0 contracting"),
        (CONVOLUTIONS[0].replace("b01f_", "b0f_"), "different numbers"),
        (CONVOLUTIONS[0].replace("size=2x2", "size=3x2"), "the kernel not"),
        (CONVOLUTIONS[0].replace("f32[2,2,2,3]", "f32[2,2,4,3]"), "2 features for kernels of 4"),
    ],
)
def test_refused(family: Any, text: str, message: str) -> None:
    _, root = family.module(text)
    infer = spec_of(root).infer
    assert infer is not None
    with pytest.raises(ShapeError, match=message):
        infer(root)


def test_flops_are_xlas_counts(family: Any) -> None:
    """Products that would read padding are not counted, as in XLA's cost analysis."""
    _, root = family.module(DOTS[0])
    flops = spec_of(root).flops
    assert flops is not None and flops(root) == 2 * 4 * 5 * 3
    _, root = family.module(
        "f32[1,3,1] convolution(f32[1,3,1], f32[3,1,1]), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f"
    )
    flops = spec_of(root).flops
    assert flops is not None and flops(root) == 2 * (2 + 3 + 2)
