"""Rows that begin anywhere in memory: their ends are taken element by element, and vectors between these."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.codegen.test_registers import softmax
from tests.codegen.test_row_reduction import module, row_sum
from tests.small_modules import H100

EDGES = (1, 7, 8, 9, 15, 16, 17)


def vectors(tool: Any, text: str) -> int:
    (segment,) = tool.plan(text).segments
    assert segment.kind == "row-reduction"
    return int(segment.vector) if segment.part.is_peeled else 0


@pytest.mark.parametrize("element_type", ["bf16", "f16", "f32", "f64", "s8", "s32"])
@pytest.mark.sweep
def test_sums_of_rows_of_all_lengths(tool: Any, element_type: str) -> None:
    sizes = [*EDGES, *(256 + n for n in EDGES), *(1024 + n for n in EDGES)]
    tool.all_agree(
        [row_sum(rows, columns, element_type) for rows, columns in zip((1, 3, 5, 9) * 6, sizes, strict=False)]
    )


def test_which_rows_are_peeled(planner: Any) -> None:
    assert [vectors(planner, row_sum(5, n, "bf16")) for n in (255, 256, 262, 263, 265, 50257)] == [0, 0, 0, 8, 8, 8]
    assert vectors(planner, row_sum(5, 1001, "f32")) == 4
    assert vectors(planner, row_sum(5, 1001, "f64")) == 2


def test_every_beginning_of_a_row(tool: Any) -> None:
    """Rows of 1001 begin at each of the eight places, and after several rows in a block the last one has threads
    without a row."""
    tool.all_agree(
        [softmax(rows, columns, "bf16") for rows, columns in ((9, 1001), (9, 1003), (8, 1006), (17, 511))],
        relative=0.02,
    )


@pytest.mark.parametrize("rows", [1, 3])
def test_softmax_of_a_vocabulary(tool: Any, rows: int) -> None:
    text = softmax(rows, 50257, "bf16")
    kernel = tool.kernel(text)
    assert vectors(tool, text) == 8
    assert len(re.findall(r"in0\[", kernel.source)) == 2  # vectors and ends, each once: registers keep the row
    tool.agrees(text, relative=0.02)


def test_rows_that_registers_do_not_keep(tool: Any) -> None:
    text, alone = softmax(2, 70_001, "bf16"), replace(tool, target=replace(H100, compute_capability=80))
    assert vectors(alone, text) == 8
    assert "kept_" not in alone.kernel(text).source
    alone.agrees(text, relative=0.02)


def test_a_row_that_several_blocks_share(tool: Any) -> None:
    for rows in (1, 2):
        text = row_sum(rows, 400_003, "f32")
        (segment,) = tool.plan(text).segments
        assert segment.part.is_peeled and segment.part.parts > 1
        tool.agrees(text, whole=True)


def test_a_fold_that_starts_with_no_identity(tool: Any) -> None:
    """Each thread's first element is one of a vector; the ends come after it."""
    text = module(
        "f32",
        """  p = f32[5,1003]{1,0} parameter(0)
  z = f32[] parameter(1)
  ROOT r = f32[5]{0} reduce(p, z), dimensions={1}, to_apply=max
""",
    )
    assert vectors(tool, text) == 4
    data = -1 - np.arange(5 * 1003, dtype=np.float32).reshape(5, 1003) % 977
    (got,) = tool.run(text, [data, np.float32(-500)])
    np.testing.assert_array_equal(got, np.maximum(data.max(1), -500))


def test_where_the_greatest_is(tool: Any) -> None:
    text = """HloModule m
first {
  v = bf16[] parameter(0)
  i = s32[] parameter(1)
  w = bf16[] parameter(2)
  j = s32[] parameter(3)
  more = pred[] compare(v, w), direction=GT
  same = pred[] compare(v, w), direction=EQ
  before = pred[] compare(i, j), direction=LT
  tie = pred[] and(same, before)
  left = pred[] or(more, tie)
  x = bf16[] select(left, v, w)
  k = s32[] select(left, i, j)
  ROOT t = (bf16[], s32[]) tuple(x, k)
}
ENTRY e {
  p = bf16[11,1005]{1,0} parameter(0)
  n = s32[11,1005]{1,0} iota(), iota_dimension=1
  least = bf16[] constant(-inf)
  z = s32[] constant(0)
  ROOT r = (bf16[11]{0}, s32[11]{0}) reduce(p, n, least, z), dimensions={1}, to_apply=first
}
"""
    assert vectors(tool, text) == 8
    for at in (0, 1, 6, 7, 8, 500, 996, 997, 1003, 1004):
        data = np.zeros((11, 1005), np.float32)
        data[np.arange(11), (at + np.arange(11)) % 1005] = 3
        _, place = tool.run(text, [data.astype(tool.kernel(text).inputs[0].type.dtype)])
        np.testing.assert_array_equal(place, (at + np.arange(11)) % 1005)


def test_arrays_beside_a_row(tool: Any) -> None:
    """One of another type lies as the row does, one begins at another place, one has a single row, and one is an
    element later."""
    text = module(
        "f32",
        """  p = bf16[7,1003]{1,0} parameter(0)
  q = f32[7,1003]{1,0} parameter(1)
  g = bf16[1003]{0} parameter(2)
  s = bf16[7,1004]{1,0} parameter(3)
  h = bf16[7,1003]{1,0} slice(s), slice={[0:7], [1:1004]}
  gb = bf16[7,1003]{1,0} broadcast(g), dimensions={1}
  n = s32[7,1003]{1,0} iota(), iota_dimension=1
  a = bf16[7,1003]{1,0} add(p, gb)
  b = bf16[7,1003]{1,0} add(a, h)
  c = f32[7,1003]{1,0} convert(b)
  d = f32[7,1003]{1,0} add(c, q)
  i = f32[7,1003]{1,0} convert(n)
  j = f32[7,1003]{1,0} add(d, i)
  z = f32[] constant(0)
  r = f32[7]{0} reduce(j, z), dimensions={1}, to_apply=add
  rb = f32[7,1003]{1,0} broadcast(r), dimensions={0}
  w = f32[7,1003]{1,0} subtract(j, rb)
  ROOT t = (f32[7]{0}, f32[7,1003]{1,0}) tuple(r, w)
""",
    )
    assert vectors(tool, text) == 8
    tool.agrees(text, whole=True)


def test_the_accesses_are_wide(planner: Any) -> None:
    """A compiler sees that vectors are aligned, of which the address of a row and a column says nothing."""
    pytest.importorskip("cupy")
    from cupy.cuda import nvrtc

    from hlo_opt.codegen.options import compile_options

    program = nvrtc.createProgram(planner.kernel(softmax(132, 50257, "bf16")).source, "k.cu", (), ())
    nvrtc.compileProgram(program, ("-arch=compute_90", *compile_options()))
    text = nvrtc.getPTX(program)
    text = text.decode() if isinstance(text, bytes) else text
    assert len(re.findall(r"ld\.global(?:\.nc)?\.v4\.[bu]32", text)) == 7
    assert len(re.findall(r"st\.global\.v4\.[bu]32", text)) == 7


def test_rows_that_do_not_lie_one_after_another_are_not_peeled(tool: Any) -> None:
    text = module(
        "f32",
        """  p = f32[3,6,1001]{2,1,0} parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[6]{0} reduce(p, z), dimensions={0,2}, to_apply=add
""",
    )
    assert vectors(tool, text) == 0
    tool.agrees(text, whole=True)


def test_elements_that_share_bytes_are_not_peeled(tool: Any) -> None:
    text = module(
        "s32",
        """  p = s4[6,1001]{1,0} parameter(0)
  c = s32[6,1001]{1,0} convert(p)
  z = s32[] constant(0)
  ROOT r = s32[6]{0} reduce(c, z), dimensions={1}, to_apply=add
""",
    )
    assert vectors(tool, text) == 0
    tool.agrees(text, whole=True)
