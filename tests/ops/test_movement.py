"""Broadcast, reshape, bitcast, transpose, slice, reverse, pad, concatenate, iota."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_opt.ir.index_map import constant, groups, regroup
from hlo_opt.ops import spec_of

CASES = [
    "f32[6,4,2] broadcast(f32[4]), dimensions={1}",
    "f32[2,6,4] broadcast(f32[4,2]), dimensions={2,0}",
    "f32[3,3] broadcast(f32[]), dimensions={}",
    "f32[3,8] reshape(f32[4,6])",
    "f32[2,1,12] reshape(f32[4,1,6])",
    "f32[] reshape(f32[1,1])",
    "f32[2,4,6] transpose(f32[4,6,2]), dimensions={2,0,1}",
    "f32[2,3] slice(f32[4,6]), slice={[0:4:2], [1:6:2]}",
    "f32[0,6] slice(f32[4,6]), slice={[2:2], [0:6]}",
    "f32[4,6,2] reverse(f32[4,6,2]), dimensions={0,2}",
    "f32[7,12] pad(f32[4,5], f32[]), padding=-1_4x2_1_1",
    "f32[2,5] pad(f32[4,3], f32[]), padding=-2_0x-1_1_1",
    "f32[1] pad(f32[3], f32[]), padding=-4_-2_2",
    "f32[3] pad(f32[0], f32[]), padding=1_2",
    "f32[2,9] concatenate(f32[2,3], f32[2,1], f32[2,5]), dimensions={1}",
    "f32[2,3] concatenate(f32[2,0], f32[2,3]), dimensions={1}",
]
TYPES = ["bf16", "f64", "s8", "u16", "s32", "u64", "pred"]


@pytest.mark.parametrize("text", CASES)
def test_index_maps(family: Any, text: str) -> None:
    family.infers(text)
    family.reads_what_its_map_says(text)


def test_xla_agrees(family: Any) -> None:
    texts = [*CASES, *(CASES[10].replace("f32", t) for t in TYPES), *(CASES[14].replace("f32", t) for t in TYPES)]
    texts += [f"{t}[3,200] iota(), iota_dimension=1" for t in (*TYPES[:-1], "f16", "u8")]
    family.agrees_with_xla([t for t in texts if "f32[0]" not in t])


def test_kernels_agree(family: Any) -> None:
    texts = [t for t in CASES if not t.startswith("f32[0") and "f32[0]" not in t]
    texts += [texts[9].replace("f32", t) for t in TYPES]
    texts += ["s8[3,200] iota(), iota_dimension=1", "bf16[3,300] iota(), iota_dimension=1"]
    texts += ["s32[4,6] bitcast(f32[6,4]{0,1})", "u8[2,3] bitcast(pred[6])", "f32[4,6] bitcast(f32[6,4]{0,1})"]
    family.agrees_with_kernels(texts)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f32[6,4] broadcast(f32[5]), dimensions={0}", "has size 5"),
        ("f32[6,4] broadcast(f32[6,4]), dimensions={0,0}", "distinct"),
        ("f32[6,4] broadcast(f32[6]), dimensions={0,1}", "must name one dimension"),
        ("f32[5] reshape(f32[2,3])", "6 elements cannot become 5"),
        ("f32[2,3] transpose(f32[2,3]), dimensions={0}", "permutation"),
        ("f32[2] slice(f32[4]), slice={[3:5]}", "is out of bounds in a dimension of size 4"),
        ("f32[2] slice(f32[4]), slice={[3:1]}", "out of bounds"),
        ("f32[4] reverse(f32[4]), dimensions={1}", "distinct"),
        ("f32[4] pad(f32[4], s32[]), padding=0_0", "padding value is s32"),
        ("f32[4] pad(f32[4], f32[]), padding=0_-5", "removes more than"),
        ("f32[4] concatenate(f32[2], f32[2,1]), dimensions={0}", "only dimension 0 may differ"),
        ("f32[4] concatenate(f32[2], s32[2]), dimensions={0}", "operand 1 is s32"),
        ("f32[4] iota(), iota_dimension=1", "is not a dimension"),
    ],
)
def test_refused(family: Any, text: str, message: str) -> None:
    family.refuses(text, message)


def test_bitcast_reads_memory_not_indices(family: Any) -> None:
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    (column_major,) = family.run("f32[3,2] bitcast(f32[2,3]{0,1})", value)
    assert np.array_equal(column_major, value.T)
    (bits,) = family.run("s32[6] bitcast(f32[2,3])", value)
    assert np.array_equal(bits, value.view(np.int32).reshape(6))
    (narrow,) = family.run("u8[2,4] bitcast(s32[2])", np.array([1, 256], np.int32))
    assert narrow.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0]]


def test_reshape_keeps_whole_dimensions_whole(family: Any) -> None:
    _, root = family.module("f32[7,2,3,5] reshape(f32[7,6,5])")
    face = spec_of(root).index
    assert face is not None
    found = face(root, 0)
    assert found is not None
    assert [str(e) for e in found.results] == ["d0", "((d1 * 3) + d2)", "d3"]


def split(sizes: list[int], draw: Any) -> list[int]:
    """Other sizes with the same product."""
    left, out = math.prod(sizes), []
    while left > 1:
        size = draw(st.sampled_from([d for d in range(2, left + 1) if left % d == 0]))
        out.append(size)
        left //= size
    return out


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_regroup_keeps_the_position(data: Any) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), max_size=4))
    others = split(sizes, data.draw)
    for at in np.ndindex(*sizes):
        there = regroup([constant(k) for k in at], sizes, others)
        got = np.ravel_multi_index([e.low for e in there], others) if others else 0
        assert got == (np.ravel_multi_index(at, sizes) if sizes else 0)


def test_groups_are_the_finest() -> None:
    assert groups([7, 6, 5], [7, 2, 3, 5]) == [(0, 1, 0, 1), (1, 2, 1, 3), (2, 3, 3, 4)]
    assert groups([4, 6], [3, 8]) == [(0, 2, 0, 2)]
