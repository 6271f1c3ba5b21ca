"""Callbacks of the report that compile: XLA calls the hook for that in another thread, and it must end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_opt.jax
from hlo_opt.jax import report
from hlo_opt.jax.report import Callbacks, Line

X = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)


def waves(count: int) -> Callable[[Any], Any]:
    """A function of its own for each call."""

    def function(x: Any) -> Any:
        for _ in range(9 + count):
            x = jnp.sin(x) * 2 + jnp.cos(x * 3)
        return x

    return function


@pytest.mark.usefixtures("winning")
@pytest.mark.parametrize("wait", [True, False])
def test_a_callback_that_compiles_is_not_called_for_that(wait: bool) -> None:
    """Neither from XLA's threads nor from the one in the background, where it may wait for that thread as well."""
    called: list[Line] = []

    def compiling(line: Line) -> None:
        called.append(line)
        assert len(called) < 20, "it goes on"
        jax.jit(waves(len(called))).lower(X).compile()
        hlo_opt.jax.wait()

    with hlo_opt.jax.fusing(min_saving_us=0, wait=wait, report=compiling) as told:
        jax.jit(waves(0)).lower(X).compile()
        hlo_opt.jax.wait()
    outer = [line for line in told.lines if line.code != "JAX105"]
    assert called == outer and [line.code for line in outer][-1] == "JAX001", str(told)
    assert told.count("JAX105") == len(called) and told.count("JAX303") == 0


@pytest.mark.usefixtures("winning")
def test_a_callback_that_returns_is_waited_for() -> None:
    """A compilation in another thread is not a callback's because one happens to run."""
    runs, ends = threading.Event(), threading.Event()

    def slow(_: Line) -> None:
        runs.set()
        ends.wait(report.PATIENCE / 4)

    with hlo_opt.jax.fusing(min_saving_us=0, wait=True, report=slow) as told:
        other = threading.Thread(target=lambda: jax.jit(waves(0)).lower(X).compile())
        other.start()
        assert runs.wait(60)
        jax.jit(waves(1)).lower(X).compile()
        other.join()
    assert len(told.replaced) == 2 and not told.count("JAX105"), str(told)


def test_only_callbacks_that_ran_before_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    callbacks = Callbacks()
    found: list[bool] = []
    asking = threading.Thread(target=lambda: found.append(callbacks.may_wait_for_us()))
    assert not callbacks.may_wait_for_us()
    with callbacks.running():
        assert callbacks.may_wait_for_us(), "in this very thread"
        monkeypatch.setattr(report, "PATIENCE", 60)
        asking.start()
        while not callbacks._changed._waiters:  # type: ignore[attr-defined]
            pass
        later = callbacks.running()
        later.__enter__()
    asking.join(30)
    assert found == [False]
    later.__exit__(None, None, None)
