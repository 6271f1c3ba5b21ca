"""Instructions that are expected in one kernel: they are, or the refusal is told."""

from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.diag import UsageError
from hlo_opt.passes.run import report_on, run
from hlo_opt.report.holding import apart, expected, members_of_kernels, together_page
from tests.report.test_totals import TEXT


@pytest.fixture(scope="module")
def report():
    return report_on(run(hlo_opt.parse(TEXT, filename="m.hlo")))


def test_each_kernel_holds_its_instructions(report) -> None:
    origins = report.outcome.context.origins
    kernels: dict[str, set[str]] = {}
    for kernel, member in members_of_kernels(report.outcome.module):
        kernels.setdefault(kernel.name, set()).add(origins.get(member, member.name))
    assert len(kernels) == 3 and any({"a", "t"} <= members for members in kernels.values())


def test_what_is_one_kernel_is_as_expected(report) -> None:
    assert apart(report, ["a", "t"]) is None
    assert str(together_page([["a", "t"]])) == "one kernel: a, t\n"


def test_what_is_not_tells_the_refusal(report) -> None:
    error = apart(report, ["a", "t", "d"])
    assert error is not None and (error.code, error.filename) == ("HLO713", "m.hlo")
    assert error.message.startswith("t and d are not in one kernel, `t` in `")
    assert error.message.endswith(": `fft` runs as a library call, which reads and writes whole arrays (FUS302)")
    assert error.hint == "nothing here; a library call stays apart from what is around it"


def test_what_does_not_read_each_other_says_so(report) -> None:
    error = apart(report, ["a", "n"])
    assert error is not None and "do not read each other" in error.message and "explain FILE a n" in str(error.hint)


def test_what_is_gone_says_so() -> None:
    text = TEXT.replace("tanh(a)", "add(a, a)").replace("  d =", "  u = f32[64,8]{1,0} negate(a)\n  d =")
    error = apart(report_on(run(hlo_opt.parse(text))), ["u", "a"])
    assert error is not None and error.message.startswith("`u` is in no kernel of the result")


@pytest.mark.parametrize("text", ["a", "a,", ",", "", "a,,b"])
def test_less_than_two_names_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="two instructions"):
        expected([text])


def test_names_that_do_not_exist_name_the_nearest(report) -> None:
    assert expected(["%a, t", "a,d"]) == [["a", "t"], ["a", "d"]]
    with pytest.raises(UsageError, match="no instruction 'aa'") as caught:
        apart(report, ["aa", "t"])
    assert caught.value.hint == "did you mean a?"
