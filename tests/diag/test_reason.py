import pytest

from hlo_opt.diag import Reason, ReasonSpec, UsageError, reason_spec, register_reason
from hlo_opt.diag.reason import _SPECS


@pytest.fixture
def spec():
    made = register_reason(ReasonSpec("FUS999", "test-only", "{count} of {limit}", "raise {limit}", "a page"))
    yield made
    del _SPECS["FUS999"]


def test_a_reason_insists_on_its_numbers(spec: ReasonSpec):
    reason = Reason.of("FUS999", count=3, limit=2)
    assert str(reason) == "FUS999 test-only: 3 of 2"
    assert reason.hint == "raise 2"
    with pytest.raises(TypeError, match="count"):
        Reason.of("FUS999", limit=2)
    with pytest.raises(TypeError, match="more"):
        Reason.of("FUS999", count=3, limit=2, more=1)


def test_a_code_is_declared_once(spec: ReasonSpec):
    with pytest.raises(ValueError, match="twice"):
        register_reason(ReasonSpec("FUS999", "another", "", "", ""))
    with pytest.raises(ValueError, match="twice"):
        register_reason(ReasonSpec("FUS998", "test-only", "", "", ""))


def test_an_unknown_code_names_the_nearest(spec: ReasonSpec):
    with pytest.raises(UsageError) as caught:
        reason_spec("FUS99")
    assert caught.value.hint is not None and "FUS999" in caught.value.hint
