"""Kernels of select-and-scatter: each element asks the windows that reach it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hlo_opt.plans.price import price
from tests.small_modules import H100

SCATTERS = {
    "pooling": ("f32[2,8,6]{2,1,0} f32[2,4,3]{2,1,0}", "window={size=1x2x2 stride=1x2x2}", "GE", "add"),
    "overlapping": ("f32[9,7]{0,1} f32[5,4]{1,0}", "window={size=3x3 stride=2x2 pad=1_1x1_1}", "GE", "add"),
    "cropped": ("f32[9,7]{1,0} f32[3,4]{1,0}", "window={size=2x2 stride=2x2 pad=-1_-1x0_1}", "LT", "maximum"),
    "uncovered": ("bf16[9]{0} bf16[2]{0}", "window={size=2 stride=3}", "GT", "multiply"),
    "integers": ("s32[9]{0} s32[3]{0}", "window={size=3 stride=3}", "LE", "minimum"),
    "nothing": ("f32[1]{0} f32[0]{0}", "window={size=3 stride=3}", "GE", "add"),
}


def scatter_of(kinds: str, window: str, direction: str, combiner: str, given: str = "a, b") -> str:
    value, source = kinds.split()
    scalar = value.partition("[")[0] + "[]"
    two = f"a = {scalar} parameter(0) b = {scalar} parameter(1)"
    functions = (
        f"choose {{ {two} ROOT c = pred[] compare({given}), direction={direction} }}\ncombine "
        f"{{ {two} ROOT c = {scalar} {combiner}(a, b) }}"
    )
    entry = "\n".join(f"  p{k} = {kind} parameter({k})" for k, kind in enumerate((value, source, scalar)))
    root = f"{value} select-and-scatter(p0, p1, p2), {window}, select=choose, scatter=combine"
    return f"HloModule m\n{functions}\nENTRY e {{\n{entry}\n  ROOT r = {root}\n}}\n"


@pytest.mark.parametrize("given", ["a, b", "b, a"])
def test_select_and_scatter(given: str, tool: Any) -> None:
    tool.all_agree([scatter_of(*case, given) for case in SCATTERS.values()])


def test_sizes(tool: Any) -> None:
    texts = []
    for size in (1, 2, 3, 5):
        for stride in (1, 2, 3, 7):
            for low in (-3, 0, 2):
                count = (17 + low - size) // stride + 1
                texts.append(
                    scatter_of(
                        f"f32[17]{{0}} f32[{count}]{{0}}",
                        f"window={{size={size} stride={stride} pad={low}_0}}",
                        "GE",
                        "add",
                    )
                )
    tool.all_agree(texts)


def test_any_computations_select_and_combine(tool: Any) -> None:
    text = scatter_of(*SCATTERS["pooling"])
    odd = text.replace(
        "ROOT c = pred[] compare(a, b)", "x = f32[] abs(a) y = f32[] abs(b) ROOT c = pred[] compare(x, y)"
    )
    odd = odd.replace("ROOT c = f32[] add(a, b)", "t = f32[] add(b, b) ROOT c = f32[] subtract(a, t)")
    tool.all_agree([odd, text.replace("direction=GE", "direction=GE, type=TOTALORDER")])


POOLING = "window={size=1x2x2x1 stride=1x2x2x1}"


def test_windows_apart_are_read_in_vectors(tool: Any) -> None:
    text = scatter_of("f32[8,64,64,32]{3,2,1,0} f32[8,32,32,32]{3,2,1,0}", POOLING, "GE", "add")
    assert len(re.findall(r"read\d\[s0\] = in0", tool.kernel(text).source)) == 4
    tool.all_agree([text, scatter_of("bf16[2,8,7,8]{3,2,1,0} bf16[2,4,3,8]{3,2,1,0}", POOLING, "GE", "add")])


def test_the_price_knows_which_windows_an_element_reads(planner: Any) -> None:
    """Neighbouring windows, not any elements of the operand: bytes are those of the arrays, and little more."""
    for window, size in ((POOLING, 56), ("window={size=1x3x3x1 stride=1x2x2x1 pad=0_0x1_0x1_0x0_0}", 56)):
        text = scatter_of(f"f32[64,112,112,64]{{3,2,1,0}} f32[64,{size},{size},64]{{3,2,1,0}}", window, "GE", "add")
        paid = price(planner.plan(text), H100)
        least = 4 * 64 * 64 * (2 * 112 * 112 + size * size)
        assert least <= paid.bytes < 1.05 * least
