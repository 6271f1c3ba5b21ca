"""When kernels of ours count as quicker: by a clock of the test's own, on which each run takes what the test says."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import jax
import pytest
from jaxlib import _hlo, _jax

from hlo_opt.jax import measure
from hlo_opt.jax.calls import call_text
from hlo_opt.jax.measure import TimedRun, least_won, series
from hlo_opt.jax.options import HookOptions
from hlo_opt.jax.records import Chosen, Verdict
from hlo_opt.jax.wire import Replacement
from hlo_opt.text import parse


class Clock:
    """Seconds that pass only while something runs."""

    def __init__(self) -> None:
        self.now = 0.0
        self.order: list[str] = []

    def __call__(self) -> float:
        return self.now

    def run(self, name: str, microseconds: Iterator[float]) -> TimedRun:
        def one() -> None:
            self.order.append(name)
            self.now += next(microseconds) * 1e-6

        return one


def test_the_quickest_of_runs_in_turn_counts() -> None:
    """Whatever else the machine does makes nine of ten runs ten times as slow."""
    clock = Clock()
    slow = lambda least: itertools.cycle([least] + [least * 10] * 9)  # noqa: E731
    ours, theirs, *_ = series(clock.run("ours", slow(50.0)), clock.run("theirs", slow(100.0)), clock)
    assert (round(ours), round(theirs)) == (50, 100)


def test_what_is_quick_only_now_and_then_is_not_quick() -> None:
    """One run of ten is twice as quick as theirs, the others a quarter slower: as in the middle, less what chance may
    do."""
    clock = Clock()
    ours, theirs, *_ = series(
        clock.run("ours", itertools.cycle([50.0, *[125.0] * 9])), clock.run("theirs", itertools.repeat(100.0)), clock
    )
    assert (round(ours), round(theirs)) == (round(125 / measure.MIDDLE), 100)
    assert not HookOptions(min_saving_us=0).takes(Verdict(ours, theirs))


def test_each_goes_first_in_every_other_pair() -> None:
    clock = Clock()
    runs = (clock.run(name, itertools.repeat(1.0)) for name in ("ours", "theirs"))
    series(*runs, clock)
    timed = clock.order[measure.FIRST_RUNS + 1 :]
    assert len(timed) == 2 * measure.ENOUGH
    assert timed[:8] == ["theirs", "ours", "ours", "theirs"] * 2


def test_a_series_ends_in_time() -> None:
    """A run that takes longer than a series may: each is timed as often as it must be."""
    clock = Clock()
    runs = (clock.run(name, itertools.repeat(measure.SECONDS * 2e6)) for name in ("ours", "theirs"))
    series(*runs, clock)
    assert clock.order.count("theirs") == 1 + measure.LEAST and clock.order.count("ours") == 1 + measure.LEAST


@pytest.mark.parametrize(("ours", "pairs"), [(126.0, measure.FEW_PAIRS), (49.0, measure.FEW_PAIRS), (124.0, 150)])
def test_a_clear_series_ends_early(ours: float, pairs: int) -> None:
    clock = Clock()
    series(clock.run("ours", itertools.repeat(ours)), clock.run("theirs", itertools.repeat(100.0)), clock)
    assert clock.order.count("theirs") == 1 + pairs


@pytest.mark.parametrize(
    ("times", "seconds"),
    [([5e4, 4e4, 4.1e4] * 40, measure.SECONDS), ([1e5 * 0.9**n for n in range(120)], measure.BUSY_SECONDS)],
)
def test_a_quickest_run_that_stands_alone_is_not_the_last(times: list[float], seconds: float) -> None:
    """The second kind of run finds the machine a little less busy each time."""
    clock = Clock()
    given = iter(times)
    series(clock.run("ours", itertools.repeat(10.0)), clock.run("theirs", given), clock)
    begun = times[0] * 1e-6
    assert seconds <= clock.now - begun <= seconds + 0.06


def several(clock: Clock, *pairs: tuple[float, float]) -> Callable[[], tuple[TimedRun, TimedRun]]:
    """Series in which runs take what a pair says."""
    left = iter(pairs)

    def next_runs() -> tuple[TimedRun, TimedRun]:
        ours, theirs = next(left)
        return clock.run("ours", itertools.repeat(ours)), clock.run("theirs", itertools.repeat(theirs))

    return next_runs


@pytest.mark.parametrize(
    ("pairs", "expected", "takes"),
    [
        ([(50, 100), (80, 100)], (80, 100), True),
        ([(50, 100), (95, 100)], (95, 100), False),
        ([(95, 100), (50, 100)], (95, 100), False),
        ([(50, 100), (50, 40)], (50, 40), False),
        ([(101, 100)], (101, 100), False),
    ],
)
def test_a_region_must_win_each_series(
    pairs: list[tuple[float, float]], expected: tuple[float, float], takes: bool
) -> None:
    """A lucky series is not enough; and a first one that is lost is the last."""
    clock = Clock()
    ours, theirs, *_ = least_won(several(clock, *pairs), clock)
    assert (round(ours), round(theirs)) == expected
    assert HookOptions(min_saving_us=1).takes(Verdict(ours, theirs)) is takes


@pytest.mark.parametrize(
    ("least", "ours", "xla", "keeps"),
    [
        (1, 975, 1000, True),
        (1, 976, 1000, False),
        (1, 90, 100, True),
        (1, 91, 100, False),
        (1, 105, 100, False),
        (0, 102, 100, True),
        (0, 103, 100, False),
    ],
)
def test_a_module_must_win_as_well(least: float, ours: float, xla: float, keeps: bool) -> None:
    """Two regions that save 25 us each by themselves: half of that, or a tenth."""
    one = Chosen(Replacement("c", (), (), (), "", ""), "r", 0, 25.0, 50.0, "r")
    assert HookOptions(min_saving_us=least).keeps([one, one], ours, xla) is keeps


@pytest.mark.parametrize("count", [1, 2])
def test_a_part_of_a_program_runs_on_another_thread_as_a_call_and_as_it_was(count: int) -> None:
    """XLA's CPU client asks for 1,000 flops, by its own count, and counts none for a call."""
    body = "  a = f32[8] parameter(0)\n  b = f32[8] negate(a)\n  ROOT t = (f32[8], f32[8]) tuple(a, b)\n"
    module = parse(f"HloModule m\n\nENTRY e {{\n{body}}}\n")
    shapes = list(module.entry.root.shape.leaves())[:count]
    client = jax.local_devices(backend="cpu")[0].client
    for text in (call_text(shapes[:1], shapes, "abc"), str(module)):
        flops = [
            _jax.hlo_module_cost_analysis(client, _hlo.hlo_module_from_text(one)).get("flops", 0)
            for one in (text, measure.on_another_thread(text))
        ]
        assert flops[0] < 1000 <= flops[1]
