"""Two kernels beside each other are priced by the groups of each, as they would be as a whole."""

from __future__ import annotations

import itertools

import pytest

import hlo_opt
from hlo_opt.analysis.graph.cluster import side_by_side
from hlo_opt.fusion.grouping import operands_beside
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Module
from hlo_opt.plans.sketch import Sketch, sketch_of
from tests.small_modules import H100, module_of, named, state_of

LINES = (
    "p = f32[512,256]{1,0} parameter(0)",
    "q = f32[512,256]{1,0} parameter(1)",
    "rate = f32[] parameter(2)",
    "z = f32[] constant(0)",
    "negated = f32[512,256]{1,0} negate(p)",
    "rows = f32[512]{0} reduce(q, z), dimensions={1}, to_apply=sum",
    "columns = f32[256]{0} reduce(p, z), dimensions={0}, to_apply=sum",
    "turned = f32[256,512]{1,0} transpose(q), dimensions={1,0}",
    "filled = f32[64,8]{1,0} broadcast(rate), dimensions={}",
    "twice = f32[512,256]{1,0} multiply(p, p)",
    "between = f32[512,256]{1,0} clamp(q, q, p)",
    "last = f32[] negate(rate)",
)
KERNELS = ("negated", "rows", "columns", "turned", "filled", "twice", "between", "last")


def begun() -> tuple[Module, FusionState]:
    module = module_of(*LINES)
    return module, state_of(module)


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(KERNELS, 2)))
def test_beside_each_other_as_planned_whole(first: str, second: str) -> None:
    module, state = begun()
    one, other = named(module, first), named(module, second)
    beside = state.sketch_beside(one, other)
    whole = sketch_of(module, side_by_side(state.cluster(one), state.cluster(other)), H100)
    assert isinstance(beside, Sketch) and beside.summary == whole.summary and beside.price == whole.price


def test_a_third_kernel_is_put_beside_two() -> None:
    """Once two are one kernel, its groups are known: those of both."""
    module, state = begun()
    for first, second in (("negated", "rows"), ("rows", "negated")):
        state.sketch_beside(named(module, first), named(module, second))
    assert {len(groups) for groups in state.known.grouped.values() if groups is not None} == {1, 2}


def test_the_operands_of_both() -> None:
    module, _ = begun()
    p, q, rate = (named(module, name) for name in ("p", "q", "rate"))
    assert operands_beside([p, q], [q, rate, rate]) == [p, q, rate]
    assert operands_beside([p, p], [p]) == [p, p]


def test_operands_that_are_the_same_value() -> None:
    """Operations that read a value twice become a kernel that takes one more after that: it has the value once."""
    text = """HloModule m

second {
  a = f32[] parameter(0)
  ROOT b = f32[] parameter(1)
}

copied {
  p = f32[] parameter(0)
  c = f32[] copy(p)
  ROOT t = (f32[]) tuple(c)
}

ENTRY e {
  p = f32[] parameter(0)
  q = pred[] parameter(1)
  r = f32[0,0]{1,0} parameter(2)
  a = f32[0,0]{1,0} map(r, r), dimensions={0,1}, to_apply=second
  b = pred[] and(q, q)
  c = (f32[]) fusion(p), kind=kLoop, calls=copied
  ROOT t = (f32[0,0]{1,0}, pred[], (f32[])) tuple(a, b, c)
}
"""
    fused, _ = hlo_opt.fuse(hlo_opt.parse(text))
    assert sum(i.opcode == "fusion" for i in fused.entry.instructions) >= 1
