import pytest

import hlo_opt
import hlo_opt.ir
from hlo_opt.analysis.graph.cluster import Cluster, cluster_of, merge_clusters
from hlo_opt.analysis.memory.forms import (
    LaunchDimensions,
    fast_form,
    moves_data,
    moves_minor,
    normalized,
    reduction_form,
    tiled_transpose,
)
from hlo_opt.analysis.targets import DeviceTarget, target
from hlo_opt.analysis.xla.heroes import emitter_of, shared_memory
from hlo_opt.analysis.xla.launch import emitter_launch


def launch_dimensions(cluster: Cluster, target: DeviceTarget) -> LaunchDimensions:
    emitter, hero = emitter_of(cluster)
    return emitter_launch(emitter, hero, cluster, target)


SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
H100 = target("h100_sxm")


def root(body: str) -> hlo_opt.ir.Instruction:
    return hlo_opt.parse(f"HloModule m\n\n{SUM}\nENTRY e {{\n {body}\n}}\n").entry.root


def reduce(given: str, dimensions: str, made: str) -> hlo_opt.ir.Instruction:
    return root(
        f"p = {given} parameter(0)\n z = f32[] constant(0)\n ROOT r = {made} reduce(p, z), "
        f"dimensions={{{dimensions}}}, to_apply=sum"
    )


@pytest.mark.parametrize(
    ("given", "dimensions", "made", "is_row", "sizes", "fast"),
    [
        ("f32[64,512]{1,0}", "1", "f32[64]{0}", True, (1, 64, 512), True),
        ("f32[64,512]{1,0}", "0", "f32[512]{0}", False, (1, 64, 512), True),
        ("f32[64,512]{0,1}", "1", "f32[64]{0}", False, (1, 512, 64), True),
        ("f32[64,512]{1,0}", "0,1", "f32[]", True, (1, 1, 32768), True),
        ("f32[4,8,16,32]{3,2,1,0}", "0,3", "f32[8,16]{1,0}", True, (4, 128, 32), True),
        ("f32[4,8,1,32]{3,2,1,0}", "1,2", "f32[4,32]{1,0}", False, (4, 8, 32), False),
        ("f32[64,7]{1,0}", "1", "f32[64]{0}", True, (1, 64, 7), False),
        ("f32[64,8]{1,0}", "1", "f32[64]{0}", True, (1, 64, 8), True),
        ("f32[16,64]{1,0}", "0", "f32[64]{0}", False, (1, 16, 64), False),
    ],
)
def test_reduction_forms(given: str, dimensions: str, made: str, is_row: bool, sizes: tuple[int, ...], fast: bool):
    instruction = reduce(given, dimensions, made)
    form = reduction_form(instruction)
    assert form is not None
    assert (form.is_row, form.sizes) == (is_row, sizes)
    assert (fast_form(instruction) is not None) == fast


def test_scattered_dimensions_have_no_form():
    assert reduction_form(reduce("f32[2,3,4,5,6]{4,3,2,1,0}", "0,2,4", "f32[3,5]{1,0}")) is None


def test_shared_memory_of_reductions():
    assert shared_memory(reduce("f32[64,512]{1,0}", "1", "f32[64]{0}")) == 32 * 4
    assert shared_memory(reduce("f32[64,512]{1,0}", "0", "f32[512]{0}")) == 32 * 129 * 4
    assert shared_memory(root("p = f32[64,64]{1,0} parameter(0)\n ROOT n = f32[64,64]{1,0} negate(p)")) == 0


def test_transposes():
    assert normalized((2, 3, 4), (1, 2, 0)) == ((12, 2), (1, 0))
    assert normalized((2, 1, 4), (0, 2, 1)) == ((8,), (0,))
    big = root("p = f32[64,32]{1,0} parameter(0)\n ROOT t = f32[32,64]{1,0} transpose(p), dimensions={1,0}")
    assert moves_data(big) and moves_minor(big)
    tiled = tiled_transpose(big)
    assert tiled is not None and tiled.shared_bytes == 32 * 33 * 4
    small = root("p = f32[4,4]{1,0} parameter(0)\n ROOT t = f32[4,4]{1,0} transpose(p), dimensions={1,0}")
    assert moves_minor(small) and tiled_transpose(small) is None
    outer = root("p = f32[4,8,64]{2,1,0} parameter(0)\n ROOT t = f32[8,4,64]{2,1,0} transpose(p), dimensions={1,0,2}")
    assert moves_data(outer) and not moves_minor(outer)
    layout = root("p = f32[64,32]{1,0} parameter(0)\n ROOT t = f32[32,64]{0,1} transpose(p), dimensions={1,0}")
    assert not moves_data(layout)


def test_emitters_and_launches():
    row = reduce("f32[512,512]{1,0}", "1", "f32[512]{0}")
    cluster = cluster_of(row)
    assert emitter_of(cluster)[0] == "reduction"
    launch = launch_dimensions(cluster, H100)
    assert (launch.blocks, launch.threads) == (64, 256)
    small = launch_dimensions(
        cluster_of(root("p = f32[512,512]{1,0} parameter(0)\n ROOT n = f32[512,512]{1,0} negate(p)")), H100
    )
    assert (small.blocks, small.threads) == (2048, 128)
    full = launch_dimensions(
        cluster_of(root("p = f32[1024,512]{1,0} parameter(0)\n ROOT n = f32[1024,512]{1,0} negate(p)")), H100
    )
    assert (full.blocks, full.threads) == (1024, 128)


def test_a_hero_is_found_through_elementwise_operations():
    end = root(
        "p = f32[512,512]{1,0} parameter(0)\n z = f32[] constant(0)\n r = f32[512]{0} reduce(p, z), dimensions={1}, "
        "to_apply=sum\n"
        " ROOT n = f32[512]{0} negate(r)"
    )
    emitter, hero = emitter_of(merge_clusters(cluster_of(end.operands[0]), cluster_of(end), end.operands[0]))
    assert (emitter, hero.opcode) == ("reduction", "reduce")
