"""Row reductions on the host, whose fibres honour barriers and shuffles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_modules import ARGMAX_STEP

from hlo_opt.analysis.targets import InLanes
from hlo_opt.codegen import emit_kernel
from tests.codegen.conftest import Tool
from tests.small_modules import H100

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


def row_sum(rows: int, columns: int, element_type: str = "f32", init: str = "0", fold: str = "add") -> str:
    return module(
        element_type,
        f"""  p = {element_type}[{rows},{columns}]{{1,0}} parameter(0)
  z = {element_type}[] constant({init})
  ROOT r = {element_type}[{rows}]{{0}} reduce(p, z), dimensions={{1}}, to_apply={fold}
""",
    )


def test_complex_numbers(tool: Any) -> None:
    """Rows of part of a warp, of a warp, of several, of a block, and shared by blocks; a sum read in a second pass."""
    sizes = [(9, 3), (7, 33), (5, 513), (3, 2500), (1, 90_001), (200, 16)]
    texts = [row_sum(rows, columns, kind, "(1, -2)") for kind in ("c64", "c128") for rows, columns in sizes]
    share = module(
        "c64",
        """  p = c64[6,70]{1,0} parameter(0)
  z = c64[] constant((0, 0))
  s = c64[6]{0} reduce(p, z), dimensions={1}, to_apply=add
  b = c64[6,70]{1,0} broadcast(s), dimensions={0}
  ROOT r = c64[6,70]{1,0} subtract(p, b)
""",
    ).replace("maximum", "multiply")  # complex numbers have no order
    texts = [text.replace("maximum", "multiply") for text in texts]
    assert {tool.plan(text).kind for text in (*texts[1:5], share)} == {"row-reduction"}
    tool.all_agree([*texts, share])


@pytest.mark.parametrize(
    ("rows", "columns", "threads", "rows_per_block"),
    [(7, 32, 8, 8), (9, 33, 8, 12), (5, 513, 32, 5), (4, 1100, 96, 2), (3, 2500, 160, 1), (1, 40001, 1024, 1)],
)
def test_sizes(tool: Any, rows: int, columns: int, threads: int, rows_per_block: int) -> None:
    text = row_sum(rows, columns)
    plan = tool.plan(text)
    (segment,) = plan.segments
    assert (segment.kind, (segment.part.rows, segment.part.columns)) == ("row-reduction", (rows, columns))
    assert (segment.part.threads, segment.part.rows_per_block(plan.launch.block)) == (threads, rows_per_block)
    tool.agrees(text, whole=True)


@pytest.mark.sweep
@pytest.mark.parametrize("element_type", ["bf16", "f16", "f64", "s8", "u8", "s16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("fold", ["add", "max"])
def test_types(tool: Any, element_type: str, fold: str) -> None:
    assert tool.plan(row_sum(3, 700, element_type, "0", fold)).kind == "row-reduction"
    tool.agrees(row_sum(3, 700, element_type, "0", fold), whole=True)


@pytest.mark.parametrize(
    ("columns", "loop"),
    [
        (2048, "#pragma unroll\n  for (int k0 = 0; k0 < 4; ++k0)"),
        (65536, "#pragma unroll 4\n  for (int k0 = 0; k0 < 16; ++k0)"),
        (16384 + 256, "for (int step = lane; step < 4160; step += 1024)"),
    ],
)
def test_loads_of_several_steps_are_in_flight_where_all_threads_have_them(
    planner: Any, columns: int, loop: str
) -> None:
    assert loop in emit_kernel(planner.plan(row_sum(200, columns))).source


def test_what_rounds_in_its_own_type_keeps_its_order(tool: Any) -> None:
    """A reducer that looks at the bits of a narrow float is not computed in f32."""
    text = """HloModule m
f {
  a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  c = u16[] bitcast-convert(a)
  d = bf16[] bitcast-convert(c)
  ROOT e = bf16[] add(d, b)
}
ENTRY e {
  p = bf16[3,700]{1,0} parameter(0)
  z = bf16[] constant(0)
  ROOT r = bf16[3]{0} reduce(p, z), dimensions={1}, to_apply=f
}
"""
    assert tool.plan(text).kind == "loop"
    tool.agrees(text, whole=True)


@pytest.mark.parametrize("init", ["0", "5", "-1"])
def test_init_enters_once_per_row(tool: Any, init: str) -> None:
    tool.agrees(row_sum(6, 77, init=init), whole=True)
    tool.agrees(row_sum(2, 900, init=init), whole=True)


def test_init_read_from_memory_enters_once(tool: Any) -> None:
    text = module(
        "f32",
        """  p = f32[5,600]{1,0} parameter(0)
  z = f32[] parameter(1)
  ROOT r = f32[5]{0} reduce(p, z), dimensions={1}, to_apply=add
""",
    )
    data = np.arange(3000, dtype=np.float32).reshape(5, 600)
    (got,) = tool.run(text, [data, np.float32(1000)])
    np.testing.assert_array_equal(got, data.sum(1) + 1000)


def test_minimum_of_negative_zero_rows_keeps_nan(tool: Any) -> None:
    data = np.full((4, 100), -3, np.float32)
    data[2, 71] = np.nan
    (got,) = tool.run(row_sum(4, 100, init="-inf", fold="max"), [data])
    np.testing.assert_array_equal(got, np.array([-3, -3, np.nan, -3], np.float32))


def test_pred(tool: Any) -> None:
    text = """HloModule m
or {
  a = pred[] parameter(0)
  b = pred[] parameter(1)
  ROOT c = pred[] or(a, b)
}
ENTRY e {
  p = pred[40,70]{1,0} parameter(0)
  z = pred[] constant(false)
  ROOT r = pred[40]{0} reduce(p, z), dimensions={1}, to_apply=or
}
"""
    data = np.zeros((40, 70), np.bool_)
    data[5, 69] = data[39, 0] = True
    tool.agrees(text, inputs=[data])


def test_dimensions_follow_the_layout(tool: Any) -> None:
    text = module(
        "f32",
        """  p = f32[64,3,50,5]{2,0,3,1} parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[3,5]{0,1} reduce(p, z), dimensions={0,2}, to_apply=add
""",
    )
    assert tool.plan(text).segments[0].part.columns == 3200
    tool.agrees(text, whole=True)


def test_major_reduced_dimension_joins(tool: Any) -> None:
    text = module(
        "s32",
        """  p = s32[4,6,40]{2,1,0} parameter(0)
  z = s32[] constant(0)
  ROOT r = s32[6]{0} reduce(p, z), dimensions={0,2}, to_apply=add
""",
    )
    assert tool.plan(text).segments[0].part.columns == 160
    tool.agrees(text)


def test_columns_that_are_short_are_a_loop(tool: Any) -> None:
    text = module(
        "f32",
        """  p = f32[6,9]{1,0} parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[9]{0} reduce(p, z), dimensions={0}, to_apply=add
""",
    )
    assert tool.plan(text).kind == "loop"
    tool.agrees(text, whole=True)


def test_neighbours_that_are_computed_are_of_different_threads(tool: Any) -> None:
    """No array lies along a row: there is nothing to read in vectors, and threads read side by side what they compute
    elements from. They are so many that they fill the device."""
    text = """HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY e {
  x = f32[COUNT,3]{1,0} parameter(0)
  y = f32[OTHERS,3]{1,0} parameter(1)
  a = f32[COUNT,OTHERS,3]{2,1,0} broadcast(x), dimensions={0,2}
  b = f32[COUNT,OTHERS,3]{2,1,0} broadcast(y), dimensions={1,2}
  d = f32[COUNT,OTHERS,3]{2,1,0} subtract(a, b)
  q = f32[COUNT,OTHERS,3]{2,1,0} multiply(d, d)
  z = f32[] constant(0)
  r = f32[COUNT,OTHERS]{1,0} reduce(q, z), dimensions={2}, to_apply=add
  t = f32[COUNT,OTHERS]{1,0} sqrt(r)
  ROOT s = f32[COUNT]{0} reduce(t, z), dimensions={1}, to_apply=add
}
"""
    sizes = {(200, 256): 256, (40, 300): 288, (9, 70): 64, (3000, 1000): 96}
    texts = [text.replace("COUNT", str(count)).replace("OTHERS", str(others)) for count, others in sizes]
    parts = [tool.plan(t).segments[0].part for t in texts]
    assert [(part.threads, part.vector) for part in parts] == [(threads, 1) for threads in sizes.values()]
    tool.all_agree(texts[:3], relative=1e-5)


def test_prologue_epilogue_and_several_outputs(tool: Any) -> None:
    text = module(
        "f32",
        """  p = f32[6,130]{1,0} parameter(0)
  q = f32[130]{0} parameter(1)
  z = f32[] constant(0)
  low = f32[] constant(-inf)
  b = f32[6,130]{1,0} broadcast(q), dimensions={1}
  x = f32[6,130]{1,0} add(p, b)
  s = f32[6]{0} reduce(x, z), dimensions={1}, to_apply=add
  t = f32[6]{0} reduce(p, low), dimensions={1}, to_apply=max
  d = f32[6]{0} subtract(s, t)
  v = f32[2,3]{1,0} reshape(d)
  ROOT r = (f32[2,3]{1,0}, f32[6,130]{1,0}, f32[6]{0}, f32[780]{0}) tuple(v, x, t, flat)
""".replace("  ROOT", "  flat = f32[780]{0} reshape(x)\n  ROOT"),
    )
    (segment,) = tool.plan(text).segments
    assert segment.kind == "row-reduction"
    assert [len(level) for level in segment.part.levels] == [2]
    tool.agrees(text, whole=True)


def test_rows_of_an_updated_array(tool: Any) -> None:
    """The start of a slice stands before the elements of a vector: lanes keep what they took with it."""
    text = module(
        "f32",
        """  p = f32[64,128]{1,0} parameter(0)
  q = f32[1,128]{1,0} parameter(1)
  i = s32[] parameter(2)
  o = s32[] constant(0)
  z = f32[] constant(0)
  x = f32[64,128]{1,0} dynamic-update-slice(p, q, i, o)
  s = f32[64]{0} reduce(x, z), dimensions={1}, to_apply=add
  b = f32[64,128]{1,0} broadcast(s), dimensions={0}
  d = f32[64,128]{1,0} subtract(x, b)
  ROOT r = (f32[64,128]{1,0}, f32[64,128]{1,0}) tuple(x, d)
""",
    )
    assert tool.plan(text).kind == "row-reduction"
    tool.agrees(text, whole=True)


SOFTMAX = module(
    "f32",
    """  p = f32[5,300]{1,0} parameter(0)
  z = f32[] constant(0)
  low = f32[] constant(-inf)
  m = f32[5]{0} reduce(p, low), dimensions={1}, to_apply=max
  mb = f32[5,300]{1,0} broadcast(m), dimensions={0}
  x = f32[5,300]{1,0} subtract(p, mb)
  e = f32[5,300]{1,0} exponential(x)
  s = f32[5]{0} reduce(e, z), dimensions={1}, to_apply=add
  sb = f32[5,300]{1,0} broadcast(s), dimensions={0}
  ROOT r = f32[5,300]{1,0} divide(e, sb)
""",
)


def test_softmax_is_one_kernel_of_two_levels(tool: Any) -> None:
    (segment,) = tool.plan(SOFTMAX).segments
    assert [len(level) for level in segment.part.levels] == [1, 1]
    tool.agrees(SOFTMAX, relative=1e-6)


def test_result_read_at_another_row_is_no_row_reduction(tool: Any) -> None:
    text = module(
        "f32",
        """  p = f32[6,40]{1,0} parameter(0)
  z = f32[] constant(0)
  s = f32[6]{0} reduce(p, z), dimensions={1}, to_apply=add
  ROOT r = f32[6]{0} reverse(s), dimensions={0}
""",
    )
    assert tool.plan(text).kind == "loop"
    tool.agrees(text, whole=True)


ARGMAX = f"""HloModule m
{ARGMAX_STEP}ENTRY e {{
  p = f32[9,COLUMNS]{{1,0}} parameter(0)
  n = s32[9,COLUMNS]{{1,0}} iota(), iota_dimension=1
  low = f32[] constant(-inf)
  z = s32[] constant(2147483647)
  r = (f32[9]{{0}}, s32[9]{{0}}) reduce(p, n, low, z), dimensions={{1}}, to_apply=argmax
  k = s32[9]{{0}} get-tuple-element(r), index=1
  ROOT o = (s32[9]{{0}}, (f32[9]{{0}}, s32[9]{{0}})) tuple(k, r)
}}
"""


@pytest.mark.parametrize("columns", [50, 2000, 2003])
def test_variadic(tool: Any, columns: int) -> None:
    """A thread that walks to the right does not compare places; the ends of a row that is peeled it takes last."""
    text = ARGMAX.replace("COLUMNS", str(columns))
    assert tool.plan(text).kind == "row-reduction" and "& true" in tool.kernel(text).source
    data = np.random.default_rng(0).integers(-3, 4, (9, columns)).astype(np.float32)
    k, x, again = tool.run(text, [data])
    np.testing.assert_array_equal(k, data.argmax(1))
    np.testing.assert_array_equal(x, data.max(1))
    np.testing.assert_array_equal(again, k)


def test_short_rows_share_a_warp(tool: Any) -> None:
    """Rows of 4 to 127 elements, and how many neighbouring ones a thread folds; some of fewer than eight are loops."""
    cases = {(100, 4): (2, 2), (77, 8): (4, 2), (1, 16): (4, 4), (33, 64): (4, 16)}
    cases |= {(50, 12): (4, 2), (40, 31): (1, 4), (33, 9): (1, 2), (1, 20): (4, 2), (3, 127): (1, 16), (7, 100): (4, 8)}
    for (rows, columns), (vector, threads) in cases.items():
        plan = tool.plan(row_sum(rows, columns))
        (segment,) = plan.segments
        assert (segment.kind, segment.vector, segment.part.threads) == ("row-reduction", vector, threads)
        assert segment.part.rows_per_block(plan.launch.block) * threads % 32 == 0
    others = [(100, 2), (9, 1), (50, 3), (5, 7)]
    assert {tool.plan(row_sum(*sizes)).kind for sizes in others} == {"loop"}
    texts = [row_sum(*sizes, init="5") for sizes in (*cases, *others)]
    texts += [row_sum(70, n, t) for n in (16, 21) for t in ("s8", "f64", "s64", "u16", "s32")]
    texts += [row_sum(70, n, t, "-inf", "max") for n in (16, 63) for t in ("bf16", "f16", "f64")]
    tool.all_agree(texts)


@pytest.mark.parametrize(("columns", "threads"), [(16, 4), (3, 2), (10, 2), (21, 4), (33, 8), (50, 4)])
def test_softmax_of_short_rows(tool: Any, columns: int, threads: int) -> None:
    text = SOFTMAX.replace("[5,300]", f"[45,{columns}]").replace("f32[5]", "f32[45]")
    (segment,) = tool.plan(text).segments
    assert (segment.part.threads, len(segment.part.levels)) == (threads, 2)
    tool.agrees(text, relative=1e-6)


def test_variadic_short_rows(tool: Any) -> None:
    text = ARGMAX.replace("COLUMNS", "8")
    assert tool.plan(text).kind == "row-reduction"
    data = np.random.default_rng(0).integers(-3, 4, (9, 8)).astype(np.float32)
    k, x, _ = tool.run(text, [data])
    np.testing.assert_array_equal(k, data.argmax(1))
    np.testing.assert_array_equal(x, data.max(1))


@pytest.mark.parametrize("columns", [3, 10, 21, 31])
def test_lanes_of_a_host_share_short_rows_that_are_read_again(columns: int) -> None:
    """In a loop, each element would sum its row again."""
    host = Tool("lanes", target=InLanes.of(H100))
    text = SOFTMAX.replace("[5,300]", f"[45,{columns}]").replace("f32[5]", "f32[45]")
    assert host.plan(text).kind == "row-reduction" and host.plan(row_sum(45, columns)).kind == "loop"
    host.agrees(text, relative=1e-6)
