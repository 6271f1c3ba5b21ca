"""How the columns of a sum are divided among threads reaches the launch."""

from __future__ import annotations

import pytest

from hlo_opt.analysis.targets import DeviceTarget, InLanes
from hlo_opt.codegen import emit_kernel
from hlo_opt.plans.column_reduction import Columns
from hlo_opt.plans.columns import PART, column_parts, column_tile, lanes_parts, lanes_tile, wide_tile
from tests.small_modules import H100, module_of, planned


@pytest.mark.parametrize("sizes", [(1, 65536, 32), (1, 512, 64), (3, 4096, 33)])
def test_the_launch_has_the_tile_of_the_columns(sizes: tuple[int, int, int]) -> None:
    batch, rows, columns = sizes
    lines = (f"p = f32[{batch},{rows},{columns}]{{2,1,0}} parameter(0)", "z = f32[] constant(0)")
    module = module_of(*lines, f"r = f32[{batch},{columns}]{{1,0}} reduce(p, z), dimensions={{1}}, to_apply=sum")
    tile = column_tile(sizes, 32, 4, H100.core_count)
    (segment,) = planned(module).segments
    assert isinstance(segment.part, Columns) and segment.part.sizes == sizes and tile is not None
    assert segment.part.tile == tile and segment.vector == tile.vector
    assert segment.part.parts == column_parts(tile, rows, H100.core_count) >= (2 if rows > 60000 else 1)
    assert segment.blocks == tile.blocks * segment.part.parts and segment.part.levels == ((module.entry.root,),)


def test_columns_that_blocks_share_are_as_wide_as_16_bytes_per_lane() -> None:
    lines = ("p = bf16[16384,4096]{1,0} parameter(0)", "z = bf16[] constant(0)")
    more = ("a1 = bf16[] parameter(0)", "b1 = bf16[] parameter(1)", "c1 = bf16[] add(a1, b1)")
    reduce = "r = bf16[4096]{0} reduce(p, z), dimensions={0}, to_apply=more"
    (segment,) = planned(module_of(*lines, reduce, more=more)).segments
    tile = wide_tile((1, 16384, 4096), 16, 4)
    assert isinstance(segment.part, Columns) and tile is not None and segment.part.tile == tile
    assert (tile.vector, tile.lanes, tile.blocks) == (8, 32, 16)
    assert segment.part.parts == column_parts(tile, 16384, H100.core_count) == 16


@pytest.mark.parametrize(
    ("minor", "parts"),
    [(1000, 64), (2000, 32), (3000, 22), (600, 88)],  # of 66, 33, 22 and 88 that would fill 132 multiprocessors
)
def test_parts_are_whole_rounds_of_the_last_block_where_few_are_left_out(minor: int, parts: int) -> None:
    tile = wide_tile((1, 65536, minor), 16, 4)
    assert tile is not None and tile.ways == 32 and column_parts(tile, 65536, 132) == parts


@pytest.mark.parametrize(("minor", "vector"), [(130, 2), (129, 1), (1000, 4), (65536, 4)])
def test_a_wide_tile_reads_whole_vectors(minor: int, vector: int) -> None:
    tile = wide_tile((1, 4096, minor), 32, 4)
    assert tile is not None and (tile.vector, tile.lanes) == (vector, 32)


@pytest.mark.parametrize(
    ("minor", "bits", "lanes"), [(333, 16, 333), (77, 16, 77), (1001, 16, 256), (999, 8, 256), (31, 16, 31)]
)
def test_narrow_columns_that_are_no_vectors_are_a_whole_row_or_several_warps(minor: int, bits: int, lanes: int) -> None:
    tile = wide_tile((1, 131072, minor), bits, 4)
    assert tile is not None and (tile.vector, tile.lanes) == (1, lanes)
    assert tile.blocks == -(-minor // lanes) and tile.threads <= 1024


@pytest.mark.parametrize(
    ("kind", "minor", "ahead"), [("f32", 1001, 4), ("bf16", 1001, 8), ("u8", 1001, 16), ("bf16", 1000, 4)]
)
def test_as_many_bytes_are_loaded_together_where_columns_are_no_vectors(kind: str, minor: int, ahead: int) -> None:
    lines = (f"p = {kind}[65536,{minor}]{{1,0}} parameter(0)", f"z = {kind}[] constant(0)")
    more = (f"a1 = {kind}[] parameter(0)", f"b1 = {kind}[] parameter(1)", f"c1 = {kind}[] add(a1, b1)")
    reduce = f"r = {kind}[{minor}]{{0}} reduce(p, z), dimensions={{0}}, to_apply=more"
    made = planned(module_of(*lines, reduce, more=more))
    (segment,) = made.segments
    assert isinstance(segment.part, Columns) and segment.part.ahead == ahead
    assert (f"#pragma unroll {ahead}\n" in emit_kernel(made).source) == (ahead > 4)


def test_what_needs_a_sum_is_summed_after_it() -> None:
    wide, row = "f32[4096,64]{1,0}", "f32[64]{0}"
    lines = [f"p = {wide} parameter(0)", "z = f32[] constant(0)"]
    for n, given in enumerate("pe"):
        lines.append(f"sum{n} = {row} reduce({given}, z), dimensions={{0}}, to_apply=sum")
        if not n:
            lines += [f"b = {wide} broadcast(sum0), dimensions={{1}}", f"e = {wide} subtract(p, b)"]
    (segment,) = planned(module_of(*lines, f"r = {row} negate(sum1)")).segments
    assert isinstance(segment.part, Columns)
    assert [[r.name for r in level] for level in segment.part.levels] == [
        ["sum0"],
        ["sum1"],
    ] and segment.hero.name == "sum0"


@pytest.mark.parametrize(
    ("sizes", "may_share", "tile"),
    [
        ((1, 8192, 1024), True, (1, 1024, 1, 1)),
        ((1, 8192, 1500), True, (1, 750, 1, 2)),
        ((1, 8192, 1024), False, (1, 128, 1, 8)),
        ((40, 64, 1024), False, (1, 1024, 1, 40)),
        ((1, 8192, 10), True, (1, 10, 8, 1)),
        ((3, 5, 2), True, (1, 2, 4, 3)),
    ],
)
def test_lanes_are_columns(sizes: tuple[int, int, int], may_share: bool, tile: tuple[int, int, int, int]) -> None:
    made = lanes_tile(sizes, 4, may_share=may_share)
    assert (made.vector, made.lanes, made.ways, made.blocks) == tile
    assert 1 <= lanes_parts(made, sizes[1]) <= max(1, sizes[1] * made.lanes // PART)


@pytest.mark.parametrize(("kind", "lanes"), [("f32", 32), ("bf16", 64), ("s8", 128)])
def test_columns_that_are_kept_are_a_word_for_each_lane_of_a_warp_abreast(kind: str, lanes: int) -> None:
    """Rows of 1,023 elements are no vectors: with one element for each of 32 lanes, a row of bytes would be one sector
    of a tile."""
    made = planned(
        module_of(
            f"p = {kind}[1000,37,1023] parameter(0)",
            "w = f32[1000,37,1023] convert(p)",
            "z = f32[] constant(0)",
            "s = f32[1000,1023] reduce(w, z), dimensions={1}, to_apply=sum",
            "b = f32[1000,37,1023] broadcast(s), dimensions={0,2}",
            "r = f32[1000,37,1023] divide(w, b)",
        )
    )
    (segment,) = made.segments
    assert isinstance(segment.part, Columns) and segment.part.keeps
    assert (segment.part.tile.vector, segment.part.tile.lanes) == (1, lanes)


def test_a_thread_that_reads_much_of_a_row_has_64_registers() -> None:
    """Two arrays and two scales of columns, four columns at a time, do not fit into 32 registers with their sums: the
    gradient of a group norm with its activation spilled."""
    sizes = "32,3136,128"
    little = [
        f"p = f32[{sizes}] parameter(0)",
        "a = f32[128] parameter(1)",
        "z = f32[] constant(0)",
        f"c = f32[{sizes}] broadcast(a), dimensions={{2}}",
        f"m = f32[{sizes}] multiply(p, c)",
    ]
    much = [
        *little,
        f"q = f32[{sizes}] parameter(2)",
        "b = f32[128] parameter(3)",
        f"d = f32[{sizes}] broadcast(b), dimensions={{2}}",
        f"n = f32[{sizes}] multiply(q, d)",
        f"o = f32[{sizes}] add(m, n)",
    ]
    total = "s = f32[32,128] reduce({}, z), dimensions={{1}}, to_apply=sum".format
    for lines, summed, threads in ((little, "m", 2048), (much, "o", 1024)):
        (segment,) = planned(module_of(*lines, total(summed))).segments
        assert isinstance(segment.part, Columns) and segment.part.tile.vector == 4
        assert segment.part.block * segment.resident == threads


def test_columns_beside_other_segments_leave_them_registers() -> None:
    """Two blocks of 1,024 threads would leave 32 for each thread of the rows, too."""
    made = planned(
        module_of(
            "p = f32[100000,256] parameter(0)",
            "q = f32[4096,1024] parameter(1)",
            "z = f32[] constant(0)",
            "s = f32[256] reduce(p, z), dimensions={0}, to_apply=sum",
            "m = f32[4096] reduce(q, z), dimensions={1}, to_apply=sum",
            "t = (f32[256], f32[4096]) tuple(s, m)",
        )
    )
    (columns,) = [(s.part, s.resident) for s in made.segments if isinstance(s.part, Columns)]
    assert made.launch.block == 512 and columns[0].tile.vector == 4 and columns[1] == 3


@pytest.mark.parametrize("target", [H100, InLanes.of(H100)])
def test_columns_with_one_thread_each_stay_beside_others(target: DeviceTarget) -> None:
    """On a processor, lanes of a block of 1,024 are as many columns: they have no ways to halve."""
    made = planned(
        module_of(
            "p = f32[100000,1024] parameter(0)",
            "q = f32[4096,1024] parameter(1)",
            "z = f32[] constant(0)",
            "s = f32[1024] reduce(p, z), dimensions={0}, to_apply=sum",
            "m = f32[4096] reduce(q, z), dimensions={1}, to_apply=sum",
            "t = (f32[1024], f32[4096]) tuple(s, m)",
        ),
        target,
    )
    (part,) = [s.part for s in made.segments if isinstance(s.part, Columns)]
    assert (part.tile.ways, part.tile.lanes) == ((1, 1024) if target.in_lanes else (16, 32))
