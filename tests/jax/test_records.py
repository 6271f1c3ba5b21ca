"""What the hook keeps between processes, where nothing can be kept."""

from __future__ import annotations

import pytest

from hlo_opt.diag import BackendError
from hlo_opt.jax import records


@pytest.mark.parametrize("failure", [OSError("read-only"), BackendError("no folder", code="HLO517")])
def test_without_a_folder_nothing_is_kept_and_nothing_fails(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_folder() -> None:
        raise failure

    monkeypatch.setattr(records, "_folder", no_folder)
    records._keep("a", b"text")
    assert records._kept("a") is None and records.generation() == ""
