"""Facts about values of a kernel that are kept up while it grows."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.analysis.graph.cluster import cluster_of
from hlo_opt.fusion.followers import Emissions

KERNEL = """HloModule m

f {{
  x = f32[8,8]{{1,0}} parameter(0)
  {one}
  ROOT r = f32[8,8]{{1,0}} add({sum})
}}

ENTRY e {{
  p = f32[8,8]{{1,0}} parameter(0)
  n = f32[8,8]{{1,0}} negate(p)
  ROOT k = f32[8,8]{{1,0}} fusion(n), kind=kLoop, calls=f
}}
"""


@pytest.mark.parametrize(
    ("one", "operands", "times"),
    [
        ("t = f32[8,8]{1,0} sine(x)", "t, x", 1),
        ("w = f32[4,16]{1,0} reshape(x)\n  t = f32[16,4]{1,0} transpose(w), dimensions={1,0}\n"
         "  u = f32[16,4]{1,0} transpose(w), dimensions={1,0}\n  v = f32[16,4]{1,0} add(t, u)\n"
         "  y = f32[8,8]{1,0} reshape(v)", "y, y", 1),
        ("t = f32[8,8]{1,0} broadcast(x), dimensions={0,1}", "t, t", 1),
        ("s = f32[2,8]{1,0} slice(x), slice={[0:2], [0:8]}\n  t = f32[8,8]{1,0} concatenate(s, s, s, s)"
         ", dimensions={0}", "t, x", 2),
        ("s = f32[64]{0} reshape(x)\n  t = f32[8,8]{1,0} reshape(s)", "t, x", 2),
    ],
)  # fmt: skip
def test_how_often_an_operand_would_be_emitted(one: str, operands: str, times: int) -> None:
    """Once for each user that computes an index of its own; a transpose shares that of its users."""
    module = hlo_opt.parse(KERNEL.format(one=one, sum=operands))
    kernel = module.entry.root
    emissions = cluster_of(kernel).following(Emissions, Emissions)
    assert emissions.of(kernel.operands[0]) == times
    assert emissions.of(module.entry.parameters[0]) == 0
