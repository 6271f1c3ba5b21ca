import itertools
import math

import hlo_opt
from hlo_opt.analysis.graph.cluster import Cluster, cluster_of, merge_clusters
from hlo_opt.analysis.targets import target
from hlo_opt.analysis.xla.performance import Priced
from hlo_opt.analysis.xla.tiled_cluster import Tiles, padded, tile_cluster
from hlo_opt.analysis.xla.tiled_model import TileSizes, best_tiling, configured_tiles, structure, tiled_kernel
from hlo_opt.fusion.state import FusionState

H100 = target("h100_sxm")
MAX = "max {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] maximum(a, b)\n}\n"


def normalized(shape: str, reduced: str, dimensions: str, last: int, name: str = "x") -> Cluster:
    text = f"""HloModule m

{MAX}
body {{
  {name} = {shape} parameter(0)
  low = f32[] constant(-inf)
  top = {reduced} reduce({name}, low), dimensions={{{last}}}, to_apply=max
  wide = {shape} broadcast(top), dimensions={{{dimensions}}}
  ROOT s = {shape} subtract({name}, wide)
}}

ENTRY e {{
  {name} = {shape} parameter(0)
  ROOT f = {shape} fusion({name}), kind=kLoop, calls=body
}}
"""
    return cluster_of(hlo_opt.parse(text).entry.root)


def rows(name: str = "x") -> Cluster:
    return normalized("f32[8,100]{1,0}", "f32[8]{0}", "0", 1, name)


def test_padded_tiles():
    assert padded(()) == 1
    assert padded((1, 5, 64)) == 8 * 64


def test_an_input_on_two_paths_counts_once_where_the_tiles_are_the_same():
    tiled = tile_cluster(rows())
    assert tiled is not None
    inputs = [n for n, tiled_node in enumerate(tiled.nodes) if tiled_node.node.is_input]
    assert len(inputs) == 2  # by the reduction, and by the difference
    whole, part = Tiles(tiled, (2, 100)), Tiles(tiled, (2, 64))
    assert sum(n in inputs for n in whole.distinct()) == 1
    assert sum(n in inputs for n in part.distinct()) == 2


def test_tiles_of_a_row():
    tiled = tile_cluster(rows())
    assert tiled is not None
    tiles = Tiles(tiled, (2, 64))
    assert tiles.blocks == 4 * 2
    assert tiles.largest == 2 * 128  # the reduced row is taken whole, and padded
    assert tiles.is_valid()


def test_a_reshape_limits_the_tiles():
    text = """HloModule m

ENTRY e {
  x = f32[24]{0} parameter(0)
  ROOT r = f32[4,6]{1,0} bitcast(x)
}
"""
    tiled = tile_cluster(cluster_of(hlo_opt.parse(text).entry.root))
    assert tiled is not None
    assert Tiles(tiled, (1, 2)).is_valid()
    assert Tiles(tiled, (1, 4)).is_valid()
    # halves of two rows do not lie together; and whole rows of 6 are padded to 8, which is more than a row
    assert not Tiles(tiled, (2, 2)).is_valid()
    assert not Tiles(tiled, (2, 6)).is_valid()


def test_what_does_not_tile_has_no_tiles():
    for body in (
        "x = f32[8]{0} parameter(0)\nROOT r = f32[8]{0} reverse(x), dimensions={0}",
        "x = f32[8]{0} parameter(0)\nzero = f32[] constant(0)\nROOT r = f32[12]{0} pad(x, zero), padding=2_2",
        "x = f32[8]{0} parameter(0)\nROOT r = (f32[8]{0}) tuple(x)",
    ):
        cluster = cluster_of(hlo_opt.parse(f"HloModule m\n\nENTRY e {{\n{body}\n}}\n").entry.root)
        assert tile_cluster(cluster) is None
        assert best_tiling(cluster, H100)[0] is None


def test_the_search_finds_what_trying_all_tilings_finds():
    cluster = rows()
    tiled = tile_cluster(cluster)
    assert tiled is not None
    tried = {
        sizes: tiled_kernel(cluster, H100, TileSizes(sizes, warps)).us
        for sizes in itertools.product((1, 2, 4, 8), (1, 2, 4, 8, 16, 32, 64, 100))
        for warps in (1, 2)
        if Tiles(tiled, sizes).is_valid() and (Tiles(tiled, sizes).largest <= 256) == (warps == 1)
    }
    best, estimate = best_tiling(cluster, H100)
    assert best is not None
    assert estimate.us == min(tried.values()) == tried[best.sizes]
    assert math.isclose(tiled_kernel(cluster, H100, best).us, estimate.us)


def test_structure_goes_by_what_is_computed():
    assert structure(rows("x"), 90) == structure(rows("y"), 90)
    other = normalized("f32[100,8]{1,0}", "f32[8]{0}", "1", 0)
    assert structure(rows(), 90) != structure(other, 90)


def test_structure_tells_which_values_are_the_same():
    text = """HloModule m

ENTRY e {
  x = f32[8]{0} parameter(0)
  y = f32[8]{0} parameter(1)
  p = f32[8]{0} negate(x)
  same = f32[8]{0} add(p, x)
  other = f32[8]{0} add(p, y)
  ROOT t = (f32[8]{0}, f32[8]{0}) tuple(same, other)
}
"""
    by_name = {i.name: i for i in hlo_opt.parse(text).entry.instructions}
    above = cluster_of(by_name["p"])
    one, two = (structure(merge_clusters(above, cluster_of(by_name[n]), by_name["p"]), 90) for n in ("same", "other"))
    assert one != two


def fusion(config: str, kind: str = "kCustom") -> hlo_opt.ir.Instruction:
    text = f"""HloModule m

body {{
  x = f32[4,64]{{1,0}} parameter(0)
  ROOT n = f32[4,64]{{1,0}} negate(x)
}}

ENTRY e {{
  x = f32[4,64]{{1,0}} parameter(0)
  ROOT f = f32[4,64]{{1,0}} fusion(x), kind={kind}, calls=body, backend_config={config}
}}
"""
    return hlo_opt.parse(text).entry.root


def config(kind: str, sizes: str, warps: str = '"num_warps":"2",') -> str:
    return f'{{"fusion_backend_config":{{"kind":"{kind}","block_level_fusion_config":{{{warps}"output_tiles":[{{"sizes":[{sizes}]}}]}}}}}}'


def test_the_tiles_of_a_configuration():
    assert configured_tiles(fusion(config("__triton", '"1","64"'))) == TileSizes((1, 64), 2)
    assert configured_tiles(fusion(config("__triton", '"1","64"', ""))) == TileSizes((1, 64), 8)
    assert configured_tiles(fusion(config("__triton_gemm", '"1","64"'))) is None
    assert configured_tiles(fusion(config("__triton", '"1","64"'), "kLoop")) is None
    for wrong in ('"64"', '"0","64"', '"-1","64"', '"1","64","1"', ""):
        assert configured_tiles(fusion(config("__triton", wrong))) is None


def test_our_own_kernels_are_not_priced_by_tiles():
    found = fusion(config("__triton", '"4","64"'))
    assert Priced(found, H100).estimate.us != FusionState(found.computation.module, H100).priced(found).estimate.us
