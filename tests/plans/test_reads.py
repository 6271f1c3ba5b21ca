"""What a walk reads, and how that lies in memory."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_opt.ir.index_map import Condition, variable
from hlo_opt.plans import Plan, loop
from hlo_opt.plans.kinds import kind_of
from hlo_opt.plans.plan import Launch
from hlo_opt.plans.reads import Lay, Trace, lay_of, lays_of, traced
from hlo_opt.plans.samples import Frame, different, sample
from hlo_opt.plans.walks import ITEM, THREAD
from tests.plans.price_modules import H100, planned


def traces(made: Plan) -> list[Trace]:
    before: set = set()
    (segment,) = made.segments
    return [traced(w, before) for w in kind_of(segment.part).walks(made.region, segment, made.launch)]


def lays(made: Plan) -> list[Lay]:
    """Of what the first walk reads, by the numbers of operands."""
    trace = traces(made)[0]
    reads = sorted(trace.reads, key=lambda r: made.region.parameters.index(r.operand))  # type: ignore[arg-type]
    return [lay_of(trace, read, made.launch.block) for read in reads]


@pytest.mark.parametrize("apart", [1, 3, 1000])
@pytest.mark.parametrize("low", [-7, 0, 10**12])
def test_the_different_numbers_in_order(apart: int, low: int) -> None:
    numbers = low + apart * np.random.default_rng(apart).integers(0, 50, (8, 4, 1, 5))
    assert np.array_equal(different(numbers), np.unique(numbers))


def test_neighbours_move_together_up_to_16_bytes() -> None:
    (wide,) = lays(planned("loop", 4096, 4096))
    assert (wide.bits, wide.count, wide.lines, wide.run) == (128, 1, 4, 128 * 16)
    assert wide.useful == wide.fetched == wide.access.size == 4 * 4096 * 4096
    (narrow,) = lays(planned("loop", 4096, 4096, "bf16"))
    assert (narrow.bits, narrow.count, narrow.run) == (128, 1, 128 * 16)
    (alone,) = lays(planned("loop", 31, 33))
    assert (alone.bits, alone.count, alone.lines) == (32, 1, 1)


def joined(text: str) -> list[Lay]:
    """Of what a loop reads, in the order in which it does, with neighbours joined."""
    made = planned(text)
    trace = traces(made)[0]
    return lays_of(trace, trace.reads, made.launch.block)


def test_reads_of_neighbours_are_one() -> None:
    pairs = (
        " x = f32[{rows},{columns},2] parameter(0)\n"
        " a = f32[{rows},{columns},1] slice(x), slice={[0:{rows}], [0:{columns}], [0:1]}\n"
        " b = f32[{rows},{columns},1] slice(x), slice={[0:{rows}], [0:{columns}], [1:2]}\n"
        " c = f32[{rows},{columns}] reshape(a)\n d = f32[{rows},{columns}] reshape(b)\n"
        " ROOT r = f32[{rows},{columns}] add(c, d)"
    )
    first, second = sorted(joined(pairs), key=lambda lay: -lay.count)
    assert (first.bits, first.count, second.count) == (128, 2, 0)
    assert first.useful == first.fetched == 2 * 4096 * 4096 * 4 and second.useful == second.fetched == 0
    apart = pairs.replace(",2]", ",3]").replace("[1:2]", "[2:3]")
    assert [lay.bits for lay in joined(apart)] == [32, 32]


def test_reads_of_other_arrays_are_apart() -> None:
    text = (
        " x = f32[{rows},{columns}] parameter(0)\n y = f32[{rows},{columns}] parameter(1)\n"
        " ROOT r = f32[{rows},{columns}] add(x, y)"
    )
    assert [lay.count for lay in joined(text)] == [1, 1]


def test_packed_elements_are_counted_in_memory() -> None:
    found = lays(planned(" x = s4[{rows},{columns}] parameter(0)\n ROOT r = bf16[{rows},{columns}] convert(x)"))
    assert found[0].access.size == found[0].useful == 4096 * 4096 / 2


def test_lanes_that_lie_apart_fetch_a_sector_each() -> None:
    text = " x = f32[4096,65536] parameter(0)\n ROOT r = f32[4096,4096] slice(x), slice={[0:4096],[0:65536:16]}"
    (found,) = lays(planned(text))
    assert (found.bits, found.count, found.lines, found.run) == (32, 4, 32, 4)
    assert found.fetched == 8 * found.useful


def test_a_vector_that_all_rows_share_is_asked_for_by_each_block() -> None:
    text = (
        " x = f32[{rows},{columns}] parameter(0)\n y = f32[{columns}] parameter(1)\n"
        " b = f32[{rows},{columns}] broadcast(y), dimensions={1}\n ROOT r = f32[{rows},{columns}] add(x, b)"
    )
    _, shared = lays(planned(text))
    assert shared.access.size == 4 * 4096 and shared.useful == 4096 * shared.access.size


def test_a_row_value_is_read_once_by_a_thread() -> None:
    text = (
        " x = f32[{rows},{columns}] parameter(0)\n y = f32[{rows}] parameter(1)\n"
        " b = f32[{rows},{columns}] broadcast(y), dimensions={0}\n ROOT r = f32[{rows},{columns}] add(x, b)"
    )
    _, row = lays(planned(text))
    assert row.bits == 32 and row.lines == 1


def test_what_may_lie_outside_is_read_by_itself() -> None:
    text = (
        " x = f32[4094,4094] parameter(0)\n z = f32[] constant(0)\n ROOT r = f32[4096,4096] pad(x, z), padding=1_1x1_1"
    )
    made = planned(text)
    (read,) = traces(made)[0].reads
    assert read.conditions and read.share == pytest.approx((4094 / 4096) ** 2)
    assert lays(made)[0].bits == 32


def test_the_steps_of_an_inner_loop_are_counted() -> None:
    text = (
        " x = f32[{rows},{columns}] parameter(0)\n z = f32[] constant(0)\n"
        " ROOT r = f32[{rows},{columns}] reduce-window(x, z), window={size=1x64 pad=0_0x63_0 rhs_reversal=0x1}, to_apply=sum"
    )
    made = planned(text, 8192, 1024)
    (trace,) = traces(made)
    ((fold, _, size),) = trace.folds
    assert (fold.opcode, size, trace.waits) == ("reduce-window", 64, 16)
    (found,) = lays(made)
    assert found.access.conditions and 0.9 < found.access.share < 1
    assert found.count == pytest.approx(64 * found.access.share)  # long windows: an element for each thread
    assert (found.bits, found.advance, found.lines) == (32, 4, 2)  # lanes are neighbours, and begin within a line


def test_indices_that_data_give_are_drawn_once_for_a_slice() -> None:
    made = planned("gather", 65536, 1024)
    trace = traces(made)[0]
    assert len(trace.drawn) == 1
    table, indices = lays(made)
    assert table.bits == 128 and table.run >= 2048
    assert indices.lines == 1 and indices.count == 1


def test_what_registers_keep_is_not_read_again() -> None:
    first, second, *_ = traces(planned("row-reduction", 1024, 4096))
    assert [len(first.reads), len(second.reads)] == [1, 0]
    first, second, *_ = traces(planned("row-reduction", 64, 262144))
    assert [r.again for r in (*first.reads, *second.reads)] == [False, True]


def test_each_value_is_computed_once_at_each_index() -> None:
    text = (
        " x = f32[{rows},{columns}] parameter(0)\n e = f32[{rows},{columns}] exponential(x)\n"
        " s = f32[{rows},{columns}] add(e, e)\n ROOT r = f32[{rows},{columns}] multiply(s, e)"
    )
    (trace,) = traces(planned(text))
    assert sorted(i.opcode for i, _, _ in trace.values) == ["add", "exponential", "multiply"]
    assert {trace.times(index) for _, index, _ in trace.values} == {4}


def test_what_a_row_has_once_is_counted_once() -> None:
    """Two rounds to a row: what its columns share is the same in both."""
    text = (
        " x = f32[{rows},{columns}] parameter(0)\n z = f32[] constant(0)\n"
        " s = f32[{rows}] reduce(x, z), dimensions={1}, to_apply=sum\n q = f32[{rows}] multiply(s, s)\n"
        " b = f32[{rows},{columns}] broadcast(q), dimensions={0}\n d = f32[{rows},{columns}] divide(x, b)\n"
        " c = f32[{stretches},8,{columns}] reshape(d)\n p = f32[{stretches},{columns}] reduce(c, z), dimensions={1}, "
        "to_apply=sum\n"
        " ROOT r = (f32[{rows},{columns}], f32[{stretches},{columns}]) tuple(d, p)"
    )
    made = planned(text, 1024, 4096)
    (segment,) = made.segments
    assert segment.kind == "row-and-column-reduction"
    trace = traces(made)[1]
    rows = 1024 // segment.part.teams  # type: ignore[attr-defined]
    assert {trace.times(index) for i, index, _ in trace.values if i.opcode == "multiply"} == {rows}
    assert trace.walk.rounds == rows * 2


def test_what_neighbouring_columns_share_is_computed_once() -> None:
    (trace,) = traces(planned("column-reduction abreast", 64, 512))[:1]
    times = {i.opcode: trace.times(index) for i, index, _ in trace.values}
    assert trace.walk.items == 3
    assert times["rsqrt"] == trace.walk.rounds == times["multiply"] / 3
    assert sorted({trace.times(read.index) for read in trace.reads}) == [times["rsqrt"], times["multiply"]]


def test_neighbours_of_odd_planes_share_sectors_where_they_share_no_instruction() -> None:
    """Each thread reads one row of three: 96 bits are no access, but three times 32 of one sector."""
    odd = """ x = f32[65536,3] parameter(0)
 a = f32[65536,1] slice(x), slice={[0:65536], [0:1]}
 b = f32[65536,1] slice(x), slice={[0:65536], [1:2]}
 c = f32[65536,1] slice(x), slice={[0:65536], [2:3]}
 d = f32[65536,1] add(a, b)
 ROOT r = f32[65536,1] add(d, c)"""
    found = joined(odd)
    assert {lay.bits for lay in found} == {32}
    assert sum(lay.fetched for lay in found) == sum(lay.useful for lay in found) == 65536 * 12


def test_indices_of_several_dimensions_are_different_data() -> None:
    """Rows that neighbouring results gather are not taken for the same because their numbers have the same sum."""
    bags = (
        " t = f32[1000000,64] parameter(0)\n i = s32[{rows},20,1] parameter(1)\n z = f32[] constant(0)\n"
        " g = f32[{rows},20,64] gather(t, i), offset_dims={2}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=2, slice_sizes={1,64}\n"
        " ROOT r = f32[{rows},64] reduce(g, z), dimensions={1}, to_apply=sum"
    )
    table = next(lay for lay in joined(bags) if lay.access.shape.dimensions == (1_000_000, 64))
    assert table.useful == table.fetched == 4096 * 20 * 64 * 4


def test_sectors_follow_each_other_where_elements_do_not() -> None:
    text = (
        " x = f32[{rows},{columns}] parameter(0)\n"
        " ROOT r = f32[{rows},%d] slice(x), slice={[0:{rows}], [0:{columns}:%d]}"
    )
    near, far = (joined(text % (4096 // step, step))[0] for step in (4, 16))
    assert (near.run, far.run) == (4, 4)
    assert near.stretch >= 128 * 16
    assert far.stretch == 32


@pytest.mark.parametrize(("first", "second"), [(1, 1), (2, 2), (3, 5)])
def test_what_lanes_in_turn_read_of_pieces_is_all_of_each(first: int, second: int) -> None:
    """Elements of two arrays that alternate along the minor-most dimension: the condition of each holds for a part of a
    thread's elements, but these read different ones, so that all of the array is read."""
    rows = 1 << 16
    text = (
        f" x = f32[{rows * first}] parameter(0)\n y = f32[{rows * second}] parameter(1)\n"
        f" a = f32[{rows},{first}] reshape(x)\n b = f32[{rows},{second}] reshape(y)\n"
        f" ROOT r = f32[{rows},{first + second}] concatenate(a, b), dimensions={{1}}"
    )
    region = planned(text).region
    (part,) = loop.match(region, [0], H100)
    segment = part.segment(part.block)
    (walk,) = kind_of(part).walks(region, segment, Launch(segment.blocks, part.block))
    trace = traced(walk, set())
    for lay in (lay_of(trace, read, part.block) for read in trace.reads):
        assert lay.access.size <= lay.useful <= 1.02 * lay.access.size


def test_conditions_may_vary_where_the_address_does_not() -> None:
    """All of a thread's items read the element of the thread; which of the items exist, and which need it, depends on
    the item."""
    thread, item = variable(THREAD, 1024), variable(ITEM, 4)
    frame = Frame(1024, 128, 1, 1, 4, (("at", item),), (), (), (("at", 3),))
    for f, exact in ((frame, True), (frame._replace(limits=()), False)):
        found = sample(f, thread, 32, (Condition(item, 1, 2),))
        assert found.places == 128 and found.is_exact == exact and found.scale == (8 if exact else 16)
