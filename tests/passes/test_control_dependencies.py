"""Control dependencies survive inlining, merging and fusing: the proof compares them, and texts say where they
ended."""

import numpy as np
import pytest

import hlo_opt
from tests.loops import loop

V = "f32[8]{0}"
INNER = f"""\
inner {{
  x = {V} parameter(0)
  n = {V} negate(x)
  c = {V} cosine(x), control-predecessors={{n}}
  ROOT r = {V} add(c, n)
}}

"""
PLAIN_CALL = f"""\
HloModule m

{INNER}ENTRY e {{
  p = {V} parameter(0)
  k = {V} call(p), to_apply=inner
  ROOT t = {V} tanh(k)
}}
"""
ORDERED_CALLS = f"""\
HloModule m

{INNER}body {{
  x = {V} parameter(0)
  q = {V} call(x), to_apply=inner
  s = {V} sine(x), control-predecessors={{q}}
  w = {V} call(x), to_apply=inner, control-predecessors={{s}}
  ROOT r = {V} add(w, s)
}}

ENTRY e {{
  p = {V} parameter(0)
  t = {V} tanh(p)
  k = {V} call(p), to_apply=body
  j = {V} call(k), to_apply=inner, control-predecessors={{t}}
  l = {V} exponential(p), control-predecessors={{k}}
  u = {V} multiply(k, l)
  v = {V} multiply(u, t)
  ROOT m = {V} multiply(v, j)
}}
"""
FUSIONS = f"""\
HloModule m

{INNER}sums {{
  x = {V} parameter(0)
  y = {V} parameter(1)
  ROOT r = {V} add(x, y)
}}

ENTRY e {{
  p = {V} parameter(0)
  k = {V} fusion(p), kind=kLoop, calls=inner
  l = {V} fusion(k, p), kind=kLoop, calls=sums
  o = {V} fusion(l, p), kind=kLoop, calls=sums
  ROOT t = {V} tanh(o)
}}
"""
WAITS_FOR_AN_ARGUMENT = f"""\
HloModule m

body {{
  x = {V} parameter(0)
  y = {V} parameter(1)
  n = {V} negate(x), control-predecessors={{y}}
  ROOT s = {V} sine(n)
}}

ENTRY e {{
  p = {V} parameter(0)
  q = {V} exponential(p)
  k = {V} call(p, q), to_apply=body
  ROOT t = {V} tanh(k)
}}
"""
PIPELINES = [
    None,
    "inline",
    "inline{fusions=true},cse,dce",
    "fusion-merger",
    "instruction-fusion,fusion-merger,cse,dce",
]


@pytest.mark.parametrize("passes", PIPELINES)
@pytest.mark.parametrize("text", [PLAIN_CALL, ORDERED_CALLS, FUSIONS, WAITS_FOR_AN_ARGUMENT])
def test_they_are_kept(text: str, passes: str | None):
    module = hlo_opt.parse(text)
    fused, _ = hlo_opt.fuse(module, passes=passes)
    hlo_opt.verify(hlo_opt.parse(str(fused)))
    before, after = (
        sum(len(i.control_predecessors) for c in m.computations for i in c.instructions) for m in (module, fused)
    )
    assert after > 0 if before else not after


def test_edges_inside_a_call_are_copied():
    fused, _ = hlo_opt.fuse(hlo_opt.parse(PLAIN_CALL), passes="inline")
    (cosine,) = (i for i in fused.entry.instructions if i.opcode == "cosine")
    assert [p.opcode for p in cosine.control_predecessors] == ["negate"]


def test_a_parameter_becomes_the_argument():
    fused, _ = hlo_opt.fuse(hlo_opt.parse(WAITS_FOR_AN_ARGUMENT), passes="inline")
    (negate,) = (i for i in fused.entry.instructions if i.opcode == "negate")
    assert [p.name for p in negate.control_predecessors] == ["q"]


def test_a_call_that_waits_stays():
    """Its whole body must wait; inlined, nothing would say so."""
    fused, _ = hlo_opt.fuse(hlo_opt.parse(ORDERED_CALLS), passes="inline", simplify="never")
    calls = [i for i in fused.entry.instructions if i.opcode == "call"]
    assert [(i.name, [p.name for p in i.control_predecessors]) for i in calls] == [("k", []), ("j", ["t"])]


def test_a_fusion_that_orders_its_members_is_not_merged():
    _, decisions = hlo_opt.fuse(hlo_opt.parse(FUSIONS), passes="fusion-merger", simplify="never")
    refused = {(d.producer_kernel, d.consumer_kernel): [r.code for r in d.reasons] for d in decisions if not d.fused}
    assert "FUS103" in next(codes for (producer, _), codes in refused.items() if producer == "k")


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("passes", ["while-loop-unroller", "while-loop-simplifier", "while-unroll", None])
def test_what_waits_for_a_loop_waits_for_what_is_left_of_it(passes: str | None, rounds: int):
    text = loop(["f32[8]"], ["y = f32[8] sine(x1)"], ["y"], rounds=rounds)
    root = "ROOT r = (f32[8]) tuple(r1)"
    assert root in text
    waits = "q = f32[8] negate(p1), control-predecessors={r1}\n  ROOT r = (f32[8], f32[8]) tuple(r1, q)"
    module = hlo_opt.parse(text.replace(root, waits))
    fused, _ = hlo_opt.fuse(module, passes=passes)
    again = hlo_opt.parse(str(fused))
    hlo_opt.verify(again)
    waiting = [i for c in again.computations for i in c.instructions if i.control_predecessors]
    assert len(waiting) == 1
    x = np.linspace(-1, 1, 8, dtype=np.float32)
    for got, want in zip(hlo_opt.evaluate(again, [x]), hlo_opt.evaluate(module, [x]), strict=True):
        assert got.tobytes() == want.tobytes()


def test_a_number_that_waits_is_not_made_inside_a_loop_kernel() -> None:
    text = """\
HloModule m

body {
  s = (s32[], f32[64]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64]{0} get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  k = f32[] convert(i)
  ks = f32[64]{0} broadcast(k), dimensions={}
  y = f32[64]{0} multiply(x, ks)
  ROOT t = (s32[], f32[64]{0}) tuple(next, y)
}

condition {
  s = (s32[], f32[64]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(7)
  ROOT c = pred[] compare(i, limit), direction=LT
}

ENTRY e {
  p = f32[64]{0} parameter(0)
  zero = s32[] constant(0), control-predecessors={p}
  t = (s32[], f32[64]{0}) tuple(zero, p)
  w = (s32[], f32[64]{0}) while(t), condition=condition, body=body
  ROOT r = f32[64]{0} get-tuple-element(w), index=1
}
"""
    made, _ = hlo_opt.fuse(hlo_opt.parse(text), passes="while-fusion", simplify="never")
    assert made.entry.root.opcode == "fusion"
    (zero,) = [i for i in made.entry.instructions if i.opcode == "constant"]
    assert [i.name for i in zero.control_predecessors] == ["p"]
