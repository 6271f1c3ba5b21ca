"""What a setting gives: the price of the module that it leaves, or the time that it takes; and the edges around it that
are worth a try. Everything here can be sent to another process or machine, and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.diag import HloOptError
from hlo_opt.fusion.summary import ModuleSummary, module_summary
from hlo_opt.ir import Module
from hlo_opt.passes.run import Outcome, collector_paused, force_edges, report_on, run
from hlo_opt.text import parse
from hlo_opt.tune.setting import Ends, Setting


@dataclass(frozen=True)
class Task:
    """What all evaluations of a search have in common.

    text         the module
    target       the device that kernels are planned and priced for
    simplify     what runs before the passes: see `hlo_opt.passes.stages.first_stage`
    trip_counts  rounds of loops that the text does not tell, by their names
    backend      where the result is timed; None: its price counts
    seed         of the inputs that it is timed on
    """

    text: str
    target: str | DeviceTarget
    simplify: str = "auto"
    trip_counts: Mapping[str, int] = field(default_factory=dict)
    backend: str | None = None
    seed: int = 0


@dataclass(frozen=True)
class Evaluated:
    """The figures of a result. `us` is what counts: its price, or the median of its times with warm caches."""

    us: float
    summary: ModuleSummary


@dataclass(frozen=True)
class ResultEdges:
    """The edges of a setting's result: refused ones whose joining promises to save time, the largest promise first; and
    those inside kernels, each with a weight: its share of its kernel's microseconds."""

    promising: tuple[Ends, ...]
    inside: tuple[tuple[Ends, float], ...]


@lru_cache(maxsize=2)
def _module(text: str) -> Module:
    return parse(text)


def evaluate(task: Task, setting: Setting) -> Evaluated | str:
    """The figures of a setting's result; or why there are none: the error that fusing ended in, or a forced edge that
    is no refused one."""
    try:
        with collector_paused():
            outcome = _outcome(task, setting)
            if missing := force_edges(outcome, setting.force):
                return f"no refused edge is called {':'.join(missing[0])}"
            summary = module_summary(
                outcome.module, outcome.target, outcome.context.memory.known, outcome.context.options.trip_counts
            )
        us = summary.est_us if task.backend is None else _measured(task, outcome.module)
        return Evaluated(us, replace(summary, launched=()))
    except HloOptError as error:
        return f"{error.code} {error.message}"
    except Exception as error:  # a fault of ours: the search goes on, and its report tells of it
        return f"{type(error).__name__}: {error}"


def around(task: Task, setting: Setting) -> ResultEdges:
    """The edges of a setting's result before edges are forced."""
    outcome = _outcome(task, setting)
    report = report_on(outcome)
    promising = [
        d.edge
        for d in report.dearest
        if d.cost is not None and d.cost.us_saved > 0 and (d.producer, d.consumer) not in setting.forbid
    ]
    prices = {one.instruction: one.est_us * one.rounds for one in report.after.launched}
    fused = [d for d in report.fused if d.rule != "input"]
    members = Counter(d.producer_kernel for d in fused)
    inside = {(d.producer, d.consumer): prices.get(d.producer_kernel, 0.0) / members[d.producer_kernel] for d in fused}
    return ResultEdges(tuple(dict.fromkeys(promising)), tuple(inside.items()))


def _outcome(task: Task, setting: Setting) -> Outcome:
    return run(
        _module(task.text),
        passes=setting.pipeline,
        target=task.target,
        simplify=task.simplify,
        own_passes=True,
        forbid=setting.forbid,
        trip_counts=task.trip_counts,
    )


def _measured(task: Task, module: Module) -> float:
    """Microseconds of a run with warm caches: the median."""
    from hlo_opt.evaluate import device_inputs
    from hlo_opt.runtime.measure.bench import bench

    assert task.backend is not None
    inputs = device_inputs(_module(task.text), task.seed)
    return bench({"tuned": module}, task.backend, inputs).variants[0].warm.median
