"""Plans of loops that one block owns."""

from __future__ import annotations

import pytest

from hlo_opt.analysis.targets import InLanes
from hlo_opt.plans import Plan, plan
from hlo_opt.plans.block_loop import InBlock
from hlo_opt.plans.phases import Team
from hlo_opt.plans.price import BARRIER, SHARED, clock, price
from tests.codegen.conftest import region_of_text
from tests.loops import COUPLED, loop
from tests.plans.test_lane_loop import planned
from tests.small_modules import H100

POWER = [
    "d = f32[64] dot(x2, x1), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "q = f32[64] multiply(d, d)",
    "o = f32[] constant(0)",
    "e = f32[] reduce(q, o), dimensions={0}, to_apply=sum",
    "k = f32[] rsqrt(e)",
    "b = f32[64] broadcast(k), dimensions={}",
    "y = f32[64] multiply(d, b)",
]


NEIGHBOURS = [
    "before = f32[255] slice(x1), slice={[0:255]}",
    "end = f32[1] slice(x1), slice={[255:256]}",
    "shifted = f32[256] concatenate(end, before), dimensions={0}",
    "y = f32[256] add(x1, shifted)",
]


def turn_of(summed: int) -> list[str]:
    """A round that multiplies a matrix by the state."""
    return [f"y = f32[128] dot(x2, x1), lhs_contracting_dims={{{summed}}}, rhs_contracting_dims={{0}}"]


def phases(text: str) -> InBlock:
    made = planned(text)
    assert isinstance(made, Plan), str(made)
    (segment,) = made.segments
    assert isinstance(segment.part, InBlock)
    assert made.launch.grid == 1 and made.launch.shared_bytes == segment.part.shared_bytes(made.launch.block)
    return segment.part


def opcodes(part: InBlock) -> list[list[str]]:
    return [[cell.value.opcode for cell in phase] for phase in part.phases]


def test_folds_and_products_are_cells() -> None:
    part = phases(loop(["f32[64]", "f32[64,64]"], POWER, ["y", "x2"]))
    assert opcodes(part) == [["dot"], ["reduce"], ["multiply"]]
    assert [c.terms for phase in part.phases for c in phase] == [64, 64, 1]
    assert [c.team for phase in part.phases for c in phase] == [Team(8), Team(16), Team()]
    assert part.block == 512
    assert part.shared_bytes(512) == 64 * 4 * 3 + 16  # the state, its next value, the product, the sum


@pytest.mark.parametrize(("rows", "terms", "ways"), [(256, 32, 8), (256, 24, 2), (32, 32, 8)])
def test_a_vector_of_lanes_folds_a_row(rows: int, terms: int, ways: int) -> None:
    """However many rows there are."""
    lines = [
        f"d = f32[{rows}] dot(x2, x1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
        f"q = f32[{rows}] reverse(d), dimensions={{0}}",
        f"y = f32[{terms}] slice(q), slice={{[0:{terms}]}}",
    ]
    made = plan(region_of_text(loop([f"f32[{terms}]", f"f32[{rows},{terms}]"], lines, ["y", "x2"])), InLanes.of(H100))
    assert isinstance(made, Plan) and isinstance(made.segments[0].part, InBlock)
    assert [cell.team for cell in made.segments[0].part.cells if cell.is_product] == [Team(ways)]


def test_what_several_places_read_is_a_cell() -> None:
    once = ["z = f32[] constant(0)", "h = f32[64] sqrt(x1)", "q = f32[64] pad(h, z), padding=1_-1"]
    near = phases(loop(["f32[64]"], [*once, "y = f32[64] negate(q)"], ["y"]))
    assert opcodes(near) == [["negate"]]
    far = phases(loop(["f32[64]"], [*once, "y = f32[64] add(h, q)"], ["y"]))
    assert opcodes(far) == [["sqrt"], ["add"]]


def test_parts_that_change_places_are_read_once() -> None:
    """Each operand of a concatenate is read by the elements of its part alone."""
    rolled = [
        "h = f32[64] sqrt(x1)",
        "end = f32[3] slice(h), slice={[61:64]}",
        "rest = f32[61] slice(h), slice={[0:61]}",
    ]
    rolled += ["u = f32[64] concatenate(end, rest), dimensions={0}", "y = f32[64] negate(u)"]
    assert opcodes(phases(loop(["f32[64]"], rolled, ["y"]))) == [["negate"]]


@pytest.mark.parametrize(
    ("window", "cells"),
    [
        (["h = f32[8] sqrt(x2)", "b = f32[2,8] broadcast(h), dimensions={1}"], [["sqrt"]]),
        (["b = f32[2,8] broadcast(x2), dimensions={1}"], []),
    ],
)
def test_a_state_of_which_only_windows_are_written(window: list[str], cells: list[list[str]]) -> None:
    """No result of a round is a cell then; what two windows read may be one."""
    lines = [*window, "z = s32[] constant(0)", "k = s32[] constant(3)"]
    lines += [
        "w = f32[64,8] dynamic-update-slice(x1, b, k, z)",
        "y = f32[64,8] dynamic-update-slice(w, b, z, z)",
    ]
    assert opcodes(phases(loop(["f32[64,8]", "f32[8]"], lines, ["y", "x2"]))) == cells


PASSED = [  # of the sums of rows, only what is made of them lasts
    "z = f32[] constant(0)",
    "m = f32[SIZE] reduce(x1, z), dimensions={1}, to_apply=sum",
    "k = f32[SIZE] logistic(m)",
    "b = f32[SIZE,4] broadcast(k), dimensions={0}",
    "u = f32[SIZE,4] reverse(x1), dimensions={0}",
    "a = f32[SIZE,4] abs(u)",
    "y = f32[SIZE,4] add(a, b)",
]


def passing(size: int) -> str:
    return loop([f"f32[{size},4]"], [line.replace("SIZE", str(size)) for line in PASSED], ["y"])


def test_a_cell_that_only_the_next_reads_has_no_memory() -> None:
    part = phases(passing(256))
    assert opcodes(part) == [["reduce", "logistic"], ["add"]]
    assert [cell.passes for cell in part.cells] == [True, False, False]
    assert part.shared_bytes(512) == 4 * 256 * (4 + 4 + 1)  # the state, its next value, and what is made of the sums


def test_what_kernels_of_a_round_compute_twice_is_one_value() -> None:
    """Fusion copies what several kernels read into each of them."""
    once = [f"h{k} = f32[64] sqrt(x1)" for k in (0, 1)] + ["up = f32[64] exponential(h0)", "down = f32[64] negate(h1)"]
    part = phases(
        loop(["f32[64]"], [*once, "q = f32[64] reverse(down), dimensions={0}", "y = f32[64] add(up, q)"], ["y"])
    )
    assert sum(i.opcode == "sqrt" for i in part.round.instructions) == 1


def test_lanes_fold_their_own_column() -> None:
    """In vectors that hold neighbouring columns; the terms of a row are divided, as they are neighbours in memory."""
    text = [loop(["f32[128]", "f32[128,128]"], turn_of(d), ["y", "x2"], rounds=400) for d in (1, 0)]
    made = [plan(region_of_text(one), InLanes.of(H100)) for one in text]
    (row,), (column,) = ([c.team for s in m.segments for c in s.part.cells] for m in made if isinstance(m, Plan))
    assert row.ways > 1 and column == Team()


def test_values_that_change_places_are_copied() -> None:
    turned = ["y = f32[64] reverse(x2), dimensions={0}"]
    part = phases(loop(["f32[64]", "f32[64]"], turned, ["y", "x1"]))
    assert sorted(opcodes(part)[0]) == ["parameter", "reverse"]


def test_what_takes_long_is_computed_once() -> None:
    lines = ["q = f32[64] reverse(x1), dimensions={0}", "y = f32[64] add(q, x2)"]
    made = {name: f"g2 = f32[64] {name}(p3)" for name in ("sine", "negate")}
    dear, cheap = (
        phases(loop(["f32[64]", "f32[64]", "f32[64]"], lines, ["y", "x2", "x3"], given=[line]))
        for line in made.values()
    )
    assert [cell.value.opcode for cell in dear.kept] == ["sine"] and not dear.read
    assert not cheap.kept and [i.opcode for i in cheap.read] == ["negate"]
    assert dear.shared_bytes(64) == cheap.shared_bytes(64) + 256


def chain(length: int, size: int) -> str:
    """A round of as many cells, each of which reads two elements of the one before."""
    lines = []
    for n in range(length):
        before = f"a{n - 1}" if n else "x1"
        lines.append(f"q{n} = s32[{size}] reverse({before}), dimensions={{0}}")
        lines.append(f"{'y' if n == length - 1 else f'a{n}'} = s32[{size}] subtract(q{n}, {before})")
    return loop([f"s32[{size}]"], lines, ["y"])


def test_cells_that_do_not_fit_take_turns() -> None:
    """The first, third and fifth are in one array."""
    few, many = phases(chain(5, 1024)), phases(chain(5, 2560))
    assert [len(array) for array in few.arrays] == [1] * 5 and few.shared_bytes(512) == 6 * 4096
    assert [len(array) for array in many.arrays] == [3, 2] and many.shared_bytes(512) == 3 * 10240


def test_a_counter_is_no_cell() -> None:
    part = phases(COUPLED["a slice of the state where data say"])
    assert [v.counts for v in part.values] == [(0, 1), None] and len(part.state) == 1


def test_a_large_state_is_left_to_all_blocks() -> None:
    text = loop(["f32[8192]"], ["y = f32[8192] reverse(x1), dimensions={0}"], ["y"])
    made = planned(text)
    assert isinstance(made, Plan) and made.kind == "grid-loop"  # the state and its next value are 64 KB


def test_the_test_of_rounds_that_are_not_counted_is_a_cell() -> None:
    part = phases(COUPLED["a test of all"])
    assert part.trips is None and part.test is not None and part.rounds == 1
    assert [c.value.opcode for c in part.phases[0] if c.stands is part.test] == ["reduce"]
    assert all(v.counts is None for v in part.values)


def test_a_stated_count_is_what_the_price_expects() -> None:
    text = COUPLED["a test of all"].replace("body=body", 'body=body, backend_config={"known_trip_count":{"n":"70"}}')
    part = phases(text)
    assert part.trips is None and part.rounds == 70


def test_a_round_waits_for_what_others_have_written() -> None:
    """Cycles of an H100: a load from shared memory and a barrier for each phase, and for the copy of the state."""
    short, long = (planned(loop(["f32[256]"], NEIGHBOURS, ["y"], rounds=n)) for n in (10, 1010))
    assert isinstance(short, Plan) and isinstance(long, Plan)
    cycles = (price(long, H100).us - price(short, H100).us) * clock(H100) / 1000
    assert 2 * (SHARED + BARRIER) < cycles < 2 * (SHARED + BARRIER) + 100


def test_rows_that_a_warp_reads_apart_cost_a_line_each() -> None:
    """A matrix in L1 by a vector in each round: its rows lie apart, its columns side by side."""
    made = [planned(loop(["f32[128]", "f32[128,128]"], turn_of(d), ["y", "x2"], rounds=400)) for d in (1, 0)]
    apart, beside = (price(p, H100).us for p in made if isinstance(p, Plan))
    assert apart > 1.4 * beside


def test_a_block_takes_a_loop_with_a_few_lanes_where_that_is_quicker() -> None:
    """One lane could have it all, products written out: 16 threads are quicker."""
    lines = ["d = f32[16] dot(x2, x1), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "y = f32[16] tanh(d)"]
    part = phases(loop(["f32[16]", "f32[16,16]"], lines, ["y", "x2"]))
    assert opcodes(part) == [["dot"], ["tanh"]]


EMPTY = {
    "state": loop(["f32[64]", "f32[64,0]"], ["y = f32[64] reverse(x1), "
                                             "dimensions={0}", "d = f32[64,0] negate(x2)"], ["y", "d"]),
    "rows": loop(["f32[64]", "f32[7,64]"],
        ["y = f32[64] reverse(x1), dimensions={0}", "c = f32[0,64] broadcast(y), dimensions={1}",
            "o = s32[] constant(0)", "d = f32[7,64] dynamic-update-slice(x2, c, x0, o)"], ["y", "d"]),
    "what is read": loop(["f32[64]", "f32[0]"],
        ["r0 = f32[64] reverse(x1), dimensions={0}", "k = f32[] constant(1)", "q = f32[64] pad(x2, k), padding=0_64",
            "y = f32[64] add(r0, q)"], ["y", "x2"]),
}  # fmt: skip


@pytest.mark.parametrize("name", EMPTY)
def test_empty_arrays_are_left(name: str) -> None:
    assert not isinstance(planned(EMPTY[name]), Plan)


def test_places_that_double_with_each_operation_are_left() -> None:
    """The code would have a part for each."""
    lines, last = [], "x1"
    for n in range(20):
        lines += [
            f"a{n} = f32[32] slice({last}), slice={{[0:64:2]}}",
            f"b{n} = f32[32] slice({last}), slice={{[1:64:2]}}",
        ]
        last = f"c{n}"
        lines.append(f"{last} = f32[64] concatenate(b{n}, a{n}), dimensions={{0}}")
    assert isinstance(planned(loop(["f32[64]"], [*lines[:12], "y = f32[64] negate(c3)"], ["y"])), Plan)
    assert not isinstance(planned(loop(["f32[64]"], [*lines, "y = f32[64] negate(c19)"], ["y"])), Plan)


@pytest.mark.parametrize(("length", "count"), [(8, 0), (60, 1)])
def test_a_long_chain_that_several_folds_read_is_a_cell(length: int, count: int) -> None:
    """As in a step of Hamiltonian Monte Carlo, whose end goes into the energy and into the next state. What the chain
    itself computes on the way is no cell."""
    lines = [f"h{n} = f32[64] multiply({f'h{n - 1}' if n else 'x1'}, x1)" for n in range(length + 1)]
    end = f"h{length}"
    lines += [
        "o = f32[] constant(0)",
        f"s = f32[64] negate({end})",
        "e = f32[] reduce(s, o), dimensions={0}, to_apply=sum",
        "b = f32[64] broadcast(e), dimensions={}",
        f"y = f32[64] multiply({end}, b)",
    ]
    found = opcodes(phases(loop(["f32[64]"], lines, ["y"])))
    assert found == [["multiply"]] * count + [["reduce"], ["multiply"]]
