"""The converter in children of a script's process."""

from __future__ import annotations

import signal
import time

import pytest

from hlo_opt.diag import UsageError
from hlo_opt.forms.kinds import Form
from hlo_opt.jax import conversion, converter
from scripts import forked_converter


def test_a_conversion_that_waits_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes no processor time, which is what `converter` limits."""
    monkeypatch.setattr(conversion, "SECONDS", 1)
    monkeypatch.setattr(forked_converter, "WAITS", 0)
    monkeypatch.setattr(converter, "main", lambda: time.sleep(60))
    begun = time.monotonic()
    with forked_converter.forked_converter(), pytest.raises(UsageError, match=f"HLO307.*status -{signal.SIGALRM:d}"):
        conversion.converted(b"HloModule m", Form.TEXT, "pb", "m.hlo")
    assert time.monotonic() - begun < 30
