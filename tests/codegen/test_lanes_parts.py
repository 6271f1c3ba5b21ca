"""Rows of lanes in parts, where conditions on the place in a row are decided."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_opt.codegen.kernel import Pointer
from hlo_opt.codegen.lanes_parts import SHORTEST, VECTOR, Part, bands_of, parts_of_row, vector_lanes, within
from hlo_opt.codegen.tree import Assign, Block, Do, Statement
from hlo_opt.ir.index_map import Condition, Expression, Variable, add, constant, modulo, multiply
from hlo_opt.ops.code import Code, Name, cell, code, of
from hlo_opt.runtime.host.library import has_compiler
from tests.host_text import run_on_host

ROW, LANES = Variable(0, 9, "row"), 100
INSIDE = Variable(0, LANES - 1, "inside")


def asked(expression: Expression, low: int, high: int) -> Statement:
    return Block(Code(("?",), says=(Condition(expression, low, high),)), [], [])


@pytest.mark.parametrize(
    ("conditions", "parts"),
    {
        "the first ones": ([asked(INSIDE, 0, 2)], [(0, 3), (3, LANES)]),
        "both ends": ([asked(INSIDE, 3, 96)], [(0, 3), (3, 97), (97, LANES)]),
        "moved": ([asked(add(INSIDE, constant(-10)), 0, 79)], [(0, 10), (10, 90), (90, LANES)]),
        "steps of two": ([asked(add(multiply(INSIDE, 2), constant(-3)), 0, 190)], [(0, 2), (2, 97), (97, LANES)]),
        "the row": ([asked(ROW, 0, 2)], [(0, LANES)]),
        "a digit": ([asked(modulo(INSIDE, 3), 0, 0)], [(0, LANES)]),
        "row and place": ([asked(add(multiply(ROW, 2), INSIDE), 0, 7)], [(0, LANES)]),
        "thirds": ([asked(INSIDE, 0, 32), asked(INSIDE, 0, 65)], [(0, 33), (33, 66), (66, LANES)]),
        "no long part": ([asked(INSIDE, 0, k) for k in (20, 40, 60, 80)], [(0, LANES)]),
    }.values(),
)
def test_conditions_say_where_parts_end(conditions: list[Statement], parts: list[tuple[int, int]]) -> None:
    assert parts_of_row(conditions, {}, "inside", LANES) == [Part(*part) for part in parts]


def test_short_parts_share_their_statements_where_there_are_many() -> None:
    conditions = [asked(INSIDE, k, LANES - 1 - k) for k in range(5)]
    parts = [Part(0, 4, asks=True), Part(4, 96), Part(96, LANES, asks=True)]
    assert parts_of_row(conditions, {}, "inside", LANES) == parts


def test_short_rows_stay_whole() -> None:
    short = Variable(0, SHORTEST - 2, "inside")
    assert parts_of_row([asked(short, 0, 2)], {}, "inside", SHORTEST - 1) == [Part(0, SHORTEST - 1)]


BAND = Variable(0, 59, "row")


@pytest.mark.parametrize(
    ("conditions", "bands"),
    {
        "a frame": ([asked(BAND, 1, 58)], [Part(0, 1), Part(1, 59), Part(59, 60)]),
        "under one that never holds": (
            [Block(Code(("?",), says=(Condition(BAND, 70, 80),)), [asked(BAND, 0, 9)], [asked(BAND, 0, 29)])],
            [Part(0, 30), Part(30, 60)],
        ),
        "the place": ([asked(INSIDE, 0, 2)], [Part(0, 60)]),
        "a digit": ([asked(modulo(BAND, 2), 0, 0)], [Part(0, 60)]),
        "each alone": ([asked(BAND, 0, k) for k in range(0, 60, 5)], [Part(0, 60)]),
        "more than may be": (
            [asked(BAND, k, 59 - k) for k in (1, 2)] + [asked(INSIDE, 0, 2)] * 120,
            [Part(0, 2, asks=True), Part(2, 58), Part(58, 60, asks=True)],
        ),
        "halves of which no one is longer": ([asked(BAND, 0, 29)] + [asked(INSIDE, 0, 2)] * 250, [Part(0, 60)]),
    }.values(),
)
def test_conditions_say_where_bands_of_rows_end(conditions: list[Statement], bands: list[Part]) -> None:
    assert bands_of(conditions, {}, "row", 60) == bands


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
@pytest.mark.parametrize(("rows", "columns"), [(60, 95), (70, 200), (5, 130)])
def test_windows_of_windows(rows: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A field is changed by differences of another one's window, of which a single element is given."""
    within_it, below = f"f32[{rows - 2},{columns - 2}]", f"f32[{rows - 1},{columns}]"
    body = f"""ENTRY e {{
  x = f32[{rows},{columns}] parameter(0)
  y = f32[{rows},{columns}] parameter(1)
  zero = s32[] constant(0)
  one = s32[] constant(1)
  three = s32[] constant(3)
  given = f32[1,1] constant({{{{7}}}})
  a = {below} slice(x), slice={{[1:{rows}], [0:{columns}]}}
  b = {below} slice(x), slice={{[0:{rows - 1}], [0:{columns}]}}
  c = {below} slice(y), slice={{[0:{rows - 1}], [0:{columns}]}}
  d = {below} subtract(a, b)
  e = {below} add(c, d)
  h = f32[{rows},{columns}] dynamic-update-slice(y, e, zero, zero)
  i = {within_it} slice(h), slice={{[1:{rows - 1}], [1:{columns - 1}]}}
  j = {within_it} slice(h), slice={{[0:{rows - 2}], [1:{columns - 1}]}}
  k = {within_it} subtract(i, j)
  l = f32[{rows},{columns}] dynamic-update-slice(x, k, one, one)
  ROOT m = f32[{rows},{columns}] dynamic-update-slice(l, given, three, three)
}}
"""
    generator = np.random.default_rng(0)
    x, y = (generator.integers(-9, 9, (rows, columns)).astype(np.float32) for _ in range(2))
    found, text = run_on_host(body, x, y, monkeypatch=monkeypatch)
    assert "_band" in text
    field, want = y.copy(), x.copy()
    field[:-1] += x[1:] - x[:-1]
    want[1:-1, 1:-1] = (field[1:-1] - field[:-2])[:, 1:-1]
    want[3, 3] = 7
    np.testing.assert_array_equal(found, want)


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
@pytest.mark.parametrize("kind", ["f32", "u8"])
@pytest.mark.parametrize(("rows", "columns"), [(70, 203), (9, 203), (70, 1999)])
def test_a_row_of_an_odd_length(rows: int, columns: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many rows longer than a block are whole, and end with a vector of lanes of which some have run; of few, blocks
    have parts."""
    body = f"""ENTRY e {{
  x = {kind}[{rows},{columns + 2}] parameter(0)
  a = {kind}[{rows},{columns}] slice(x), slice={{[0:{rows}], [0:{columns}]}}
  b = {kind}[{rows},{columns}] slice(x), slice={{[0:{rows}], [2:{columns + 2}]}}
  ROOT c = {kind}[{rows},{columns}] maximum(a, b)
}}
"""
    dtype = {"f32": np.float32, "u8": np.uint8}[kind]
    x = np.random.default_rng(0).integers(0, 200, (rows, columns + 2)).astype(dtype)
    found, text = run_on_host(body, x, monkeypatch=monkeypatch)
    assert ("hlo_whole" in text) == (columns == 203)
    assert rows != 70 or ("row, 0, 203" in text) == (columns == 203)
    np.testing.assert_array_equal(found, np.maximum(x[:, :-2], x[:, 2:]))


def test_conditions_are_decided_within_a_part() -> None:
    values = within({"i0": INSIDE}, "inside", 3, 97)
    assert Condition(values["i0"], 3, 96).always and Condition(values["i0"], 0, 2).never


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
@pytest.mark.parametrize(("rows", "columns"), [(37, 95), (9, 1700)])
def test_an_array_with_a_frame(rows: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    body = f"""ENTRY e {{
  x = f32[{rows},{columns}] parameter(0)
  z = f32[] constant(7)
  t = f32[{rows},{columns}] negate(x)
  ROOT r = f32[{rows + 3},{columns + 8}] pad(t, z), padding=1_2x3_5
}}
"""
    x = np.random.default_rng(0).uniform(-1, 1, (rows, columns)).astype(np.float32)
    found, text = run_on_host(body, x, monkeypatch=monkeypatch)
    assert "hlo_low" in text
    np.testing.assert_array_equal(found, np.pad(-x, ((1, 2), (3, 5)), constant_values=7))


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
def test_rows_of_several_blocks_that_are_turned(monkeypatch: pytest.MonkeyPatch) -> None:
    body = """ENTRY e {
  x = f32[9,512] parameter(0)
  a = f32[9,1] slice(x), slice={[0:9], [511:512]}
  b = f32[9,511] slice(x), slice={[0:9], [0:511]}
  c = f32[9,512] concatenate(a, b), dimensions={1}
  d = f32[9,511] slice(x), slice={[0:9], [1:512]}
  e = f32[9,1] slice(x), slice={[0:9], [0:1]}
  f = f32[9,512] concatenate(d, e), dimensions={1}
  g = f32[8,512] slice(x), slice={[1:9], [0:512]}
  h = f32[1,512] slice(x), slice={[0:1], [0:512]}
  i = f32[9,512] concatenate(g, h), dimensions={0}
  s = f32[9,512] subtract(c, f)
  ROOT r = f32[9,512] multiply(s, i)
}
"""
    x = np.random.default_rng(0).uniform(-1, 1, (9, 512)).astype(np.float32)
    found, text = run_on_host(body, x, monkeypatch=monkeypatch)
    assert "hlo_low" in text
    np.testing.assert_array_equal(found, (np.roll(x, 1, 1) - np.roll(x, -1, 1)) * np.roll(x, -1, 0))


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
@pytest.mark.parametrize("columns", [64, 128, 256])
def test_sums_of_neighbours_with_zeros_beyond_the_ends(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is a part of a block, a block, or two, and its ends are several elements wide."""
    lines, total = [], "x"
    for k in (-3, -2, -1, 1, 2, 3):
        name = f"{'l' if k < 0 else 'r'}{abs(k)}"
        lines.append(f"""
  {name} = s32[6,{columns}] pad(x, z), padding={k}_{-k}x{k}_{-k}
  {"ROOT " * (k == 3)}t{name} = s32[6,{columns}] add({total}, {name})""")
        total = f"t{name}"
    body = f"ENTRY e {{\n  x = s32[6,{columns}] parameter(0)\n  z = s32[] constant(0){''.join(lines)}\n}}\n"
    x = np.random.default_rng(0).integers(-99, 99, (6, columns)).astype(np.int32)
    found, text = run_on_host(body, x, monkeypatch=monkeypatch)
    assert "hlo_low" in text
    wide = np.pad(x, 3)
    np.testing.assert_array_equal(found, sum(wide[k : k + 6, k : k + columns] for k in range(7)))


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
def test_the_inside_of_an_array_is_written_at_places_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The starts are numbers, one of them beyond the end, so rows are cut at the frame."""
    body = """ENTRY e {
  x = f32[40,128] parameter(0)
  u = f32[38,126] slice(x), slice={[0:38], [2:128]}
  t = f32[38,126] multiply(u, u)
  one = s32[] constant(1)
  far = s32[] constant(9)
  d = f32[40,128] dynamic-update-slice(x, t, far, one)
  ROOT r = f32[40,128] subtract(d, x)
}
"""
    x = np.random.default_rng(0).uniform(-1, 1, (40, 128)).astype(np.float32)
    found, text = run_on_host(body, x, monkeypatch=monkeypatch)
    assert "hlo_low" in text
    want = x.copy()
    want[2:, 1:127] = x[:38, 2:] ** 2
    np.testing.assert_array_equal(found, want - x)


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
@pytest.mark.parametrize("kind", ["f32", "f16", "s8"])
@pytest.mark.parametrize("columns", [50, 95, 129, 600])
def test_a_part_ends_with_a_vector_of_lanes_of_which_some_have_run(
    columns: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = f"""ENTRY e {{
  x = {kind}[7,{columns}] parameter(0)
  z = {kind}[] constant(3)
  r = {kind}[7,{columns}] pad(x, z), padding=0_0x-1_1
  ROOT s = {kind}[7,{columns}] subtract(r, x)
}}
"""
    dtype = {"f32": np.float32, "f16": np.float16, "s8": np.int8}[kind]
    x = np.random.default_rng(0).integers(-9, 9, (7, columns)).astype(dtype)
    found, text = run_on_host(body, x, monkeypatch=monkeypatch)
    lanes = VECTOR // x.itemsize
    assert (f"/ {lanes} * {lanes}" in text) == (columns - 1 >= 2 * lanes)
    np.testing.assert_array_equal(found, np.pad(x, ((0, 0), (0, 1)), constant_values=3)[:, 1:] - x)


def test_lanes_run_twice_only_where_they_read_what_nobody_writes() -> None:
    read, written = Name("in0"), Name("out0")
    wide = [Pointer("float", read, constant=True), Pointer("float", written)]
    narrow = [Pointer("unsigned char", read, constant=True), Pointer("float", written)]
    place = code("i0")
    plain = Assign(cell(written, place), of(cell(read, place)))
    assert (vector_lanes([plain], wide), vector_lanes([plain], narrow)) == (16, 64)
    assert not vector_lanes([Assign(cell(written, place), of(cell(written, place)))], wide)
    assert not vector_lanes([Assign(cell(written, of(cell(written, place))), code("1"))], wide)
    assert not vector_lanes([plain, Do(code("change()"))], wide)
