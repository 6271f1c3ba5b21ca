"""A check compares both forms of kernels on the host, and says which is wrong."""

from dataclasses import replace

import pytest

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.cutting import bisect, questions
from hlo_opt.diag import UsageError
from hlo_opt.report.runs import check_page
from hlo_opt.runtime.check.compare import check
from hlo_opt.runtime.check.forms import FORMS
from hlo_opt.runtime.executable import compile
from hlo_opt.runtime.host import library
from hlo_opt.runtime.host.library import has_compiler
from hlo_opt.runtime.schedule import lowering

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

TWO_KERNELS = """HloModule m

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}

fused_sums {
  p = f32[40,300] parameter(0)
  zero = f32[] constant(0)
  ROOT sums = f32[40] reduce(p, zero), dimensions={1}, to_apply=sum
}

fused_ends {
  p = f32[40] parameter(0)
  q = f32[700] parameter(1)
  both = f32[740] concatenate(p, q), dimensions={0}
  ROOT r = f32[740] negate(both)
}

ENTRY e {
  p = f32[40,300] parameter(0)
  q = f32[700] parameter(1)
  sums = f32[40] fusion(p), kind=kInput, calls=fused_sums
  ROOT ends = f32[740] fusion(sums, q), kind=kLoop, calls=fused_ends
}
"""
"""Columns after the first operand of a concatenate are those of a second thread function in the lanes form."""


APART = """  both = f32[740] concatenate(sums, q), dimensions={0}
  ROOT ends = f32[740] negate(both)
"""


@pytest.fixture
def module():
    return hlo_opt.parse(TWO_KERNELS)


@pytest.fixture
def wrong_lanes(monkeypatch):
    """The lanes form reads the second operand of the concatenate from another place; the emitted text is right."""
    written = library.lanes_unit

    def planted(kernels):
        text = written(kernels)
        at = text.find("= in1[")
        return text if at < 0 else f"{text[:at]}= in1[699 - {text[at + len('= in1[') :]}"

    monkeypatch.setattr(library, "lanes_unit", planted)


def wrong_text(monkeypatch):
    """The emitted text does not negate; the lanes form, which is printed from the tree, does."""
    emitted = lowering.emit_kernel

    def planted(plan, in_place=()):
        made = emitted(plan, in_place)
        return replace(made, source=made.source.replace("= -(", "= ("))

    monkeypatch.setattr(lowering, "emit_kernel", planted)


def test_both_forms_run_on_the_host(module):
    found = check(module, module, backend="host")
    assert found.ok and found.forms == ("plain", "lanes") and found.wrong == () and found.kernel == ""
    assert str(found).startswith("agrees on host in both forms (asked for), 1 output")


@pytest.mark.parametrize("form", ["plain", "lanes"])
def test_one_form_can_be_asked_for(module, form):
    found = check(module, module, backend="host", form=form)
    assert found.ok and found.forms == (form,)
    assert str(found).startswith(f"agrees on host in the {form} form (asked for)")


@pytest.mark.parametrize("how", [{"backend": "numpy"}, {"backend": "numpy", "form": "lanes"}])
def test_the_interpreter_has_no_forms(module, how):
    found = check(module, module, **how)
    assert found.ok and found.forms == () and str(found).startswith("agrees on numpy (asked for)")


def test_a_module_that_is_built_runs_as_it_is(module):
    found = check(module, module, executable=compile(module, "host", form="plain"))
    assert found.ok and found.forms == ()


def test_an_unknown_backend_is_refused(module):
    with pytest.raises(UsageError, match="there is no backend 'hots'"):
        check(module, module, backend="hots")


def test_a_fault_of_the_lanes_form_is_found_and_its_kernel_named(module, wrong_lanes):
    found = check(module, module, backend="host")
    assert not found.ok and found.wrong == ("lanes",)
    assert found.kernel.startswith("concatenate_") and found.kernel.endswith(" of ends")
    assert str(found).startswith("differs on host in the lanes form only (asked for): out0[")
    assert f"which run, bench and the JAX hook use: {found.kernel}" in str(check_page(found))
    assert check(module, module, backend="host", form="plain").ok
    alone = check(module, module, backend="host", form="lanes")
    assert not alone.ok and str(alone).startswith("differs on host in the lanes form (asked for)")


def test_a_fault_of_the_emitted_text_is_that_of_the_plain_form(module, monkeypatch):
    wrong_text(monkeypatch)
    found = check(module, module, backend="host")
    assert not found.ok and found.wrong == ("plain",) and found.kernel == ""
    assert str(found).startswith("differs on host in the plain form only (asked for)")


def test_a_fault_of_both_is_that_of_both(module, wrong_lanes, monkeypatch):
    wrong_text(monkeypatch)
    found = check(module, module, backend="host")
    assert found.wrong == ("plain", "lanes")
    assert str(found).startswith("differs on host in both forms (asked for)")


def test_the_sanitizers_run_the_plain_form_alone(module, wrong_lanes):
    found = check(module, module, sanitize=True)
    assert found.ok and found.forms == ("plain",)


def answers(before, after):
    """Those of each way of asking whether a module differs."""
    ways = [("host", form, True) for form in FORMS] + [("host", "both", False)]
    return [questions.differs(before, after, b, 0, form, is_quick=quick) for b, form, quick in ways]


def test_a_question_finds_the_lanes_form_and_is_not_lost_to_another_fault(module, wrong_lanes, monkeypatch):
    assert answers(module, module) == [None, questions.IN_LANES, questions.IN_LANES]
    wrong_text(monkeypatch)
    assert answers(module, module) == [questions.DIFFERS] * 3


def test_the_quick_ways_need_one_compilation_each():
    assert questions.quick_ways("host") == [("host", "plain"), ("host", "lanes")]
    assert questions.quick_ways("numpy") == [("numpy", "plain")]


def test_a_bisection_finds_the_module_whose_lanes_form_is_wrong(tmp_path, monkeypatch):
    written = library.lanes_unit
    monkeypatch.setattr(library, "lanes_unit", lambda kernels: written(kernels).replace("= -(x1)", "= (x1)"))
    apart = TWO_KERNELS.replace("  ROOT ends = f32[740] fusion(sums, q), kind=kLoop, calls=fused_ends\n", APART)
    files = [tmp_path / f"{number}.hlo" for number in range(4)]
    for number, file in enumerate(files):
        file.write_text(TWO_KERNELS if number > 1 else apart)
    watch = bisect.watch_of("check", target("h100_sxm"), "host", is_ours=False)
    found = bisect.Bisection(bisect.Files(tuple(files)), watch, 1).find()
    assert found == bisect.FirstChange(1, 2, "no", questions.IN_LANES)
