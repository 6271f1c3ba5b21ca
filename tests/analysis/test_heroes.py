import pytest

import hlo_opt
from hlo_opt.analysis.graph.cluster import Cluster, cluster_of, merge_clusters
from hlo_opt.analysis.xla.heroes import emitter_of, hero_of, heroes_of, updates_in_place, writes_reduction

SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"


def fusion(body: str, made: str = "f32[64,32]{1,0}") -> Cluster:
    """The cluster of a fusion of x and y, f32[32,64] and f32[64,32]."""
    text = f"""HloModule m

{SUM}
body {{
  x = f32[32,64]{{1,0}} parameter(0)
  y = f32[64,32]{{1,0}} parameter(1)
  zero = f32[] constant(0)
{body}
}}

ENTRY e {{
  x = f32[32,64]{{1,0}} parameter(0)
  y = f32[64,32]{{1,0}} parameter(1)
  ROOT f = {made} fusion(x, y), kind=kLoop, calls=body
}}
"""
    return cluster_of(hlo_opt.parse(text).entry.root)


@pytest.mark.parametrize(
    ("body", "emitter"),
    [
        ("t = f32[64,32]{1,0} transpose(x), dimensions={1,0}\nROOT r = f32[64,32]{1,0} negate(t)", "transpose"),
        ("t = f32[64,32]{1,0} transpose(x), dimensions={1,0}\nROOT r = f32[64,32]{1,0} add(t, y)", "transpose"),
        # two transposes: neither is the hero
        (
            "t = f32[64,32]{1,0} transpose(x), dimensions={1,0}\nu = f32[64,32]{1,0} transpose(x), dimensions={1,0}\n"
            "ROOT r = f32[64,32]{1,0} add(t, u)",
            "loop",
        ),
        # a broadcast after the transpose would need its elements again and again
        (
            "t = f32[64,32]{1,0} transpose(x), dimensions={1,0}\ns = f32[64]{0} reduce(t, zero), dimensions={1}, "
            "to_apply=sum\n"
            "w = f32[64,32]{1,0} broadcast(s), dimensions={0}\nROOT r = f32[64,32]{1,0} add(t, w)",
            "loop",
        ),
        ("c = f32[64,32]{1,0} concatenate(y), dimensions={0}\nROOT r = f32[64,32]{1,0} add(c, y)", "concatenate"),
        ("ROOT r = f32[64,32]{1,0} negate(y)", "loop"),
    ],
)
def test_emitters(body: str, emitter: str):
    assert emitter_of(fusion(body))[0] == emitter


def test_a_reduction_is_reached_through_single_operands_only():
    head = "s = f32[64]{0} reduce(y, zero), dimensions={1}, to_apply=sum\n"
    one = fusion(head + "ROOT r = f32[64]{0} negate(s)", "f32[64]{0}")
    assert emitter_of(one) == ("reduction", one.roots[0].operands[0])
    assert writes_reduction(one)
    two = fusion(head + "ROOT r = f32[64]{0} multiply(s, s)", "f32[64]{0}")
    assert emitter_of(two)[0] == "loop"
    assert not writes_reduction(two)
    assert hero_of(two.roots[0]) is two.roots[0]


def test_a_side_result_of_the_size_read_stays_in_the_reduction():
    head = "n = f32[64,32]{1,0} negate(y)\ns = f32[64]{0} reduce(n, zero), dimensions={1}, to_apply=sum\n"
    together = fusion(head + "ROOT t = (f32[64]{0}, f32[64,32]{1,0}) tuple(s, n)", "(f32[64]{0}, f32[64,32]{1,0})")
    assert emitter_of(together)[0] == "reduction"
    apart = fusion(
        head
        + "o = f32[32]{0} reduce(y, zero), dimensions={0}, to_apply=sum\nROOT t = (f32[64]{0}, f32[32]{0}) tuple(s, o)",
        "(f32[64]{0}, f32[32]{0})",
    )
    assert emitter_of(apart)[0] == "loop"


UPDATE = "u = f32[1,32]{1,0} slice(x), slice={[0:1], [0:32]}\ni = s32[] constant(3)\nz = s32[] constant(0)\n"


@pytest.mark.parametrize(
    ("body", "in_place"),
    [
        ("ROOT r = f32[64,32]{1,0} dynamic-update-slice(y, u, i, z)", True),
        ("d = f32[64,32]{1,0} dynamic-update-slice(y, u, i, z)\nROOT r = f32[64,32]{1,0} bitcast(d)", True),
        # what follows reads the result
        ("d = f32[64,32]{1,0} dynamic-update-slice(y, u, i, z)\nROOT r = f32[64,32]{1,0} negate(d)", False),
        # the buffer is made in the kernel
        ("n = f32[64,32]{1,0} negate(y)\nROOT r = f32[64,32]{1,0} dynamic-update-slice(n, u, i, z)", False),
        # the update is read from the same place of the buffer
        (
            "s = f32[1,32]{1,0} dynamic-slice(y, i, z), dynamic_slice_sizes={1,32}\nv = f32[1,32]{1,0} add(s, u)\n"
            "ROOT r = f32[64,32]{1,0} dynamic-update-slice(y, v, i, z)",
            True,
        ),
        # ... from another place
        (
            "s = f32[1,32]{1,0} dynamic-slice(y, z, z), dynamic_slice_sizes={1,32}\nv = f32[1,32]{1,0} add(s, u)\n"
            "ROOT r = f32[64,32]{1,0} dynamic-update-slice(y, v, i, z)",
            False,
        ),
        # ... from everywhere
        (
            "s = f32[32]{0} reduce(y, zero), dimensions={0}, to_apply=sum\nb = f32[1,32]{1,0} bitcast(s)\n"
            "ROOT r = f32[64,32]{1,0} dynamic-update-slice(y, b, i, z)",
            False,
        ),
    ],
)
def test_updates_in_place(body: str, in_place: bool):
    cluster = fusion(UPDATE + body)
    assert (updates_in_place(cluster) is not None) == in_place
    assert (emitter_of(cluster)[0] == "in-place") == in_place


def test_the_heroes_of_several_results_lie_in_a_large_producer_that_moved_in():
    chain = "\n".join(f"  n{k} = f32[64,32]{{1,0}} negate({f'n{k - 1}' if k else 't'})" for k in range(40))
    text = f"""HloModule m

above {{
  x = f32[32,64]{{1,0}} parameter(0)
  t = f32[64,32]{{1,0}} transpose(x), dimensions={{1,0}}
{chain}
  ROOT r = f32[64,32]{{1,0}} abs(n39)
}}

below {{
  y = f32[64,32]{{1,0}} parameter(0)
  s = f32[64,32]{{1,0}} sine(y)
  c = f32[64,32]{{1,0}} cosine(y)
  ROOT both = (f32[64,32]{{1,0}}, f32[64,32]{{1,0}}) tuple(s, c)
}}

ENTRY e {{
  x = f32[32,64]{{1,0}} parameter(0)
  a = f32[64,32]{{1,0}} fusion(x), kind=kLoop, calls=above
  ROOT b = (f32[64,32]{{1,0}}, f32[64,32]{{1,0}}) fusion(a), kind=kLoop, calls=below
}}
"""
    consumer = hlo_opt.parse(text).entry.root
    (producer,) = consumer.operands
    above, below = cluster_of(producer), cluster_of(consumer)
    assert below.absorb(producer, above, {})
    assert (
        [hero.opcode for hero in heroes_of(below)]
        == [hero.opcode for hero in heroes_of(merged(text))]
        == ["transpose"] * 2
    )


def merged(text: str) -> Cluster:
    """Of the entry's root, with its one operand inside."""
    consumer = hlo_opt.parse(text).entry.root
    (producer,) = consumer.operands
    return merge_clusters(cluster_of(producer), cluster_of(consumer), producer)
