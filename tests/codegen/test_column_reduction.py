"""Column reductions on the host, against the NumPy meaning."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hlo_opt
from hlo_opt.analysis.targets import InLanes
from hlo_opt.codegen.lanes import lanes_unit
from hlo_opt.plans.column_reduction import space_of
from hlo_opt.runtime.host.library import has_compiler
from tests.codegen.conftest import Tool
from tests.host_text import run_on_host
from tests.small_modules import ARGMAX_STEP, H100

FOLDS = """
add {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT c = {t}[] add(a, b)
}}

max {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT c = {t}[] maximum(a, b)
}}
"""


def module(element_type: str, body: str) -> str:
    return f"HloModule m\n{FOLDS.format(t=element_type)}\nENTRY e {{\n{body}}}\n"


def columns(sizes: Sequence[int], element_type: str = "f32", init: str = "0", fold: str = "add") -> str:
    """A fold of the middle dimension."""
    a, r, c = sizes
    return module(
        element_type,
        f"""  p = {element_type}[{a},{r},{c}]{{2,1,0}} parameter(0)
  z = {element_type}[] constant({init})
  ROOT r = {element_type}[{a},{c}]{{1,0}} reduce(p, z), dimensions={{1}}, to_apply={fold}
""",
    )


def test_sizes_around_the_edges_of_tiles(tool: Any) -> None:
    sizes = [
        *[(1, r, 40) for r in (32, 33, 63, 64, 65, 127, 128, 129, 511, 513, 1025)],
        *[(2, 64, c) for c in (31, 32, 33, 62, 63, 64, 65, 66, 127, 128, 130)],
        *[(3, 257, c) for c in (2, 3, 4, 5, 7, 8, 16, 17, 29)],
        (1, 2000, 32),  # one tile: narrower ones, more blocks
        (1, 1031, 6),
        (150, 33, 64),  # blocks enough to give each thread two columns
        (140, 40, 66),
    ]
    texts = [columns(s) for s in sizes]
    assert {tool.plan(text).kind for text in texts} == {"column-reduction"}
    assert {tool.plan(columns(s)).segments[0].vector for s in sizes[-2:]} == {2}
    tool.all_agree(texts)


def test_how_columns_are_divided(planner: Any) -> None:
    def tile(*sizes: int) -> tuple[int, int, int, int]:
        (segment,) = planner.plan(columns(sizes)).segments
        return segment.vector, segment.part.tile.lanes, segment.part.tile.ways, segment.blocks

    assert tile(1, 4096, 20_000) == (4, 32, 32, 157)
    assert tile(1000, 64, 8) == (1, 8, 16, 1000)
    assert tile(1, 1_000_000, 32) == (1, 32, 32, 256), "256 blocks share 32 columns"
    assert tile(200, 4096, 5) == (1, 5, 128, 200)
    narrow = planner.plan(columns((1, 1_000_000, 8), "bf16", init="-inf", fold="max")).segments[0]
    assert (narrow.vector, narrow.part.tile.lanes, narrow.part.tile.ways) == (2, 4, 256), "4 bytes for a thread"


def test_types(tool: Any) -> None:
    texts = []
    for element_type in ("f32", "f64", "s8", "u8", "s16", "s32", "u32", "s64", "u64", "c64", "c128"):
        for c in (5, 70):
            texts.append(columns((2, 130, c), element_type, "(3, 1)" if element_type[0] == "c" else "3"))
            if element_type[0] != "c":
                texts.append(columns((2, 130, c), element_type, "1", "max"))
    texts += [columns((1, 70, 256), t, "-inf", "max") for t in ("bf16", "f16")]
    texts.append(columns((140, 33, 256), "s8"))
    segments = [tool.plan(text).segments[0] for text in texts]
    assert {s.kind for s in segments} == {"column-reduction"}
    assert segments[-1].vector == 8
    tool.all_agree(texts)


@pytest.mark.parametrize("element_type", ["bf16", "f16"])
def test_sums_of_narrow_floats_are_summed_in_f32(tool: Any, element_type: str) -> None:
    """In its own type a sum of 16,384 ones would stand still at 256 or 2,048."""
    text = columns((1, 16384, 64), element_type)
    assert tool.plan(text).kind == "column-reduction"
    (got,) = tool.run(
        text, [np.ones((1, 16384, 64), dtype=ml_dtypes.bfloat16 if element_type == "bf16" else np.float16)]
    )
    assert np.all(got.astype(np.float32) == 16384)


def test_pred(tool: Any) -> None:
    tool.agrees(
        """HloModule m
or {
  a = pred[] parameter(0)
  b = pred[] parameter(1)
  ROOT c = pred[] or(a, b)
}
ENTRY e {
  p = pred[70,40]{1,0} parameter(0)
  z = pred[] constant(false)
  ROOT r = pred[40]{0} reduce(p, z), dimensions={0}, to_apply=or
}
"""
    )


def test_empty_and_single(tool: Any) -> None:
    texts = [columns(s) for s in ((0, 64, 64), (2, 0, 64), (2, 64, 0), (64, 1, 64), (1, 1, 1))]
    assert {tool.plan(text).kind for text in texts} == {"loop"}
    tool.all_agree(texts)


def test_layouts_decide_what_a_column_is(tool: Any) -> None:
    text = module(
        "f32",
        """  p = f32[5,9,40,3]{1,3,0,2} parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[9,3]{0,1} reduce(p, z), dimensions={0,2}, to_apply=add
""",
    )
    (segment,) = tool.plan(text).segments
    assert (segment.kind, segment.part.sizes) == ("column-reduction", (1, 200, 27))
    tool.agrees(text, whole=True)


def test_prologue_epilogue_and_side_outputs(tool: Any) -> None:
    """Two reductions share a pass; an output of the operand's size is written on the way, one in other dimensions
    too."""
    text = module(
        "f32",
        """  p = f32[3,100,70]{2,1,0} parameter(0)
  q = f32[70]{0} parameter(1)
  z = f32[] constant(2)
  low = f32[] constant(-inf)
  b = f32[3,100,70]{2,1,0} broadcast(q), dimensions={2}
  x = f32[3,100,70]{2,1,0} add(p, b)
  s = f32[3,70]{1,0} reduce(x, z), dimensions={1}, to_apply=add
  t = f32[3,70]{1,0} reduce(p, low), dimensions={1}, to_apply=max
  d = f32[3,70]{1,0} subtract(s, t)
  v = f32[7,30]{1,0} reshape(d)
  flat = f32[21000]{0} reshape(x)
  ROOT r = (f32[7,30]{1,0}, f32[3,100,70]{2,1,0}, f32[3,70]{1,0}, f32[21000]{0}) tuple(v, x, t, flat)
""",
    )
    (segment,) = tool.plan(text).segments
    assert [len(level) for level in segment.part.levels] == [2]
    tool.agrees(text, whole=True)


def softmax(a: int, r: int, c: int) -> str:
    return module(
        "f32",
        f"""  p = f32[{a},{r},{c}]{{2,1,0}} parameter(0)
  z = f32[] constant(0)
  low = f32[] constant(-inf)
  m = f32[{a},{c}]{{1,0}} reduce(p, low), dimensions={{1}}, to_apply=max
  mb = f32[{a},{r},{c}]{{2,1,0}} broadcast(m), dimensions={{0,2}}
  x = f32[{a},{r},{c}]{{2,1,0}} subtract(p, mb)
  e = f32[{a},{r},{c}]{{2,1,0}} exponential(x)
  s = f32[{a},{c}]{{1,0}} reduce(e, z), dimensions={{1}}, to_apply=add
  sb = f32[{a},{r},{c}]{{2,1,0}} broadcast(s), dimensions={{0,2}}
  ROOT o = f32[{a},{r},{c}]{{2,1,0}} divide(e, sb)
""",
    )


def test_softmax_of_columns_is_one_kernel_of_two_levels(tool: Any) -> None:
    texts = [softmax(2, 130, 33), softmax(1, 300, 5), softmax(140, 33, 64), softmax(3, 10, 71), softmax(2, 3, 260)]
    for text in texts:
        (segment,) = tool.plan(text).segments
        assert (segment.kind, [len(level) for level in segment.part.levels]) == ("column-reduction", [1, 1])
    tool.all_agree(texts, relative=1e-5)


def test_a_thread_keeps_its_elements_of_a_column(tool: Any) -> None:
    """Each is loaded once, by a thread of its own or by several that share the column; a long column is read again."""
    few = replace(tool, target=replace(tool.target, core_count=1))
    for sizes, ways in (((2, 9, 1030), 1), ((3, 100, 71), 4), ((1, 20000, 64), 0)):
        text = softmax(*sizes)
        part = few.plan(text).segments[0].part
        assert (part.keeps, part.tile.ways if part.keeps else 0) == (ways > 0, ways)
        assert ("kept_" in few.kernel(text).source) == part.keeps
        few.agrees(text, relative=1e-5)
        few.agrees(text.replace("f32", "f64"), relative=1e-5)


def test_lanes_of_a_host_share_short_columns_that_are_read_again() -> None:
    host = Tool("lanes", target=InLanes.of(H100))
    assert host.plan(softmax(3, 10, 71)).kind == "column-reduction"
    host.agrees(softmax(3, 10, 71), relative=1e-5)


@pytest.mark.parametrize(("summed", "kind"), [("multiply(p, p)", "loop"), ("exponential(p)", "column-reduction")])
def test_lanes_of_a_host_sum_short_columns_again_where_no_function_is_summed(summed: str, kind: str) -> None:
    text = module(
        "f32",
        f"""  p = f32[3,10,71]{{2,1,0}} parameter(0)
  z = f32[] constant(0)
  e = f32[3,10,71]{{2,1,0}} {summed}
  s = f32[3,71]{{1,0}} reduce(e, z), dimensions={{1}}, to_apply=add
  sb = f32[3,10,71]{{2,1,0}} broadcast(s), dimensions={{0,2}}
  ROOT o = f32[3,10,71]{{2,1,0}} divide(e, sb)
""",
    )
    host = Tool("lanes", target=InLanes.of(H100))
    assert host.plan(text).kind == kind
    host.agrees(text, relative=1e-5)


def test_short_columns_that_are_read_once_are_loops_where_they_fill_the_device(tool: Any) -> None:
    for sizes in ((200_000, 10, 3), (3, 7, 71), (1000, 20, 640)):
        assert tool.plan(columns(sizes)).kind == "loop"
    few = [columns(s, t) for s in ((3, 10, 71), (500, 48, 3), (9, 8, 2), (40, 31, 16)) for t in ("f32", "bf16")]
    assert {tool.plan(text).kind for text in few} == {"column-reduction"}
    tool.all_agree([*few, columns((7, 40, 3), "c64", "(3, 1)"), columns((7, 40, 3), "s8", "1", "max")])


def test_short_columns_of_few_are_read_again(tool: Any) -> None:
    """Beside each other, they are fewer than a warp: of a softmax over a particle's neighbours, for each direction."""
    texts = [softmax(*sizes) for sizes in ((3, 10, 20), (500, 48, 3), (4, 33, 2))]
    assert {tool.plan(text).kind for text in texts} == {"column-reduction"}
    for text in texts:
        tool.agrees(text, relative=1e-5)
    assert Tool("lanes", target=InLanes.of(H100)).plan(texts[1]).kind == "loop"


def forces(count: int, others: int, across: int, element_type: str = "f32") -> str:
    """A sum over rows of vectors, each times a function of its row."""
    sizes = f"{element_type}[{count},{others}"
    return module(
        element_type,
        f"""  d = {sizes},{across}]{{2,1,0}} parameter(0)
  r = {sizes}]{{1,0}} parameter(1)
  w = {sizes}]{{1,0}} tanh(r)
  b = {sizes},{across}]{{2,1,0}} broadcast(w), dimensions={{0,1}}
  f = {sizes},{across}]{{2,1,0}} multiply(d, b)
  z = {element_type}[] constant(0)
  ROOT s = {element_type}[{count},{across}]{{1,0}} reduce(f, z), dimensions={{1}}, to_apply=add
""",
    )


def test_a_thread_folds_all_columns_of_a_row_that_share_what_is_computed(tool: Any) -> None:
    """The function is computed once for a row, and the price says so; where nothing is, lanes have a column each."""
    texts = [forces(*s) for s in ((40, 48, 3), (300, 17, 2), (200, 300, 4), (3, 50_000, 3), (200, 64, 8))]
    for text in texts:
        (segment,) = tool.plan(text).segments
        assert (segment.part.kind, segment.part.tile.lanes) == ("column-reduction", 1)
        assert len(re.findall(r"= \w*tanh\w*\(", tool.kernel(text).source.partition("__global__")[2])) == 1
    assert tool.plan(texts[3]).segments[0].part.parts > 1
    assert tool.plan(forces(40, 48, 3).replace("tanh", "reshape")).segments[0].part.tile.lanes == 3
    assert tool.plan(forces(200, 64, 9)).segments[0].part.tile.lanes == 9
    tool.all_agree([*texts, forces(40, 48, 3, "bf16"), forces(40, 48, 3, "f64")], relative=1e-5)


ARGMAX = f"""HloModule m
{ARGMAX_STEP}ENTRY e {{
  p = f32[300,COLUMNS]{{1,0}} parameter(0)
  n = s32[300,COLUMNS]{{1,0}} iota(), iota_dimension=0
  low = f32[] constant(-inf)
  z = s32[] constant(2147483647)
  r = (f32[COLUMNS]{{0}}, s32[COLUMNS]{{0}}) reduce(p, n, low, z), dimensions={{0}}, to_apply=argmax
  k = s32[COLUMNS]{{0}} get-tuple-element(r), index=1
  ROOT o = (s32[COLUMNS]{{0}}, (f32[COLUMNS]{{0}}, s32[COLUMNS]{{0}})) tuple(k, r)
}}
"""


def test_variadic(tool: Any) -> None:
    texts = [ARGMAX.replace("COLUMNS", str(c)) for c in (4, 65)]
    assert {tool.plan(text).kind for text in texts} == {"column-reduction"}
    tool.all_agree(texts)


def test_columns_beside_rows_and_loops(tool: Any) -> None:
    """Sums over either dimension, and a slice, in one launch: the threads that a segment does not need leave before its
    barriers."""
    text = module(
        "f32",
        """  p = f32[70,96]{1,0} parameter(0)
  z = f32[] constant(0)
  r = f32[70]{0} reduce(p, z), dimensions={1}, to_apply=add
  c = f32[96]{0} reduce(p, z), dimensions={0}, to_apply=add
  s = f32[70,5]{1,0} slice(p), slice={[0:70], [3:8]}
  q = f32[300,5]{1,0} parameter(1)
  d = f32[5]{0} reduce(q, z), dimensions={0}, to_apply=add
  ROOT o = (f32[70]{0}, f32[96]{0}, f32[70,5]{1,0}, f32[5]{0}) tuple(r, c, s, d)
""",
    )
    kinds = sorted(segment.kind for segment in tool.plan(text).segments)
    assert kinds == ["column-reduction", "column-reduction", "loop", "row-reduction"]
    tool.agrees(text, whole=True)


def many_sums(count: int) -> str:
    lines, roots = ["  z = f64[] constant(0)\n"], []
    for k in range(count):
        lines.append(f"  p{k} = f64[200,64]{{1,0}} parameter({k})\n")
        lines.append(f"  sum{k} = f64[64]{{0}} reduce(p{k}, z), dimensions={{0}}, to_apply=add\n")
        roots.append(f"sum{k}")
    shapes = ", ".join(["f64[64]{0}"] * count)
    return module("f64", "".join(lines) + f"  ROOT r = ({shapes}) tuple({', '.join(roots)})\n")


def test_shared_memory_is_never_more_than_a_block_has(tool: Any) -> None:
    """Twenty segments with tables of their own: those that find no room are loops."""
    text = many_sums(20)
    found = tool.plan(text)
    assert found.launch.shared_bytes <= 48 * 1024
    assert {segment.kind for segment in found.segments} == {"column-reduction", "loop"}
    tool.agrees(text, whole=True)


@pytest.mark.parametrize("dimensions", ["0,2", "1"])
def test_space(planner: Any, dimensions: str) -> None:
    """Reduced dimensions that lie apart, with a kept one fastest, are no columns."""
    kept = {"0,2": "30,20", "1": "50,40,20"}[dimensions]
    order = ",".join(str(d) for d in reversed(range(kept.count(",") + 1)))
    text = module(
        "f32",
        f"""  p = f32[50,30,40,20]{{3,2,1,0}} parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[{kept}]{{{order}}} reduce(p, z), dimensions={{{dimensions}}}, to_apply=add
""".replace("[50,30,40,20]", "[50,64,40,20]").replace("[30,20]", "[64,20]"),
    )
    (root,) = planner.region(text).roots
    space = space_of(root)
    assert (None if space is None else (space.kept, space.reduced, space.minor)) == (
        None if dimensions == "0,2" else (50 * 800, 64, 800)
    )


@st.composite
def column_modules(draw: st.DrawFn) -> str:
    element_type = draw(st.sampled_from(["f32", "f64", "s32", "u8", "s64"]))
    edges = st.sampled_from([1, 2, 3, 31, 32, 33, 64, 65, 127])
    a, c = draw(st.integers(1, 3)), draw(edges)
    r = draw(st.one_of(edges, st.integers(200, 600)))
    fold, init = draw(st.sampled_from(["add", "max"])), draw(st.sampled_from(["0", "5"]))
    t = element_type
    side = draw(st.booleans())
    tail = (
        f"  ROOT o = ({t}[{a},{c}]{{1,0}}, {t}[{a},{r},{c}]{{2,1,0}}) tuple(n, x)\n"
        if side
        else f"  ROOT o = {t}[{a},{c}]{{1,0}} add(n, s)\n"
    )
    return module(
        t,
        f"""  p = {t}[{a},{r},{c}]{{2,1,0}} parameter(0)
  q = {t}[{a},{c}]{{1,0}} parameter(1)
  b = {t}[{a},{r},{c}]{{2,1,0}} broadcast(q), dimensions={{0,2}}
  x = {t}[{a},{r},{c}]{{2,1,0}} subtract(p, b)
  z = {t}[] constant({init})
  s = {t}[{a},{c}]{{1,0}} reduce(x, z), dimensions={{1}}, to_apply={fold}
  n = {t}[{a},{c}]{{1,0}} add(s, q)
{tail}""",
    )


@settings(
    max_examples=2,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(texts=st.lists(column_modules(), min_size=12, max_size=12))
def test_random_columns(tool: Any, texts: list[str]) -> None:
    tool.all_agree(texts)


@pytest.mark.filterwarnings("error")  # a complex init value is compared as it is
def test_the_largest_complex_number(tool: Any) -> None:
    tool.agrees(
        "HloModule m\n\nmost {\n  x = c64[] parameter(0)\n  y = c64[] parameter(1)\n  ROOT z = c64[] maximum(x, "
        "y)\n}\n\n"
        "ENTRY e {\n  p = c64[40,33] parameter(0)\n  z = c64[] constant((0, 7))\n  ROOT r = c64[33] reduce(p, z), "
        "dimensions={0}, to_apply=most\n}\n"
    )


IN_LANES = Tool("lanes", target=InLanes.of(H100))
"""What a processor runs: columns are divided in another way than for a device."""


def test_columns_as_lanes() -> None:
    sizes = [
        *[(1, r, 40) for r in (1, 2, 33, 64, 1025)],  # several threads below each other
        *[(2, 64, c) for c in (31, 64, 127, 129, 1024, 1025, 1500)],  # tiles that do not come out even
        *[(3, 257, c) for c in (2, 3, 8, 29)],
        *[(1, 4096, c) for c in (1, 6, 100, 1030)],  # blocks that share columns
    ]
    texts = [columns(s, t) for s in sizes for t in ("f32", "bf16") if s[1] < 300 or t == "f32"]
    texts += [columns((2, 130, c), t, "1", "max") for c in (5, 70) for t in ("s8", "f64")]
    texts += [columns((1, 900, 300), "c64", "(3, 1)"), columns((1, 2000, 70), "s32", "7")]
    IN_LANES.all_agree(texts)


def test_columns_as_lanes_that_are_read_again() -> None:
    """A softmax along columns: each pass needs what the one before has found in all threads."""
    text = module(
        "f32",
        """  p = f32[200,300]{1,0} parameter(0)
  low = f32[] constant(-inf)
  z = f32[] constant(0)
  m = f32[300]{0} reduce(p, low), dimensions={0}, to_apply=max
  ms = f32[200,300]{1,0} broadcast(m), dimensions={1}
  d = f32[200,300]{1,0} subtract(p, ms)
  s = f32[300]{0} reduce(d, z), dimensions={0}, to_apply=add
  ss = f32[200,300]{1,0} broadcast(s), dimensions={1}
  ROOT r = f32[200,300]{1,0} subtract(d, ss)
""",
    )
    (segment,) = IN_LANES.plan(text).segments
    assert segment.kind == "column-reduction" and segment.blocks > 1 and len(segment.part.levels) == 2
    IN_LANES.agrees(text, whole=True)


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
def test_lanes_read_odd_columns_as_they_lie() -> None:
    """Threads beyond the last column leave where nobody waits for them: columns cut at the last one would be gathers in
    vector code."""
    text = module(
        "f32",
        """  p = f32[40,777]{1,0} parameter(0)
  z = f32[] constant(0)
  m = f32[777]{0} reduce(p, z), dimensions={0}, to_apply=max
  w = f32[40,777]{1,0} broadcast(m), dimensions={1}
  d = f32[40,777]{1,0} subtract(p, w)
  ROOT r = f32[777]{0} reduce(d, z), dimensions={0}, to_apply=add
""",
    )
    fused, _ = hlo_opt.fuse(hlo_opt.parse(text))
    executable = hlo_opt.compile(fused, "host")
    (kernel,) = executable.schedule.kernels
    body = lanes_unit([kernel]).split("_thread_0(")[1].split('extern "C"')[0]
    assert "hlo_live" in body and "? own_columns" not in body
    x = np.random.default_rng(0).normal(size=(40, 777)).astype(np.float32)
    for got, want in zip(executable(x), hlo_opt.evaluate(hlo_opt.parse(text), [x]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_folds_that_all_rows_share_are_computed_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of a group, which is known in parts, in the sum of squares."""
    body = """f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}

ENTRY e {
  x = f32[500,64] parameter(0)
  parts = f32[8,8] parameter(1)
  z = f32[] constant(0)
  mean = f32[8] reduce(parts, z), dimensions={1}, to_apply=f
  groups = f32[500,8,8] reshape(x)
  means = f32[500,8,8] broadcast(mean), dimensions={1}
  d = f32[500,8,8] subtract(groups, means)
  q = f32[500,8,8] multiply(d, d)
  ROOT s = f32[8,8] reduce(q, z), dimensions={0}, to_apply=f
}
"""
    generator = np.random.default_rng(0)
    x, parts = (generator.standard_normal(shape).astype(np.float32) for shape in ((500, 64), (8, 8)))
    found, text = run_on_host(body, x, parts, monkeypatch=monkeypatch)
    wanted = ((x.reshape(500, 8, 8) - parts.sum(1)[None, :, None]) ** 2).sum(0)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    assert 0 < text.index("in1[") < text.index("hlo_base0") < text.index("in0[")
