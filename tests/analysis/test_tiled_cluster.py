import itertools
import math

from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_opt
from hlo_opt.analysis.graph.cluster import Cluster, Node, cluster_of, merge_clusters
from hlo_opt.analysis.targets import target
from hlo_opt.analysis.xla.tiled_cluster import (
    RANGE,
    ClusterTiles,
    Digit,
    DigitIndex,
    DigitIndices,
    operand_indices,
    padded,
    root_indices,
    tile_cluster,
)
from hlo_opt.analysis.xla.tiled_model import TileSizes, best_tiling, configured_tiles, structure, tiled_kernel


def node(body: str) -> Node:
    module = hlo_opt.parse(f"HloModule m\n\nENTRY e {{\n{body}\n}}\n")
    return cluster_of(module.entry.root).roots[0]


def through(body: str, number: int = 0) -> DigitIndices | None:
    """The indices of an operand of the root, when the root is the kernel's result."""
    root = node(body)
    return operand_indices(root, number, root_indices(root.shape))


def value(index: DigitIndex, place: dict[int, int]) -> int:
    """What an index gives for a place of the result; reduced dimensions stand at 0."""
    return index.offset + sum(
        d.stride * (place[d.source] // d.divisor % d.size) for d in index.digits if d.source != RANGE
    )


def test_elementwise_operations_keep_indices():
    body = "x = f32[4,8]{1,0} parameter(0)\nROOT r = f32[4,8]{1,0} tanh(x)"
    assert through(body) == root_indices(node(body).shape)


def test_broadcast_and_transpose_pick_dimensions():
    found = through("x = f32[8]{0} parameter(0)\nROOT r = f32[4,8]{1,0} broadcast(x), dimensions={1}")
    assert found == (DigitIndex((Digit(1, 8, 1, 8, 1),)),)
    found = through("x = f32[4,8]{1,0} parameter(0)\nROOT r = f32[8,4]{1,0} transpose(x), dimensions={1,0}")
    assert found is not None
    assert [i.digits[0].source for i in found] == [1, 0]


def test_a_slice_scales_and_shifts():
    found = through("x = f32[32]{0} parameter(0)\nROOT r = f32[8]{0} slice(x), slice={[3:27:3]}")
    assert found == (DigitIndex((Digit(0, 8, 1, 8, 3),), 3),)
    assert found[0].stride((4,)) == 3
    assert found[0].elements((4,)) == 4
    assert found[0].origin((4,)) != DigitIndex((Digit(0, 8, 1, 8, 3),), 0).origin((4,))


def test_a_reshape_joins_and_cuts():
    joined = through("x = f32[32]{0} parameter(0)\nROOT r = f32[4,8]{1,0} bitcast(x)")
    assert joined == (DigitIndex((Digit(0, 4, 1, 4, 8), Digit(1, 8, 1, 8, 1))),)
    assert joined[0].is_tileable
    assert joined[0].fits((2, 8))  # two whole rows lie together
    assert joined[0].fits((1, 4))  # part of a row
    assert not joined[0].fits((2, 4))  # halves of two rows do not
    assert joined[0].stride((2, 8)) == 1
    assert joined[0].stride((2, 1)) == 8
    cut = through("x = f32[4,8]{1,0} parameter(0)\nROOT r = f32[32]{0} bitcast(x)")
    assert cut == (DigitIndex((Digit(0, 32, 8, 4, 1),)), DigitIndex((Digit(0, 32, 1, 8, 1),)))
    assert [i.elements((16,)) for i in cut] == [2, 8]
    assert [i.elements((4,)) for i in cut] == [1, 4]
    assert not cut[1].fits((12,))  # neither part of a row nor whole rows


def test_cutting_what_was_joined_gives_it_back():
    text = "x = f32[4,8]{1,0} parameter(0)\nb = f32[32]{0} bitcast(x)\nROOT r = f32[4,8]{1,0} bitcast(b)"
    module = hlo_opt.parse(f"HloModule m\n\nENTRY e {{\n{text}\n}}\n")
    outer = cluster_of(module.entry.root).roots[0]
    inner = cluster_of(next(i for i in module.entry.instructions if i.name == "b")).roots[0]
    first = operand_indices(outer, 0, root_indices(outer.shape))
    assert first is not None
    assert operand_indices(inner, 0, first) == root_indices(outer.shape)


def test_what_does_not_tile():
    assert through("x = f32[4,8]{0,1} parameter(0)\nROOT r = f32[32]{0} bitcast(x)") is None
    assert through("x = f32[8]{0} parameter(0)\nROOT r = f32[8]{0} reverse(x), dimensions={0}") is None
    assert through("x = f32[0,4]{1,0} parameter(0)\nROOT r = f32[0]{0} bitcast(x)") is None
    # a dimension cut unevenly is no digit
    assert through("x = f32[4,6]{1,0} parameter(0)\nROOT r = f32[3,8]{1,0} bitcast(x)") is None


def test_a_reduced_dimension_is_not_cut():
    ranged = DigitIndex((Digit(RANGE, 8, 1, 4, 1),))
    assert not ranged.is_tileable
    assert DigitIndex((Digit(RANGE, 8, 1, 8, 1),)).is_tileable


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4),
    st.permutations(range(4)),
    st.randoms(use_true_random=False),
)
def test_a_reshape_reads_the_element_with_the_same_number(sizes, order, random):
    """Where digits are found at all, they lead to the element at the same place in memory."""
    elements = 1
    for size in sizes:
        elements *= size
    other = [sizes[i] for i in order if i < len(sizes)]
    made, given_ = ",".join(map(str, sizes)), ",".join(map(str, other))
    layout = ",".join(str(d) for d in reversed(range(len(sizes))))
    found = through(f"x = f32[{given_}]{{{layout}}} parameter(0)\nROOT r = f32[{made}]{{{layout}}} bitcast(x)")
    if found is None:
        return
    linear = random.randrange(elements)
    place, rest = {}, linear
    for dimension in reversed(range(len(sizes))):
        place[dimension] = rest % sizes[dimension]
        rest //= sizes[dimension]
    reached = 0
    for index, size in zip(found, other, strict=True):
        reached = reached * size + value(index, place)
    assert reached == linear


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
    whole, part = ClusterTiles(tiled, (2, 100)), ClusterTiles(tiled, (2, 64))
    assert sum(n in inputs for n in whole.distinct()) == 0  # besides the first
    assert sum(n in inputs for n in part.distinct()) == 1


def test_tiles_of_a_row():
    tiled = tile_cluster(rows())
    assert tiled is not None
    tiles = ClusterTiles(tiled, (2, 64))
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
    assert ClusterTiles(tiled, (1, 2)).is_valid()
    assert ClusterTiles(tiled, (1, 4)).is_valid()
    # halves of two rows do not lie together; and whole rows of 6 are padded to 8, which is more than a row
    assert not ClusterTiles(tiled, (2, 2)).is_valid()
    assert not ClusterTiles(tiled, (2, 6)).is_valid()


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
        if ClusterTiles(tiled, sizes).is_valid() and (ClusterTiles(tiled, sizes).largest <= 256) == (warps == 1)
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
