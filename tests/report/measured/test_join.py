"""Kernels by name and by symbol, and what does not join."""

from __future__ import annotations

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.fusion.summary import module_summary
from hlo_opt.report.measured.events import Profile
from hlo_opt.report.measured.join import Joined, join, symbol

TEXT = """HloModule m

ENTRY e {
  p = f32[64]{0} parameter(0)
  add.1 = f32[64]{0} add(p, p)
  a-b = f32[64]{0} negate(add.1)
  a.b = f32[64]{0} tanh(a-b)
  ROOT t.2 = f32[64]{0} sine(a.b)
}
"""


def joined(**microseconds: float) -> Joined:
    module, profile = hlo_opt.parse(TEXT), Profile()
    for name, us in microseconds.items():
        profile.add(name, us, count=2)
    return join(module, module_summary(module, target("h100_sxm")), profile)


def test_by_name_and_by_symbol() -> None:
    found = joined(**{"add.1": 4.0, "t_2": 6.0})
    assert found.microseconds == {"add.1": 2.0, "t.2": 3.0} and found.executions == 2
    assert found.total == 5.0 and found.kernels == 4 and found.share == 0.5
    assert found.missing == ["a-b", "a.b"] and not found.strange


def test_a_symbol_that_two_have_is_nobodys() -> None:
    assert symbol("a-b") == symbol("a.b") == "a_b"
    found = joined(a_b=4.0, **{"a.b": 2.0})
    assert found.microseconds == {"a.b": 1.0} and found.strange == {"a_b": 2.0}


def test_what_the_module_has_but_does_not_launch_is_no_stranger() -> None:
    assert not joined(p=4.0).strange and joined(gemm=4.0).strange == {"gemm": 4.0}


def test_executions_are_those_that_the_profile_tells() -> None:
    module, profile = hlo_opt.parse(TEXT), Profile()
    for run in (1, 2, 3, 4):
        profile.add("add.1", 1.0, module="m", run=run)
    profile.add("add.1", 1.0, module="other", run=5)
    found = join(module, module_summary(module, target("h100_sxm")), profile)
    assert (found.executions, found.microseconds, found.modules) == (4, {"add.1": 1.0}, ["m", "other"])
