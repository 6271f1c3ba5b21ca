"""reduce, reduce-window and scan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_opt.ops import ShapeError, spec_of
from hlo_opt.ops.reduction.reducers import monoid, picks

SUMS = [
    "f32[6] reduce(f32[6,4], f32[]), dimensions={1}, to_apply=add",
    "f32[4] reduce(f32[6,4,3], f32[]), dimensions={2,0}, to_apply=add",
    "f32[] reduce(f32[6,4], f32[]), dimensions={0,1}, to_apply=add",
    "f32[6,4] reduce(f32[6,4], f32[]), dimensions={}, to_apply=add",
    "f32[3,3] reduce-window(f32[6,4], f32[]), window={size=3x2 stride=2x1 pad=0_1x0_0}, to_apply=add",
    "f32[11,4] reduce-window(f32[6,4], f32[]), window={size=3x3 pad=1_1x2_2 lhs_dilate=2x1 rhs_dilate=1x2}, "
    "to_apply=add",
    "f32[2,6] reduce-window(f32[6,4], f32[]), window={size=3x1 stride=3x1 pad=-1_1x1_1}, to_apply=add",
]
OTHERS = [
    "f32[6] reduce(f32[6,40], f32[]), dimensions={1}, to_apply=max",
    "s32[6] reduce(s32[6,40], s32[]), dimensions={1}, to_apply=add_s32",
    "bf16[6] reduce(bf16[6,40], bf16[]), dimensions={1}, to_apply=add_bf16",
    "pred[6] reduce(pred[6,3], pred[]), dimensions={1}, to_apply=or",
    "(f32[6], s32[6]) reduce(f32[6,40], s32[6,40], f32[], s32[]), dimensions={1}, to_apply=argmax",
    "f32[6,39] reduce-window(f32[6,40], f32[]), window={size=1x2}, to_apply=max",
    "bf16[39] reduce-window(bf16[40], bf16[]), window={size=2}, to_apply=add_bf16",
]


@pytest.mark.parametrize("text", SUMS)
def test_index_maps(family: Any, text: str) -> None:
    family.infers(text)
    family.reads_what_its_map_says(text)


@pytest.mark.parametrize("text", OTHERS)
def test_shapes(family: Any, text: str) -> None:
    family.infers(text)


def test_kernels_agree(family: Any) -> None:
    family.agrees_with_kernels([*SUMS, *OTHERS], tolerance=1e-4)


def test_xla_agrees(family: Any) -> None:
    """With init values that XLA may use as often as it likes."""
    pytest.importorskip("jaxlib")
    import hlo_opt
    from hlo_opt.evaluate import module_inputs
    from scripts.xla_cpu import Program

    text = family.together([*SUMS, *OTHERS], fused=False)
    module = hlo_opt.parse(text)
    inputs = [a if a.ndim else np.zeros_like(a) for a in module_inputs(module, 3)]
    for got, want in zip(hlo_opt.evaluate(module, inputs), Program(text)(inputs), strict=True):
        tolerance = 0.05 if got.dtype.name == "bfloat16" else 1e-5  # XLA adds in several lanes
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), tolerance, 4 * tolerance)


def test_the_fold_is_in_order_and_starts_from_init(family: Any) -> None:
    text = "f32[2] reduce(f32[2,3], f32[]), dimensions={1}, to_apply=mix"
    (got,) = family.run(text, np.array([[1, 2, 3], [4, 5, 6]], np.float32), np.float32(7))
    assert got.tolist() == [((7 * 2 + 1) * 2 + 2) * 2 + 3, ((7 * 2 + 4) * 2 + 5) * 2 + 6]


def test_window_positions_outside_are_skipped_not_padded(family: Any) -> None:
    text = "f32[3] reduce-window(f32[3], f32[]), window={size=2 pad=1_0}, to_apply=mix"
    (got,) = family.run(text, [1.0, 2.0, 3.0], 10.0)
    assert got.tolist() == [21.0, (10 * 2 + 1) * 2 + 2.0, (10 * 2 + 2) * 2 + 3.0]


def test_long_folds_stay_quick_and_right(family: Any) -> None:
    count = 200_000
    text = f"(f32[], s32[]) reduce(f32[{count}], s32[{count}], f32[], s32[]), dimensions={{0}}, to_apply=argmax"
    values = np.random.default_rng(0).normal(size=count).astype(np.float32)
    value, index = family.run(text, values, np.arange(count, dtype=np.int32), -np.inf, 0)
    assert index == values.argmax() and value == values.max()


def test_nan_wins_a_maximum(family: Any) -> None:
    (got,) = family.run("f32[] reduce(f32[3], f32[]), dimensions={0}, to_apply=max", [1.0, np.nan, 2.0], -np.inf)
    assert np.isnan(got)


def test_nothing_to_reduce_gives_init(family: Any) -> None:
    (got,) = family.run(
        "f32[2] reduce(f32[2,0], f32[]), dimensions={1}, to_apply=max", np.zeros((2, 0), np.float32), 3.0
    )
    assert got.tolist() == [3.0, 3.0]


def test_scan(family: Any) -> None:
    text = "(f32[3], f32[]) scan(f32[3], f32[]), dimensions={0}, num_carries=1, to_apply=running"
    outputs, carry = family.run(text, [1.0, 2.0, 3.0], 10.0)
    assert outputs.tolist() == [22.0, 26.0, 32.0] and carry == 16.0
    outputs, carry = family.run(f"{text}, is_reverse=true", [1.0, 2.0, 3.0], 10.0)
    assert outputs.tolist() == [32.0, 30.0, 26.0] and carry == 16.0


@pytest.mark.parametrize(
    "operands", ["f32[3], s32[]", "s32[3], f32[]", "f32[3], f32[1]", "f32[3,1], f32[]", "f32[3], pred[]"]
)
def test_a_scan_takes_what_its_body_takes(family: Any, operands: str) -> None:
    line = f"(f32[3], f32[]) scan({operands}), dimensions={{0}}, num_carries=1, to_apply=running"
    _, scan = family.module(line)
    with pytest.raises(ShapeError, match=r"parameter [01] of body running is"):
        spec_of(scan).infer(scan)


def test_reducers_are_recognised(family: Any) -> None:
    module, _ = family.module(SUMS[0])
    names = {c.name: c for c in module.computations}
    assert [monoid(names[n]) for n in ("add", "max", "or", "mix", "replace", "argmax")] == [
        "add",
        "maximum",
        "or",
        None,
        None,
        None,
    ]
    assert [picks(names[n]) for n in ("replace", "add")] == [1, None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f32[6] reduce(f32[6,4], f32[1]), dimensions={1}, to_apply=add", "not a scalar"),
        ("f32[6] reduce(f32[6,4], f32[]), dimensions={2}, to_apply=add", "distinct"),
        ("f32[6] reduce(f32[6,4], f32[]), dimensions={1}, to_apply=argmax", "takes 4 parameters"),
        ("f32[6] reduce(f32[6,4], f32[]), dimensions={1}, to_apply=ge", "returns|takes"),
        ("s32[6] reduce(s32[6,4], s32[]), dimensions={1}, to_apply=add", "parameter 0"),
        (
            "f32[6] reduce(f32[6,4], f32[5,4], f32[], f32[]), dimensions={1}, to_apply=argmax",
            "dimensions must be the same",
        ),
        ("f32[3] reduce-window(f32[4], f32[]), window={size=2x2}, to_apply=add", "window has 2 dimensions"),
    ],
)
def test_refused(family: Any, text: str, message: str) -> None:
    _, root = family.module(text)
    infer = spec_of(root).infer
    assert infer is not None
    if "to_apply=ge" in text:
        assert not infer(root).same_values(root.shape)
        return
    with pytest.raises(ShapeError, match=message):
        infer(root)


def test_flops_are_xlas_counts(family: Any) -> None:
    _, root = family.module(SUMS[0])
    flops = spec_of(root).flops
    assert flops is not None and flops(root) == 6 * 4 - 6
