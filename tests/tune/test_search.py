"""The search: what it finds, that a seed decides it, and what ends it."""

from __future__ import annotations

import itertools
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import hlo_opt
from hlo_opt.diag import UsageError
from hlo_opt.fusion.summary import ModuleSummary, module_summary
from hlo_opt.tune import search
from hlo_opt.tune.evaluation import Evaluated, ResultEdges, Task, evaluate
from hlo_opt.tune.search import Tuned, tune
from hlo_opt.tune.setting import Setting
from tests.small_modules import H100

runs = sys.modules["hlo_opt.passes.run"]
DUMPS = Path(__file__).resolve().parent.parent.parent / "testdata" / "dumps"
TEXT = """HloModule m

ENTRY e {
  p = f32[64]{0} parameter(0)
  a = f32[64]{0} negate(p)
  ROOT b = f32[64]{0} tanh(a)
}
"""
THREE = """HloModule m

ENTRY e {
  p = f32[64]{0} parameter(0)
  a = f32[64]{0} negate(p)
  b = f32[64]{0} tanh(a)
  ROOT c = f32[64]{0} exponential(b)
}
"""


def dump(name: str) -> str:
    return (DUMPS / f"{name}.hlo").read_text(encoding="utf-8")


def test_what_is_found_is_quicker_and_is_replayed() -> None:
    tuned = tune(dump("adamw_mixed"), trials=8)
    assert tuned.after.us < tuned.before.us
    fused, _ = hlo_opt.fuse(dump("adamw_mixed"), **tuned.options)
    assert module_summary(fused, H100).est_us == tuned.after.us
    default, _ = hlo_opt.fuse(dump("adamw_mixed"))
    assert module_summary(default, H100).est_us == tuned.before.us


def test_a_forbidden_edge_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No model prices an edge better apart, so the price here asks 50 us for one that is not forbidden."""

    def dear_together(task: Task, setting: Setting) -> Evaluated | str:
        figures = evaluate(task, setting)
        together = 0 if ("a", "b") in setting.forbid else 50
        return figures if isinstance(figures, str) else replace(figures, us=figures.us + together)

    monkeypatch.setattr(search, "evaluate", dear_together)
    tuned = tune(THREE, trials=40)
    assert tuned.setting.forbid == (("a", "b"),) and tuned.after.us < tuned.before.us - 40
    fused, decisions = hlo_opt.fuse(THREE, **tuned.options)
    assert {d.edge: d.fused for d in decisions} == {("a", "b"): False, ("b", "c"): True}
    assert module_summary(fused, H100).est_us == tuned.after.us
    assert module_summary(hlo_opt.fuse(THREE)[0], H100).kernels == 1


class Priced:
    """Stands for `evaluate`: a price that drops by what the setting has of the parts that are worth something."""

    def __init__(self, worth: dict[str, float], unknown: tuple[str, ...] = ()) -> None:
        self.worth = worth
        self.unknown = unknown
        self.asked: list[Setting] = []

    def __call__(self, task: Task, setting: Setting) -> Evaluated | str:
        self.asked.append(setting)
        parts = {*(f"forbid {p}:{c}" for p, c in setting.forbid), *(f"force {p}:{c}" for p, c in setting.force)}
        parts.update(f"with {step}" for step in setting.pipeline.spelt())
        if "forbid no:no" in parts:
            return "HLO300 no"
        us = 100 - sum(worth for part, worth in self.worth.items() if part in parts)
        unknown = self.unknown if any(part in parts for part in self.unknown) else ()
        return Evaluated(us, ModuleSummary(1, 1, 1.0, us, unknown))


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> ResultEdges:
    found = ResultEdges((("c", "d"), ("e", "f")), ((("a", "b"), 2.0), (("no", "no"), 1.0), (("g", "h"), 1.0)))
    monkeypatch.setattr(search, "around", lambda task, setting: found)
    return found


def searched(monkeypatch: pytest.MonkeyPatch, priced: Priced, **options) -> Tuned:
    monkeypatch.setattr(search, "evaluate", priced)
    return tune(TEXT, **options)


def test_what_lowers_the_price_is_kept_together(monkeypatch: pytest.MonkeyPatch, near: ResultEdges) -> None:
    priced = Priced({"forbid a:b": 10, "force c:d": 20, "force e:f": -5, "forbid g:h": 1})
    tuned = searched(monkeypatch, priced, trials=120)
    assert set(tuned.setting.forbid) == {("a", "b"), ("g", "h")}
    assert tuned.setting.force == (("c", "d"),)
    assert (tuned.before.us, tuned.after.us) == (100, 69)
    assert tuned.failed == {"HLO300 no": tuned.failed["HLO300 no"]} and tuned.failed["HLO300 no"] >= 1
    assert tuned.trials == 120 and not tuned.is_stopped


@pytest.mark.parametrize(("size", "first", "before"), [(1, 100.0, 100.05), (1, 99.0, 99.0), (501, 99.0, 100.05)])
def test_before_is_what_fuse_gives(
    size: int, first: float, before: float, monkeypatch: pytest.MonkeyPatch, near: ResultEdges
) -> None:
    """Of choices that are as good as equal the one with the fewest kernels; of a large module the last one."""
    choices = iter([Evaluated(us, ModuleSummary(n, n, 1.0, us)) for us, n in ((first, 2), (100.05, 1))])
    monkeypatch.setattr(runs, "size_of", lambda module: size)
    monkeypatch.setattr(search, "evaluate", lambda task, setting: next(choices))
    assert tune(TEXT, trials=2).before.us == before


def test_a_change_that_no_longer_matters_is_dropped(monkeypatch: pytest.MonkeyPatch, near: ResultEdges) -> None:
    """Each of two edges is better than none, and one of them alone as good as both."""
    priced = Priced({})

    def either(task: Task, setting: Setting) -> Evaluated | str:
        found = priced(task, setting)
        if isinstance(found, str):
            return found
        us = 100.0 - 10 * (("a", "b") in setting.forbid) - 20 * (("c", "d") in setting.force)
        us = 75.0 if ("c", "d") in setting.force and ("a", "b") in setting.forbid else us
        us = 70.0 if ("c", "d") in setting.force and ("g", "h") in setting.forbid else us
        return Evaluated(us, replace(found.summary, est_us=us))

    monkeypatch.setattr(search, "evaluate", either)
    tuned = tune(TEXT, trials=150)
    assert tuned.after.us == 70 and ("a", "b") not in tuned.setting.forbid


def test_rounds_that_get_lost_are_no_gain(monkeypatch: pytest.MonkeyPatch, near: ResultEdges) -> None:
    tuned = searched(monkeypatch, Priced({"forbid a:b": 50}, unknown=("forbid a:b",)), trials=100)
    assert tuned.after.us == 100 and tuned.setting.forbid == ()


def test_a_seed_decides_with_any_number_of_workers() -> None:
    def found(seed: int, workers: int) -> tuple[object, ...]:
        if not workers:
            tuned = tune(TEXT, trials=40, seed=seed)
        else:
            with ThreadPoolExecutor(workers) as executor:
                tuned = tune(TEXT, trials=40, seed=seed, executor=executor)
        return tuned.setting, tuned.after, tuned.changes, tuned.trials

    assert found(3, 0) == found(3, 1) == found(3, 3)


def test_the_order_of_trials_depends_on_the_seed(monkeypatch: pytest.MonkeyPatch, near: ResultEdges) -> None:
    asked = []
    for seed in (0, 0, 1):
        priced = Priced({})
        searched(monkeypatch, priced, trials=60, seed=seed)
        asked.append(priced.asked)
    assert asked[0] == asked[1] != asked[2]
    assert len(set(asked[0])) == len(asked[0])  # nothing is tried twice


def test_ctrl_c_keeps_the_best(monkeypatch: pytest.MonkeyPatch, near: ResultEdges) -> None:
    priced = Priced({"forbid a:b": 10})
    numbers = itertools.count()

    def interrupted(task: Task, setting: Setting) -> Evaluated | str:
        if ("a", "b") in setting.forbid and next(numbers) == 1:  # in the batch after the one that finds it
            raise KeyboardInterrupt
        return priced(task, setting)

    monkeypatch.setattr(search, "evaluate", interrupted)
    tuned = tune(TEXT, trials=100)
    assert tuned.is_stopped and tuned.trials < 100 and tuned.after.us == 90
    at_once = Priced({"forbid a:b": 10})

    def interrupted_in_the_batch(task: Task, setting: Setting) -> Evaluated | str:
        if any(("a", "b") in asked.forbid for asked in at_once.asked):
            raise KeyboardInterrupt
        return at_once(task, setting)

    monkeypatch.setattr(search, "evaluate", interrupted_in_the_batch)
    assert tune(TEXT, trials=100).after.us == 90

    def interrupted_at_once(task: Task, setting: Setting) -> Evaluated | str:
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "evaluate", interrupted_at_once)
    with pytest.raises(KeyboardInterrupt):
        tune(TEXT, trials=100)


def test_the_time_ends_it(monkeypatch: pytest.MonkeyPatch, near: ResultEdges) -> None:
    now = [0.0]
    monkeypatch.setattr(search.time, "monotonic", lambda: now[0])
    priced = Priced({})

    def slow(task: Task, setting: Setting) -> Evaluated | str:
        now[0] += 1
        return priced(task, setting)

    monkeypatch.setattr(search, "evaluate", slow)
    assert tune(TEXT, seconds=30).trials == 30
    assert tune(TEXT, seconds=30, trials=9).trials == 9
    assert tune(TEXT, seconds=0.5).trials == 4  # every preset, and each choice inside one


def test_it_ends_where_no_neighbour_is_left(monkeypatch: pytest.MonkeyPatch, near: ResultEdges) -> None:
    tuned = searched(monkeypatch, Priced({}), trials=100_000)
    assert tuned.is_done and tuned.trials < 5000 and tuned.after.us == 100


def test_progress_is_told(monkeypatch: pytest.MonkeyPatch, near: ResultEdges) -> None:
    told: list[tuple[int, float]] = []
    monkeypatch.setattr(search, "evaluate", Priced({"forbid a:b": 10}))
    tune(TEXT, trials=30, progress=lambda count, us: told.append((count, us)))
    assert [count for count, _ in told] == list(range(1, 31)) and told[0][1] == 100 and told[-1][1] == 90


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"trials": 0}, "trials must be at least 1"),
        ({"seconds": 0}, "seconds must be more than 0"),
        ({"target": "h1000"}, "there is no target"),
        ({"simplify": "no"}, "simplify must be"),
        ({"trip_counts": {"loop": 3}}, "loop"),
    ],
)
def test_options_out_of_range(options: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        tune(TEXT, **options)  # type: ignore[arg-type]


def test_the_room_is_the_function() -> None:
    tuned = hlo_opt.tune(hlo_opt.parse(TEXT), trials=3)
    assert isinstance(tuned, Tuned) and tuned.module == "m" and tuned.target == "h100_sxm" and tuned.trials == 3


def test_a_module_that_no_preset_can_fuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "evaluate", lambda task, setting: "HLO600 some proof failed")
    with pytest.raises(UsageError, match="no preset can fuse the module: HLO600 some proof failed"):
        tune(TEXT, trials=10)
