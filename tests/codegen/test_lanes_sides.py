"""Selects by predicates that are the same for all lanes: a loop for each side."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_opt.codegen.lanes_sides import by_side, predicates_of
from hlo_opt.codegen.tree import Block, Let, Statement
from hlo_opt.ops.code import Cell, Code, Name, code, of
from hlo_opt.runtime.host.library import has_compiler
from tests.host_text import run_on_host

compiled = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")


def select(predicate: str, one: str, other: str) -> Statement:
    return Let("float", Name("r"), code("{} ? {} : {}", Name(predicate), Name(one), Name(other)))


def test_which_predicates() -> None:
    """The same for all lanes, between values of lanes; at most two."""
    assert predicates_of([select("p", "a", "b")], {"p"}, 5) == ["p"]
    assert predicates_of([select("p", "a", "b")], {"p", "a"}, 5) == ["p"]
    assert predicates_of([select("p", "a", "b")], {"p", "a", "b"}, 5) == []
    assert predicates_of([select("p", "a", "a")], {"p"}, 5) == []
    assert predicates_of([select("q", "a", "b")], {"p"}, 5) == []
    read = Let("float", Name("r"), Code((Name("p"), " ? ", Cell(Name("in0"), code("0")), " : ", Name("b"))))
    assert predicates_of([select("p", "a", "b")], {"p"}, 400) == []  # too long
    under = Block(of(Name("p")), [select("q", "a", "b")])
    assert predicates_of([under], {"p", "q"}, 400) == ["p"]
    assert predicates_of([read], {"p", "b"}, 5) == ["p"]
    assert predicates_of([select(p, "a", "b") for p in "pqpr"], set("pqr"), 5) == ["p", "q"]


def test_a_loop_for_each_side() -> None:
    assert by_side([], ["x"]) == ["x"]
    assert by_side(["p"], ["x"]) == [
        "if (p) {",
        "const bool p = true;",
        "x",
        "} else {",
        "const bool p = false;",
        "x",
        "}",
    ]
    assert by_side(["p", "q"], ["x"]).count("x") == 4


@compiled
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("columns", [96, 37])
def test_images_turned_around(channels: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each image by its own flag: rows by single elements, and in runs of the channels."""
    shape = f"u8[6,20,{columns},{channels}]"
    body = f"""ENTRY e {{
  x = {shape} parameter(0)
  p = pred[6] parameter(1)
  m = pred[6,20,{columns},{channels}] broadcast(p), dimensions={{0}}
  t = {shape} reverse(x), dimensions={{2}}
  ROOT r = {shape} select(m, t, x)
}}
"""
    x = np.random.default_rng(0).integers(0, 255, (6, 20, columns, channels), dtype=np.uint8)
    flags = np.array([True, False, False, True, True, False])
    found, text = run_on_host(body, x, flags, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, np.where(flags[:, None, None, None], x[:, :, ::-1], x))
    assert " = true;" in text


@compiled
def test_a_flag_of_each_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    """It differs from element to element of a run, so a run has no side; the flag of a row that is there too has."""
    body = """ENTRY e {
  x = f32[50,64,3] parameter(0)
  p = pred[3] parameter(1)
  q = pred[50] parameter(2)
  m = pred[50,64,3] broadcast(p), dimensions={2}
  n = pred[50,64,3] broadcast(q), dimensions={0}
  t = f32[50,64,3] reverse(x), dimensions={1}
  s = f32[50,64,3] select(m, t, x)
  d = f32[50,64,3] add(x, x)
  ROOT r = f32[50,64,3] select(n, s, d)
}
"""
    x = np.random.default_rng(0).standard_normal((50, 64, 3)).astype(np.float32)
    by_channel, by_row = np.array([True, False, True]), np.arange(50) % 3 == 0
    found, _ = run_on_host(body, x, by_channel, by_row, monkeypatch=monkeypatch)
    turned = np.where(by_channel, x[:, ::-1], x)
    np.testing.assert_array_equal(found, np.where(by_row[:, None, None], turned, x + x))


@compiled
def test_a_flag_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the side that it takes is read."""
    body = """ENTRY e {
  x = f32[5000] parameter(0)
  y = f32[5000] parameter(1)
  p = pred[] parameter(2)
  m = pred[5000] broadcast(p), dimensions={}
  ROOT r = f32[5000] select(m, x, y)
}
"""
    x, y = np.random.default_rng(0).standard_normal((2, 5000)).astype(np.float32)
    for flag in (True, False):
        found, text = run_on_host(body, x, y, np.array(flag), monkeypatch=monkeypatch)
        np.testing.assert_array_equal(found, x if flag else y)
        assert " = true;" in text


@compiled
@pytest.mark.parametrize("columns", [112, 113, 300])
@pytest.mark.parametrize("padding", ["0_1x0_1", "1_1x1_1", "1_0x2_0"])
def test_windows_at_edges(padding: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a window that lie outside are the same for all lanes of a row; the columns that do are a few at its
    ends, which parts of rows have by themselves."""
    (top, bottom), (left, right) = (map(int, side.split("_")) for side in padding.split("x"))
    high, wide = (20 + top + bottom - 3) // 2 + 1, (columns + left + right - 3) // 2 + 1
    body = f"""larger {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b)
}}

ENTRY e {{
  x = f32[3,20,{columns}] parameter(0)
  i = f32[] constant(-inf)
  ROOT r = f32[3,{high},{wide}] reduce-window(x, i), window={{size=1x3x3 stride=1x2x2 pad=0_0x{padding}}}, to_apply=larger
}}
"""
    x = np.random.default_rng(0).standard_normal((3, 20, columns)).astype(np.float32)
    around = np.pad(x, ((0, 0), (top, bottom), (left, right)), constant_values=-np.inf)
    tiles = np.lib.stride_tricks.sliding_window_view(around, (3, 3), (1, 2))[:, ::2, ::2]
    found, _ = run_on_host(body, x, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, tiles.max((-1, -2)))


@compiled
@pytest.mark.parametrize("columns", [501, 64, 333])
def test_every_second_row(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros between elements of both dimensions: a run of three, which rows without elements have alike."""
    body = f"""ENTRY e {{
  x = f32[30,{columns}] parameter(0)
  z = f32[] constant(0.5)
  ROOT r = f32[59,{3 * columns - 2}] pad(x, z), padding=0_0_1x0_0_2
}}
"""
    x = np.random.default_rng(0).standard_normal((30, columns)).astype(np.float32)
    expected = np.full((59, 3 * columns - 2), np.float32(0.5))
    expected[::2, ::3] = x
    found, text = run_on_host(body, x, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, expected)
    assert " = true;" in text


@compiled
def test_a_condition_in_another_one_and_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tells its side is declared inside of the other one's braces, and once more behind them."""
    body = """ENTRY e {
  x = f32[20,64] parameter(0)
  y = f32[20,64] parameter(1)
  one = f32[] constant(1)
  two = f32[] constant(2)
  three = f32[] constant(3)
  inner = f32[25,64] pad(x, three), padding=0_5x0_0
  squares = f32[25,64] multiply(inner, inner)
  outer = f32[26,64] pad(squares, one), padding=0_1x0_0
  behind = f32[26,64] pad(y, two), padding=0_6x0_0
  ROOT sum = f32[26,64] add(outer, behind)
}
"""
    x, y = np.random.default_rng(0).standard_normal((2, 20, 64), np.float32)
    found, text = run_on_host(body, x, y, monkeypatch=monkeypatch)
    inner = np.pad(x, ((0, 5), (0, 0)), constant_values=3)
    outer = np.pad(inner * inner, ((0, 1), (0, 0)), constant_values=1)
    np.testing.assert_allclose(found, outer + np.pad(y, ((0, 6), (0, 0)), constant_values=2), rtol=1e-6)
    assert text.count("const bool hlo_holds0 = 0 <= ") == 2
