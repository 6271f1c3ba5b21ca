"""What the hook's report says at its end, and why a region is left."""

from __future__ import annotations

import pytest

from hlo_opt.jax.options import HookOptions
from hlo_opt.jax.records import Verdict
from hlo_opt.jax.report import CODES, LEFT, Report, line


def filled(*lines) -> Report:
    report = Report()
    for new in lines:
        report.add(new)
    return report


def test_the_last_line_counts_what_is_replaced_and_says_why_the_rest_is_not():
    report = filled(
        line("JAX402", "m", "a"),
        line("JAX001", "m", "a", ours_us=2.0, xla_us=6.0),
        line("JAX402", "m", "b"),
        line("JAX202", "m", "c", ours_us=3.0, xla_us=2.0, rule="they must take 10 % less"),
        line("JAX305", "m", "d", low_us=1.0, high_us=3.0, xla_us=2.0),
        line("JAX202", "m", "d", ours_us=3.0, xla_us=2.0, rule="they must take 10 % less"),
        line("JAX208", "m", "all", ours_us=3.0, xla_us=2.0),
        line("JAX103", "n"),
    )
    assert str(report).splitlines()[-1] == report.summary
    assert report.summary == (
        "1 of 4 regions replaced (2.0 us instead of 6.0 us); 2 left: kernels of ours are no faster; "
        "1 left: slower together than alone"
    )


def test_a_report_without_regions_has_no_summary():
    assert str(filled(line("JAX103", "n"))) == "JAX103 n: not changed: kernels of ours make no part of it faster"
    assert str(Report()) == ""


def test_the_summary_knows_each_code_that_leaves_a_region():
    known = {code for codes in LEFT.values() for code in codes}
    assert {code for code in CODES if code[:4] == "JAX2"} <= known <= set(CODES)


@pytest.mark.parametrize(
    ("wish", "ours_us", "rule"),
    [
        (HookOptions(), 9.5, "they must take 10 % less"),
        (HookOptions(min_saving_us=50), 5.0, "they must save min_saving_us=50"),
        (HookOptions(min_saving_us=0), 11.0, "they may take 2 % more at most"),
    ],
)
def test_what_is_left_is_told_with_the_rule_that_it_misses(wish, ours_us, rule):
    verdict = Verdict(ours_us, 10.0)
    assert not wish.takes(verdict) and wish.rule(verdict) == rule
    said = line("JAX202", "m", "r", ours_us=ours_us, xla_us=10.0, rule=wish.rule(verdict))
    assert said.message.endswith(f"XLA's 10.0 us; {rule}")
