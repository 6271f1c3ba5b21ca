"""Plans of depthwise convolutions: what they cover, and how threads share the work."""

import math
from dataclasses import replace

import pytest

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.ops.calls.collectives import device_call
from hlo_opt.plans.depthwise import Depthwise, WindowSide, cycles, depthwise_plan

SAME = "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, feature_group_count=144"
LAST = "{3,2,1,0}"


def planned(left: str, right: str, result: str, how: str, device: str = "h200") -> Depthwise | None:
    call = device_call(
        hlo_opt.parse(
            f"HloModule m\nENTRY e {{\n  a = {left} parameter(0)\n  b = {right} parameter(1)\n"
            f"  ROOT c = {result} convolution(a, b), {how}\n}}\n"
        ).entry.root
    )
    assert call is not None
    return depthwise_plan(call, target(device))


def of_mobilenet(kind: str = "f32", images: int = 32) -> Depthwise:
    array = f"{kind}[{images},56,56,144]{LAST}"
    found = planned(array, f"{kind}[3,3,1,144]{LAST}", array, SAME)
    assert found is not None
    return found


def test_threads_have_all_results_once() -> None:
    plan = of_mobilenet()
    assert (plan.features, plan.vector, plan.first, plan.step) == (144, 4, 0, 1)
    assert plan.sides[0] == WindowSide(1, 1, 1, 1, 0, 1, 1, 0) and plan.sides[2] == WindowSide(
        56, 56, 3, 1, 1, 1, 1, 144
    )
    assert plan.launch.grid * plan.launch.block * plan.vector * plan.across == 32 * 56 * 56 * 144
    assert plan.launch.block <= 256


def test_few_results_are_divided_among_more_threads() -> None:
    assert of_mobilenet(images=1).across < of_mobilenet().across


def test_loads_of_neighbouring_results_are_shared() -> None:
    side = WindowSide(image=56, result=56, taps=3, stride=1, low=1, dilation=1, base=1, step=1)
    assert side.loads(8) == 10 and side.columns(8) == (-1, 10)
    assert replace(side, stride=2).loads(4) == 9
    assert replace(side, low=4, dilation=4).loads(2) == 6
    apart = replace(side, base=2, low=2)
    assert apart.needed == 1.5 and apart.loads(4) == 3 and apart.columns(4) == (-1, 3)
    loads, issued = cycles(of_mobilenet())
    narrow, widened = cycles(of_mobilenet("bf16"))
    assert narrow == pytest.approx(loads / 2) and widened > issued


def test_a_turned_window_is_read_from_its_end() -> None:
    array = f"f64[2,9,7,6]{LAST}"
    how = "window={size=3x5 pad=1_1x2_2 rhs_reversal=1x1}, dim_labels=b01f_oi01->b01f, feature_group_count=6"
    plan = planned(array, f"f64[6,1,3,5]{LAST}", array, how)
    assert plan is not None and plan.vector == 2
    assert (plan.first, plan.step, [s.step for s in plan.sides]) == (14, 15, [0, -5, -1])


def test_features_first_are_read_along_a_line() -> None:
    array, how = f"f32[32,144,56,56]{LAST}", SAME.replace("b01f_01io->b01f", "bf01_oi01->bf01")
    plan = planned(array, f"f32[144,1,3,3]{LAST}", array, how)
    assert plan is not None and plan.is_first
    assert (plan.vector, plan.across, plan.wide) == (1, 8, 4)
    assert (plan.sides[2].before(4), plan.sides[2].reads(8, 4)) == (4, 4)
    assert plan.launch.grid * plan.launch.block * plan.across == 32 * 56 * 56 * 144
    assert cycles(plan)[0] < 2 * cycles(of_mobilenet())[0]


@pytest.mark.parametrize(
    ("left", "right", "result", "how"),
    [
        ("f32[2,144,8,8]{3,2,1,0}", "f32[144,1,3,3]{3,2,1,0}", "f32[2,144,8,8]{1,3,2,0}",
         "window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01, feature_group_count=144"),
        ("f32[2,8,8,72]{3,2,1,0}", "f32[3,3,1,144]{3,2,1,0}", "f32[2,8,8,144]{3,2,1,0}",
         SAME.replace("count=144", "count=72")),
        ("f32[2,64,16]{2,1,0}", "f32[50,1,16]{2,1,0}", "f32[2,15,16]{2,1,0}",
         "window={size=50}, dim_labels=b0f_0io->b0f, feature_group_count=16"),
    ],
)  # fmt: skip
def test_others_have_no_plan(left: str, right: str, result: str, how: str) -> None:
    assert planned(left, right, result, how) is None


def test_rows_and_features_that_do_not_divide_are_covered() -> None:
    array = f"f32[1,13,11,130]{LAST}"
    plan = planned(array, f"f32[3,3,1,130]{LAST}", array, SAME.replace("144", "130"))
    assert plan is not None and plan.vector == 2
    rows, columns = plan.sides[1:]
    tiles = (
        -(-plan.features // plan.vector // plan.vectors) * plan.vectors * plan.vector,
        -(-rows.result // plan.rows) * plan.rows,
        -(-columns.result // plan.across // plan.strips) * plan.strips * plan.across,
    )
    assert math.prod(tiles) == plan.launch.grid * plan.launch.block * plan.vector * plan.across
    assert all(tile >= size for tile, size in zip(tiles, (130, 13, 11), strict=True))
