"""Launches by rule. An H100 has 132 cores of 2048 threads: it is full at 270336 elements."""

from dataclasses import replace

import pytest

import hlo_opt
from hlo_opt.analysis.graph.cluster import Cluster, cluster_of
from hlo_opt.analysis.memory.forms import LaunchDimensions
from hlo_opt.analysis.targets import DeviceTarget, target
from hlo_opt.analysis.xla.heroes import emitter_of
from hlo_opt.analysis.xla.launch import disjoint_groups, emitter_launch


def launch_dimensions(cluster: Cluster, target: DeviceTarget) -> LaunchDimensions:
    emitter, hero = emitter_of(cluster)
    return emitter_launch(emitter, hero, cluster, target)


H100 = target("h100_sxm")
SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"


def cluster(body: str, reducer: str = SUM) -> Cluster:
    return cluster_of(hlo_opt.parse(f"HloModule m\n\n{reducer}\nENTRY e {{\n{body}\n}}\n").entry.root)


def launch(body: str, reducer: str = SUM) -> tuple[int, int]:
    found = launch_dimensions(cluster(body, reducer), H100)
    return found.blocks, found.threads


@pytest.mark.parametrize(
    ("given", "made", "order", "blocks"),
    [
        ("f32[64,96]", "f32[96,64]", "1,0", 2 * 3),
        ("f32[8,64,96]", "f32[8,96,64]", "0,2,1", 8 * 2 * 3),
        ("f32[64,96,2]", "f32[96,64,2]", "1,0,2", 2 * 3),  # the fastest dimension stays, and rides along
        ("bf16[64,96]", "bf16[96,64]", "1,0", 1 * 2),  # packed in squares of 64
        ("bf16[4096,4096]", "bf16[4096,4096]", "1,0", 64 * 64),
        ("u8[24,4096]", "u8[4096,24]", "1,0", 1 * 128),  # 24 rows are too few for packed bytes: tiles of 32
    ],
)
def test_transposes(given: str, made: str, order: str, blocks: int):
    body = f"x = {given} parameter(0)\nROOT r = {made} transpose(x), dimensions={{{order}}}"
    assert launch(body) == (blocks, 128)


def test_narrow_elements_are_moved_together_once_there_is_enough_work():
    # 8 rows: no packed square, but a transpose of 2 bytes; vectors of two need 8448 blocks of work
    small = "x = bf16[8,16384]{1,0} parameter(0)\nROOT r = bf16[16384,8]{1,0} transpose(x), dimensions={1,0}"
    assert launch(small) == (512, 128)
    large = (
        "x = bf16[512,8,16384]{2,1,0} parameter(0)\nROOT r = bf16[512,16384,8]{2,1,0} transpose(x), dimensions={0,2,1}"
    )
    assert launch(large) == (512 * 256, 128)


def test_a_concatenate_walks_its_longest_operand():
    body = """x = f32[512,1024]{1,0} parameter(0)
y = f32[512,510]{1,0} parameter(1)
ROOT r = f32[512,1534]{1,0} concatenate(x, y), dimensions={1}"""
    # 524288 elements, 4 to a thread, but 510 is even only: 2
    assert launch(body) == (524288 // 2 // 128, 128)


SCATTER = """x = f32[{rows},64]{{1,0}} parameter(0)
i = s32[{slices},1]{{1,0}} parameter(1)
u = f32[{slices},1,64]{{2,1,0}} parameter(2)
ROOT r = f32[{rows},64]{{1,0}} scatter(x, i, u), update_window_dims={{1,2}}, inserted_window_dims={{}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1{sorted}, to_apply=sum"""


def test_scatters():
    plain = SCATTER.format(rows=1000, slices=8000, sorted="")
    assert launch(plain) == (8000 * 64 // 4 // 128, 128)
    # sorted: 8000 slices to 1000 places, 8 indices to a warp (a whole number of vectors of 4), 4 warps to a block
    ordered = SCATTER.format(rows=1000, slices=8000, sorted=", indices_are_sorted=true")
    assert launch(ordered) == (8000 // (8 * 4), 128)
    unique = SCATTER.format(rows=1000, slices=8000, sorted=", indices_are_sorted=true, unique_indices=true")
    assert launch(unique) == launch(plain)
    few = SCATTER.format(rows=1000, slices=500, sorted=", indices_are_sorted=true")
    assert launch(few) == (500 * 64 // 128, 128)  # fewer than four slices for each core


@pytest.mark.parametrize(
    ("given", "made", "dimension", "expected"),
    [
        ("f32[4096,16]", "f32[4096]", 1, (256, 256)),  # 16 threads to a row: two elements each leave too few blocks
        ("f32[65536,16]", "f32[65536]", 1, (2048, 256)),  # 2 elements to a thread: 32 rows to a block
        ("f32[8,16]", "f32[8]", 1, (1, 128)),  # all rows fit one block
        ("f32[4096,96]", "f32[4096]", 1, (512, 256)),  # no power of two: a warp for each row
        ("f32[256,512]", "f32[512]", 0, (8, 1024)),  # columns, two to a thread
        ("f32[256,510]", "f32[510]", 0, (8, 1024)),
        ("f32[256,511]", "f32[511]", 0, (16, 1024)),
        ("f32[512,4]", "f32[4]", 0, (1, 128)),  # 32 columns or less: rows side by side
    ],
)
def test_reductions(given: str, made: str, dimension: int, expected: tuple[int, int]):
    body = (
        f"x = {given} parameter(0)\nzero = f32[] constant(0)\n"
        f"ROOT r = {made} reduce(x, zero), dimensions={{{dimension}}}, to_apply=sum"
    )
    assert launch(body) == expected


def test_columns_of_narrow_elements_are_read_wider():
    half = SUM.replace("f32", "bf16")
    body = (
        "x = bf16[256,512]{1,0} parameter(0)\nzero = f32[] parameter(1)\nz = bf16[] constant(0)\n"
        "ROOT r = bf16[512]{0} reduce(x, z), dimensions={0}, to_apply=sum"
    )
    assert launch(body, half) == (4, 1024)


def test_an_empty_reduction_is_a_loop():
    body = (
        "x = f32[512,0]{1,0} parameter(0)\nzero = f32[] constant(0)\nROOT r = f32[0]{0} reduce(x, zero), "
        "dimensions={0}, to_apply=sum"
    )
    assert launch(body) == (1, 1)


def test_results_that_share_no_work_are_groups_of_blocks():
    def fusion(second: str) -> Cluster:
        text = f"""HloModule m

{SUM}
body {{
  x = f32[64,512]{{1,0}} parameter(0)
  y = f32[64,512]{{1,0}} parameter(1)
  zero = f32[] constant(0)
  a = f32[64]{{0}} reduce(x, zero), dimensions={{1}}, to_apply=sum
  b = f32[64]{{0}} reduce({second}, zero), dimensions={{1}}, to_apply=sum
  ROOT t = (f32[64]{{0}}, f32[64]{{0}}) tuple(a, b)
}}

ENTRY e {{
  x = f32[64,512]{{1,0}} parameter(0)
  y = f32[64,512]{{1,0}} parameter(1)
  ROOT f = (f32[64]{{0}}, f32[64]{{0}}) fusion(x, y), kind=kInput, calls=body
}}
"""
        return cluster_of(hlo_opt.parse(text).entry.root)

    assert disjoint_groups(fusion("y")) == 2
    assert disjoint_groups(fusion("x")) == 1
    assert launch_dimensions(fusion("y"), H100) == LaunchDimensions(2 * 8, 256)


def test_blackwell_computes_more_narrow_elements_per_thread():
    body = "x = bf16[4194304]{0} parameter(0)\nROOT r = bf16[4194304]{0} negate(x)"
    b200 = target("b200")
    assert launch_dimensions(cluster(body), H100).blocks == 4194304 // 4 // 128
    assert launch_dimensions(cluster(body), b200).blocks == 4194304 // 8 // 128  # 128 bits of 16
    narrow = body.replace("bf16", "u8")
    assert launch_dimensions(cluster(narrow), b200).blocks == 4194304 // 16 // 128
    wide = body.replace("bf16", "f32")
    assert launch_dimensions(cluster(wide), b200).blocks == 4194304 // 4 // 128
    assert launch_dimensions(cluster(body), replace(b200, compute_capability=90)).blocks == 4194304 // 4 // 128
