"""The search: several hills are climbed at once, one from each preset and each choice inside it, the best one with half
of the trials. A batch of neighbours is evaluated, the best of them is the next place, and what else was better is tried
on top of it.

Batches have a fixed size, and results count in the order of the trials, so that a seed gives the same result on one
processor and on many.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TypeGuard

from hlo_opt.analysis.graph.digest import module_digest
from hlo_opt.analysis.graph.loops import NO_TRIP_COUNTS, TripCounts, check_trip_counts
from hlo_opt.analysis.targets import DEFAULT_TARGET, DeviceTarget
from hlo_opt.analysis.targets import target as find_target
from hlo_opt.analysis.targets.spec_file import SUFFIXES
from hlo_opt.diag import UsageError
from hlo_opt.ir import Module
from hlo_opt.passes import parse_pipeline, preset, preset_names
from hlo_opt.passes.run import quickest, tries_all
from hlo_opt.passes.stages import first_stage, is_raw, without_simplifying
from hlo_opt.text import parse, verify
from hlo_opt.tune.evaluation import Evaluated, ResultEdges, Task, around, evaluate
from hlo_opt.tune.setting import (
    Ends,
    Forbid,
    Force,
    Setting,
    SettingChange,
    applied,
    option_changes,
    order_changes,
    switches,
)
from hlo_opt.tune.workers import StartedCall, processes

TRIALS = 100
"""Settings that are tried, unless the caller says how many, or how long."""
BATCH = 16
"""Settings that are tried before the next ones are chosen."""
BETTER = 1 - 1e-6
"""The most that a better setting may take: what is equal up to rounding is not better."""

OnTrial = Callable[[int, float], None]
"""Called after each trial with the number of trials so far and the least microseconds."""


@dataclass(frozen=True)
class Tuned:
    """The outcome of a search.

    setting      the best one
    start        the preset, and the number of the choice inside it where it has several, that it comes from
    changes      what is different from there, in words
    before       the figures of what `fuse` gives by itself
    after        those of the best setting
    trials       settings that were tried
    failed       why settings gave no result, and how many did for each cause
    fingerprint  of the module: what `hlo-opt stats --hash` prints
    is_stopped   whether Ctrl-C ended the search
    is_done      whether no neighbour of any place was left
    """

    module: str
    target: str
    task: Task
    fingerprint: str
    setting: Setting
    start: str
    changes: tuple[str, ...]
    before: Evaluated
    after: Evaluated
    trials: int
    failed: Mapping[str, int]
    is_stopped: bool
    is_done: bool

    @property
    def options(self) -> dict[str, object]:
        """What `hlo_opt.fuse` takes beside the module to do it again."""
        return {
            "passes": ",".join(self.setting.pipeline.spelt()),
            "target": self.task.target,
            "simplify": self.task.simplify,
            "force": self.setting.force,
            "forbid": self.setting.forbid,
            "trip_counts": dict(self.task.trip_counts),
        }


@dataclass
class _Hill:
    """A place of the search: a start, the changes from there, and the figures; and the neighbours to try next."""

    start: str
    origin: Setting
    best: Evaluated
    changes: tuple[SettingChange, ...] = ()
    neighbours: Iterator[tuple[SettingChange, ...]] = field(default_factory=lambda: iter(()))

    @property
    def setting(self) -> Setting:
        setting = applied(self.origin, self.changes)
        assert setting is not None
        return setting


@dataclass(frozen=True)
class _Trial:
    hill: _Hill
    changes: tuple[SettingChange, ...]
    setting: Setting


def tune(
    module: Module | str,
    *,
    target: str | DeviceTarget = DEFAULT_TARGET,
    trials: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    jobs: int = 1,
    executor: Executor | None = None,
    backend: str | None = None,
    simplify: str = "auto",
    trip_counts: TripCounts = NO_TRIP_COUNTS,
    progress: OnTrial | None = None,
) -> Tuned:
    """Search for the passes, their options and order, and the edges to forbid or to force, with which a module takes
    least time by the price of its plans.

    trials    settings to try; None: 100, or any number where `seconds` are given
    seconds   after which no further settings are tried
    seed      of the order of the trials; the same for the same seed, on any number of processors
    jobs      processes that evaluate settings; with 1 this one does
    executor  evaluates them instead: any of `concurrent.futures`, or what has its form (`distributed.Client`'s
              `get_executor()`). It is not shut down
    backend   times results there (`cupy`, `host`) instead of taking their price; then with one job
    simplify, trip_counts  as for `fuse`
    progress  is called after each trial

    KeyboardInterrupt ends the search with the best setting so far, once there is one. Raises UsageError for options out
    of range; what `fuse` raises where no preset can fuse the module.
    """
    if isinstance(module, str):
        module = parse(module)
        verify(module)
    if trials is not None and trials < 1:
        raise UsageError(f"trials must be at least 1, but is {trials}")
    if seconds is not None and not seconds > 0:
        raise UsageError(f"seconds must be more than 0, but is {seconds}")
    device = find_target(target) if isinstance(target, str) else target
    first_stage(module, simplify, own_passes=False)
    check_trip_counts(module, dict(trip_counts))
    task = Task(
        str(module),
        target,
        "always" if simplify == "auto" and is_raw(module) else simplify,
        dict(trip_counts),
        backend,
        seed,
    )
    limit = math.inf if trials is None and seconds is not None else trials or TRIALS
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    own = executor is None and jobs > 1 and backend is None
    search = _Search(task, limit, deadline, seed, progress)
    try:
        with processes(jobs) if own else contextlib.nullcontext(executor) as search.executor:
            search.run()
    except KeyboardInterrupt:
        if not search.hills:
            raise
        search.is_stopped = True
    best = search.best
    return Tuned(
        module.name,
        target if isinstance(target, str) and target.endswith((".toml", *SUFFIXES)) else device.name,
        task,
        module_digest(module),
        best.setting,
        best.start,
        tuple(map(str, best.changes)),
        search.before,
        best.best,
        search.tried,
        dict(sorted(search.failed.items())),
        search.is_stopped,
        search.is_done,
    )


def _starts(simplify: str) -> list[tuple[str, Setting]]:
    """The presets, and each choice inside one, `default` first."""
    starts = []
    for name in sorted(preset_names(), key=lambda name: (name != "default", name)):
        pipeline = parse_pipeline(preset(name))
        ways = (without_simplifying(pipeline) if simplify == "never" else pipeline).alternatives()
        for number, way in enumerate(ways, start=1):
            title = name if len(ways) == 1 else f"{name}, choice {number} of {len(ways)}"
            starts.append((title, Setting(way)))
    return starts


class _Search:
    def __init__(
        self,
        task: Task,
        limit: float,
        deadline: float,
        seed: int,
        progress: OnTrial | None,
    ) -> None:
        self.task = task
        self.executor: Executor | None = None
        self.limit = limit
        self.deadline = deadline
        self.random = random.Random(seed)
        self.progress = progress
        self.hills: list[_Hill] = []
        self.seen: dict[Setting, None] = {}
        self.tried = 0
        self.failed = Counter[str]()
        self.is_stopped = self.is_done = False
        self.before: Evaluated

    @property
    def best(self) -> _Hill:
        """The hill whose place takes least time; of equals the first."""
        return min(self.hills, key=lambda hill: hill.best.us)

    @property
    def is_over(self) -> bool:
        return self.tried >= self.limit or time.monotonic() >= self.deadline

    def run(self) -> None:
        """Search until the end. KeyboardInterrupt leaves the best place so far in `best`, if there are any `hills`."""
        self._start()
        while not self.is_over:
            batch = self._batch()
            if not batch:
                self.is_done = True
                break
            results: list[Evaluated | str] = []
            try:
                self._evaluate([trial.setting for trial in batch], results)
            finally:  # also what Ctrl-C leaves of a batch
                self._take(batch, results)
        if self.task.backend is None:
            self._leave_out_what_does_nothing()

    def _start(self) -> None:
        starts = _starts(self.task.simplify)
        count = max(sum(title.startswith("default") for title, _ in starts), int(min(self.limit, len(starts))))
        results: list[Evaluated | str] = []
        self._evaluate([setting for _, setting in starts[:count]], results, also_late=True)
        for (title, setting), result in zip(starts, results, strict=False):
            self.seen[setting] = None
            if isinstance(result, Evaluated):
                self.hills.append(_Hill(title, setting, result))
        if not self.hills:
            raise UsageError(f"no preset can fuse the module: {next(iter(self.failed), '')}")
        self.before = self._by_default()
        for hill in self.hills:
            hill.neighbours = self._neighbours(hill, with_edges=False)
        self.best.neighbours = self._neighbours(self.best, with_edges=True)

    def _by_default(self) -> Evaluated:
        """The figures of what `fuse` gives: of the choice inside `default` that it takes. Where none of them gives a
        result, those of the best preset."""
        results = [hill.best for hill in self.hills if hill.start.startswith("default")]
        if not results:
            return self.best.best
        if not tries_all(parse(self.task.text)):
            return results[-1]
        return results[quickest([result.summary for result in results])]

    def _evaluate(
        self, settings: Sequence[Setting], results: list[Evaluated | str], *, also_late: bool = False
    ) -> None:
        """Add the results in order; fewer where the time is over."""
        begun = [StartedCall.of(self.executor, evaluate, self.task, setting) for setting in settings]
        for number, work in enumerate(begun):
            if not also_late and time.monotonic() >= self.deadline:
                for late in begun[number:]:
                    late.cancel()
                break
            result = work.result()
            results.append(result)
            self.tried += 1
            if isinstance(result, str):
                self.failed[result] += 1
            if self.progress is not None:
                least = [hill.best.us for hill in self.hills] + [r.us for r in results if isinstance(r, Evaluated)]
                self.progress(self.tried, min(least, default=math.inf))

    def _batch(self) -> list[_Trial]:
        """The next settings to try: every second one around the best place, the others around each place in turn."""
        size = min(BATCH, self.limit - self.tried)
        batch: list[_Trial] = []
        others = itertools.cycle(self.hills)
        idle = 0
        while len(batch) < size and idle <= 2 * len(self.hills):
            hill = self.best if len(batch) % 2 == 0 and not idle else next(others)
            trial = self._next(hill)
            idle = 0 if trial is not None else idle + 1
            if trial is not None:
                batch.append(trial)
        return batch

    def _next(self, hill: _Hill) -> _Trial | None:
        """The next neighbour of a place that has not been tried."""
        for changes in hill.neighbours:
            setting = applied(hill.origin, changes)
            if setting is not None and setting not in self.seen:
                self.seen[setting] = None
                return _Trial(hill, changes, setting)
        return None

    def _take(self, batch: Sequence[_Trial], results: Sequence[Evaluated | str]) -> None:
        """Go on from the best neighbour of each place, where it is better. What else was better is tried there first,
        all together and each alone."""
        before = self.best
        for hill in self.hills:
            better = [
                (trial, result)
                for trial, result in zip(batch, results, strict=False)
                if trial.hill is hill and self._is_result(result) and result.us < BETTER * hill.best.us
            ]
            if not better:
                continue
            better.sort(key=lambda pair: pair[1].us)
            others = [trial.changes[len(hill.changes) :] for trial, _ in better[1:]]
            hill.changes, hill.best = better[0][0].changes, better[0][1]
            first = [(*hill.changes, *itertools.chain(*others))] if len(others) > 1 else []
            first += [(*hill.changes, *other) for other in others]
            hill.neighbours = itertools.chain(first, self._neighbours(hill, with_edges=hill is self.best))
        if self.best is not before:
            self.best.neighbours = itertools.chain(self.best.neighbours, self._neighbours(self.best, with_edges=True))

    def _is_result(self, result: Evaluated | str) -> TypeGuard[Evaluated]:
        """Whether a setting gives figures that mean something beside those of `default`: no loop whose rounds were
        known counts as one round."""
        return isinstance(result, Evaluated) and result.summary.unknown_trips <= self.before.summary.unknown_trips

    def _neighbours(self, hill: _Hill, *, with_edges: bool) -> Iterator[tuple[SettingChange, ...]]:
        """One change more, of each sort in turn: options (first those that are true or false), edges, order."""
        setting = hill.setting
        options, order = list(option_changes(setting)), list(order_changes(setting))
        self.random.shuffle(options)
        self.random.shuffle(order)
        sorts: list[Iterable[SettingChange]] = [[*switches(setting), *options], order]
        if with_edges:
            near = self._around(setting)
            sorts[1:1] = [[Force(ends) for ends in near.promising], map(Forbid, self._drawn(near))]
        for change in _in_turn(sorts):
            yield (*hill.changes, change)

    def _around(self, setting: Setting) -> ResultEdges:
        return StartedCall.of(self.executor, around, self.task, setting).result()

    def _drawn(self, near: ResultEdges) -> list[Ends]:
        """The edges inside kernels in a random order: the larger the weight, the earlier, on average."""
        keys = [(-math.log(1 - self.random.random()) / max(weight, 1e-9), ends) for ends, weight in near.inside]
        return [ends for _, ends in sorted(keys, key=lambda pair: pair[0])]

    def _leave_out_what_does_nothing(self) -> None:
        """Drop the changes of the best place without which the result takes no longer."""
        hill = self.best
        for change in reversed(hill.changes):
            changes = tuple(c for c in hill.changes if c is not change)
            setting = applied(hill.origin, changes)
            if setting is None:
                continue
            result = StartedCall.of(self.executor, evaluate, self.task, setting).result()
            if self._is_result(result) and result.us * BETTER <= hill.best.us:
                hill.changes, hill.best = changes, result


def _in_turn(sorts: Sequence[Iterable[SettingChange]]) -> Iterator[SettingChange]:
    """One of each sort, as long as there are any."""
    nothing = object()
    for row in itertools.zip_longest(*sorts, fillvalue=nothing):
        for change in row:
            if change is not nothing:
                yield change  # type: ignore[misc]
