"""dot, ragged-dot, scaled-dot and convolution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_opt.ops import spec_of

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
    "f32[2,3,3,5] convolution(f32[2,4,5,6], f32[3,4,3,2]), window={size=3x2 stride=2x1 pad=1_0x0_0}, "
    "dim_labels=bf01_oi01->bf01",
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
    family.refuses(text, message)


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


@pytest.mark.parametrize("element", ["s32", "u32", "s64", "s16", "u64", "s4"])
@pytest.mark.parametrize("share", [1.0, 1e-6])
def test_integer_products_wrap(element: str, share: float) -> None:
    """Sums that fit in f64's 53 bits, sums that do not, and results that wrap."""
    from hlo_opt import evaluate, parse
    from hlo_opt.ir import ELEMENT_TYPES

    bits, least = ELEMENT_TYPES[element].bits, 0 if element[0] == "u" else -1
    generator = np.random.default_rng(bits)
    reach = max(int(share * (1 << (bits - 1))), 2)
    dtype = ELEMENT_TYPES[element].dtype
    x, y = (generator.integers(least * reach, reach, size).astype(dtype) for size in ((3, 40), (40, 5)))
    text = f"HloModule m\n\nENTRY e {{\n  x = {element}[3,40] parameter(0)\n  y = {element}[40,5] parameter(1)\n"
    text += f"  ROOT d = {element}[3,5] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n}}\n"
    (got,) = evaluate(parse(text), [x, y])
    exact = x.astype(object) @ y.astype(object)
    assert np.array_equal(got.astype(object) % (1 << bits), exact % (1 << bits))


@pytest.mark.parametrize("labels", ["bf01_oi01->bf01", "b01f_01io->b01f", "f0b1_0oi1->0f1b"])
def test_windows_of_a_convolution_in_every_order_of_dimensions(labels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Laid out for one matrix product, also a few batch elements at a time, it is what the definition says."""
    from hlo_opt import evaluate, parse
    from hlo_opt.ops.contraction import meaning as contraction_meaning

    generator = np.random.default_rng(0)
    value, kernel = generator.standard_normal((5, 3, 7, 6)), generator.standard_normal((4, 3, 2, 3))
    # pad=1_0x0_2, stride=2x1, rhs_dilate=2x1, and the first kernel dimension reversed
    padded = np.pad(value, ((0, 0), (0, 0), (1, 0), (0, 2)))
    want = np.zeros((5, 4, 3, 6))
    for y, x, v, u in np.ndindex(3, 6, 2, 3):
        want[:, :, y, x] += padded[:, :, 2 * y + 2 * v, x + u] @ kernel[:, :, 1 - v, u].T
    left, right, out = labels.replace("->", "_").split("_")
    x, y, result = (
        a.transpose([letters.index(c) for c in given])
        for a, letters, given in ((value, "bf01", left), (kernel, "oi01", right), (want, "bf01", out))
    )
    shapes = ["f64[" + ",".join(map(str, a.shape)) + "]" for a in (x, y, result)]
    text = (
        f"HloModule m\n\nENTRY e "
        f"{{\n  x = {shapes[0]} parameter(0)\n  y = {shapes[1]} parameter(1)\n  ROOT d = {shapes[2]} "
    )
    text += "convolution(x, y), window={size=2x3 stride=2x1 pad=1_0x0_2 rhs_dilate=2x1 rhs_reversal=1x0}, "
    text += f"dim_labels={labels}\n}}\n"
    for most in (contraction_meaning.UNFOLDED, 1):
        monkeypatch.setattr(contraction_meaning, "UNFOLDED", most)
        np.testing.assert_allclose(evaluate(parse(text), [x, y])[0], result, rtol=1e-12)
