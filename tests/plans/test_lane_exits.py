"""Lanes that end by themselves: what has to hold of a round, and what is asked."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.ir.index_map import constant, variable
from hlo_opt.ops.choices import MOST_PLACES
from hlo_opt.ops.sets import looped
from hlo_opt.plans.lane_exits import Quiet
from hlo_opt.plans.lane_obstacle import obstacle
from hlo_opt.plans.lane_search import may_have_lanes
from hlo_opt.plans.opened_loop import opened_with
from tests.loops import COUPLED, LANES
from tests.plans.test_lane_loop import lanes


def test_a_lane_asks_its_own_predicate() -> None:
    part = lanes(LANES["lanes that end by themselves"][0])
    assert part.trips is None and [(test.opcode, dims) for test, dims in part.tests] == [("compare", (0,))]


def test_what_is_the_same_for_all_is_asked_too() -> None:
    part = lanes(LANES["lanes that are done, and a last round for all"][0])
    assert [(test.opcode, dims) for test, dims in part.tests] == [("compare", ()), ("not", (0,))]


@pytest.mark.parametrize(
    "name",
    [
        "a test of all",
        "a value that goes on when a lane has ended",
        "lanes that may begin again",
        "a number for all that is read",
        "lanes that stay by another predicate",
        "lanes that change when they have ended",
        "rows of all lanes until the last has ended",
    ],
)
def test_the_question_to_all_lanes_couples_others(name: str) -> None:
    module = hlo_opt.parse(COUPLED[name])
    blamed = obstacle(module, next(i for i in module.entry.instructions if i.opcode == "while")).instruction
    assert blamed is not None and blamed.opcode in ("reduce", "add", "broadcast", "compare")


def test_windows_at_places_that_data_say_are_not_taken_for_one() -> None:
    lines = "p = pred[8] parameter(0)\n  x = f32[16] parameter(1)\n  k = s32[] parameter(2)\n  l = s32[] parameter(3)\n  a = f32[8] dynamic-slice(x, k), dynamic_slice_sizes={8}\n  b = f32[8] dynamic-slice(x, l), dynamic_slice_sizes={8}\n  ROOT r = f32[8] select(p, a, b)"
    module = hlo_opt.parse(f"HloModule m\n\nENTRY e {{\n  {lines}\n}}\n")
    found, lane = {i.name: i for i in module.entry.instructions}, (variable("lane", 8),)
    quiet = Quiet((found["p"], lane))
    assert quiet.keeps((found["r"], lane), (found["b"], lane))
    assert not quiet.keeps((found["a"], lane), (found["b"], lane))


def test_halves_of_a_number_are_not_taken_for_one() -> None:
    lines = "p = pred[8] parameter(0)\n  x = f32[8] parameter(1)\n  ROOT h = u16[8,2] bitcast(x)"
    module = hlo_opt.parse(f"HloModule m\n\nENTRY e {{\n  {lines}\n}}\n")
    found, lane = {i.name: i for i in module.entry.instructions}, variable("lane", 8)
    quiet = Quiet((found["p"], (lane,)))
    low, high = ((found["h"], (lane, constant(n))) for n in (0, 1))
    assert quiet.keeps(low, low) and not quiet.keeps(low, high)


BEHIND = """HloModule m

any {
  a = pred[] parameter(0)
  b = pred[] parameter(1)
  ROOT c = pred[] or(a, b)
}

body {
  s = (f32[64,2]{0,1}) parameter(0)
  x = f32[64,2]{0,1} get-tuple-element(s), index=0
  table = f32[2] constant({1, 0.5})
  tables = f32[64,2]{1,0} broadcast(table), dimensions={1}
  y = f32[64,2]{1,0} multiply(x, tables)
  e = f32[64,1]{1,0} slice(y), slice={[0:64], [0:1]}
  f = f32[64] reshape(e)
  l = f32[] constant(0.25)
  ls = f32[64] broadcast(l), dimensions={}
  g = pred[64] compare(f, ls), direction=GT
  gs = pred[64,2]{1,0} broadcast(g), dimensions={0}
  h = f32[] constant(0.5)
  hs = f32[64,2]{1,0} broadcast(h), dimensions={}
  z = f32[64,2]{1,0} multiply(x, hs)
  w = f32[64,2]{1,0} select(gs, z, x)
  n = f32[64,2]{0,1} copy(w)
  ROOT r = (f32[64,2]{0,1}) tuple(n)
}

condition {
  s = (f32[64,2]{0,1}) parameter(0)
  x = f32[64,2]{0,1} get-tuple-element(s), index=0
  table = f32[2] constant({1, 0.5})
  tables = f32[64,2]{1,0} broadcast(table), dimensions={1}
  y = f32[64,2]{1,0} multiply(x, tables)
  e = f32[64,1]{1,0} slice(y), slice={[0:64], [0:1]}
  f = f32[64] reshape(e)
  l = f32[] constant(0.25)
  ls = f32[64] broadcast(l), dimensions={}
  g = pred[64] compare(f, ls), direction=GT
  no = pred[] constant(false)
  ROOT c = pred[] reduce(g, no), dimensions={0}, to_apply=any
}

ENTRY e {
  p = f32[64,2]{0,1} parameter(0)
  t = (f32[64,2]{0,1}) tuple(p)
  w = (f32[64,2]{0,1}) while(t), condition=condition, body=body
  ROOT o = f32[64,2]{0,1} get-tuple-element(w), index=0
}
"""


COUNTED = BEHIND.replace("constant({1, 0.5})", "iota(), iota_dimension=0")


@pytest.mark.parametrize(
    ("text", "has_plan"),
    [
        (BEHIND, True),
        (BEHIND.replace("{1, 0.5}", "{2, 0.5}", 1), False),
        (COUNTED, True),
        (COUNTED.replace("iota(), iota_dimension=0", "constant({1, 0.5})", 1), False),
    ],
)
def test_tables_of_constants_and_copies_are_looked_through(text: str, has_plan: bool) -> None:
    """A round asks with a table of its own: equal numbers are the same question, others are not."""
    module = hlo_opt.parse(text)
    found = obstacle(module, next(i for i in module.entry.instructions if i.opcode == "while"))
    assert found.has_plan == has_plan


@pytest.mark.parametrize(("places", "has_choices"), [(MOST_PLACES, True), (MOST_PLACES + 1, False)])
def test_a_loop_is_opened_with_choices_where_one_may_be(places: int, has_choices: bool) -> None:
    module = hlo_opt.parse(f"""HloModule m

body {{
  s = (s32[], f32[{places},64]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[{places},64] get-tuple-element(s), index=1
  zero = s32[] constant(0)
  one = s32[] constant(1)
  row = f32[1,64] dynamic-slice(x, n, zero), dynamic_slice_sizes={{1,64}}
  flat = f32[64] reshape(row)
  all = f32[{places},64] broadcast(flat), dimensions={{1}}
  sum = f32[{places},64] add(x, all)
  next = s32[] add(n, one)
  ROOT t = (s32[], f32[{places},64]) tuple(next, sum)
}}

condition {{
  s = (s32[], f32[{places},64]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  most = s32[] constant(8)
  ROOT less = pred[] compare(n, most), direction=LT
}}

ENTRY e {{
  zero = s32[] constant(0)
  x = f32[{places},64] parameter(0)
  start = (s32[], f32[{places},64]) tuple(zero, x)
  loop = (s32[], f32[{places},64]) while(start), condition=condition, body=body
  ROOT r = f32[{places},64] get-tuple-element(loop), index=1
}}
""")
    loop = next(i for i in module.entry.instructions if looped(i) is not None)
    plain, chosen = opened_with(loop, chooses=False), opened_with(loop, chooses=True)
    assert plain is not None
    assert not plain.has_choices
    assert (chosen is not None and chosen.has_choices) == (chosen is not None) == has_choices


@pytest.mark.parametrize(("size", "may"), [(64, True), (65, False)])
def test_large_values_without_a_common_dimension_have_no_lanes(size: int, may: bool) -> None:
    module = hlo_opt.parse(f"""HloModule m

body {{
  s = (s32[], f32[64], f32[{size}], f32[100,64]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[64] get-tuple-element(s), index=1
  y = f32[{size}] get-tuple-element(s), index=2
  rows = f32[100,64] get-tuple-element(s), index=3
  sine = f32[64] sine(x)
  cosine = f32[{size}] cosine(y)
  row = f32[1,64] reshape(sine)
  write = f32[100,64] dynamic-update-slice(rows, row, n, n)
  next = s32[] add(n, n)
  ROOT t = (s32[], f32[64], f32[{size}], f32[100,64]) tuple(next, sine, cosine, write)
}}

condition {{
  s = (s32[], f32[64], f32[{size}], f32[100,64]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  most = s32[] constant(8)
  ROOT less = pred[] compare(n, most), direction=LT
}}

ENTRY e {{
  s = (s32[], f32[64], f32[{size}], f32[100,64]) parameter(0)
  ROOT loop = (s32[], f32[64], f32[{size}], f32[100,64]) while(s), condition=condition, body=body
}}
""")
    assert may_have_lanes(module.entry.root) == may
