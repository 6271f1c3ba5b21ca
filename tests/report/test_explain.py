import json
from dataclasses import replace
from importlib import resources

import pytest

import hlo_opt
from hlo_opt.diag import Reason, UsageError, reason_specs
from hlo_opt.fusion.decision import CostEstimate, FusionDecision, Pricing
from hlo_opt.passes.run import report_on, run
from hlo_opt.report import explain, summary


def decision(**changes):
    given = {
        "producer": "p\x1b[2J",
        "consumer": "[red]c",
        "computation": "e",
        "producer_opcode": "dot",
        "consumer_opcode": "add",
        "rule": "legality",
        "reasons": (Reason.of("FUS302", opcode="dot", runs_as="a library call"),),
        "pricing": Pricing(lambda: CostEstimate(3.0, 2.0, 2000.0, 1000.0)),
        "producer_source": "model.py:7",
    }
    return FusionDecision(**{**given, **changes})


def test_an_edge_shows_everything_and_steers_no_terminal():
    assert str(explain.edge_page(decision())).splitlines() == [
        "p\\x1b[2J -> [red]c  (dot -> add, in e)  refused by legality",
        "  producer  model.py:7",
        "  consumer  (no source line)",
        "  FUS302 library-call: `dot` runs as a library call",
        "    hint: a library call may take what follows `dot` as its epilogue",
        "  apart 3 us, 2 kB; as one kernel 2 us, 1 kB: fusing alone would save 1 us",
    ]


def test_an_edge_that_would_cost_says_so():
    text = str(explain.edge_page(decision(pricing=Pricing(lambda: CostEstimate(2.0, 3.5, 1.0, 1.0)))))
    assert text.endswith("fusing alone would cost 1.5 us\n")


def test_the_json_of_an_edge_has_the_numbers():
    data = explain.edge_json(decision())
    assert data["reasons"][0]["numbers"] == {"opcode": "dot", "runs_as": "a library call"}
    assert data["cost"] == {
        "us_unfused": 3.0,
        "us_fused": 2.0,
        "bytes_unfused": 2000.0,
        "bytes_fused": 1000.0,
        "kept": False,
    }
    assert explain.edge_json(decision(reasons=(), pricing=Pricing()))["fused"]


TEXT = """HloModule m

ENTRY e {
  p = f32[64,8]{1,0} parameter(0)
  q = f32[64,8]{1,0} parameter(1)
  a = f32[64,8]{1,0} add(p, q)
  t = f32[64,8]{1,0} tanh(a)
  d = f32[64,64]{1,0} dot(a, q), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT o = (f32[64,8]{1,0}, f32[64,64]{1,0}) tuple(t, d)
}
"""


def report(**options):
    return report_on(run(hlo_opt.parse(TEXT), passes="instruction-fusion", **options))


def test_instructions_and_edges_on_demand():
    found = report()

    def shown(*names):
        return [(d.producer, d.consumer) for d in explain.select(found, names)]

    assert shown() == shown("a") == [("a", "t"), ("a", "d")]
    assert shown("%a:%d") == [("a", "d")]
    assert shown("a:d", "t") == shown("t", "a:d") == [("a", "t"), ("a", "d")]
    assert shown("p") == []


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("aa", "there is no instruction 'aa'", "did you mean a?"),
        ("a:dd", "there is no instruction 'dd'", "did you mean d?"),
        ("a:o", "no kernel `o` reads a kernel `a`", "`a` is read by t, d"),
        ("d:t", "no kernel `t` reads a kernel `d`", None),
        ("a:", "there is no instruction ''", explain.ASKED_FOR),
    ],
)
def test_what_is_no_edge_names_what_is_near(name, message, hint):
    with pytest.raises(UsageError) as caught:
        explain.select(report(), [name])
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_edges_of_a_python_line():
    text = TEXT.replace("tanh(a)", 'tanh(a), metadata={source_file="/home/x/model.py" source_line=7}')
    found = report_on(run(hlo_opt.parse(text), passes="instruction-fusion"))
    for name in ("model.py:7", "x/model.py:7", "/home/x/model.py:7", "model.py", "x/model.py", "/home/x/model.py"):
        assert [(d.producer, d.consumer) for d in explain.select(found, [name])] == [("a", "t")]
    with pytest.raises(UsageError, match=r"no edge begins or ends on line there\.py:8") as caught:
        explain.select(found, ["there.py:8"])
    assert "--by line" in str(caught.value.hint)
    with pytest.raises(UsageError, match=r"no edge begins or ends in odel\.py") as caught:
        explain.select(found, ["odel.py"])
    assert caught.value.hint == "did you mean model.py?"
    with pytest.raises(UsageError, match="no instruction 'model'") as caught:
        explain.select(found, ["model"])
    assert caught.value.hint == "did you mean model.py?"
    with pytest.raises(UsageError, match="no instruction 'odel'"):
        explain.select(found, ["odel:7"])


def test_edges_of_a_file_on_a_drive():
    text = TEXT.replace("tanh(a)", r'tanh(a), metadata={source_file="C:\\x\\model.py" source_line=7}')
    found = report_on(run(hlo_opt.parse(text), passes="instruction-fusion"))
    for name in (r"C:\x\model.py", r"C:\x\model.py:7", "model.py", "x/model.py:7"):
        assert [(d.producer, d.consumer) for d in explain.select(found, [name])] == [("a", "t")]
    with pytest.raises(UsageError, match=r"no edge begins or ends on line model\.py:17") as caught:
        explain.select(found, ["model.py:17"])
    assert caught.value.hint == "did you mean model.py:7?"


def test_the_nearest_line_is_named_not_the_one_that_is_spelt_alike():
    text = TEXT.replace("tanh(a)", 'tanh(a), metadata={source_file="/home/x/model.py" source_line=21}')
    text = text.replace("add(p, q)", 'add(p, q), metadata={source_file="/home/x/model.py" source_line=18}')
    found = report_on(run(hlo_opt.parse(text), passes="instruction-fusion"))
    with pytest.raises(UsageError) as caught:
        explain.select(found, ["model.py:19"])
    assert caught.value.hint == "did you mean model.py:18?"


def test_a_rule_switched_off_shows_what_it_kept_apart():
    changes = summary.changes(["fus403"], [], report(), report(what_if=["FUS403"]))
    assert [(d.producer, d.consumer) for d in changes.fused] == [("a", "t")]
    assert not changes.moved and not changes.refused and not changes.gone
    lines = str(summary.changes_page(changes)).splitlines()
    assert lines[0] == "what if: without FUS403"
    assert lines[-2:] == ["  1 edge would fuse", "    a -> t"]


CALL = """HloModule m

ENTRY e {
  p = f32[64]{0} parameter(0)
  c = f32[64]{0} custom-call(p), custom_call_target="x"
  ROOT r = f32[64]{0} abs(c)
}
"""


def test_a_rule_switched_off_shows_what_else_refuses():
    before, after = (
        report_on(run(hlo_opt.parse(CALL), passes="priority-fusion", what_if=off)) for off in ([], ["FUS122"])
    )
    changes = summary.changes(["fus122"], [], before, after)
    assert [[r.code for r in d.reasons] for d in changes.moved] == [["FUS308"]]
    assert not changes.fused and not changes.refused and not changes.gone
    lines = str(summary.changes_page(changes)).splitlines()
    assert lines[-2:] == ["  1 edge would be refused for other reasons", "    c -> r  FUS308 opaque-call"]


def test_a_rule_that_speaks_nowhere_changes_nothing():
    changes = summary.changes(["FUS201"], [], report(), report(what_if=["FUS201"]))
    assert str(summary.changes_page(changes)).endswith("  no edge would be decided differently\n")


def test_many_edges_are_counted():
    before = report()
    changes = summary.changes([], ["a:t"], before, before)
    (edge, _) = before.decisions
    page = str(summary.changes_page(replace(changes, gone=[edge] * 13)))
    assert page.startswith("what if: with a:t forced\n") and page.endswith("    and 3 more\n")
    assert page.count("a -> t\n") == 10


def test_the_json_form_is_what_the_schema_says():
    schema = json.loads((resources.files("hlo_opt.report") / "explain.schema.json").read_text())
    assert schema["properties"]["schema"] == {"const": explain.SCHEMA}
    found = report(what_if=["FUS403"])
    changes = summary.changes(["FUS403"], ["a:t"], report(), found)
    plain = explain.as_json(report(), explain.select(report(), []))
    full = explain.as_json(found, found.decisions, changes, [UsageError("x", code="HLO710")])
    for made in (plain, full):
        assert list(faults(json.loads(json.dumps(made)), schema, schema, "")) == []
    assert plain["dearest"] and full["what_if"]["fused"] and any(e["fused"] for e in full["edges"])
    for wrong in ({**plain, "fused": "3"}, {**plain, "extra": 1}, {**plain, "edges": [{}]}, {**plain, "schema": 2}):
        assert list(faults(wrong, schema, schema, ""))


@pytest.mark.parametrize("forced", [False, True])
def test_the_figures_of_fuse_are_what_their_schema_says(forced):
    schema = json.loads((resources.files("hlo_opt.report") / "stats.schema.json").read_text())
    assert schema["properties"]["schema"] == {"const": summary.STATS_SCHEMA}
    found = report()
    if forced:
        found = replace(found, decided_again=found.after)
    made = json.loads(json.dumps(summary.stats_json(found)))
    assert list(faults(made, schema, schema, "")) == [] and ("decided_again" in made) == forced
    assert ("if every other edge were decided again" in str(summary.summary_page(found))) == forced
    for wrong in ({**made, "extra": 1}, {**made, "seconds": {"dce": "1"}}, {**made, "after": {}}):
        assert list(faults(wrong, schema, schema, ""))


def faults(value, rule, schema, place):
    """What a JSON value does not keep of the part of JSON Schema that ours uses."""
    rule = schema["$defs"][rule["$ref"].rpartition("/")[2]] if "$ref" in rule else rule
    known = {
        "$schema",
        "title",
        "description",
        "type",
        "const",
        "anyOf",
        "required",
        "properties",
        "additionalProperties",
        "items",
        "$defs",
    }
    assert rule.keys() <= known
    types = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    wanted = [rule["type"]] if isinstance(rule.get("type"), str) else rule.get("type", [])
    if wanted and not any(
        isinstance(value, types[t]) and (t == "boolean" or not isinstance(value, bool)) for t in wanted
    ):
        yield f"{place}: not {wanted}"
        return
    if "const" in rule and value != rule["const"]:
        yield f"{place}: not {rule['const']}"
    if "anyOf" in rule and all(any(True for _ in faults(value, r, schema, place)) for r in rule["anyOf"]):
        yield f"{place}: none of them"
    if isinstance(value, dict):
        yield from (f"{place}: lacks {key}" for key in rule.get("required", []) if key not in value)
        for key, held in value.items():
            inner = rule.get("properties", {}).get(key, rule.get("additionalProperties", {}))
            if inner is False:
                yield f"{place}: has {key}"
            else:
                yield from faults(held, inner, schema, f"{place}/{key}")
    if isinstance(value, list):
        for number, held in enumerate(value):
            yield from faults(held, rule.get("items", {}), schema, f"{place}/{number}")


@pytest.mark.parametrize("spec", reason_specs(), ids=lambda s: s.code)
def test_the_page_of_a_code_fits_a_screen_or_two(spec):
    lines = str(explain.code_page(spec.code)).splitlines()
    assert len(lines) <= 70
    assert all(len(line) <= 200 for line in lines)


def test_the_page_of_a_code_as_it_is_printed():
    assert (
        str(explain.code_page("FUS502"))
        == """\
FUS502 step-limit

`--stop-after-step` stops rewriting after a number of steps, so that a wrong or slow fusion can be
found by bisection.

message
  the limit of {limit} steps was reached before this edge
hint
  a larger `--stop-after-step` reaches it

example
  // stop-after-step: 0
  HloModule example

  ENTRY e {
    p = f32[64]{0} parameter(0)
    s = f32[64]{0} negate(p)
    ROOT t = f32[64]{0} tanh(s)
  }
"""
    )
    assert explain.code_json("FUS502") == {
        "schema": 1,
        "code": "FUS502",
        "slug": "step-limit",
        "template": "the limit of {limit} steps was reached before this edge",
        "hint": "a larger `--stop-after-step` reaches it",
        "page": (
            "`--stop-after-step` stops rewriting after a number of steps, so that a wrong or slow fusion can be found "
            "by bisection."
        ),
        "example": (
            "// stop-after-step: 0\nHloModule example\n\nENTRY e {\n  p = f32[64]{0} parameter(0)\n"
            "  s = f32[64]{0} negate(p)\n  ROOT t = f32[64]{0} tanh(s)\n}\n"
        ),
        "short": "the run was stopped after {limit} rewrites, before this edge",
        "change": "give a larger `--stop-after-step`",
    }


def test_the_middle_of_a_long_example_is_left_out():
    page = str(explain.code_page("FUS201"))
    left = next(line for line in page.splitlines() if "lines left out" in line)
    whole = explain.code_json("FUS201")["example"].strip("\n").splitlines()
    assert left.strip() == f"... {len(whole) - 16} lines left out; --format json has them all"
    assert whole[0] in page and whole[-2] in page


def test_only_the_first_edges_are_shown_where_none_is_asked_for():
    found = report()
    page = str(explain.as_page(found, explain.select(found, []), most=1))
    assert page.endswith("1 more edge: name instructions, PRODUCER:CONSUMER or codes to see theirs, or say --all\n")
    assert page.count("refused by") == 1
    assert str(explain.as_page(found, explain.select(found, []))).count("refused by") == 2


def test_a_code_asks_for_the_edges_that_it_refuses():
    found = report()
    shown = explain.select(found, ["fus302"])
    assert [(d.producer, d.consumer) for d in shown] == [("a", "d")]
    assert explain.select(found, ["FUS201"]) == []


def test_a_producer_that_is_launched_for_others_too_says_so():
    assert "the producer also alone for others" in explain.cost_line(CostEstimate(2.0, 3.5, 1.0, 1.0, kept=True))
    assert "alone for others" not in explain.cost_line(CostEstimate(2.0, 3.5, 1.0, 1.0))


LOOP = """HloModule m

body {
  s = (s32[], f32[64]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[64]{0} get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  n = f32[64]{0} negate(v)
  c = f32[64]{0} tanh(n)
  ROOT t = (s32[], f32[64]{0}) tuple(j, c)
}

condition {
  s = (s32[], f32[64]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(100)
  ROOT c = pred[] compare(i, limit), direction=LT
}

ENTRY e {
  p = f32[64]{0} parameter(0)
  q = f32[4096]{0} parameter(1)
  m = f32[4096]{0} negate(q)
  d = f32[4096]{0} tanh(m)
  zero = s32[] constant(0)
  t = (s32[], f32[64]{0}) tuple(zero, p)
  w = (s32[], f32[64]{0}) while(t), condition=condition, body=body
  x = f32[64]{0} get-tuple-element(w), index=1
  ROOT r = (f32[64]{0}, f32[4096]{0}) tuple(x, d)
}
"""


def test_what_a_loop_repeats_costs_in_every_round():
    found = report_on(run(hlo_opt.parse(LOOP), passes="dce", simplify="never"))
    first, second = found.dearest
    assert (first.producer, second.producer) == ("n", "m")
    assert first.cost is not None and second.cost is not None and first.cost.us_saved < second.cost.us_saved
    page = str(explain.as_page(found, found.refused))
    once = explain.microseconds(first.cost.us_saved)
    assert f"100 x {once}  n -> c" in page and f"would save {once} in each of 100 iterations\n" in page
    data = explain.as_json(found, found.refused)
    assert [d["rounds"] for d in data["dearest"]] == [100, 1]
    assert {e["producer"]: e["rounds"] for e in data["edges"] if e["producer"] in "nm"} == {"n": 100, "m": 1}


NAMES = """HloModule m

gemm {
  a = f32[16,16]{1,0} parameter(0)
  z = f32[16,16]{1,0} dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT b = f32[256]{0} bitcast(z)
}

ENTRY e {
  p = f32[16,16]{1,0} parameter(0)
  n = f32[16,16]{1,0} negate(p)
  f = f32[256]{0} fusion(n), kind=kCustom, calls=gemm, backend_config={"fusion_backend_config":{"kind":"__triton_gemm"}}
  v = f32[16,16]{1,0} bitcast(f)
  s = f32[16,16]{1,0} sine(v)
  ROOT t = f32[16,16]{1,0} tanh(s)
}
"""


def test_edges_are_named_by_what_computes():
    """A library's fusion goes by its own name, not by what stands inside; a kernel that begins with a bitcast by what
    reads the bitcast."""
    found = report_on(run(hlo_opt.parse(NAMES), passes="instruction-fusion", simplify="never"))
    assert [(d.producer, d.consumer) for d in found.refused] == [("n", "f"), ("f", "s")]
    forced = report_on(run(hlo_opt.parse(NAMES), passes="instruction-fusion", simplify="never", force=[("n", "f")]))
    assert [(d.producer, d.consumer) for d in forced.refused] == [("n", "f"), ("f", "s")]


def test_reasons_of_one_code_share_its_hint():
    both = tuple(Reason.of("FUS302", opcode=opcode, runs_as="a library call") for opcode in ("dot", "sort"))
    lines = str(explain.edge_page(decision(reasons=both, pricing=Pricing()))).splitlines()
    hint = "    hint: a library call may take what follows `{}` as its epilogue"
    assert lines[3:] == [
        "  FUS302 library-call: `dot` runs as a library call",
        "  FUS302 library-call: `sort` runs as a library call",
        hint.format("dot"),
        hint.format("sort"),
    ]
    again = str(explain.edge_page(decision(reasons=(both[0], both[0]), pricing=Pricing())))
    assert again.count("hint") == 1


def test_a_dump_without_python_lines_says_how_to_get_them():
    bare = report_on(run(hlo_opt.parse(TEXT)))
    placed = report_on(
        run(hlo_opt.parse(TEXT.replace("parameter(0)", 'parameter(0), metadata={source_file="m.py" source_line=3}', 1)))
    )
    told = [explain.SOURCE_HINT in str(explain.as_page(report, [])) for report in (bare, placed)]
    assert told == [True, False]
