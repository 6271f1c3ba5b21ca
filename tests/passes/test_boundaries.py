import hlo_opt
from hlo_opt.passes import report_on, run

LOOP = """HloModule m

body {
  s = (s32[], f32[64]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[64]{0} get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  h = f32[64]{0} tanh(v), metadata={op_name="h" source_file="model.py" source_line=7}
  ROOT t = (s32[], f32[64]{0}) tuple(j, h)
}

condition {
  s = (s32[], f32[64]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(100)
  ROOT c = pred[] compare(i, limit), direction=LT
}

ENTRY e {
  p = f32[64]{0} parameter(0)
  n = f32[64]{0} negate(p), metadata={op_name="n" source_file="model.py" source_line=5}
  zero = s32[] constant(0)
  t = (s32[], f32[64]{0}) tuple(zero, n)
  w = (s32[], f32[64]{0}) while(t), condition=condition, body=body
  ROOT r = f32[64]{0} get-tuple-element(w), index=1
}
"""


def across(**options):
    report = report_on(run(hlo_opt.parse(LOOP), "xla-2026", **options))
    return {(d.producer, d.consumer): d for d in report.refused if d.relation == "across"}


def test_every_edge_of_a_loop_has_its_way_rounds_and_bytes():
    found = across()
    assert {ends: [r.code for r in d.reasons] for ends, d in found.items()} == {
        ("n", "h"): ["FUS111"],
        ("h", "h"): ["FUS111"],
        ("j", "j"): ["FUS111"],
        ("j", "c"): ["FUS111"],
    }
    (reason,) = found["n", "h"].reasons
    assert (reason.numbers["way"], reason.numbers["rounds"], reason.numbers["bytes"]) == (
        "into the first iteration",
        "100 iterations",
        256,
    )
    assert (found["n", "h"].producer_source, found["n", "h"].consumer_source) == ("model.py:5", "model.py:7")
    assert found["j", "c"].computation == "condition"


def test_the_rule_cannot_be_switched_off():
    assert {r.code for d in across(what_if=["FUS111"]).values() for r in d.reasons} == {"FUS110"}


def test_a_loop_without_a_known_count_says_so():
    text = LOOP.replace(
        "ROOT c = pred[] compare(i, limit), direction=LT",
        "d = s32[] multiply(i, i)\n  ROOT c = pred[] compare(d, limit), direction=LT",
    )
    report = report_on(run(hlo_opt.parse(text), "xla-2026"))
    rounds = {r.numbers["rounds"] for d in report.refused for r in d.reasons if r.code == "FUS111"}
    assert rounds == {"a number of iterations known at run time only"}


def test_two_results_of_one_kernel_are_one_edge():
    """The loop is given both elements of a pair, and one kernel of its body reads both."""
    text = """HloModule m

body {
  s = (f32[64]{0}, f32[64]{0}) parameter(0)
  v = f32[64]{0} get-tuple-element(s), index=0
  w = f32[64]{0} get-tuple-element(s), index=1
  h = f32[64]{0} add(v, w)
  ROOT t = (f32[64]{0}, f32[64]{0}) tuple(h, w)
}

condition {
  s = (f32[64]{0}, f32[64]{0}) parameter(0)
  ROOT c = pred[] constant(false)
}

ENTRY e {
  p = f32[64]{0} parameter(0)
  pair = (f32[64]{0}, f32[64]{0}) custom-call(p), custom_call_target="library"
  a = f32[64]{0} get-tuple-element(pair), index=0
  b = f32[64]{0} get-tuple-element(pair), index=1
  t = (f32[64]{0}, f32[64]{0}) tuple(a, b)
  ROOT l = (f32[64]{0}, f32[64]{0}) while(t), condition=condition, body=body
}
"""
    found = [
        (d.producer, d.consumer)
        for d in report_on(run(hlo_opt.parse(text), "xla-2026")).refused
        if d.relation == "across"
    ]
    assert sorted(found) == [("h", "h"), ("pair", "h")]
