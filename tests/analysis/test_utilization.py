import pytest

import hlo_opt
from hlo_opt.analysis.graph.cluster import Cluster, cluster_of
from hlo_opt.analysis.xla.utilization import ClusterUsage, Usage

SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"


def fusion(body: str, made: str) -> Cluster:
    text = f"""HloModule m

{SUM}
body {{
  x = f32[8,64]{{1,0}} parameter(0)
  zero = f32[] constant(0)
{body}
}}

ENTRY e {{
  x = f32[8,64]{{1,0}} parameter(0)
  ROOT f = {made} fusion(x), kind=kLoop, calls=body
}}
"""
    return cluster_of(hlo_opt.parse(text).entry.root)


def usage(body: str, made: str = "f32[8,64]{1,0}") -> tuple[Usage, float]:
    """The usage, and how often x is read."""
    cluster = fusion(body, made)
    found = cluster.following(ClusterUsage, lambda c: ClusterUsage(c, 90, known={}))
    return found, next(found.utilization[n] for n in cluster.inputs.values())


def test_two_elementwise_paths_read_once():
    _, times = usage("n = f32[8,64]{1,0} negate(x)\nROOT r = f32[8,64]{1,0} add(n, x)")
    assert times == 1.0


def test_a_sum_for_each_element_reads_as_often():
    body = """s = f32[8]{0} reduce(x, zero), dimensions={1}, to_apply=sum
w = f32[8,64]{1,0} broadcast(s), dimensions={0}
ROOT r = f32[8,64]{1,0} subtract(x, w)"""
    found, times = usage(body)
    assert times == 1.0 + 64.0  # each of 64 elements of a row adds up the row again
    assert found.flops == 64 * 7 * (512 - 8) + 7 * 512


def test_several_results_share_what_they_read_elementwise():
    body = """n = f32[8,64]{1,0} negate(x)
e = f32[8,64]{1,0} exponential(x)
ROOT t = (f32[8,64]{1,0}, f32[8,64]{1,0}) tuple(n, e)"""
    found, times = usage(body, "(f32[8,64]{1,0}, f32[8,64]{1,0})")
    assert times == 1.0
    assert found.written == 2 * 2048
    assert found.flops == (3 + 79) * 512


def test_an_update_that_ends_the_kernel_leaves_the_rest_alone():
    head = (
        "n = f32[8,64]{1,0} negate(x)\nu = f32[1,64]{1,0} slice(x), slice={[0:1], [0:64]}\ni = s32[] constant(1)\nz = "
        "s32[] constant(0)\n"
    )
    update = "f32[8,64]{1,0} dynamic-update-slice(n, u, i, z)"
    found, times = usage(f"{head}ROOT r = {update}")
    assert times == pytest.approx(1 / 8)  # the slice only
    assert found.written == 64 * 4
    _, times = usage(f"{head}d = {update}\nROOT r = f32[8,64]{{1,0}} tanh(d)")
    assert times == pytest.approx(1.0)  # the slice, and the other seven rows


@pytest.mark.parametrize(("made", "times"), [("s32[8,64]{1,0}", 1.0), ("f32[512]{0}", 2.0)])
def test_bitcasts(made: str, times: float):
    """A bitcast that keeps dimensions hands on where it is read; through another, each use is a read of its own."""
    body = f"a = {made} bitcast(x)\nb = f32[8,64]{{1,0}} bitcast(a)\nROOT r = f32[8,64]{{1,0}} add(x, b)"
    assert usage(body)[1] == times
