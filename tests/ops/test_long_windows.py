"""reduce-window with long windows gives what its positions one after another give."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_opt
from hlo_opt.ir.attribute import WindowDimension
from hlo_opt.ops.reduction import folding
from hlo_opt.ops.reduction import meaning as reduction_meaning

KINDS = {
    "add": (0, "s32"),
    "multiply": (1, "s64"),
    "maximum": (-(2**31), "s32"),
    "minimum": (2**31 - 1, "s32"),
    "and": (-1, "s32"),
    "xor": (0, "s32"),
}
BODIES = {
    **{name: f"ROOT c = T[] {name}(a, b)" for name in KINDS},
    "greater": "d = pred[] compare(a, b), direction=GT\n  ROOT c = T[] select(d, a, b)",
}


def module(kind: str, element: str, size: int, init: int, window: str, out: int) -> str:
    body = BODIES[kind].replace("T[]", f"{element}[]")
    return f"""HloModule m
f {{
  a = {element}[] parameter(0)
  b = {element}[] parameter(1)
  {body}
}}
ENTRY e {{
  p = {element}[2,{size}]{{1,0}} parameter(0)
  i = {element}[] constant({init})
  ROOT r = {element}[2,{out}]{{1,0}} reduce-window(p, i), window={{{window}}}, to_apply=f
}}
"""


@given(
    st.sampled_from([*KINDS, "greater"]), st.integers(1, 40), st.integers(1, 70), st.integers(1, 3),
    st.integers(-3, 80), st.integers(-3, 80), st.integers(1, 2), st.integers(1, 2),
)  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_same_as_one_position_after_another(kind, size, span, stride, low, high, base, step):
    part = WindowDimension(span, stride, low, high, base, step)
    padded, reach = (size - 1) * base + 1 + low + high, (span - 1) * step + 1
    if (size - 1) * base + 1 + min(low, 0) + min(high, 0) <= 0 or padded < reach:
        return
    init, element = KINDS.get(kind, (-(2**31), "s32"))
    words = f"size=1x{span} stride=1x{stride} pad=0_0x{low}_{high} lhs_dilate=1x{base} rhs_dilate=1x{step}"
    out = (padded - reach) // stride + 1
    text = module(kind, element, size, init, words, out)
    values = np.random.default_rng(span).integers(-9, 9, (2, size)).astype("int64" if element == "s64" else "int32")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reduction_meaning, "is_long", lambda parts: False)
        (want,) = hlo_opt.evaluate(hlo_opt.parse(text), [values])
        patch.setattr(reduction_meaning, "is_long", lambda parts: True)
        (got,) = hlo_opt.evaluate(hlo_opt.parse(text), [values])
    assert np.array_equal(got, want), part


def test_an_init_value_that_is_no_identity_goes_in_once():
    text = module("add", "s32", 100, 5, "size=1x100 pad=0_0x99_0", 100)
    values = np.ones((2, 100), np.int32)
    (got,) = hlo_opt.evaluate(hlo_opt.parse(text), [values])
    assert np.array_equal(got, np.cumsum(values, 1) + 5)


def test_a_cumulative_sum_of_a_million_is_quick():
    """A step for each of the million positions of the window would take an hour."""
    size = 1_000_000
    text = module("add", "s32", size, 0, f"size=1x{size} pad=0_0x{size - 1}_0", size)
    values = np.ones((2, size), np.int32)
    (got,) = hlo_opt.evaluate(hlo_opt.parse(text), [values])
    assert np.array_equal(got[1], np.arange(1, size + 1))
    assert size > folding.LONG
