"""A series of dumps."""

from __future__ import annotations

import hlo_opt
from hlo_opt.report.diff.comparison import Comparison, diff
from hlo_opt.report.diff.series import REGRESSION, regressions, series_json, series_page

TEXT = """HloModule m

ENTRY e {
  p = f32[64,32]{1,0} parameter(0)
  a = f32[64,32]{1,0} tanh(p)
  ROOT b = f32[64,32]{1,0} negate(a)
}
"""
SLOWER = TEXT.replace("negate(a)", "negate(c)").replace("  ROOT", "  c = f32[64,32]{1,0} copy(a)\n  ROOT")


def steps() -> list[Comparison]:
    modules = [hlo_opt.parse(text, filename=f"{n}.hlo") for n, text in enumerate((TEXT, SLOWER, SLOWER, TEXT))]
    return [diff(modules[n], modules[n + 1], fuse="never") for n in range(3)]


def test_each_step_has_a_line():
    page = str(series_page(steps())).split("\n")
    assert page[0] == "4 modules on h100_sxm, kernels as they are in the texts"
    assert [line.split()[-1] for line in page[2:6]] == ["0.hlo", "1.hlo", "2.hlo", "3.hlo"]
    assert page[7] == "1. 0.hlo -> 1.hlo" and "added c" in page[8]
    assert page[11].strip() == "no difference" and "lost c" in page[14]


def test_the_steps_that_are_too_slow_are_told():
    (error,) = regressions(steps(), 0.05)
    assert error.code == REGRESSION and error.filename == "1.hlo" and "5 % are allowed (the first: +" in error.message
    assert regressions(steps(), 0.9) == [] and regressions(steps(), None) == []
    assert (
        len(series_json(steps(), [error])["steps"]) == 3
        and series_json(steps(), [error])["failed"][0]["code"] == REGRESSION
    )
