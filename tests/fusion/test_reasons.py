"""Every declared reason has an example that gives it and a near twin that does not. Switched off, the edge fuses or
something else refuses it."""

import re
from dataclasses import replace

import pytest
from reason_twins import TWINS

import hlo_opt
from hlo_opt.diag import Reason, ReasonSpec, reason_spec, reason_specs
from hlo_opt.passes import ExplainReport, report_on, run
from scripts.reason_truth import NO_RULES, Fused, ended_in, lacks_number, verdict

OURS = reason_specs()


def option(spec: ReasonSpec, name: str) -> str | None:
    found = re.search(rf"^// {name}: (.*)$", spec.example, re.M)
    return found[1] if found else None


def explain(spec: ReasonSpec, *what_if: str) -> ExplainReport:
    module = hlo_opt.parse(spec.example)
    hlo_opt.verify(module)
    limit = option(spec, "stop-after-step")
    off = [*what_if, *([given] if (given := option(spec, "what-if")) else [])]
    passes = option(spec, "passes")
    return report_on(
        run(
            module,
            passes=passes,
            what_if=off,
            forbid=[tuple(edge.split(":"))] if (edge := option(spec, "forbid")) else [],
            stop_after_step=None if limit is None else int(limit),
            simplify="never" if passes else "auto",
        )
    )


@pytest.mark.parametrize("spec", OURS, ids=lambda s: s.code)
def test_the_example_gives_the_reason(spec: ReasonSpec):
    report = explain(spec)
    assert spec.code in report.refusals_by_code, {str(r) for d in report.refused for r in d.reasons}
    for reason in (r for d in report.refused for r in d.reasons):
        filled = {name: value for name, value in reason.numbers.items() if name != "model"}  # "": our own
        assert all(value not in ("", None) for value in filled.values()), reason


def test_every_reason_has_a_twin():
    assert sorted(TWINS) == [s.code for s in OURS]


@pytest.mark.parametrize("spec", OURS, ids=lambda s: s.code)
def test_a_near_twin_does_not_give_the_reason(spec: ReasonSpec):
    text = spec.example
    for old, new in TWINS[spec.code]:
        assert old in text
        text = text.replace(old, new)
    report = explain(replace(spec, example=text))
    assert spec.code not in report.refusals_by_code, [str(r) for d in report.refused for r in d.reasons]


@pytest.mark.parametrize("spec", [s for s in OURS if s.code not in NO_RULES], ids=lambda s: s.code)
def test_a_reason_is_true(spec: ReasonSpec):
    """Switched off, alone and with all others of the edge, it lets the edge fuse or another reason comes up."""
    edges = [d for d in explain(spec).refused if spec.code in {r.code for r in d.reasons}]
    for off in dict.fromkeys((frozenset({spec.code}), *(frozenset(r.code for r in d.reasons) for d in edges))):
        report = explain(spec, *sorted(off - NO_RULES))
        assert off.isdisjoint(set(report.refusals_by_code) - NO_RULES)
        after = Fused(report.outcome, report.decisions, ended_in(report.outcome))
        assert not after.untold()
        for edge in edges:
            found, why = verdict(edge, off - NO_RULES, after)
            assert found in ("fused", "another reason", "apart"), (edge, why)


def test_a_pass_that_was_done_would_fuse_the_edge_now():
    spec = reason_spec("FUS504")
    report = explain(spec)
    found = Fused(report.outcome, report.decisions, ended_in(report.outcome))
    (edge,) = report.refused
    assert edge.reasons[0].numbers["passes"] == "instruction-fusion"
    assert found.fuses_now(edge)
    untrue = explain(reason_spec("FUS501"))  # refused for a reason that holds still
    edge = replace(untrue.refused[0], reasons=edge.reasons)
    assert not Fused(untrue.outcome, untrue.decisions, ended_in(untrue.outcome)).fuses_now(edge)


def test_a_reason_that_changes_nothing_is_untrue():
    """The survey itself can fail: an edge refused under a code that says nothing about it is found out."""
    report = explain(reason_spec("FUS302"))
    (edge,) = report.refused
    found = Fused(report.outcome, report.decisions, ended_in(report.outcome))
    assert verdict(edge, frozenset({"FUS302"}), found) == ("untrue", "FUS302, although switched off")
    assert verdict(edge, frozenset({"FUS401"}), found) == ("another reason", "FUS302")
    assert lacks_number(Reason("FUS302", {"opcode": ""})) and not lacks_number(edge.reasons[0])
    silent = replace(found, decisions=[])
    assert silent.untold() == [("d", "t")]
    assert verdict(edge, frozenset({"FUS302"}), silent) == ("untrue", "neither fused nor refused")


@pytest.mark.parametrize("spec", OURS, ids=lambda s: s.code)
def test_the_page_is_complete(spec: ReasonSpec):
    assert len(spec.page) > 100
    assert spec.slug == spec.slug.lower()
    assert not spec.template.endswith(".")
