"""What threads side by side have in common stands around the loop over them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hlo_opt.ir import ELEMENT_TYPES
from hlo_opt.runtime.host.library import has_compiler
from tests.host_text import run_on_host

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

REDUCER = "fold {{\n  a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  ROOT r = {t}[] {op}(a, b)\n}}\n\n"


def reduced(t: str, op: str, init: str, shape: str, dimensions: str, result: str) -> str:
    body = f"ENTRY e {{\n  p = {t}[{shape}] parameter(0)\n  z = {t}[] constant({init})\n"
    body += f"  ROOT r = {t}[{result}] reduce(p, z), dimensions={{{dimensions}}}, to_apply=fold\n}}\n"
    return REDUCER.format(t=t, op=op) + body


def test_the_threads_of_a_row_fold_in_one_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel has one for the lanes of warps and one for the warps of a row."""
    x = np.random.default_rng(0).standard_normal((16, 2048)).astype(np.float32)
    found, text = run_on_host(reduced("f32", "maximum", "-inf", "16,2048", "1", "16"), x, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, x.max(1))
    assert re.findall(r"const int distance\w* = (\d+);", text) == ["64", "32", "16", "8", "4", "2", "1"]
    assert "hlo_shown" not in text


@pytest.mark.parametrize(("kind", "columns", "apart"), [("u8", 16, False), ("f32", 16, False), ("f32", 128, True)])
def test_teams_that_fold_two_arrays_go_together(
    kind: str, columns: int, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The places of the greatest of short rows: all teams of a block go through a round of the tree in vectors."""
    body = (
        f"larger {{\n  a = {kind}[] parameter(0)\n  i = s32[] parameter(1)\n  b = {kind}[] parameter(2)\n"
        "  j = s32[] parameter(3)\n  g = pred[] compare(a, b), direction=GT\n"
        "  e = pred[] compare(a, b), direction=EQ\n  l = pred[] compare(i, j), direction=LT\n  f = pred[] and(e, l)\n"
        f"  t = pred[] or(g, f)\n  v = {kind}[] select(g, a, b)\n  p = s32[] select(t, i, j)\n"
        f"  ROOT r = ({kind}[], s32[]) tuple(v, p)\n}}\n\n"
        f"ENTRY e {{\n  x = {kind}[4000,{columns}] parameter(0)\n  n = s32[4000,{columns}] iota(), iota_dimension=1\n"
        f"  z = {kind}[] constant(0)\n  k = s32[] constant(0)\n"
        f"  q = ({kind}[4000], s32[4000]) reduce(x, n, z, k), dimensions={{1}}, to_apply=larger\n"
        "  ROOT w = s32[4000] get-tuple-element(q), index=1\n}\n"
    )
    x = np.random.default_rng(5).integers(0, 40, (4000, columns)).astype(ELEMENT_TYPES[kind].dtype)
    found, text = run_on_host(body, x, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, x.argmax(1))
    assert ("hlo_team" in text) == apart


def test_rows_that_are_cut_are_read_in_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digits of an element's place are those of a run of threads."""
    x = np.random.default_rng(0).standard_normal((8, 15, 256)).astype(np.float32)
    found, text = run_on_host(reduced("f32", "add", "0", "8,15,256", "0,2", "15"), x, monkeypatch=monkeypatch)
    np.testing.assert_allclose(found, x.sum((0, 2)), rtol=1e-4, atol=1e-4)
    assert "(hlo_run) / 4" in text
    assert "(hlo_run) % 4) * 64 + hlo_lane" in text


@pytest.mark.parametrize("kind", ["s8", "f16"])
def test_columns_go_side_by_side(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All threads of a block that walk the same rows."""
    dtype = {"s8": np.int8, "f16": np.float16}[kind]
    x = np.random.default_rng(0).integers(-2, 3, (2048, 1024)).astype(dtype)
    found, text = run_on_host(reduced(kind, "maximum", "-3", "2048,1024", "0", "1024"), x, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, x.max(0))
    assert any(int(lanes) > 64 for lanes in re.findall(r"hlo_lane < (\d+); \+\+hlo_lane", text))


def test_the_first_round_of_a_vector_stands_around_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fold that does not start with its identity takes its first element as it is."""
    x = np.random.default_rng(0).integers(-99, 99, (8, 4096)).astype(np.int32)
    pairs = """fold {
  a = s32[] parameter(0)
  i = s32[] parameter(1)
  b = s32[] parameter(2)
  j = s32[] parameter(3)
  l = pred[] compare(a, b), direction=GT
  e = pred[] compare(a, b), direction=EQ
  f = pred[] compare(i, j), direction=LT
  q = pred[] and(e, f)
  k = pred[] or(l, q)
  v = s32[] select(k, a, b)
  n = s32[] select(k, i, j)
  ROOT t = (s32[], s32[]) tuple(v, n)
}

ENTRY e {
  p = s32[8,4096] parameter(0)
  c = s32[8,4096] iota(), iota_dimension=1
  y = s32[] constant(-5)
  z = s32[] constant(0)
  m = (s32[8], s32[8]) reduce(p, c, y, z), dimensions={1}, to_apply=fold
  ROOT r = s32[8] get-tuple-element(m), index=1
}
"""
    found, text = run_on_host(pairs, x, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, x.argmax(1))
    lines = text.splitlines()
    first = [n for n, line in enumerate(lines) if re.match(r"if \(hlo_base\d+ == 0 && s\d+ == 0\) \{", line)]
    assert first
    assert all(lines[n + 1] == "#pragma omp simd" for n in first)


TWO_WIDTHS = """add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}

max {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b)
}

both {
  p = f32[16,32] parameter(0)
  q = f32[16,32] parameter(1)
  zero = f32[] constant(0)
  least = f32[] constant(-inf)
  product = f32[16,32] multiply(p, q)
  total = f32[] reduce(product, zero), dimensions={0,1}, to_apply=add
  top = f32[16] reduce(p, least), dimensions={1}, to_apply=max
  tops = f32[16,32] broadcast(top), dimensions={0}
  less = f32[16,32] subtract(p, tops)
  e = f32[16,32] exponential(less)
  sum = f32[16] reduce(e, zero), dimensions={1}, to_apply=add
  sums = f32[16,32] broadcast(sum), dimensions={0}
  share = f32[16,32] divide(e, sums)
  ROOT t = (f32[], f32[16,32]) tuple(total, share)
}

ENTRY e {
  p = f32[16,32] parameter(0)
  q = f32[16,32] parameter(1)
  ROOT f = (f32[], f32[16,32]) fusion(p, q), kind=kInput, calls=both
}
"""


def test_threads_that_leave_a_segment_stay_in_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A total takes one warp of blocks that have two for rows of a softmax."""
    p, q = np.random.default_rng(0).standard_normal((2, 16, 32)).astype(np.float32)
    (_, found), text = run_on_host(TWO_WIDTHS, p, q, monkeypatch=monkeypatch)
    e = np.exp(p - p.max(1, keepdims=True))
    np.testing.assert_allclose(found, e / e.sum(1, keepdims=True), rtol=1e-5)
    assert "blockIdx.x >= 1" in text and "hlo_left" not in text


@pytest.mark.parametrize("inner", [96, 8, 40, 97])
def test_threads_side_by_side_are_in_one_row(inner: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a fold goes over several dimensions, and the last one is no multiple of a warp: their elements are then
    neighbours, and none of them asks for its row."""
    x = np.random.default_rng(0).integers(-9, 9, (16, 16, inner)).astype(np.float32)
    body = reduced("f32", "add", "0", f"16,16,{inner}", "0,2", "16")
    found, text = run_on_host(body, x, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, x.sum((0, 2)))
    by_lane = [line for line in text.splitlines() if line.lstrip().startswith("const long long ")]
    assert any(f"(column) % {inner})" in line for line in by_lane) == (inner == 97)


def test_threads_of_a_row_keep_what_they_fold_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a warp walks a row and 8 of its threads go side by side: each has a maximum of its own."""
    x = -100 * np.arange(2 * 8 * 40, dtype=np.float32).reshape(1, 2, 8, 40)
    body = REDUCER.format(t="f32", op="maximum") + (
        "ENTRY e {\n  p = f32[1,2,8,40] parameter(0)\n  z = f32[] constant(-inf)\n  i = s32[1,2,8,40] iota(), "
        "iota_dimension=3\n  f = f32[1,2,8,40] convert(i)\n  a = f32[1,2,8,40] add(p, f)\n"
        "  ROOT r = f32[1,2] reduce(a, z), dimensions={2,3}, to_apply=fold\n}\n"
    )
    found, _ = run_on_host(body, x, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, (x + np.arange(40)).max((2, 3)))


PAIRS = """f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}

ENTRY e {
  x = f32[50,32] parameter(0)
  y = f32[60,32] parameter(1)
  xs = f32[50,60,32] broadcast(x), dimensions={0,2}
  ys = f32[50,60,32] broadcast(y), dimensions={1,2}
  d = f32[50,60,32] subtract(xs, ys)
  q = f32[50,60,32] multiply(d, d)
  z = f32[] constant(0)
  ROOT s = f32[50,60] reduce(q, z), dimensions={2}, to_apply=f
}
"""


def test_rows_whose_numbers_are_divided_go_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen lanes have a row: of several rows side by side, each element would be gathered."""
    generator = np.random.default_rng(0)
    x, y = (generator.standard_normal((n, 32)).astype(np.float32) for n in (50, 60))
    found, text = run_on_host(PAIRS, x, y, monkeypatch=monkeypatch)
    np.testing.assert_allclose(found, ((x[:, None] - y) ** 2).sum(-1), rtol=1e-5)
    before = text[: text.index("/ 60;")]
    loop = before[before.rindex("#pragma omp simd") :]
    assert "hlo_lane < 16;" in loop and "own_row = blockIdx.x * 16 + hlo_group;" in loop  # all lanes have the same row


@pytest.mark.parametrize(("before", "after"), [("p", "s"), ("q", "s"), ("p", "t"), ("q", "t")])
def test_what_takes_long_is_not_done_in_turns(before: str, after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of a scan go one after another; a remainder before and an exponential behind it side by side."""
    text = f"""f {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}}

ENTRY e {{
  p = f32[4,1000] parameter(0)
  c = f32[] constant(3)
  cs = f32[4,1000] broadcast(c), dimensions={{}}
  q = f32[4,1000] remainder(p, cs)
  z = f32[] constant(0)
  s = f32[4,1000] reduce-window({before}, z), window={{size=1x1000 pad=0_0x999_0}}, to_apply=f
  t = f32[4,1000] exponential(s)
  ROOT u = f32[4,1000] negate({after})
}}
"""
    x = np.random.default_rng(0).uniform(-0.004, 4, (4, 1000)).astype(np.float32) / 1000
    found, written = run_on_host(text, x, monkeypatch=monkeypatch)
    sums = np.cumsum(np.fmod(x, np.float32(3)) if before == "q" else x, 1)
    np.testing.assert_allclose(found, -(np.exp(sums) if after == "t" else sums), rtol=1e-4, atol=1e-5)
    loops = [part for part in written.split("for (long long hlo_first") if "handed0[0] =" in part]
    assert loops and all("fmodf" not in part and "expf" not in part for part in loops)


@pytest.mark.parametrize(("columns", "beside"), [(48, 16), (64, 32), (24, 8)])
def test_threads_side_by_side_have_the_same_digits(columns: int, beside: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of which a warp has several rows, or of which several have the same factor."""
    body = f"""f {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}}

ENTRY e {{
  x = f32[7,100,{columns}] parameter(0)
  y = f32[7,100] parameter(1)
  w = f32[7,100,{columns}] broadcast(y), dimensions={{0,1}}
  p = f32[7,100,{columns}] multiply(x, w)
  z = f32[] constant(0)
  ROOT s = f32[7,{columns}] reduce(p, z), dimensions={{1}}, to_apply=f
}}
"""
    generator = np.random.default_rng(0)
    x, y = (generator.standard_normal(shape).astype(np.float32) for shape in ((7, 100, columns), (7, 100)))
    found, text = run_on_host(body, x, y, monkeypatch=monkeypatch)
    np.testing.assert_allclose(found, (x * y[..., None]).sum(1), rtol=1e-4, atol=1e-4)
    loop = text[text.index("hlo_base0 +=") : text.index("in1[")]
    assert f"hlo_first += {beside})" in loop and f"% {columns}" not in loop


@pytest.mark.parametrize("sizes", [(40, 50, 60), (16, 512, 20), (5, 200, 12)])
def test_a_row_and_a_column_make_a_place_again(sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Several rows of few columns go side by side: the place is that of the thread, which no gather reads."""
    x = np.random.default_rng(0).standard_normal(sizes).astype(np.float32)
    shape, kept = ",".join(map(str, sizes)), f"{sizes[0]},{sizes[2]}"
    found, text = run_on_host(reduced("f32", "maximum", "-inf", shape, "1", kept), x, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, x.max(1))
    places = re.findall(r"= in0\[(.*)\];", text)
    assert places
    assert all("hlo_lane" in place and "%" not in place for place in places)
