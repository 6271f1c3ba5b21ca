"""Reasons: what an instance must carry, and where the program's own have their words and pages."""

from pathlib import Path

import pytest

from hlo_opt.diag import Reason, ReasonSpec, UsageError, no_reason, reason_spec, register_reason
from hlo_opt.diag.reason import declared, forget_reasons


@pytest.fixture
def spec():
    made = register_reason(ReasonSpec("FUS999", "test-only", "{count} of {limit}", "raise {limit}", "a page"))
    yield made
    forget_reasons()


def test_a_reason_insists_on_its_numbers(spec: ReasonSpec):
    reason = Reason.of("FUS999", count=3, limit=2)
    assert str(reason) == "FUS999 test-only: 3 of 2"
    assert reason.hint == "raise 2"
    with pytest.raises(TypeError, match="count"):
        Reason.of("FUS999", limit=2)
    with pytest.raises(TypeError, match="more"):
        Reason.of("FUS999", count=3, limit=2, more=1)


def test_what_says_the_same_is_among_others(spec: ReasonSpec):
    reason, same, other = (Reason.of("FUS999", count=n, limit=2) for n in (3, 3, 4))
    refused = Reason.of("FUS502", limit=2)
    assert reason.is_among([refused, other, same]) and not reason.is_among([refused, other]) and not reason.is_among([])


def test_a_code_is_declared_once(spec: ReasonSpec):
    with pytest.raises(ValueError, match="twice"):
        register_reason(ReasonSpec("FUS999", "another", "", "", ""))
    with pytest.raises(ValueError, match="twice"):
        register_reason(ReasonSpec("FUS998", "test-only", "", "", ""))


def test_an_unknown_code_names_the_nearest(spec: ReasonSpec):
    with pytest.raises(UsageError) as caught:
        reason_spec("FUS99")
    assert caught.value.hint is not None and "FUS999" in caught.value.hint


def test_short_names_differ():
    slugs = [spec.slug for spec in declared().values()]
    assert len(set(slugs)) == len(slugs)


def test_only_pages_that_somebody_asks_for_are_read(monkeypatch: pytest.MonkeyPatch):
    read: list[str] = []
    whole = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda self, *a, **k: (read.append(self.name), whole(self, *a, **k))[1])
    forget_reasons()
    reason = Reason.of("FUS308", target="generate", why="it is compiled")
    assert str(reason).startswith("FUS308 opaque-call: ") and "`generate`" in reason.hint
    assert read == ["FUS308.md"]


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("FUS10", "FUS101, FUS102 and others begin so; hlo-opt help codes lists all"),
        ("FUS9999", "hlo-opt help codes lists all"),
        ("FUZ105", "did you mean FUS105? hlo-opt help codes lists all"),
    ],
)
def test_other_digits_are_no_slip_of_the_pen(code, hint):
    assert no_reason(code).hint == hint
