"""All that is done for a region looks at the clock, often enough that a limit of time holds."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_opt.jax
from hlo_opt.diag import time_limit
from hlo_opt.diag.time_limit import TimeUpError, check_time, time_until
from hlo_opt.evaluate import evaluate
from hlo_opt.jax import decide, hook, measure
from hlo_opt.runtime.host import library

X = np.ones((32, 64), np.float32)

STEPS = 100
MOST_CALLS = 250_000
"""Calls of functions between two looks at the clock: some tenths of a second."""


def long_loop(x: Any) -> Any:
    """A loop whose body is one long kernel."""

    def body(_: int, x: Any) -> Any:
        for k in range(STEPS):
            x = jnp.sin(x) * (1 + k) - x.sum(-1, keepdims=True)
        return x

    return jax.lax.fori_loop(0, 9, body, x)


def wide(x: Any) -> Any:
    """Many small fusions and reductions."""
    return [jax.nn.softmax(jnp.roll(x * k, k, 0), -1) + x.sum(0) for k in range(1, STEPS // 5)]


@pytest.mark.parametrize("function", [long_loop, wide])
def test_a_build_looks_at_the_clock_all_the_time(
    function: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels are written, and not compiled."""
    monkeypatch.setattr(library, "loadable", lambda *_: pytest.fail("compiles"))
    module = hlo_opt.jax.lower(jax.jit(function), X)
    calls, most = 0, 0

    def looked() -> float:
        nonlocal calls, most
        most, calls = max(most, calls), 0
        return 0.0

    def called(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    class Clock:
        monotonic = staticmethod(looked)

    monkeypatch.setattr(time_limit, "time", Clock)
    sys.setprofile(called)
    try:
        with pytest.raises(pytest.fail.Exception, match="compiles"):
            decide.build(module, "default")
    finally:
        sys.setprofile(None)
    assert 0 < max(most, calls) < MOST_CALLS


@pytest.mark.parametrize("looks", [1, 10, 100, 1000])
def test_a_build_ends_at_the_first_look_after_the_end(looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "loadable", lambda *_: pytest.fail("compiles"))
    module = hlo_opt.jax.lower(jax.jit(wide), X)
    times = itertools.count()

    class Clock:
        monotonic = staticmethod(lambda: float(next(times)))

    monkeypatch.setattr(time_limit, "time", Clock)
    with time_until(looks - 0.5), pytest.raises(TimeUpError, match="HLO511 no time is left"):
        decide.build(module, "default")
    assert next(times) == looks + 1


def test_an_inner_limit_is_not_longer_than_an_outer_one() -> None:
    with time_until(time.monotonic() - 1):
        with time_until(time.monotonic() + 100), pytest.raises(TimeUpError):
            check_time()
        with pytest.raises(TimeUpError):
            check_time()
    check_time()


def test_loops_that_are_evaluated_end_with_the_time() -> None:
    module = hlo_opt.jax.lower(jax.jit(lambda x: jax.lax.while_loop(lambda c: c[0] < 1e9, lambda c: c + 1, x)), X[0])
    with time_until(time.monotonic() + 0.2), pytest.raises(TimeUpError):
        evaluate(module, [np.ones(64, np.float32)])


def test_a_series_begins_no_run_after_the_end() -> None:
    runs = 0

    def run() -> None:
        nonlocal runs
        runs += 1
        time.sleep(0.05)

    with time_until(time.monotonic() + 0.02), pytest.raises(TimeUpError):
        measure.series(run, run, time.perf_counter)
    assert runs == 1


def test_what_there_is_no_time_to_ask_of_all_is_kept_for_the_next_time(
    empty_cache: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regions that were not timed together are not replaced; their verdicts are kept."""
    monkeypatch.setattr(decide, "times", lambda *_, **_kind: (1.0, 100.0))
    over = True

    def compared(*_: Any) -> tuple[float, float]:
        if over:
            raise TimeUpError("no time is left")
        return 1.0, 100.0

    monkeypatch.setattr(decide, "compared", compared)

    def function(x: Any) -> Any:
        return jnp.sort(jax.lax.fori_loop(0, 9, lambda _, x: jnp.sin(x) - x.sum(-1, keepdims=True), x), 0)

    with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
        jax.jit(function).lower(X).compile()
    assert not report.replaced and report.lines[-1].code == "JAX206", str(report)
    over = False
    with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
        jax.jit(function).lower(X).compile()
        hook._BACKGROUND.wait()
        jax.jit(lambda x: function(x)).lower(X).compile()
    assert report.count("JAX304") and report.replaced and not report.count("JAX402"), str(report)
