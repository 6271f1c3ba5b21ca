"""Lanes that end by themselves: what has to hold of a round, and what is asked."""

from __future__ import annotations

import pytest

import hlo_opt
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
