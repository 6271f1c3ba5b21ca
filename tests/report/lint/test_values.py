"""Wide types where the program in narrow ones is none."""

from __future__ import annotations

from hlo_opt import parse
from hlo_opt.passes.run import report_on, run
from hlo_opt.report.lint.base import rule_specs
from hlo_opt.report.lint.check import lint


def test_wide_values_whose_bits_are_read_are_still_spoken_of() -> None:
    text = rule_specs()["LNT104"].example.replace(
        "ROOT r = f32[1000000]{0} convert(s)", "ROOT r = s64[1000000]{0} bitcast-convert(s)"
    )
    report = report_on(run(parse(text)))
    (one,) = lint(report, ["LNT104"])
    assert not one.saves and one.us == report.after.est_us
