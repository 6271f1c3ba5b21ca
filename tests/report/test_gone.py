"""Which pass took an instruction away."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.passes import ExplainReport
from hlo_opt.passes.run import report_on, run
from hlo_opt.report.gone import where_it_went

TEXT = """HloModule m

ENTRY e {
  p = f32[64]{0} parameter(0)
  a = f32[64]{0} sine(p)
  b = f32[64]{0} sine(p)
  unread = f32[64]{0} cosine(p)
  back = f32[64]{0} reverse(a), dimensions={0}
  front = f32[64]{0} reverse(back), dimensions={0}
  sum = f32[64]{0} add(front, b)
  ROOT t = (f32[64]{0}) tuple(sum)
}
"""


def explained() -> ExplainReport:
    return report_on(run(hlo_opt.parse(TEXT)))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("b", "`cse` took it away"),
        ("unread", "no result needs it"),
        ("front", "`algebraic-simplifier` rewrote it by the rule `reverse-of-reverse`"),
        ("back", "`algebraic-simplifier` took it away when it rewrote `front` by the rule `reverse-of-reverse`"),
        ("t", "it launches nothing"),
    ],
)
def test_what_took_it_away(name: str, why: str) -> None:
    report = explained()
    assert where_it_went(report, [name]) == {name: f"`{name}` is in no kernel of the result: {why}"}


def test_names_are_those_of_the_input() -> None:
    """An instruction that is cloned into a fusion, and lives on under another name, has not gone."""
    report = explained()
    assert where_it_went(report, ["sum"])["sum"].endswith("it launches nothing")
    assert where_it_went(report, []) == {}
