"""Plans of loops that all blocks of a launch share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.plans import Launch, Plan
from hlo_opt.plans.grid_loop import BLOCK, InGrid
from hlo_opt.plans.grid_search import REPEATED, match, with_fewer_meetings
from hlo_opt.plans.phases import ALONE, Team
from hlo_opt.plans.price import price
from tests.codegen.conftest import region_of_text
from tests.loops import loop, power
from tests.plans.test_lane_loop import planned
from tests.small_modules import H100

FEW = replace(H100, core_count=3)
REVERSED = ["u = f32[16384] reverse(x1), dimensions={0}", "y = f32[16384] tanh(u)"]


def grid(text: str, target: DeviceTarget = H100) -> InGrid:
    found = match(region_of_text(text), target)
    assert found is not None
    return found


def shared(text: str, target: DeviceTarget = H100) -> Plan:
    """The plan by blocks, whatever it would take."""
    region = region_of_text(text)
    part = match(region, target)
    assert part is not None
    return Plan(region, Launch(part.blocks, BLOCK, part.shared_bytes(BLOCK), cooperative=True), (part.segment(BLOCK),))


def test_a_large_state_is_shared_by_all_blocks() -> None:
    made = planned(loop(["f32[16384]"], REVERSED, ["y"]))
    assert isinstance(made, Plan) and made.kind == "grid-loop"
    assert made.launch == Launch(64, BLOCK, 0, cooperative=True)
    assert [str(shape) for shape in made.scratch] == ["f32[16384]"] * 2  # the state, and its next value
    assert made.segments[0].resident == 1 and made.segments[0].together


def test_there_are_no_more_blocks_than_run_at_the_same_time() -> None:
    text = loop(["f32[160000]"], [line.replace("16384", "160000") for line in REVERSED], ["y"])
    assert grid(text).blocks == 132 and grid(text, FEW).blocks == 3


def test_few_elements_are_folded_by_many_threads() -> None:
    part = grid(power(512))
    assert [cell.team for cell in part.cells] == [Team(64), Team(128), ALONE]
    assert part.shared_bytes(BLOCK) == 2 * 4 * BLOCK // 32  # what warps of a team bring together


def test_neighbours_of_a_warp_read_neighbours() -> None:
    lines = ["y = f32[512] dot(x1, x2), lhs_contracting_dims={0}, rhs_contracting_dims={0}"]
    (cell,) = grid(loop(["f32[512]", "f32[512,512]"], lines, ["y", "x2"])).cells
    assert cell.team == Team(32, apart=8)  # 8 columns are a sector


def test_a_fold_that_may_not_be_reordered_is_a_thread_s() -> None:
    mixed = "mixed {\n  a = bf16[] parameter(0)\n  b = bf16[] parameter(1)\n  c = u16[] bitcast-convert(a)\n  d = u16[] bitcast-convert(b)\n  e = u16[] xor(c, d)\n  ROOT f = bf16[] bitcast-convert(e)\n}\n"
    lines = [
        "o = bf16[] constant(1)",
        "e = bf16[] reduce(x1, o), dimensions={0}, to_apply=mixed",
        "b = bf16[40000] broadcast(e), dimensions={}",
        "y = bf16[40000] add(x1, b)",
    ]
    part = grid(loop(["bf16[40000]"], lines, ["y"]).replace("sum {", mixed + "sum {", 1))
    assert [cell.team for cell in part.cells] == [ALONE, ALONE]


def test_terms_of_a_concatenation_are_folded_part_by_part() -> None:
    lines = [
        "j = f32[768] concatenate(x1, x3), dimensions={0}",
        "y = f32[512] dot(j, x2), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    ]
    (cell,) = grid(loop(["f32[512]", "f32[768,512]", "f32[256]"], lines, ["y", "x2", "x3"])).cells
    assert cell.pieces == [(0, 512), (512, 256)]


def test_a_result_is_written_as_soon_as_it_is_known() -> None:
    first = ["h = f32[16384] sqrt(x1)", "u = f32[16384] reverse(h), dimensions={0}", "y = f32[16384] add(h, u)"]
    row = "o = s32[] constant(0)", "d = f32[5,16384] dynamic-update-slice(x2, w, x0, o)"
    for source, phase, waits in (("x1", 0, False), ("h", 1, False), ("y", 2, False)):
        lines = [*first, f"w = f32[1,16384] reshape({source})", *row]
        part = grid(loop(["f32[16384]", "f32[5,16384]"], lines, ["y", "d"]))
        assert (part.written_in(part.results[0]), part.waits) == (phase, waits)
    # where the next round would write at once what the results of this one still read
    both = ["g = f32[16384] add(y, x1)", "w = f32[1,16384] reshape(g)"]
    part = grid(
        loop(
            ["f32[16384]", "f32[5,16384]"], [*first[1:2], "y = f32[16384] negate(u)", *both, *row], ["y", "d"]
        ).replace("reverse(h)", "reverse(x1)")
    )
    assert part.written_in(part.results[0]) == 1 == len(part.phases) and part.waits


def near_ends(first: str) -> str:
    """A loop whose elements are sums of two elements of a value."""
    lines = [first, "u = f32[16384] reverse(h), dimensions={0}", "y = f32[16384] add(h, u)"]
    return loop(["f32[16384]"], lines, ["y"])


def test_what_takes_less_time_than_a_meeting_is_computed_again() -> None:
    text = near_ends("h = f32[16384] sqrt(x1)")
    fewer = with_fewer_meetings(region_of_text(text), H100)
    assert fewer is not None and [len(part.phases) for part in (grid(text), fewer)] == [2, 1]
    made = planned(text)
    assert isinstance(made, Plan) and isinstance(made.segments[0].part, InGrid)
    assert len(made.segments[0].part.phases) == 1
    chain = [f"h{n} = f32[16384] tanh({f'h{n - 1}' if n else 'x1'})" for n in range(int(REPEATED))]
    long = near_ends("\n  ".join([*chain, f"h = f32[16384] negate(h{len(chain) - 1})"]))
    assert with_fewer_meetings(region_of_text(long), H100) is None


def chain(count: int) -> str:
    """The lines of a value `h` that takes so many instructions for an element, one after the other."""
    steps = [f"h{n} = f32[16384] negate({f'h{n - 1}' if n else 'x1'})" for n in range(count - 1)]
    return "\n  ".join([*steps, f"h = f32[16384] negate(h{count - 2})"])


@pytest.mark.parametrize(("count", "is_again"), [(0.4, True), (0.7, False)])
def test_what_is_computed_twice_may_take_half_of_a_meeting_each_time(count: float, is_again: bool) -> None:
    text = near_ends(chain(int(count * REPEATED)))
    assert (with_fewer_meetings(region_of_text(text), H100) is not None) == is_again


def test_what_a_sum_is_made_of_is_not_computed_again_with_what_reads_the_sum() -> None:
    lines = [
        chain(int(REPEATED) + 100),
        "z = f32[] constant(0)",
        "s = f32[] reduce(h, z), dimensions={0}, to_apply=sum",
        "b = f32[16384] broadcast(s), dimensions={}",
        "k = f32[16384] add(x1, b)",
        "u = f32[16384] reverse(k), dimensions={0}",
        "y = f32[16384] add(k, u)",
    ]
    text = loop(["f32[16384]"], lines, ["y"])
    fewer = with_fewer_meetings(region_of_text(text), H100)
    assert fewer is not None and [len(part.phases) for part in (grid(text), fewer)] == [3, 2]


def test_short_sums_are_folded_alone_where_that_saves_a_meeting() -> None:
    lines = ["z = f32[] constant(0)", "m = f32[900] reduce(x1, z), dimensions={1}, to_apply=sum"]
    lines += ["k = f32[900] tanh(m)", "b = f32[900,9] broadcast(k), dimensions={0}", "y = f32[900,9] add(x1, b)"]
    text = loop(["f32[900,9]"], lines, ["y"])
    fewer = with_fewer_meetings(region_of_text(text), H100)
    assert fewer is not None and {cell.team for cell in fewer.cells} == {ALONE}
    assert len(fewer.phases) < len(grid(text).phases)


def test_a_state_that_l2_does_not_hold_has_no_plan() -> None:
    lines = [line.replace("16384", "8000000") for line in REVERSED]
    assert match(region_of_text(loop(["f32[8000000]"], lines, ["y"])), H100) is None


def test_one_value_for_two_of_the_state_has_no_plan() -> None:
    text = loop(["f32[16384]", "f32[16384]"], [*REVERSED, "unused = f32[16384] copy(x2)"], ["y", "y"])
    assert match(region_of_text(text), H100) is None


@pytest.mark.parametrize("rounds", [10, 1000])
def test_the_price_has_a_meeting_for_each_phase(rounds: int) -> None:
    text = loop(["f32[16384]"], REVERSED, ["y"], rounds=rounds)
    found = price(shared(text), H100)
    assert (rounds + 1) * H100.barrier_us < found.way < (rounds + 1) * (H100.barrier_us + 0.5)


def test_the_price_has_what_goes_through_l2_in_each_round() -> None:
    text = power(2048)
    found = price(shared(text), H100)
    each = 4 * 2048 * 2048 / (2 * H100.memory_bandwidth / 1e6)
    assert 20 * each < found.cache < 22 * each
    assert 4 * 2048 * 2048 < found.read < 1.1 * 4 * 2048 * 2048  # once from memory
    small = replace(H100, l2_cache_size=8 << 20)
    again = price(shared(text), small)
    assert again.read > 19 * 4 * 2048 * 2048  # in each round


@pytest.mark.parametrize("counter", ["x0", "x2"])
def test_a_counter_is_no_array_that_is_read(counter: str) -> None:
    lines = [
        f"k = f32[] convert({counter})",
        "m = f32[16384] broadcast(k), dimensions={}",
        "u = f32[16384] reverse(x1), dimensions={0}",
        "y = f32[16384] add(u, m)",
        "n2 = s32[] add(x2, one)",
    ]
    made = shared(loop(["f32[16384]", "s32[]"], lines, ["y", "n2"], given=["g2 = s32[] constant(3)"], read=[1]))
    assert price(made, H100).read == 4 * 16384
