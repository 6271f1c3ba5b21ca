"""Reducers of values with their places, folded in the order of the places."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.ir import Computation
from hlo_opt.ir.index_map import Variable
from hlo_opt.ops.reduction.places import in_order, place_of

LARGEST = """HloModule m
largest {{
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  more = pred[] compare(a, b), direction=GT
  value = f32[] select(more, a, b)
  same = pred[] compare(a, b), direction=EQ
  before = pred[] compare({compared}), direction={direction}
  tie = pred[] and(same, before)
  keeps = pred[] or(more, tie)
  place = s32[] {place}
  ROOT both = (f32[], s32[]) tuple(value, place)
}}
ENTRY e {{
  x = f32[8,9]{{1,0}} parameter(0)
  k = s32[9]{{0}} iota(), iota_dimension=0
  p = s32[8,9]{{1,0}} broadcast(k), dimensions={{1}}
  narrow = s8[300]{{0}} iota(), iota_dimension=0
  least = f32[] constant(-inf)
  zero = s32[] constant(0)
  ROOT r = (f32[8]{{0}}, s32[8]{{0}}) reduce(x, p, least, zero), dimensions={{1}}, to_apply=largest
}}
"""
FIRST = {"compared": "i, j", "direction": "LT", "place": "select(keeps, i, j)"}


def reducer(**parts: str) -> Computation:
    return hlo_opt.parse(LARGEST.format(**FIRST | parts)).entry.root.called_by("to_apply")


@pytest.mark.parametrize(
    ("compared", "direction", "answer"),
    [("i, j", "LT", True), ("j, i", "LT", False), ("j, i", "GE", True), ("i, j", "EQ", False), ("j, i", "NE", True)],
)
def test_a_comparison_of_places_is_a_constant(compared: str, direction: str, answer: bool) -> None:
    simpler = in_order(reducer(compared=compared, direction=direction), [1])
    assert simpler is not None
    before = next(i for i in simpler.instructions if i.name == "before")
    assert before.literal is not None and before.literal.value == answer
    assert [i.name for i in simpler.instructions] == [i.name for i in reducer().instructions]


def test_other_reducers_stay_as_they_are() -> None:
    assert in_order(reducer(compared="i, i"), [1]) is None
    assert in_order(reducer(place="add(i, j)"), [1]) is None  # a total is no place of the row


def test_the_place_of_an_element_is_the_index_of_its_iota() -> None:
    values = {i.name: i for i in hlo_opt.parse(LARGEST.format(**FIRST)).entry.instructions}
    row, column = Variable(0, 7, "row"), Variable(0, 8, "column")
    assert place_of(values["p"], (row, column)) == column
    assert place_of(values["x"], (row, column)) is None
    assert place_of(values["narrow"], (Variable(0, 299, "i"),)) is None  # it wraps around
