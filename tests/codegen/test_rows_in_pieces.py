"""Row reductions with rows whose pieces are computed in different ways, as in a concatenate or a pad: each piece has
its own code, so that neighbours are read together."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from hlo_opt.codegen import emit_kernel
from tests.codegen.conftest import Tool


def turned(rows: int, columns: int, t: str = "f32", pieces: tuple[int, ...] = (), into: str = "") -> str:
    """Rows minus their maxima, with pieces of them in another order. The pieces end at the columns given."""
    edges = [0, *(pieces or (columns // 2,)), columns]
    spans = list(itertools.pairwise(edges))[::-1]
    slices = "\n".join(
        f"  d{n} = {t}[{rows},{b - a}] slice(d), slice={{[0:{rows}], [{a}:{b}]}}" for n, (a, b) in enumerate(spans)
    )
    names = ", ".join(f"d{n}" for n in range(len(spans)))
    return f"""HloModule m
most {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT c = {t}[] maximum(a, b)
}}
ENTRY e {{
  x = {t}[{rows},{columns}] parameter(0)
  low = {t}[] constant(-100)
  m = {t}[{rows}] reduce(x, low), dimensions={{1}}, to_apply=most
  ms = {t}[{rows},{columns}] broadcast(m), dimensions={{0}}
  d = {t}[{rows},{columns}] subtract(x, ms)
{slices}
  {"" if into else "ROOT "}r = {t}[{rows},{columns}] concatenate({names}), dimensions={{1}}
{into}
}}
"""


def padded(rows: int, inner: int, low: int, high: int) -> str:
    """The sum of rows that are padded, and the rows without their sum."""
    columns = low + inner + high
    return f"""HloModule m
sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
ENTRY e {{
  x = f32[{rows},{inner}] parameter(0)
  y = f32[{rows},{columns}] parameter(1)
  z = f32[] constant(0)
  two = f32[] constant(2)
  p = f32[{rows},{columns}] pad(x, two), padding=0_0x{low}_{high}
  q = f32[{rows},{columns}] add(p, y)
  s = f32[{rows}] reduce(q, z), dimensions={{1}}, to_apply=sum
  ss = f32[{rows},{columns}] broadcast(s), dimensions={{0}}
  ROOT r = f32[{rows},{columns}] subtract(q, ss)
}}
"""


def joints(tool: Tool, text: str) -> tuple[tuple[int, ...], ...]:
    (segment,) = tool.plan(text).segments
    assert segment.kind == "row-reduction"
    return segment.part.joints  # type: ignore[no-any-return]


def test_each_piece_is_read_in_vectors(planner: Any) -> None:
    text = turned(4096, 128, "bf16")
    assert joints(planner, text) == ((), (64,))
    source = emit_kernel(planner.plan(text)).source
    assert "if (step_2 < 8) {" in source
    assert "if (step_2 >= 8) {" in source
    assert "if ((column" not in source


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (turned(5, 512, "f32", (128, 384)), ((), (128, 384))),
        (turned(3, 4096, "f32", (4,)), ((), (4092,))),  # the last piece comes first
        (turned(5, 512, "f32", (128, 129)), ()),  # neighbours on both sides
        (turned(5, 512, "f32", (64, 128, 192, 256)), ()),  # too many
        (padded(5, 256, 64, 128), ((64, 320), (64, 320))),
        (padded(5, 256, 2, 254), ()),
    ],
)
def test_where_rows_change(planner: Any, text: str, found: tuple[tuple[int, ...], ...]) -> None:
    assert joints(planner, text) == found


def test_results(tool: Any) -> None:
    also = "  n = f32[37,1024] negate(d)\n  ROOT t = (f32[37,1024], f32[37,1024], f32[37]) tuple(r, n, m)"
    tool.all_agree(
        [
            turned(33, 128, "bf16"),
            turned(9, 64, "f32", (16,)),
            turned(5, 512, "f32", (128, 384)),
            turned(5, 512, "f32", (128, 129)),
            turned(3, 4096, "f32", (4,)),
            turned(2, 40_000, "f16", (8, 32_000)),
            turned(37, 1024, into=also),
            padded(5, 256, 64, 128),
            padded(7, 250, 4, 2),
            padded(3, 8000, 0, 192),
        ]
    )
