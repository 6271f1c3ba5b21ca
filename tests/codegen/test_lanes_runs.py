"""Lanes that are runs of elements: what is repeated, interleaved or put between, in rows that end with a run and in
others, for whole arrays and for the state of a block."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from hlo_opt.codegen import lanes_runs
from hlo_opt.codegen.lanes_chunk_text import LANE
from hlo_opt.codegen.lanes_runs import in_runs, run_lines, runs_of
from hlo_opt.codegen.tree import Block, Let, Statement
from hlo_opt.ir.index_map import Condition, Expression, Variable, divide, modulo
from hlo_opt.ops.code import Cell, Code, Name, code
from hlo_opt.runtime.host.library import has_compiler
from tests.host_text import run_on_host

compiled = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")


def index(name: str, expression: Expression) -> Let:
    return Let("int", Name(name), code("0"), is_index=True, expression=expression)


def test_the_run_that_leaves_the_fewest_digits() -> None:
    """Of quotients by 2 and by 4, runs of 4 leave none; bounds that begin or end within a run have none."""
    lane, place = Variable(0, 127, LANE), Variable(0, 127, "place")
    items: list[Statement] = [index("a", divide(place, 4)), index("b", modulo(place, 2))]
    items.append(Let("int", Name("c"), code("{} + {}", Name("a"), Name("b"))))
    values = {"place": lane}
    assert runs_of(items, values, 0, 128) == [4, 2]
    assert runs_of(items, values, 2, 128) == [2]
    assert runs_of(items, values, 1, 128) == []
    assert runs_of(items[:1], values, 0, 128) == []  # nothing mentions it
    assert in_runs({"a": divide(lane, 4)}, 4, 3) == {"a": Variable(0, 31, LANE)}
    assert in_runs(values, 4, 3)["place"].high == 127


@compiled
@pytest.mark.parametrize("times", [2, 3, 4, 5, 7])
@pytest.mark.parametrize("columns", [256, 333])
def test_repeated(columns: int, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    body = f"""ENTRY e {{
  p = f32[40,{columns}] parameter(0)
  b = f32[40,{columns},{times}] broadcast(p), dimensions={{0,1}}
  ROOT r = f32[40,{columns * times}] reshape(b)
}}
"""
    x = np.arange(40 * columns, dtype=np.float32).reshape(40, columns)
    found, text = run_on_host(body, x, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, np.repeat(x, times, 1))
    assert f"{LANE} < hlo_live / {times};" in text


@compiled
@pytest.mark.parametrize(("gap", "columns"), [(1, 512), (1, 333), (2, 200), (3, 100), (5, 77)])
def test_zeros_between(gap: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows end with the first element of a run, and blocks anywhere."""
    wide = (columns - 1) * (gap + 1) + 1
    body = f"""ENTRY e {{
  p = f32[60,{columns}] parameter(0)
  z = f32[] constant(0.5)
  ROOT r = f32[60,{wide}] pad(p, z), padding=0_0x0_0_{gap}
}}
"""
    x = np.random.default_rng(0).standard_normal((60, columns)).astype(np.float32)
    expected = np.full((60, wide), np.float32(0.5))
    expected[:, :: gap + 1] = x
    found, text = run_on_host(body, x, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, expected)
    assert f"{LANE} < hlo_live / {gap + 1};" in text


@compiled
def test_columns_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stacked state, which a sum over all of it keeps in one block."""
    body = """\
plus {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}

less {
  s = (s32[], f32[128,2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT r = pred[] compare(i, n), direction=LT
}

step {
  s = (s32[], f32[128,2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[128,2] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  zero = f32[] constant(0)
  sum = f32[] reduce(x, zero), dimensions={0,1}, to_apply=plus
  small = f32[] constant(0.0078125)
  mean = f32[] multiply(sum, small)
  means = f32[128,1] broadcast(mean), dimensions={}
  left = f32[128,1] slice(x), slice={[0:128], [0:1]}
  right = f32[128,1] slice(x), slice={[0:128], [1:2]}
  a = f32[128,1] add(right, means)
  b = f32[128,1] negate(left)
  y = f32[128,2] concatenate(a, b), dimensions={1}
  ROOT r = (s32[], f32[128,2]) tuple(next, y)
}

ENTRY e {
  x = f32[128,2] parameter(0)
  zero = s32[] constant(0)
  first = (s32[], f32[128,2]) tuple(zero, x)
  loop = (s32[], f32[128,2]) while(first), condition=less, body=step
  ROOT r = f32[128,2] get-tuple-element(loop), index=1
}
"""
    x = np.arange(256, dtype=np.float32).reshape(128, 2)
    found, text = run_on_host(body, x, monkeypatch=monkeypatch)
    for _ in range(5):
        x = np.stack([x[:, 1] + x.sum() / np.float32(128), -x[:, 0]], 1)
    np.testing.assert_allclose(found, x, rtol=1e-5)
    assert f"for (int {LANE} = hlo::hidden(0); {LANE} < 128; ++{LANE}) {{\n{{" in text


@compiled
@pytest.mark.parametrize("columns", [3, 5])
@pytest.mark.parametrize("function", ["negate", "exponential"])
def test_short_rows_of_a_table(columns: int, function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is read from one place, which is computed once; where more is done to it, in vectors."""
    body = f"""\
ENTRY e {{
  t = f32[40,{columns}] parameter(0)
  i = s32[1000,1] parameter(1)
  g = f32[1000,{columns}] gather(t, i), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
    index_vector_dim=1, slice_sizes={{1,{columns}}}
  ROOT r = f32[1000,{columns}] {function}(g)
}}
"""
    generator = np.random.default_rng(0)
    table = generator.standard_normal((40, columns)).astype(np.float32)
    places = generator.integers(-2, 42, (1000, 1)).astype(np.int32)
    found, text = run_on_host(body, table, places, monkeypatch=monkeypatch)
    expected = table[np.clip(places[:, 0], 0, 39)]
    np.testing.assert_allclose(found, -expected if function == "negate" else np.exp(expected), rtol=1e-6)
    loop = f"for (int {LANE} = 0; {LANE} < hlo_live / {columns};"
    assert loop in text and (f"#pragma omp simd\n{loop}" in text) == (function == "exponential")


@compiled
def test_rows_that_blocks_have_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of 33 elements belongs to the block of 128 in which it begins."""
    body = """\
ENTRY e {
  x = f32[300,33] parameter(0)
  y = f32[33] parameter(1)
  z = f32[300] parameter(2)
  b = f32[300,33] broadcast(y), dimensions={1}
  c = f32[300,33] broadcast(z), dimensions={0}
  m = f32[300,33] multiply(x, b)
  ROOT r = f32[300,33] add(m, c)
}
"""
    generator = np.random.default_rng(0)
    x, y, z = (generator.standard_normal(shape).astype(np.float32) for shape in ((300, 33), (33,), (300,)))
    found, text = run_on_host(body, x, y, z, monkeypatch=monkeypatch)
    np.testing.assert_allclose(found, x * y + z[:, None], rtol=1e-6, atol=1e-6)
    assert "++row)" in text and ", row, 0, 33, " in text


@compiled
def test_rows_further_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """All elements of a row are read under one condition: of rows as runs, GCC 12 made vectors with the masks of the
    first one."""
    body = """\
ENTRY e {
  p = f32[20,3] parameter(0)
  c = f32[] constant(-inf)
  ROOT r = f32[20,3] pad(p, c), padding=1_-1x0_0
}
"""
    p = np.arange(60, dtype=np.float32).reshape(20, 3) + 1
    found, text = run_on_host(body, p, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, np.concatenate([np.full((1, 3), -np.inf, np.float32), p[:-1]]))
    assert "hlo_live / 3" not in text


@compiled
def test_rows_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are read from one of two arrays, at a place that data says."""
    body = """\
ENTRY e {
  p = f64[64,7] parameter(0)
  first = s32[] parameter(1)
  zero = s32[] constant(0)
  few = f64[7,7] slice(p), slice={[57:64], [0:7]}
  ROOT r = f64[64,7] dynamic-update-slice(p, few, first, zero)
}
"""
    p = np.arange(448.0).reshape(64, 7) + 1
    found, text = run_on_host(body, p, np.int32(3), monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, np.concatenate([p[:3], p[57:], p[10:]]))
    assert "hlo_live / 7" not in text


@compiled
@pytest.mark.parametrize("columns", [2, 3, 5, 8])
@pytest.mark.parametrize("rows", [33, 64, 700])
def test_sides_that_differ_within_a_run(rows: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which array a column is of is the same for all lanes, but not for all elements of a run: data say which column
    each of these reads."""
    body = f"""ENTRY e {{
  x = f32[{rows},{columns}] parameter(0)
  at = s32[{columns}] parameter(1)
  last = f32[{rows},1] slice(x), slice={{[0:{rows}], [{columns - 1}:{columns}]}}
  rest = f32[{rows},{columns - 1}] slice(x), slice={{[0:{rows}], [0:{columns - 1}]}}
  rolled = f32[{rows},{columns}] concatenate(last, rest), dimensions={{1}}
  sum = f32[{rows},{columns}] add(rolled, x)
  which = f32[{rows},{columns}] gather(sum, at), offset_dims={{0}}, collapsed_slice_dims={{1}}, start_index_map={{1}},
    index_vector_dim=1, slice_sizes={{{rows},1}}
  ROOT r = f32[{rows},{columns}] negate(which)
}}
"""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((rows, columns)).astype(np.float32)
    for at in (np.arange(columns)[::-1], np.roll(np.arange(columns), 1), generator.integers(0, columns, columns)):
        found, _ = run_on_host(body, x, at.astype(np.int32), monkeypatch=monkeypatch)
        np.testing.assert_array_equal(found, -(np.roll(x, 1, 1) + x)[:, at])


@compiled
def test_runs_of_one_value_under_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window's gradient goes to the place of its largest element: all elements of a run read the same one, and the
    next run reads the next."""
    body = """\
choose { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), direction=GT }
combine { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[99] parameter(0)
  g = f32[33] parameter(1)
  z = f32[] constant(0)
  ROOT r = f32[99] select-and-scatter(x, g, z), window={size=2 stride=3}, select=choose, scatter=combine
}
"""
    generator = np.random.default_rng(0)
    x, g = generator.standard_normal(99).astype(np.float32), generator.standard_normal(33).astype(np.float32)
    found, text = run_on_host(body, x, g, monkeypatch=monkeypatch)
    expected = np.zeros((33, 3), np.float32)
    expected[np.arange(33), x.reshape(33, 3)[:, :2].argmax(1)] = g
    np.testing.assert_array_equal(found, expected.ravel())
    assert f"{LANE} < hlo_live / 3;" in text


def test_what_lies_under_many_conditions_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each condition once looked at all that is in it, which took minutes where conditions lay 16 deep."""
    asked: list[Cell] = []

    def place_of(cell: Cell, known: Mapping[str, Expression]) -> Expression | None:
        asked.append(cell)
        return cell.index.place

    monkeypatch.setattr(lanes_runs, "place_of", place_of)
    lane, depth = Variable(0, 7, LANE), 20
    items: list[Statement] = []
    for k in range(depth):
        open_ = Code((Name("which"),), says=(Condition(modulo(lane, 2), 0, 0),))
        read = Let("float", Name(f"x{k}"), Code((Cell(Name("in0"), Code((Name("i"),), place=lane)),)))
        items = [Block(open_, [read, *items], [])]
    items.insert(0, Let("bool", Name("which"), Code((Cell(Name("in1"), Code((LANE,), place=lane)),))))
    assert run_lines(items, {}, 2, 16, {"in0"}) is not None
    assert len(asked) == 2 * depth
