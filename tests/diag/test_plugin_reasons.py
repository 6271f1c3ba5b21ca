"""Reasons of plugins are known wherever codes are: on their page, in lists, to `Reason.of`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hlo_opt.cli.group import run
from hlo_opt.diag import Reason, ReasonSpec, UsageError, reason_spec, reason_specs
from hlo_opt.diag.reason import forget_reasons

MINE = ReasonSpec("ACM101", "too-blue", "{shade} is too blue", "less than {shade}", "Kernels must not be blue.")
ALSO = ReasonSpec("ACM102", "too-green", "too green", "less green", "Kernels must not be green either.")
PAIR = (MINE, ALSO)
TAKEN = ReasonSpec("FUS201", "another", "x", "y", "z")
SHORT = ReasonSpec("A1", "short", "x", "y", "z")
NOTHING = 3


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    forget_reasons()


@pytest.mark.parametrize("name", ["MINE", "PAIR"])
def test_a_code_of_a_plugin_is_known(name: str, fake_plugins, capfd: pytest.CaptureFixture[str]) -> None:
    fake_plugins("hlo_opt.reasons", acme=f"{__name__}:{name}")
    assert str(Reason.of("ACM101", shade="navy")) == "ACM101 too-blue: navy is too blue"
    assert reason_spec("ACM101").slug == "too-blue"
    assert [s.code for s in reason_specs()][:1] == ["ACM101"]
    assert run(["explain", "acm101"]) == 0
    assert capfd.readouterr().out.startswith("ACM101 too-blue\n\nKernels must not be blue.\n")


@pytest.mark.parametrize(
    ("name", "code", "why"),
    [
        ("TAKEN", "HLO311", "declared twice"),
        ("SHORT", "HLO310", "three capital letters and three digits"),
        ("NOTHING", "HLO310", "neither a ReasonSpec nor several of them"),
    ],
)
def test_a_wrong_one_is_named(name: str, code: str, why: str, fake_plugins) -> None:
    fake_plugins("hlo_opt.reasons", acme=f"{__name__}:{name}")
    with pytest.raises(UsageError, match=why) as caught:
        reason_specs()
    assert caught.value.code == code and "plugin 'acme'" in caught.value.message


def test_the_programs_own_reasons_need_no_plugin(fake_plugins) -> None:
    fake_plugins("hlo_opt.reasons", acme="no_such_module_here:X")
    assert reason_spec("FUS201").code == "FUS201"
    with pytest.raises(UsageError, match="plugin 'acme'"):
        reason_spec("ACM101")
