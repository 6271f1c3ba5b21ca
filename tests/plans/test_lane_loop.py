"""Loops by lanes: which have a plan, along which dimensions, and what couples the others."""

from __future__ import annotations

import pytest

from hlo_opt.diag import Reason
from hlo_opt.plans import Plan, plan
from hlo_opt.plans.lane_loop import MOST_HELD, Lanes, walks
from hlo_opt.plans.price import price
from tests.codegen.conftest import region_of_text
from tests.loops import COUPLED, HALVED, LANES, loop
from tests.small_modules import H100


def planned(text: str) -> Plan | Reason:
    return plan(region_of_text(text), H100)


def lanes(text: str) -> Lanes:
    made = planned(text)
    assert isinstance(made, Plan), str(made)
    (segment,) = made.segments
    assert isinstance(segment.part, Lanes)
    return segment.part


@pytest.mark.parametrize("name", LANES)
def test_lanes_lie_along_dimensions_that_all_large_values_have(name: str) -> None:
    text, dimensions = LANES[name]
    assert lanes(text).dimensions == dimensions


@pytest.mark.parametrize("name", COUPLED)
def test_what_brings_lanes_together_has_no_plan_by_lanes(name: str) -> None:
    made = planned(COUPLED[name])
    assert isinstance(made, Reason) or made.kind in ("block-loop", "grid-loop")


def test_rounds_that_are_known_are_counted() -> None:
    assert lanes(LANES["one array"][0]).trips == 5
    assert lanes(LANES["rounds that a value ends"][0]).trips is None


def test_a_counter_takes_no_register() -> None:
    part = lanes(LANES["a counter that is read"][0])
    assert [v.counts for v in part.values] == [(0, 1), None, (7, 2)]
    assert [v.counts for v in lanes(LANES["rounds that a value ends"][0]).values] == [None, None, None]


def test_what_takes_long_and_is_always_read_is_computed_first() -> None:
    lines = [
        "e = f32[] constant(0)",
        "before = f32[64] pad(x3, e), padding=1_-1",
        "q = f32[64] add(x1, x2)",
        "y = f32[64] add(q, before)",
    ]
    given = ["g2 = f32[64] sine(p4)", "g3 = f32[64] cosine(p4)"]
    text = loop(["f32[64]"] * 4, lines, ["y", "x2", "x3", "x4"], given=given)
    assert [i.opcode for i, _ in lanes(text).early] == ["sine"]
    assert not lanes(text.replace(" sine(p4)", " negate(p4)")).early


def test_neighbours_are_those_in_memory() -> None:
    part = lanes(LANES["two dimensions"][0])
    assert part.dimensions == (12, 8) and part.order == (1, 0)  # as the first value lies


def test_results_that_the_rounds_write_whole_need_nothing_before() -> None:
    assert [r.before for r in lanes(LANES["results"][0]).results] == [None]
    (some,) = lanes(LANES["results of some rounds"][0]).results
    assert some.before is not None and some.share == 5


def test_results_of_some_rounds_stay_in_the_memory_that_they_were_given_in() -> None:
    lines = [
        *HALVED,
        "o = s32[] constant(0)",
        "u = f32[1,64] reshape(y)",
        "d = f32[9,64] dynamic-update-slice(x2, u, x0, o)",
    ]
    part = lanes(loop(["f32[64]", "f32[9,64]"], lines, ["y", "d"]))
    assert part.aliases == ((1, 1),) and part.results[0].before is None
    # but not where somebody reads what was given
    shared = loop(["f32[64]", "f32[9,64]", "f32[9,64]"], lines, ["y", "d", "x3"], given=["g3 = f32[9,64] negate(p2)"])
    part = lanes(shared)
    assert part.aliases == () and part.results[0].before is not None


def test_a_state_that_registers_do_not_hold_has_no_plan_by_lanes() -> None:
    made = planned(loop(["f32[640,65]"], ["y = f32[640,65] reverse(x1), dimensions={1}"], ["y"]))
    assert isinstance(made, Plan) and made.kind == "grid-loop"
    assert lanes(loop(["f32[64,64]"], ["y = f32[64,64] reverse(x1), dimensions={1}"], ["y"])).dimensions == (64,)


def test_what_a_round_calls_is_not_looked_into() -> None:
    inner = LANES["one array"][0].replace(
        "y = f32[64] multiply(x1, hs)", "y = f32[64] map(x1, hs), dimensions={0}, to_apply=sum"
    )
    assert not isinstance(planned(inner), Plan) or lanes(inner).dimensions == (64,)


def test_an_element_of_the_tuple_that_no_round_changes_is_no_output() -> None:
    assert isinstance(
        planned(loop(["f32[64]", "f32[64]"], ["y = f32[64] add(x1, x2)"], ["y", "x2"], read=[1, 2])), Reason
    )


def test_many_lanes_are_many_blocks() -> None:
    made = planned(loop(["f32[2048]"], ["y = f32[2048] sine(x1)"], ["y"], rounds=100))
    assert isinstance(made, Plan)
    assert (made.launch.grid, made.launch.block) == (16, 128)


def test_a_window_that_is_read_may_be_of_any_size() -> None:
    lines = [
        "o = s32[] constant(0)",
        f"a = f32[1,{1 << 40}] dynamic-slice(x2, x0, o), dynamic_slice_sizes={{1,{1 << 40}}}",
    ]
    lines += ["b = f32[1,64] slice(a), slice={[0:1], [0:64]}", "c = f32[64] reshape(b)", "y = f32[64] add(x1, c)"]
    made = planned(loop(["f32[64]", f"f32[2,{1 << 40}]"], lines, ["y", "x2"]))
    assert isinstance(made, Plan)
    (segment,) = made.segments
    *_, rounds = walks(made.region, segment, made.launch)
    assert len(rounds.wanted) == MOST_HELD


def test_conditions_that_nest_are_counted() -> None:
    """Each lane finds its own element again, but in two branches of the code, and in two of each of these."""
    lines, last = [], "x1"
    for n in range(20):
        lines += [f"a{n} = f32[5] slice({last}), slice={{[0:5]}}", f"b{n} = f32[59] slice({last}), slice={{[5:64]}}"]
        last = f"c{n}"
        lines.append(f"{last} = f32[64] concatenate(a{n}, b{n}), dimensions={{0}}")
    assert lanes(loop(["f32[64]"], [*lines[:12], "y = f32[64] negate(c3)"], ["y"])).dimensions == (64,)
    assert not isinstance(planned(loop(["f32[64]"], [*lines, "y = f32[64] negate(c19)"], ["y"])), Plan)


def test_the_price_grows_with_the_rounds() -> None:
    found = []
    for rounds in (1, 100, 10_000):
        made = planned(loop(["f32[2048]"], ["y = f32[2048] sine(x1)"], ["y"], rounds=rounds))
        assert isinstance(made, Plan)
        found.append(price(made, H100).us)
    assert found[0] < 3 < found[1] < found[2] / 50
    clock = H100.clock_rate_ghz * 1e3
    assert found[2] > 10_000 * 20 * 2048 / (H100.core_count * 128 * clock)  # never less than the arithmetic units take


def test_rows_that_rounds_read_again_lie_in_memory_and_begin_with_what_was_there() -> None:
    part = lanes(LANES["results that are read again"][0])
    (rows,) = part.results
    assert rows.is_read and rows.before is not None and [v.number for v in part.values] == [0, 1]
    # registers are nearer, where places are few
    assert lanes(LANES["a column that the round chooses"][0]).results == ()


def test_a_value_that_rounds_compute_again_is_in_the_price() -> None:
    lines = ["k = s32[] constant(64)", "ks = s32[256] broadcast(k), dimensions={}", "m = s32[256] remainder(x1, ks)"]
    lines += [
        "a = s32[256] abs(m)",
        "f = s32[256] gather(x2, a), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=1, slice_sizes={1}",
        "y = s32[256] add(x1, f)",
    ]
    found = []
    for given in ([], ["v = s32[64,500] iota(), iota_dimension=1", "o = s32[] constant(0)"]):
        if given:
            given.append("g2 = s32[64] reduce(v, o), dimensions={1}, to_apply=total")
        text = loop(["s32[256]", "s32[64]"], lines, ["y", "x2"], rounds=50, given=given)
        total = "total {\n  a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  ROOT c = s32[] add(a, b)\n}\n\nbody {"
        made = planned(text.replace("body {", total, 1))
        assert isinstance(made, Plan) and made.kind == "lane-loop"
        found.append(price(made, H100).us)
    assert found[1] > 10 * found[0]


def test_what_a_compiler_knows_takes_no_work() -> None:
    """The elements of a matrix that literals make: where each lane has all of it."""

    def work(factors: str) -> float:
        lines = [
            f"k = f32[2] {factors}",
            "e = f32[2] exponential(k)",
            "b = f32[300,2] broadcast(e), dimensions={1}",
            "h = f32[300,2] reverse(x1), dimensions={1}",
            "y = f32[300,2] multiply(h, b)",
        ]
        found = planned(loop(["f32[300,2]", "f32[2]"], lines, ["y", "x2"]))
        part = found.segments[0].part if isinstance(found, Plan) else None
        assert isinstance(part, Lanes) and part.dimensions == (300,)
        return part.work.slots

    assert work("iota(), iota_dimension=0") + 2 * (7 + 1) == work("abs(x2)")  # exponential and abs
