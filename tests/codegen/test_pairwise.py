"""Folds of pairs on the host, against the NumPy meaning."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.plans import Plan, choose
from tests.small_modules import H100


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs are folded as such at all sizes: others are cheaper for the small ones that tests can run."""

    def price(plan: Plan, target: DeviceTarget) -> SimpleNamespace:
        return SimpleNamespace(us=float(plan.kind != "pairwise"))

    monkeypatch.setattr(choose, "price", price)


@pytest.fixture
def tool(tool: Any) -> Any:
    """For a device of one multiprocessor, so that threads have several rows."""
    return replace(tool, target=replace(H100, core_count=1))


def module(
    pairs: str,
    folded: str,
    sides: tuple[str, str],
    lines: str,
    *,
    into: str = "",
    t: str = "f32",
    reducer: str = "add",
    dimension: int = 2,
    alongside: tuple[str, str] = ("0,2", "1,2"),
) -> str:
    """A fold of x and y, which broadcasts turn into xs and ys."""
    return f"""HloModule m
fold {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT c = {t}[] {reducer}(a, b)
}}
ENTRY e {{
  x = {sides[0]} parameter(0)
  y = {sides[1]} parameter(1)
  zero = {t}[] constant(0)
  xs = {t}[{folded}] broadcast(x), dimensions={{{alongside[0]}}}
  ys = {t}[{folded}] broadcast(y), dimensions={{{alongside[1]}}}
{lines}
  {"" if into else "ROOT "}r = {t}[{pairs}] reduce(d, zero), dimensions={{{dimension}}}, to_apply=fold
{into}
}}
"""


def distances(rows: int, columns: int, reduced: int, t: str = "f32", reducer: str = "add", into: str = "") -> str:
    folded = f"{rows},{columns},{reduced}"
    sides = f"{t}[{rows},{reduced}]", f"{t}[{columns},{reduced}]"
    line = f"  d = {t}[{folded}] subtract(xs, ys)"
    return module(f"{rows},{columns}", folded, sides, line, into=into, t=t, reducer=reducer)


def kinds(tool: Any, texts: list[str]) -> set[str]:
    return {tool.plan(text).kind for text in texts}


def test_sizes_around_the_edges_of_tiles(tool: Any) -> None:
    """Rows that are no whole number of a thread's, columns that fill no warp, and steps that fill no chunk."""
    sizes = [(64, 128, 4), (65, 127, 3), (67, 129, 8), (260, 33, 7), (33, 300, 32), (2, 97, 6), (130, 66, 5)]
    texts = [distances(*size) for size in sizes]
    assert kinds(tool, texts) == {"pairwise"}
    tiles = [tool.plan(text).segments[0].part for text in texts]
    assert [(t.height, t.width) for t in tiles] == [(4, 4), (4, 4), (4, 4), (8, 2), (4, 4), (1, 4), (5, 3)]
    tool.all_agree(texts)


def test_columns_in_lines_of_their_own(tool: Any) -> None:
    """Fewer lanes have neighbouring columns, and more have other rows, where that looks up fewer cache lines."""
    texts = [distances(64, 129, 32), distances(128, 130, 12), distances(68, 128, 32), distances(64, 200, 64, "bf16")]
    turned = module(
        "64,128",
        "64,32,128",
        ("f32[64,32]", "f32[32,128]"),
        "  d = f32[64,32,128] subtract(xs, ys)",
        dimension=1,
        alongside=("0,1", "1,2"),
    )
    texts.append(turned)
    assert kinds(tool, texts) == {"pairwise"}
    assert [tool.plan(text).segments[0].part.lanes for text in texts] == [8, 16, 32, 16, 32]
    tool.all_agree(texts)


def test_types_and_reducers(tool: Any) -> None:
    texts = [distances(90, 100, 5, t) for t in ("f64", "s32", "f16", "bf16", "u8")]
    texts += [distances(90, 100, 5, "f32", reducer) for reducer in ("minimum", "maximum", "multiply")]
    assert kinds(tool, texts) == {"pairwise"}
    tool.all_agree(texts)


def test_pairs_of_rows_of_one_array(tool: Any) -> None:
    texts = [
        distances(n, n, 5).replace(f"y = f32[{n},5] parameter(1)\n", "").replace("broadcast(y)", "broadcast(x)")
        for n in (65, 130)
    ]
    assert "(y)" not in texts[0]
    assert kinds(tool, texts) == {"pairwise"}
    tool.all_agree(texts)


def test_what_follows_the_fold(tool: Any) -> None:
    after = """  n = f32[90,100] negate(r)
  b = bf16[90,100] convert(r)
  ROOT t = (f32[90,100], bf16[90,100]) tuple(n, b)"""
    texts = [distances(90, 100, 5, into=after)]
    assert kinds(tool, texts) == {"pairwise"}
    tool.all_agree(texts)


def test_a_product_of_sums_and_minima(tool: Any) -> None:
    """min over k of x[i, k] + y[k, j]: the folded dimension lies between those of the pairs."""
    text = module(
        "100,100",
        "100,7,100",
        ("f32[100,7]", "f32[7,100]"),
        "  d = f32[100,7,100] add(xs, ys)",
        reducer="minimum",
        dimension=1,
        alongside=("0,1", "1,2"),
    )
    assert kinds(tool, [text]) == {"pairwise"}
    tool.all_agree([text])


def test_pairs_of_a_batch(tool: Any) -> None:
    texts = [
        module(
            f"3,{rows},100",
            f"3,{rows},100,5",
            (f"f32[3,{rows},5]", "f32[3,100,5]"),
            f"  s = f32[3,{rows},100,5] subtract(xs, ys)\n  d = f32[3,{rows},100,5] abs(s)",
            dimension=3,
            alongside=("0,1,3", "0,2,3"),
        )
        for rows in (48, 35)
    ]
    assert kinds(tool, texts) == {"pairwise"}
    tool.all_agree(texts)


NEAREST = """HloModule m
nearer {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  p = pred[] compare(a, b), direction=LT
  q = pred[] compare(a, b), direction=EQ
  l = pred[] compare(i, j), direction=LT
  e = pred[] and(q, l)
  o = pred[] or(p, e)
  m = f32[] select(o, a, b)
  n = s32[] select(o, i, j)
  ROOT t = (f32[], s32[]) tuple(m, n)
}
ENTRY e {
  x = f32[70,6] parameter(0)
  y = f32[120,6] parameter(1)
  high = f32[] constant(inf)
  zero = s32[] constant(0)
  xs = f32[70,120,6] broadcast(x), dimensions={0,2}
  ys = f32[70,120,6] broadcast(y), dimensions={1,2}
  d = f32[70,120,6] subtract(xs, ys)
  s = f32[70,120,6] abs(d)
  k = s32[70,120,6] iota(), iota_dimension=2
  ROOT r = (f32[70,120], s32[70,120]) reduce(s, k, high, zero), dimensions={2}, to_apply=nearer
}
"""


def test_where_a_pair_is_nearest(tool: Any) -> None:
    assert kinds(tool, [NEAREST]) == {"pairwise"}
    tool.all_agree([NEAREST])


def test_others_stay(planner: Any) -> None:
    """Folds of an array that has an element for each pair, and of arrays for one side only."""
    array = """  n = f32[90,100,5] parameter(2)
  d = f32[90,100,5] multiply(n, xs)"""
    sides = "f32[90,5]", "f32[100,5]"
    one = "  d = f32[90,100,5] negate(xs)"
    texts = [module("90,100", "90,100,5", sides, lines) for lines in (array, one)]
    assert "pairwise" not in kinds(planner, texts)


def test_neighbours_along_a_fold_are_read_together(planner: Any) -> None:
    source = planner.kernel(distances(64, 128, 8)).source
    assert "__builtin_assume_aligned(in0, 16)" in source
    assert [f"* 4 + {n}]" in source for n in (1, 2, 3)] == [True] * 3
