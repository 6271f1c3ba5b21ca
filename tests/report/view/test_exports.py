"""The graph for Graphviz, and the trace of estimated times."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hlo_opt import parse
from hlo_opt.passes.run import ExplainReport, report_on, run
from hlo_opt.report.view.exports import dot, perfetto

DUMPS = Path(__file__).resolve().parents[3] / "testdata" / "dumps"


def report(name: str, passes: str | None = None) -> ExplainReport:
    return report_on(run(parse((DUMPS / f"{name}.hlo").read_text()), passes=passes))


def test_dot_has_a_cluster_for_each_fusion() -> None:
    made = report("softmax")
    text = dot(made)
    fusions = sum("calls" in i.attributes for i in made.outcome.module.entry.instructions)
    assert text.count("subgraph cluster_") == fusions > 0
    assert text.count("{") == text.count("}")
    named = set(re.findall(r"^ *(n\d+) \[", text, re.MULTILINE))
    assert {end for edge in re.findall(r"(n\d+) -> (n\d+);", text) for end in edge} <= named


def test_dot_quotes_what_is_hostile() -> None:
    text = (
        "HloModule m\n\nENTRY e {\n  p = f32[4]{0} parameter(0)\n  ROOT a = f32[4]{0} custom-call(p), "
        'custom_call_target="x\\"]; evil -> n0 [label=\\"\\\\"\n}\n'
    )
    made = dot(report_on(run(parse(text))))
    assert "\nevil" not in made
    for line in made.splitlines():
        assert len(re.findall(r'(?<!\\)(?:\\\\)*"', line)) % 2 == 0, line


@pytest.mark.parametrize(("name", "passes"), [("transformer_block", None), ("nested", "dce"), ("branch", "dce")])
def test_a_trace_lasts_as_long_as_the_module(name: str, passes: str | None) -> None:
    made = report(name, passes)
    events = [e for e in json.loads(perfetto(made))["traceEvents"] if e["ph"] == "X"]
    assert events
    end = max(e["ts"] + e["dur"] for e in events)
    branches = any("conditional" in e["cat"] for e in events)
    if not branches:  # of a branch the summary counts all
        assert end == pytest.approx(made.after.est_us, rel=1e-3)
    assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in events)


def test_what_a_loop_does_lies_inside_it() -> None:
    events = [e for e in json.loads(perfetto(report("nested", "dce")))["traceEvents"] if e["ph"] == "X"]
    loop = next(e for e in events if "iterations" in e["args"])
    inside = [e for e in events if e is not loop and loop["ts"] <= e["ts"] < loop["ts"] + loop["dur"]]
    assert inside and loop["dur"] >= sum(e["dur"] for e in inside if "iterations" not in e["args"])
