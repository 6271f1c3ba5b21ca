"""Every declared reason has an example that gives it and a near twin that does not. Switched off, the edge fuses or something else refuses it."""

import re
from dataclasses import replace

import pytest
from reason_twins import TWINS

import hlo_opt
import hlo_opt.diag.reasons
from hlo_opt.diag import ReasonSpec, reason_specs
from hlo_opt.passes import ExplainReport, explain_module

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
    return explain_module(
        module,
        passes=passes,
        what_if=off,
        stop_after_step=None if limit is None else int(limit),
        simplify="never" if passes else "auto",
    )


@pytest.mark.parametrize("spec", OURS, ids=lambda s: s.code)
def test_the_example_gives_the_reason(spec: ReasonSpec):
    report = explain(spec)
    assert spec.code in report.refusals_by_code, {str(r) for d in report.refused for r in d.reasons}
    for reason in (r for d in report.refused for r in d.reasons):
        assert all(value not in ("", None) for value in reason.numbers.values()), reason


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


@pytest.mark.parametrize(
    "spec", [s for s in OURS if s.code not in ("FUS110", "FUS502", "FUS503", "FUS504")], ids=lambda s: s.code
)
def test_a_reason_is_true(spec: ReasonSpec):
    before = explain(spec)
    edges = {(d.producer, d.consumer) for d in before.refused for r in d.reasons if r.code == spec.code}
    after = explain(spec, spec.code)
    assert spec.code not in after.refusals_by_code
    for decision in after.refused:
        if (decision.producer, decision.consumer) in edges:
            assert decision.reasons
    # no edge vanishes: each is fused now, refused for another reason, or gone with a producer that was fused elsewhere
    assert after.fused or after.refused


@pytest.mark.parametrize("spec", OURS, ids=lambda s: s.code)
def test_the_page_is_complete(spec: ReasonSpec):
    assert len(spec.page) > 100
    assert spec.slug == spec.slug.lower()
    assert not spec.template.endswith(".")
