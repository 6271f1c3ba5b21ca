"""dynamic-slice, dynamic-update-slice, gather, scatter and dynamic dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_opt.ir.index_map import constant
from hlo_opt.ops import spec_of

ROWS = "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}"
WINDOWS = "offset_dims={0,2,3}, collapsed_slice_dims={}, start_index_map={1,0}, index_vector_dim=1, slice_sizes={2,3,5}"
SCALARS = "offset_dims={0}, collapsed_slice_dims={1}, start_index_map={1}, index_vector_dim=1, slice_sizes={6,1}"
BATCHED = (
    "offset_dims={2}, collapsed_slice_dims={1}, start_index_map={1}, index_vector_dim=2, slice_sizes={1,1,5},"
    " operand_batching_dims={0}, start_indices_batching_dims={0}"
)
READS = [
    "f32[2,3] dynamic-slice(f32[6,4], s32[], s32[]), dynamic_slice_sizes={2,3}",
    "f32[6,1] dynamic-slice(f32[6,4], u8[], u8[]), dynamic_slice_sizes={6,1}",
    f"f32[5,4] gather(f32[6,4], s32[5,1]), {ROWS}",
    f"f32[2,7,3,5] gather(f32[6,4,5], s32[7,2]), {WINDOWS}",
    f"f32[6,7] gather(f32[6,4], u32[7]), {SCALARS}",
    f"f32[3,2,5] gather(f32[3,4,5], s32[3,2,1]), {BATCHED}",
    "f32[6,4] dynamic-reshape(f32[4,6], s32[], s32[])",
]
UPDATE = "f32[6,4] dynamic-update-slice(f32[6,4], f32[2,3], u32[], u32[])"
PUT = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
SCATTERS = [
    f"f32[6,4] scatter(f32[6,4], s32[5,1], f32[5,4]), {PUT}, to_apply=add",
    f"f32[6,4] scatter(f32[6,4], s32[5,1], f32[5,4]), {PUT}, to_apply=replace, indices_are_sorted=false",
    f"f32[6,4] scatter(f32[6,4], s32[5,1], f32[5,2]), {PUT}, to_apply=max",
    f"bf16[6,4] scatter(bf16[6,4], s32[5,1], bf16[5,4]), {PUT}, to_apply=add_bf16",
    f"f32[6,4] scatter(f32[6,4], s32[5,1], f32[5,4]), {PUT}, to_apply=mix",
]


@pytest.mark.parametrize("text", READS[:-1])
def test_index_maps(family: Any, text: str) -> None:
    family.infers(text)
    family.reads_what_its_map_says(text)


@pytest.mark.parametrize("text", [UPDATE, *SCATTERS])
def test_shapes(family: Any, text: str) -> None:
    family.infers(text)


def test_xla_agrees(family: Any) -> None:
    """Random indices from -4 to 7 lie outside often enough."""
    family.agrees_with_xla([*READS[:-1], UPDATE, *SCATTERS[:4]], tolerance=2e-2)


def test_kernels_agree(family: Any) -> None:
    family.agrees_with_kernels([*READS[:-1], UPDATE])


@pytest.mark.parametrize(("start", "first"), [(-3, 0), (2, 2), (100, 4), (2**31 - 1, 4)])
def test_slices_are_clamped(family: Any, start: int, first: int) -> None:
    value = np.arange(6, dtype=np.float32)
    (got,) = family.run("f32[2] dynamic-slice(f32[6], s32[]), dynamic_slice_sizes={2}", value, start)
    assert got.tolist() == [first, first + 1]
    (got,) = family.run("f32[6] dynamic-update-slice(f32[6], f32[2], s32[])", value, [10.0, 20.0], start)
    assert got[first] == 10 and got[first + 1] == 20 and got.sum() == 30 + 15 - first - (first + 1)


def test_an_update_does_not_change_its_operand(family: Any) -> None:
    value = np.zeros(4, np.float32)
    family.run("f32[4] dynamic-update-slice(f32[4], f32[1], s32[])", value, [1.0], 0)
    family.run(
        f"f32[6,4] scatter(f32[6,4], s32[5,1], f32[5,4]), {PUT}, to_apply=add",
        np.zeros((6, 4), np.float32),
        *(np.zeros((5, 1), np.int32), np.ones((5, 4), np.float32)),
    )
    assert not value.any()


def test_scatter_skips_what_is_not_wholly_inside(family: Any) -> None:
    text = f"f32[3,2] scatter(f32[3,2], s32[4,1], f32[4,2]), {PUT}, to_apply=add"
    indices = np.array([[0], [3], [-1], [2]], np.int32)
    (got,) = family.run(text, np.zeros((3, 2), np.float32), indices, np.ones((4, 2), np.float32))
    assert got.tolist() == [[1, 1], [0, 0], [1, 1]]


def test_scatter_applies_repeated_indices_in_order(family: Any) -> None:
    text = "f32[2] scatter(f32[2], s32[3,1], f32[3]), update_window_dims={}, inserted_window_dims={0}, "
    text += "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply="
    indices, updates = np.array([[1], [0], [1]], np.int32), np.array([5, 7, 9], np.float32)
    (last,) = family.run(text + "replace", np.zeros(2, np.float32), indices, updates)
    assert last.tolist() == [7, 9]
    (mixed,) = family.run(text + "mix", np.ones(2, np.float32), indices, updates)
    assert mixed.tolist() == [2 * 1 + 7, (2 * 1 + 5) * 2 + 9]


def test_update_map(family: Any) -> None:
    _, root = family.module(UPDATE)
    index = spec_of(root).index
    assert index is not None
    found = index(root, 1)
    assert found is not None and found.runtime == (2, 3)
    inside = found.apply([constant(3), constant(2)], (), [constant(2), constant(1)])
    assert [str(e) for e in inside] == ["1", "1"]
    assert [(c.low, c.high) for c in found.conditions] == [(0, 1), (0, 2)]


def test_dimension_sizes(family: Any) -> None:
    text = "f32[<=4] set-dimension-size(f32[4], s32[]), dimensions={0}"
    family.infers(text)
    for size, expected in ((4, [1, 2, 3, 4]), (3, [1, 2, 3, 0]), (0, [0] * 4), (-7, [0] * 4), (9, [1, 2, 3, 4])):
        assert family.run(text, [1.0, 2.0, 3.0, 4.0], size)[0].tolist() == expected
    assert family.run("s32[] get-dimension-size(f32[4,7]), dimensions={1}", np.zeros((4, 7), np.float32))[0] == 7
    (got,) = family.run(READS[-1], np.arange(24, dtype=np.float32).reshape(4, 6), 6, 4)
    assert got.shape == (6, 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f32[2] dynamic-slice(f32[6,4], s32[]), dynamic_slice_sizes={2,3}", "1 start indices for 2"),
        ("f32[7] dynamic-slice(f32[6], s32[]), dynamic_slice_sizes={7}", "slice of 7"),
        ("f32[1,1] dynamic-slice(f32[6,6], s32[], s64[]), dynamic_slice_sizes={1,1}", "one type"),
        ("f32[2] dynamic-slice(f32[6], f32[]), dynamic_slice_sizes={2}", "integers"),
        ("f32[6] dynamic-update-slice(f32[6], f32[7], s32[])", "does not fit"),
        ("f32[6] dynamic-update-slice(f32[6], s32[2], s32[])", "update is s32"),
        (READS[2].replace("slice_sizes={1,4}", "slice_sizes={2,4}"), "collapsed"),
        (READS[2].replace("start_index_map={0}", "start_index_map={0,1}"), "components"),
        (READS[2].replace("s32[5,1]", "f32[5,1]"), "not integers"),
        (SCATTERS[0].replace("f32[5,4]", "f32[4,4]"), "index dimensions"),
        (SCATTERS[0].replace("f32[5,4]", "f32[5,5]"), "window of 5"),
        (SCATTERS[0].replace("to_apply=add", "to_apply=argmax"), "takes 4 parameters"),
    ],
)
def test_refused(family: Any, text: str, message: str) -> None:
    family.refuses(text, message)


def test_sums_of_many_updates_leave_the_rest_alone(family: Any) -> None:
    text = SCATTERS[0]
    _, root = family.module(text)
    sizes = [o.shape.dimensions for o in root.operands]
    target = np.full(sizes[0], -0.0, np.float32)
    (got,) = family.run(text, target, np.zeros(sizes[1], np.int32), np.ones(sizes[2], np.float32))
    assert got[0].tolist() == [sizes[2][0]] * sizes[0][1] and np.signbit(got[1:]).all()
    (got,) = family.run(text, target, np.zeros(sizes[1], np.int32), np.full(sizes[2], -0.0, np.float32))
    assert not got.any() and np.signbit(got).all()


def test_of_equal_indices_the_last_update_stays() -> None:
    import hlo_opt

    text = """HloModule m
second {
  a = s32[] parameter(0)
  ROOT b = s32[] parameter(1)
}
ENTRY e {
  p = s32[9]{0} parameter(0)
  i = s32[2000,1]{1,0} parameter(1)
  u = s32[2000]{0} iota(), iota_dimension=0
  ROOT r = s32[9]{0} scatter(p, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=second
}
"""
    indices = np.random.default_rng(0).integers(-2, 11, (2000, 1)).astype(np.int32)
    want = np.zeros(9, np.int32)
    for k, (index,) in enumerate(indices):
        if 0 <= index < 9:
            want[index] = k
    assert np.array_equal(hlo_opt.evaluate(hlo_opt.parse(text), [np.zeros(9, np.int32), indices])[0], want)
