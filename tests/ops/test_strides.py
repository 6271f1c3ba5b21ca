"""Whether NumPy copies is predicted as NumPy decides."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_opt import parse
from hlo_opt.evaluate import Interpreter
from hlo_opt.ops import spec_of
from hlo_opt.ops.strides import reshaped, row_major

SIZES = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[np.ndarray, tuple[int, ...]]:
    """A view of an array, and sizes of as many elements."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4))
    array = np.zeros(sizes, np.int8)
    array = array.transpose(draw(st.permutations(range(len(sizes)))))
    for d in range(array.ndim):
        kind = draw(st.sampled_from(["keep", "keep", "reverse", "step", "spread"]))
        at = (slice(None),) * d
        if kind == "reverse":
            array = array[(*at, slice(None, None, -1))]
        elif kind == "step":
            array = array[(*at, slice(None, None, 2))]
        elif kind == "spread":
            wide = (*array.shape[:d], 2, *array.shape[d:])
            array = np.broadcast_to(np.expand_dims(array, d), wide)
            break
    left, wanted = array.size, []
    while left > 1:
        divisors = [n for n in range(2, left + 1) if left % n == 0]
        wanted.append(draw(st.sampled_from(divisors)))
        left //= wanted[-1]
    wanted.insert(draw(st.integers(0, len(wanted))), 1)
    return array, tuple(wanted)


@settings(max_examples=200, deadline=None)
@given(reshapes())
def test_a_reshape_copies_where_numpy_does(case: tuple[np.ndarray, tuple[int, ...]]) -> None:
    array, wanted = case
    made = array.reshape(wanted)
    found = reshaped(array.shape, array.strides, wanted)
    assert (found is not None) == np.shares_memory(made, array)
    if found is not None:
        assert [s for s, n in zip(found, wanted, strict=True) if n > 1] == [
            s for s, n in zip(made.strides, wanted, strict=True) if n > 1
        ]


@given(SIZES)
def test_row_major(sizes: tuple[int, ...]) -> None:
    if math.prod(sizes):
        assert row_major(sizes) == np.zeros(sizes, np.int8).strides


@pytest.mark.parametrize(
    ("text", "is_view"),
    [
        ("f32[6,4]{1,0} reshape(p)", True),
        ("f32[4,6]{1,0} transpose(p), dimensions={1,0}", True),
        ("f32[24]{0} bitcast(p)", True),
        ("s32[24]{0} bitcast(p)", True),
        ("f32[2,12]{1,0} bitcast(p)", True),
        ("f32[6,2]{1,0} slice(p), slice={[0:6],[1:3]}", True),
        ("f32[2,6,4]{2,1,0} broadcast(p), dimensions={1,2}", True),
        ("f32[6,4]{1,0} reverse(p), dimensions={0}", True),
    ],
)
def test_views_of_a_parameter(text: str, is_view: bool) -> None:
    module = parse(f"HloModule m\n\nENTRY e {{\n  p = f32[6,4]{{1,0}} parameter(0)\n  ROOT r = {text}\n}}\n")
    root = module.entry.root
    view = spec_of(root).view
    assert view is not None
    found, strides = view(root, row_major((6, 4)))
    value = np.zeros((6, 4), np.float32)
    evaluate = spec_of(root).evaluate
    assert evaluate is not None
    made = evaluate(Interpreter(), root, [value])
    assert found == is_view == np.shares_memory(made, value)
    assert strides is not None and tuple(4 * s for s in strides) == made.strides
