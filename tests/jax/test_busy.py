"""Verdicts on a busy machine: by a clock of the test's own where runs are timed, and by given times where regions are
decided."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_opt.jax
from hlo_opt.jax import decide, hook, records
from hlo_opt.jax.measure import TimedRun, Times, series
from hlo_opt.jax.options import HookOptions
from hlo_opt.jax.records import Verdict

X = np.ones((64, 128), np.float32)


def timed(ours: Iterator[float], theirs: Iterator[float]) -> Times:
    """A series of runs that take so many microseconds."""
    now = 0.0

    def run(microseconds: Iterator[float]) -> TimedRun:
        def one() -> None:
            nonlocal now
            now += next(microseconds) * 1e-6

        return one

    return series(run(ours), run(theirs), lambda: now)


@pytest.mark.parametrize(
    ("ours", "theirs", "sure"),
    [
        ([90, 91, 92], [100, 101, 99], {0, 1}),
        ([100], [100], {0, 1}),
        ([90, 250, 180, 400], [100, 160, 300, 210, 500], set()),
        ([100, 101, 102], [100, 160, 300, 210, 500], {0}),
        ([20, 40, 80], [100, 160, 300, 210, 500], {0, 1}),
        ([600, 700, 900, 1800], [100, 160, 300, 210, 500], {0, 1}),
    ],
)
def test_what_a_busy_machine_says_is_sure_where_quartiles_agree(
    ours: list[float], theirs: list[float], sure: set[int]
) -> None:
    """And the quickest runs with them. A quiet machine is believed, however close it is. `sure` are the microseconds
    that a region must save, for which that is so."""
    found = timed(itertools.cycle(ours), itertools.cycle(theirs))
    verdict = Verdict(found.ours_us, found.xla_us, low_us=found.low_us, high_us=found.high_us)
    assert {least for least in (0, 1) if HookOptions(min_saving_us=least).is_sure(verdict)} == sure
    assert not found.high_us or found.low_us <= found.high_us


BUSY, QUIET = Times(90.0, 100.0, 80.0, 150.0), Times(90.0, 100.0)


def wave(x: Any) -> Any:
    return jnp.sin(x) * 2 + jnp.cos(x * 3)


def compiled(function: Callable[[Any], Any] = wave) -> list[str]:
    """The codes of the report of a compilation, and of what follows in the background."""
    with hlo_opt.jax.fusing(min_saving_us=0, wait=True) as report:
        jax.jit(lambda x: function(x)).lower(X).compile()
        hook._BACKGROUND.wait()
    return [line.code for line in report.lines]


@pytest.mark.parametrize(
    ("found", "timings"),
    [([BUSY, QUIET], 2), ([BUSY, Times(300.0, 100.0)], 2), ([BUSY] * 9, 1 + records.TRIES), ([QUIET], 1)],
)
def test_a_verdict_of_a_busy_machine_is_found_out_again(
    found: list[Times], timings: int, empty_cache: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds until then, and for good where the machine never has time."""
    left, calls = iter(found), 0

    def given(*_: Any, **_kind: Any) -> Times:
        nonlocal calls
        calls += 1
        return next(left)

    monkeypatch.setattr(decide, "times", given)
    told = []
    for _ in range(5):
        told.append(compiled())
        empty_cache()
    assert calls == timings
    assert told[0] == [*(["JAX305"] if found[0] is BUSY else []), "JAX402", "JAX001"]
    assert [each.count("JAX304") for each in told] == [0, *[1] * (timings - 1), *[0] * (5 - timings)]
    assert told[-1] == (["JAX401", "JAX001"] if found[timings - 1].ours_us < 100 else [])


def test_what_a_busy_machine_says_of_all_regions_together_is_asked_again(
    empty_cache: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decide, "times", lambda *_, **_kind: QUIET)
    left: Iterator[Times] = iter([Times(300.0, 100.0, 80.0, 150.0), *[Times(90.0, 100.0)] * 2])
    monkeypatch.setattr(decide, "compared", lambda *_: next(left))

    def function(x: Any) -> Any:
        return jnp.sort(wave(x), 0) * wave(x + 1)

    told = [compiled(function) for _ in range(3)]
    assert {"JAX305", "JAX208"} <= set(told[0]), "fewer of them win"
    assert [each.count("JAX304") for each in told] == [0, 1, 0] and next(left, None) is None
    assert told[2].count("JAX001") > told[0].count("JAX001")
