from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_opt
from hlo_opt.analysis.graph.cluster import Node, cluster_of
from hlo_opt.analysis.xla.tiled_indexing import RANGE, Digit, Index, Indices, operand_indices, root_indices


def node(body: str) -> Node:
    module = hlo_opt.parse(f"HloModule m\n\nENTRY e {{\n{body}\n}}\n")
    return cluster_of(module.entry.root).roots[0]


def through(body: str, number: int = 0) -> Indices | None:
    """The indices of an operand of the root, when the root is the kernel's result."""
    root = node(body)
    return operand_indices(root, number, root_indices(root.shape))


def value(index: Index, place: dict[int, int]) -> int:
    """What an index gives for a place of the result; reduced dimensions stand at 0."""
    return index.offset + sum(
        d.stride * (place[d.source] // d.divisor % d.size) for d in index.digits if d.source != RANGE
    )


def test_elementwise_operations_keep_indices():
    body = "x = f32[4,8]{1,0} parameter(0)\nROOT r = f32[4,8]{1,0} tanh(x)"
    assert through(body) == root_indices(node(body).shape)


def test_broadcast_and_transpose_pick_dimensions():
    found = through("x = f32[8]{0} parameter(0)\nROOT r = f32[4,8]{1,0} broadcast(x), dimensions={1}")
    assert found == (Index((Digit(1, 8, 1, 8, 1),)),)
    found = through("x = f32[4,8]{1,0} parameter(0)\nROOT r = f32[8,4]{1,0} transpose(x), dimensions={1,0}")
    assert found is not None
    assert [i.digits[0].source for i in found] == [1, 0]


def test_a_slice_scales_and_shifts():
    found = through("x = f32[32]{0} parameter(0)\nROOT r = f32[8]{0} slice(x), slice={[3:27:3]}")
    assert found == (Index((Digit(0, 8, 1, 8, 3),), 3),)
    assert found[0].stride((4,)) == 3
    assert found[0].elements((4,)) == 4
    assert found[0].origin((4,)) != Index((Digit(0, 8, 1, 8, 3),), 0).origin((4,))


def test_a_reshape_joins_and_cuts():
    joined = through("x = f32[32]{0} parameter(0)\nROOT r = f32[4,8]{1,0} bitcast(x)")
    assert joined == (Index((Digit(0, 4, 1, 4, 8), Digit(1, 8, 1, 8, 1))),)
    assert joined[0].is_tileable
    assert joined[0].fits((2, 8))  # two whole rows lie together
    assert joined[0].fits((1, 4))  # part of a row
    assert not joined[0].fits((2, 4))  # halves of two rows do not
    assert joined[0].stride((2, 8)) == 1
    assert joined[0].stride((2, 1)) == 8
    cut = through("x = f32[4,8]{1,0} parameter(0)\nROOT r = f32[32]{0} bitcast(x)")
    assert cut == (Index((Digit(0, 32, 8, 4, 1),)), Index((Digit(0, 32, 1, 8, 1),)))
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
    ranged = Index((Digit(RANGE, 8, 1, 4, 1),))
    assert not ranged.is_tileable
    assert Index((Digit(RANGE, 8, 1, 8, 1),)).is_tileable


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
