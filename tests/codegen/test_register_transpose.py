"""Transposes with a short side, turned in registers, against the NumPy meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from hlo_opt.plans import kinds
from hlo_opt.plans.price import price
from hlo_opt.plans.register_transpose import ShortRows
from tests.codegen.test_tiled_transpose import ordered, transpose

ROWS = 270_336  # with four to a thread, these fill a quarter of the device


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind is used where its matcher takes an output, also where a loop is cheaper."""
    every = [replace(kind, has_rivals=kind.has_rivals and kind.name != ShortRows.kind) for kind in kinds.KINDS]
    monkeypatch.setattr(kinds, "KINDS", every)
    monkeypatch.setattr(kinds, "_BY_NAME", {kind.name: kind for kind in every})


def part_of(tool: Any, text: str) -> ShortRows:
    (segment,) = tool.plan(text).segments
    assert isinstance(segment.part, ShortRows)
    return segment.part


def all_agree(tool: Any, texts: Sequence[str], vectors: Sequence[int]) -> None:
    assert [part_of(tool, text).vector for text in texts] == list(vectors)
    tool.all_agree(texts)


def test_both_directions_in_all_types(tool: Any) -> None:
    types = {"pred": 4, "s8": 4, "bf16": 4, "f16": 4, "s32": 4, "f64": 4, "c64": 4}
    texts = [transpose((ROWS, 3), (1, 0), t) for t in types] + [transpose((3, ROWS), (1, 0), t) for t in types]
    all_agree(tool, texts, [*types.values(), *types.values()])


def test_narrow_types_move_by_sixteen_bytes_where_there_are_enough(tool: Any) -> None:
    texts = [transpose((4 * ROWS, 3), (1, 0), "u8"), transpose((4, 2 * ROWS), (1, 0), "bf16")]
    all_agree(tool, texts, [16, 8])


def test_odd_planes_move_row_by_row(tool: Any) -> None:
    all_agree(tool, [transpose((2, 211, 213, 7), (0, 3, 1, 2), "s32")], [1])


def test_planes_of_images(tool: Any) -> None:
    texts = [transpose((6, 224, 225, 3), (0, 3, 1, 2)), transpose((6, 4, 224, 224), (0, 2, 3, 1), "bf16")]
    all_agree(tool, texts, [4, 4])


def test_short_rows_of_two_dimensions(tool: Any) -> None:
    orders = ((1, 2, 0), (2, 1, 0))
    texts = [transpose((ROWS // 2, 3, 3), order) for order in orders]
    texts += [transpose((3, 3, ROWS // 2), (2, 1, 0)), transpose((3, 4, 3, ROWS // 8), (1, 3, 0, 2))]
    all_agree(tool, texts, [2, 2, 2, 2])


@pytest.mark.parametrize(("few", "vector"), [(2, 4), (7, 4), (8, 4), (9, 2), (16, 2)])
def test_lengths_of_rows(planner: Any, few: int, vector: int) -> None:
    assert part_of(planner, transpose((1 << 20, few), (1, 0))).vector == vector


@pytest.mark.parametrize(("few", "vector"), [(4, 16), (7, 8), (8, 8), (9, 4), (16, 4)])
def test_lengths_of_rows_of_bytes(planner: Any, few: int, vector: int) -> None:
    """A thread has no more elements than those among which neighbours are joined."""
    text = transpose((1 << 22, few), (1, 0), "s8")
    part = part_of(planner, text)
    assert part.vector == vector
    found = price(planner.plan(text), planner.target)
    assert min(found.loads[0], found.stores[0]) >= 8 * vector and found.cache < found.memory


def test_few_and_long_ones_have_other_plans(planner: Any) -> None:
    texts = [transpose((1024, 3), (1, 0)), transpose((1 << 20, 17), (1, 0)), transpose((1 << 20, 1), (1, 0))]
    assert [planner.plan(text).kind for text in texts] == ["loop", "tiled-transpose", "loop"]


def test_what_leads_to_it_and_what_follows(tool: Any) -> None:
    """Other dimensions behind it, an operand in the order of the result, two outputs, and one of another size."""
    text = f"""HloModule m
ENTRY e {{
  p = s8[{ROWS},3]{{1,0}} parameter(0)
  q = f32[3,{ROWS}]{{1,0}} parameter(1)
  w = f32[{ROWS},3]{{1,0}} convert(p)
  d = f32[{ROWS},3]{{1,0}} add(w, w)
  t = f32[3,{ROWS}]{{1,0}} transpose(d), dimensions={{1,0}}
  s = f32[3,{ROWS}]{{1,0}} subtract(t, q)
  f = f32[{3 * ROWS}]{{0}} reshape(s)
  n = f32[3,{ROWS}]{{1,0}} negate(t)
  h = f32[1,{ROWS}]{{1,0}} slice(s), slice={{[1:2], [0:{ROWS}]}}
  ROOT r = (f32[{3 * ROWS}]{{0}}, f32[3,{ROWS}]{{1,0}}, f32[1,{ROWS}]{{1,0}}) tuple(f, n, h)
}}
"""
    assert {s.kind: s.roots for s in tool.plan(text).segments}["register-transpose"] == (0, 1)
    tool.agrees(text, whole=True)


def test_orders_of_memory_as_jax_writes_them(tool: Any) -> None:
    """A transpose that is another name, before a sum and before a reshape."""
    rows, planes = ordered((ROWS, 3), (1, 0)), ordered((3, ROWS), (1, 0))
    added = f"""HloModule m
ENTRY e {{
  x = {rows} parameter(0)
  y = {planes} parameter(1)
  t = {ordered((3, ROWS), (0, 1))} transpose(x), dimensions={{1,0}}
  ROOT a = {planes} add(t, y)
}}
"""
    flat = f"""HloModule m
ENTRY e {{
  x = f32[{3 * ROWS}]{{0}} parameter(0)
  m = {rows} reshape(x)
  t = {ordered((3, ROWS), (0, 1))} transpose(m), dimensions={{1,0}}
  ROOT r = f32[{3 * ROWS}]{{0}} reshape(t)
}}
"""
    all_agree(tool, [added, flat], [4, 4])
