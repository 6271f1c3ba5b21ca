"""What priority fusion had against an edge when it was done with it counts, even where the edge would pay later."""

import hlo_opt
from hlo_opt.passes import report_on, run

ROWS = "f32[100000,64]{1,0}"
NORMALIZATION = f"""HloModule m

ENTRY e {{
  variance = f32[64]{{0}} parameter(0)
  scale = f32[64]{{0}} parameter(1)
  x = {ROWS} parameter(2)
  mean = f32[64]{{0}} parameter(3)
  offset = f32[64]{{0}} parameter(4)
  epsilon = f32[] constant(1e-5)
  epsilons = f32[64]{{0}} broadcast(epsilon), dimensions={{}}
  shifted = f32[64]{{0}} add(variance, epsilons)
  root = f32[64]{{0}} rsqrt(shifted)
  factor = f32[64]{{0}} multiply(root, scale)
  factors = {ROWS} broadcast(factor), dimensions={{1}}
  means = {ROWS} broadcast(mean), dimensions={{1}}
  offsets = {ROWS} broadcast(offset), dimensions={{1}}
  centred = {ROWS} subtract(x, means)
  scaled = {ROWS} multiply(centred, factors)
  moved = {ROWS} add(scaled, offsets)
  zero = f32[] constant(0)
  zeros = {ROWS} broadcast(zero), dimensions={{}}
  ROOT result = {ROWS} maximum(moved, zeros)
}}
"""


def refused(**options):
    report = report_on(run(hlo_opt.parse(NORMALIZATION), passes="priority-fusion", simplify="never", **options))
    return {(d.producer, d.consumer): d for d in report.refused}


def test_the_price_before_constants_moved_in_is_the_reason():
    (decision,) = refused().values()
    assert (decision.producer, decision.consumer) == ("factor", "factors")
    assert decision.cost.us_saved > 0  # as things are now
    (reason,) = decision.reasons
    assert reason.code == "FUS408"
    assert reason.numbers["us_fused"] > reason.numbers["us_unfused"]


def test_without_the_rule_the_edge_is_fused():
    assert refused(what_if=["FUS408"]) == {}


PRODUCT = """HloModule m

ENTRY e {
  p = f32[32,32]{1,0} parameter(0)
  d = f32[32,32]{1,0} dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT a = f32[32,32]{1,0} add(d, p)
}
"""


def test_an_opcode_that_is_not_fused_is_tried_without_the_rule():
    module = hlo_opt.parse(PRODUCT)
    as_it_is = report_on(run(module, passes="priority-fusion", simplify="never"))
    assert [[r.code for r in d.reasons] for d in as_it_is.decisions] == [["FUS122"]]
    without = report_on(run(module, passes="priority-fusion", simplify="never", what_if=["FUS122", "FUS408"]))
    assert [(d.producer, d.consumer, d.fused) for d in without.decisions] == [("d", "a", True)]
