"""How many elements of a row a thread takes at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

import hlo_opt
from hlo_opt.analysis.targets import InLanes
from hlo_opt.plans.kinds import kind_of
from hlo_opt.plans.price import price
from hlo_opt.plans.reads import lay_of, traced
from hlo_opt.plans.row_reduction import Rows
from tests.codegen.conftest import Tool
from tests.codegen.test_registers import softmax
from tests.codegen.test_row_reduction import module, row_sum
from tests.small_modules import H100, module_of, planned


@pytest.mark.parametrize(
    ("kind", "columns", "vector", "threads"),
    [
        ("f32", 4096, 4, 256),
        ("f64", 4096, 2, 256),
        ("f32", 4098, 4, 256),
        ("f32", 4097, 4, 256),
        ("bf16", 4096, 8, 256),
        ("bf16", 50257, 8, 1024),
        ("bf16", 263, 8, 32),
        ("bf16", 262, 2, 32),  # a thread would have no vector where a row begins badly
        ("f32", 64, 4, 16),
        ("f32", 128, 4, 32),
        ("f32", 8, 4, 2),
        ("f32", 16, 4, 4),
        ("f64", 4, 2, 2),
        ("s8", 16, 8, 2),
        ("f32", 9, 1, 2),
        ("f32", 10, 2, 2),
        ("f32", 33, 1, 8),
        ("f32", 50, 2, 4),
        ("f32", 100, 4, 8),
        ("bf16", 48, 8, 4),
        ("bf16", 63, 1, 8),
        ("bf16", 255, 1, 32),
    ],
)
def test_vectors(kind: str, columns: int, vector: int, threads: int) -> None:
    reducer = (f"a1 = {kind}[] parameter(0)", f"b1 = {kind}[] parameter(1)", f"c1 = {kind}[] add(a1, b1)")
    lines = (f"p = {kind}[64,{columns}]{{1,0}} parameter(0)", f"z = {kind}[] constant(0)")
    made = planned(module_of(*lines, f"r = {kind}[64]{{0}} reduce(p, z), dimensions={{1}}, "
                                     f"to_apply=more", more=reducer))  # fmt: skip
    (segment,) = made.segments
    assert isinstance(segment.part, Rows) and (segment.vector, segment.part.threads) == (vector, threads)


@pytest.mark.parametrize(
    ("element", "columns", "reducer", "threads"),
    [
        ("p", 4, "add", None),
        ("p", 8, "add", None),
        ("p", 4, "maximum", None),
        ("p", 8, "maximum", None),
        ("p", 64, "maximum", None),
        ("p", 128, "maximum", 32),
        ("e", 8, "add", None),
        ("p", 16, "add", None),
        ("p", 32, "add", None),
        ("p", 64, "add", 16),
    ],
)
def test_on_a_host_a_lane_folds_a_short_row_or_has_an_element(
    element: str, columns: int, reducer: str, threads: int | None
) -> None:
    """None: each lane folds a row of its own."""
    lines = (f"p = f32[4096,{columns}]{{1,0}} parameter(0)", f"e = f32[4096,{columns}]{{1,0}} exponential(p)")
    more = ("a1 = f32[] parameter(0)", "b1 = f32[] parameter(1)", f"c1 = f32[] {reducer}(a1, b1)")
    reduce = f"r = f32[4096]{{0}} reduce({element}, z), dimensions={{1}}, to_apply=more"
    made = planned(module_of(*lines, "z = f32[] constant(0)", reduce, more=more), InLanes.of(H100))
    (segment,) = made.segments
    assert (segment.part.threads if isinstance(segment.part, Rows) else None) == threads


def test_on_a_host_lanes_share_a_row_of_elements_too_wide_to_copy() -> None:
    more = ("a1 = c128[] parameter(0)", "b1 = c128[] parameter(1)", "c1 = c128[] add(a1, b1)")
    lines = ("p = c128[4096,16]{1,0} parameter(0)", "z = c128[] constant((0, 0))")
    reduce = "r = c128[4096]{0} reduce(p, z), dimensions={1}, to_apply=more"
    (segment,) = planned(module_of(*lines, reduce, more=more), InLanes.of(H100)).segments
    assert isinstance(segment.part, Rows) and segment.part.threads == 16


@pytest.mark.parametrize(("columns", "threads"), [(4, 1), (5, 1), (16, 1), (31, 1), (32, 16), (33, 32)])
def test_on_a_host_a_lane_walks_a_short_row_twice_by_itself(columns: int, threads: int) -> None:
    lines = (f"p = f32[4096,{columns}]{{1,0}} parameter(0)", "z = f32[] constant(0)")
    more = ("a1 = f32[] parameter(0)", "b1 = f32[] parameter(1)", "c1 = f32[] add(a1, b1)")
    spread = (
        "r = f32[4096]{0} reduce(p, z), dimensions={1}, to_apply=more",
        f"b = f32[4096,{columns}]{{1,0}} broadcast(r), dimensions={{0}}",
        f"o = f32[4096,{columns}]{{1,0}} divide(p, b)",
    )
    (segment,) = planned(module_of(*lines, *spread, more=more), InLanes.of(H100)).segments
    assert isinstance(segment.part, Rows) and segment.part.threads == threads


def test_a_thread_has_four_of_the_widest_accesses_where_rows_fill_the_device() -> None:
    more = ("a1 = bf16[] parameter(0)", "b1 = bf16[] parameter(1)", "c1 = bf16[] add(a1, b1)")
    lines = ("p = bf16[16384,4096]{1,0} parameter(0)", "z = bf16[] constant(0)")
    reduce = "r = bf16[16384]{0} reduce(p, z), dimensions={1}, to_apply=more"
    (segment,) = planned(module_of(*lines, reduce, more=more)).segments
    assert isinstance(segment.part, Rows) and (segment.vector, segment.part.threads) == (8, 128)


@pytest.mark.parametrize(("functions", "parts"), [(1, 1), (8, 8)])
def test_blocks_share_a_shorter_row_that_takes_long_to_compute(functions: int, parts: int) -> None:
    chain = "".join(f"  t{n + 1} = f32[16384]{{0}} tanh(t{n})\n" for n in range(functions))
    text = module(
        "f32",
        "  t0 = f32[16384]{0} parameter(0)\n  z = f32[] constant(0)\n"
        f"{chain}  ROOT r = f32[] reduce(t{functions}, z), dimensions={{0}}, to_apply=add\n",
    )
    (segment,) = Tool().plan(text).segments
    assert isinstance(segment.part, Rows) and segment.part.parts == parts


@pytest.mark.parametrize(("arrays", "parts"), [(1, 4), (2, 4), (4, 8)])
def test_blocks_share_a_shorter_row_of_which_they_read_several_arrays(arrays: int, parts: int) -> None:
    row = "f32[65536]{0}"
    read = "".join(f"  p{n} = {row} parameter({n})\n" for n in range(arrays))
    added = "".join(f"  t{n} = {row} add({f't{n - 1}' if n > 1 else 'p0'}, p{n})\n" for n in range(1, arrays))
    last = f"t{arrays - 1}" if arrays > 1 else "p0"
    text = module(
        "f32",
        f"{read}  z = f32[] constant(0)\n{added}  ROOT r = f32[] reduce({last}, z), dimensions={{0}}, to_apply=add\n",
    )
    (segment,) = Tool().plan(text).segments
    assert isinstance(segment.part, Rows) and segment.part.parts == parts


@pytest.mark.parametrize(("columns", "parts"), [(16384, 1), (32768, 2), (49152, 3), (1 << 22, 256)])
def test_blocks_share_a_long_row(columns: int, parts: int) -> None:
    (segment,) = Tool().plan(row_sum(1, columns)).segments
    assert isinstance(segment.part, Rows) and segment.part.parts == parts


BESIDE = """HloModule m

sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

{body} {{
  x = f32[65536] parameter(0)
  y = f32[{columns}] parameter(1)
  t = f32[65536] tanh(x)
  z = f32[] constant(0)
  s = f32[] reduce(y, z), dimensions={{0}}, to_apply=sum
  ROOT r = (f32[65536], f32[]) tuple(t, s)
}}
"""


@pytest.mark.parametrize("columns", [4, 64, 1024])
def test_a_row_is_as_heavy_as_what_it_needs(columns: int) -> None:
    parts = [s.part for s in planned(hlo_opt.parse(BESIDE.format(body="ENTRY e", columns=columns))).segments]
    assert [part.parts for part in parts if isinstance(part, Rows)] == [1]


ROWS = 132
"""As many as multiprocessors."""


@pytest.mark.parametrize(
    ("kind", "columns", "blocks", "threads", "slots"),
    [
        ("bf16", 16384, 1, 1024, 16),
        ("bf16", 20000, 1, 512, 40),
        ("bf16", 32768, 1, 512, 64),
        ("bf16", 32767, 2, 512, 33),  # an end more than 64
        ("bf16", 32776, 2, 512, 40),
        ("bf16", 28679, 1, 512, 57),
        ("f32", 32768, 2, 512, 32),
        ("f32", 20000, 2, 512, 20),
        ("f16", 20000, 1, 512, 40),
        ("f32", 65536, 4, 512, 32),
        ("bf16", 262144, 8, 512, 64),
        ("f32", 131076, 1, 1024, 132),  # more than eight blocks keep
    ],
)
def test_a_long_row_that_registers_keep_leaves_room_for_another(
    kind: str, columns: int, blocks: int, threads: int, slots: int
) -> None:
    made = Tool().plan(softmax(ROWS, columns, kind))
    (segment,) = made.segments
    assert isinstance(segment.part, Rows)
    assert (segment.part.threads, segment.part.slots) == (threads, slots)
    assert segment.resident == (2 if threads == 512 else 0)
    assert segment.part.parts == segment.cluster == made.launch.cluster == blocks
    assert made.launch.grid == ROWS * blocks


@pytest.mark.parametrize(("rows", "blocks"), [(1, 8), (32, 8), (33, 4), (66, 2), (67, 2)])
def test_few_rows_have_larger_clusters(rows: int, blocks: int) -> None:
    """Up to one block for each of 132 multiprocessors."""
    assert Tool().plan(softmax(rows, 32768)).launch.cluster == blocks


def test_older_devices_have_no_clusters() -> None:
    (segment,) = Tool(target=replace(H100, compute_capability=80)).plan(softmax(8, 32768)).segments
    assert isinstance(segment.part, Rows) and (segment.part.threads, segment.cluster) == (1024, 1)


def test_a_launch_with_other_segments_has_no_clusters() -> None:
    text = softmax(8, 32768).replace("ROOT r =", "r =").rstrip().removesuffix("}")
    other = "  q = f32[8]{0} parameter(1)\n  n = f32[8]{0} negate(q)\n"
    both = "  ROOT o = (f32[8,32768]{1,0}, f32[8]{0}) tuple(r, n)\n}\n"
    made = Tool().plan(text + other + both)
    assert len(made.segments) == 2 and made.launch.cluster == 1
    assert [s.part.parts for s in made.segments if isinstance(s.part, Rows)] == [1]


def test_what_is_folded_once_is_not_kept() -> None:
    (segment,) = Tool().plan(row_sum(8, 32768, "bf16", "-inf", "max")).segments
    assert isinstance(segment.part, Rows) and (segment.part.threads, segment.resident) == (1024, 0)


def test_accesses_to_peeled_rows_are_wide() -> None:
    made = Tool().plan(softmax(64, 50257, "bf16"))
    (segment,) = made.segments
    first, *_, last = kind_of(segment.part).walks(made.region, segment, made.launch)
    read, written = traced(first, set()), traced(last, set())
    assert lay_of(read, read.reads[0], made.launch.block).bits == 128
    assert lay_of(written, written.writes[0], made.launch.block).bits == 128
    assert price(made, H100).loads == (128, 128)


def test_only_what_is_there_is_counted() -> None:
    """Of seven rounds of 1,024 vectors the last one is nearly empty."""
    made = Tool().plan(softmax(ROWS, 50257, "bf16"))
    (segment,) = made.segments
    walk = kind_of(segment.part).walks(made.region, segment, made.launch)[0]
    assert walk.rounds == 7 and walk.rounds * walk.filled * 8 * 1024 == pytest.approx(50257)
    trace = traced(walk, set())
    assert trace.times(trace.reads[0].index) == pytest.approx(50257 / 1024)


def heavy_row(columns: int) -> str:
    """A row whose elements are folds of 65,536 powers each."""
    return module(
        "f32",
        f"  p = f32[{columns},65536]{{1,0}} parameter(0)\n  z = f32[] constant(0)\n"
        f"  t = f32[{columns},65536]{{1,0}} power(p, p)\n"
        f"  s = f32[{columns}]{{0}} reduce(t, z), dimensions={{1}}, to_apply=add\n"
        "  ROOT r = f32[] reduce(s, z), dimensions={0}, to_apply=add\n",
    )


def test_a_row_may_take_longer_than_any_share_of_blocks_makes_good() -> None:
    (segment,) = Tool().plan(heavy_row(1024)).segments
    assert isinstance(segment.part, Rows) and segment.part.parts == 2 * H100.core_count


@pytest.mark.parametrize("columns", [4, 16])
def test_a_row_of_less_than_a_warp_has_one_block(columns: int) -> None:
    """The first warp of the last block would read parts by lanes that the row does not have."""
    (segment,) = Tool().plan(heavy_row(columns)).segments
    assert isinstance(segment.part, Rows) and segment.part.threads < 32 and segment.part.parts == 1


@pytest.mark.parametrize(("columns", "step"), [(33, 1), (100, 1), (21, 2), (100, 2)])
def test_the_price_counts_the_elements_of_short_rows_that_exist(columns: int, step: int) -> None:
    """Threads beyond the end of a row would read the next one: each element is read once all the same. With a step of
    two, neighbours in memory are read as one access."""
    wide = columns * step
    lines = [f"p = f32[65536,{wide}]{{1,0}} parameter(0)", "z = f32[] constant(0)"]
    for k in range(step):
        lines.append(f"x{k} = f32[65536,{columns}] slice(p), slice={{[0:65536], [{k}:{wide}:{step}]}}")
    lines.append(f"m = f32[65536,{columns}] add(x0, x{step - 1})")
    made = planned(module_of(*lines, "r = f32[65536]{0} reduce(m, z), dimensions={1}, to_apply=sum"))
    assert made.kind == "row-reduction" and price(made, H100).read == pytest.approx(65536 * wide * 4, rel=0.01)


@pytest.mark.parametrize(
    ("sizes", "kept", "layout"), [("64,128,32,128", "64,32", "{3,2,1,0}"), ("32,128,64,128", "32,64", "{1,0,3,2}")]
)
def test_blocks_of_a_matrix_are_rows(sizes: str, kept: str, layout: str) -> None:
    """Each block is divided by its sum: it is read once, by one kernel, where the result is a matrix."""
    made = planned(
        module_of(
            f"p = f32[{sizes}]{layout} parameter(0)",
            "z = f32[] constant(0)",
            f"m = f32[{kept}] reduce(p, z), dimensions={{1,3}}, to_apply=sum",
            f"b = f32[{sizes}]{layout} broadcast(m), dimensions={{0,2}}",
            f"d = f32[{sizes}]{layout} divide(p, b)",
            "r = f32[8192,4096]{1,0} bitcast(d)",
        )
    )
    (segment,) = made.segments
    assert isinstance(segment.part, Rows) and (segment.part.rows, segment.part.columns) == (64 * 32, 128 * 128)
    assert price(made, H100).bytes == pytest.approx(2 * 4 * 8192 * 4096, rel=0.01)


@pytest.mark.parametrize(("rows", "threads"), [(2 * H100.core_count - 1, 1024), (2 * H100.core_count, 512)])
def test_blocks_that_keep_no_row_are_small_where_there_are_enough(rows: int, threads: int) -> None:
    """A block of 1,024 threads is alone on its multiprocessor, or one of two: nothing is loaded while it ends its
    row."""
    made = Tool().plan(row_sum(rows, 32768, "bf16", "-inf", "max"))
    (segment,) = made.segments
    assert isinstance(segment.part, Rows) and (segment.part.threads, segment.part.parts) == (threads, 1)


def test_blocks_that_keep_a_row_for_its_output_are_large() -> None:
    """A row that is divided by its sum has one level of reduces, and two passes."""
    made = planned(
        module_of(
            "p = f32[1024,32768] parameter(0)",
            "z = f32[] constant(0)",
            "s = f32[1024] reduce(p, z), dimensions={1}, to_apply=sum",
            "b = f32[1024,32768] broadcast(s), dimensions={0}",
            "r = f32[1024,32768] divide(p, b)",
        )
    )
    (segment,) = made.segments
    assert isinstance(segment.part, Rows) and segment.part.threads == 1024
    assert price(made, H100).bytes == pytest.approx(2 * 4 * 1024 * 32768, rel=0.01)
