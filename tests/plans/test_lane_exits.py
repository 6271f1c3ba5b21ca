"""Lanes that end by themselves: what has to hold of a round, and what is asked."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.ir.index_map import constant, variable
from hlo_opt.plans.lane_exits import Quiet
from hlo_opt.plans.lane_search import obstacle
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
    lines = "p = pred[8] parameter(0)\n  x = f32[16] parameter(1)\n  k = s32[] parameter(2)\n  l = s32[] parameter(3)\n  a = f32[8] dynamic-slice(x, k), dynamic_slice_sizes={8}\n  b = f32[8] dynamic-slice(x, l), dynamic_slice_sizes={8}\n  ROOT r = f32[8] select(p, a, b)"  # fmt: skip
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
