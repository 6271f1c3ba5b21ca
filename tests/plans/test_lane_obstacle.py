"""What keeps loops from being one kernel, named for explanations."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.plans import lane_search
from hlo_opt.plans.lane_obstacle import Obstacle, obstacle
from tests.loops import COUPLED, HALVED, LANES, loop


def found(text: str) -> Obstacle:
    module = hlo_opt.parse(text)
    return obstacle(module, next(i for i in module.entry.instructions if i.opcode == "while"))


@pytest.mark.parametrize("name", LANES)
def test_nothing_keeps_lanes_apart_from_being_one_kernel(name: str) -> None:
    assert found(LANES[name][0]) == Obstacle(has_plan=True)


@pytest.mark.parametrize(
    ("name", "instruction"),
    {
        "reduction": "s",
        "reverse": "y",
        "padding": "q",
        "transpose": "q",
        "gather across lanes": "y",
        "sort": "y",
        "product": "y",
        "a test of all": "c",
        "a slice of the state where data say": "a",
    }.items(),
)
def test_the_operation_at_which_lanes_meet_is_named(name: str, instruction: str) -> None:
    blamed = found(COUPLED[name]).instruction
    assert blamed is not None and blamed.name.split(".")[0] == instruction


def test_an_operation_of_a_fusion_in_a_round_is_named() -> None:
    text = COUPLED["reverse"].replace(
        "body {",
        "turned {\n  p = f32[64] parameter(0)\n  back = f32[64] reverse(p), dimensions={0}\n  ROOT n = f32[64] "
        "negate(back)\n}\n\nbody {",
    )
    text = text.replace("y = f32[64] reverse(x1), dimensions={0}", "y = f32[64] fusion(x1), kind=kLoop, calls=turned")
    blamed = found(text).instruction
    assert blamed is not None and blamed.name == "back"


def named(text: str) -> str:
    blamed = found(text).instruction
    assert blamed is not None
    return blamed.name.split(".")[0]


def test_a_loop_of_another_form_names_what_gives_it_that_form() -> None:
    text = loop(["f32[64]"], HALVED, ["y"])
    assert found(text) == Obstacle(has_plan=True)
    start = text.replace("while(s)", "while(b)").replace("  w = ", "  b = (s32[], f32[64]) opt-barrier(s)\n  w = ")
    assert named(start) == "b"


def test_a_state_of_many_dimensions_is_named() -> None:
    assert named(loop(["f32[2,2,2,2,64]"], ["y = f32[2,2,2,2,64] sine(x1)"], ["y"])) == "y"


def test_a_state_of_which_a_lane_has_too_much_is_named() -> None:
    lines = ["y = f32[64] sine(x1)", "b = f32[64,100] broadcast(y), dimensions={0}", "q = f32[64,100] add(x2, b)"]
    assert named(loop(["f32[64]", "f32[64,100]"], lines, ["y", "q"])) == "b"


def test_the_question_to_all_elements_is_named_where_a_lane_would_hold_them_all() -> None:
    lines = [
        "y = f32[64,100] sine(x1)",
        "zero = f32[] constant(0)",
        "all = f32[] reduce(y, zero), dimensions={0,1}, to_apply=sum",
    ]
    asked = ["most = f32[] constant(100)", "c = pred[] compare(x2, most), direction=LT"]
    assert named(loop(["f32[64,100]", "f32[]"], lines, ["y", "all"], test=asked)) == "all"


def test_a_small_array_is_lanes_where_that_fits_and_else_the_same_for_all() -> None:
    assert found(loop(["f32[5]", "f32[5]"], ["y = f32[5] add(x1, x2)"], ["y", "x2"])).has_plan
    assert found(LANES["a key for all"][0]).has_plan


def test_a_single_lane_may_write_a_row_each_round() -> None:
    lines = ["o = s32[] constant(0)", "y = f32[1] sine(x1)", "u = f32[1,1] reshape(y)"]
    lines.append("d = f32[9,1] dynamic-update-slice(x2, u, x0, o)")
    assert found(loop(["f32[1]", "f32[9,1]"], lines, ["y", "d"], rounds=9)) == Obstacle(has_plan=True)


NUMBER_OF_ALL_LANES = loop(
    ["f32[64]", "f32[5]"],
    [
        "back = f32[64] reverse(x1), dimensions={0}",
        "zero = f32[] constant(0)",
        "all = f32[] reduce(back, zero), dimensions={0}, to_apply=sum",
        "u = f32[1] reshape(all)",
        "q = f32[5] dynamic-update-slice(x2, u, x0)",
    ],
    ["back", "q"],
)


def test_a_number_of_each_round_from_all_lanes_is_blamed_on_what_makes_it() -> None:
    blamed = found(NUMBER_OF_ALL_LANES).instruction
    assert blamed is not None and blamed.name.split(".")[0] == "all"


def test_what_is_to_blame_is_looked_for_only_where_someone_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(lane_search, "narrowing", lambda *about: asked.append(about))
    hlo_opt.fuse(NUMBER_OF_ALL_LANES, passes="while-fusion")
    assert not asked
    found(NUMBER_OF_ALL_LANES)
    assert asked
