"""Control dependencies survive inlining, merging and fusing: the proof compares them, and texts say where they
ended."""

import numpy as np
import pytest

import hlo_opt

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


WAITS_FOR_A_LOOP = """HloModule m

cond {
  c = (s32[], f32[8]) parameter(0)
  n = s32[] get-tuple-element(c), index=0
  most = s32[] constant(ROUNDS)
  ROOT less = pred[] compare(n, most), direction=LT
}

body {
  b = (s32[], f32[8]) parameter(0)
  n.1 = s32[] get-tuple-element(b), index=0
  one = s32[] constant(1)
  next = s32[] add(n.1, one)
  v = f32[8]{0} get-tuple-element(b), index=1
  w = f32[8]{0} sine(v)
  ROOT t = (s32[], f32[8]) tuple(next, w)
}

ENTRY e {
  x = f32[8]{0} parameter(0)
  z = s32[] constant(0)
  start = (s32[], f32[8]) tuple(z, x)
  loop = (s32[], f32[8]) while(start), condition=cond, body=body
  r = f32[8]{0} get-tuple-element(loop), index=1
  q = f32[8]{0} negate(x), control-predecessors={r}
  ROOT o = (f32[8]{0}, f32[8]{0}) tuple(r, q)
}
"""


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("passes", ["while-loop-unroller", "while-loop-simplifier", "while-unroll", None])
def test_what_waits_for_a_loop_waits_for_what_is_left_of_it(passes: str | None, rounds: int):
    module = hlo_opt.parse(WAITS_FOR_A_LOOP.replace("ROUNDS", str(rounds)))
    fused, _ = hlo_opt.fuse(module, passes=passes)
    again = hlo_opt.parse(str(fused))
    hlo_opt.verify(again)
    waiting = [i for c in again.computations for i in c.instructions if i.control_predecessors]
    assert len(waiting) == 1
    x = np.linspace(-1, 1, 8, dtype=np.float32)
    for got, want in zip(hlo_opt.evaluate(again, [x]), hlo_opt.evaluate(module, [x]), strict=True):
        assert got.tobytes() == want.tobytes()
