"""What the hook keeps between processes, where nothing can be kept, and what it must not keep."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import hlo_opt.jax
from hlo_opt.diag import BackendError
from hlo_opt.jax import decide, records
from hlo_opt.runtime.host.freezing import freeze


@pytest.mark.parametrize("failure", [OSError("read-only"), BackendError("no folder", code="HLO517")])
def test_without_a_folder_nothing_is_kept_and_nothing_fails(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_folder() -> None:
        raise failure

    monkeypatch.setattr(records, "_folder", no_folder)
    records._keep("a", b"text")
    assert records._kept("a") is None and records.generation() == ""


@pytest.mark.parametrize("code", sorted(decide.OF_MACHINE))
def test_a_fault_of_the_machine_leaves_no_verdict(
    code: str, empty_cache: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The small file of a verdict may fit where the kernels do not. With room, or the compiler, back, the next
    compilation has kernels."""
    for name in ("times", "compared"):
        monkeypatch.setattr(decide, name, lambda *_, **_kind: (1.0, 100.0))

    def full(*_: object) -> None:
        raise BackendError("no kernels can be kept", code=code)

    def compiled() -> hlo_opt.jax.Report:
        with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
            jax.jit(lambda x: lax.fori_loop(0, 40, lambda _, c: jnp.sin(c) * 1.5, x))(jnp.ones((64, 64)))
        return report

    monkeypatch.setattr(decide, "freeze", full)
    before = compiled()
    assert not before.replaced and before.count("JAX201") and code in str(before)
    monkeypatch.setattr(decide, "freeze", freeze)
    empty_cache()
    assert compiled().replaced
