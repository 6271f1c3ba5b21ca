"""Passes, pipelines and presets; `fuse` runs them."""

from __future__ import annotations

from collections.abc import Iterable

import hlo_opt.ops  # noqa: F401 - fills the op table
from hlo_opt.analysis.graph.loops import NO_TRIP_COUNTS, TripCounts
from hlo_opt.analysis.targets import DEFAULT_TARGET
from hlo_opt.fusion.decision import Decisions
from hlo_opt.ir import Module
from hlo_opt.passes.pipeline import Pipeline, parse_pipeline
from hlo_opt.passes.run import DEFAULT_EFFORT, ExplainReport, Outcome, collector_paused, report_on, run
from hlo_opt.passes.table import pass_class, pass_names, pass_options, preset, preset_names, register_pass
from hlo_opt.text import parse, verify

__all__ = [
    "ExplainReport",
    "Outcome",
    "Pipeline",
    "fuse",
    "parse_pipeline",
    "pass_class",
    "pass_names",
    "pass_options",
    "preset",
    "preset_names",
    "register_pass",
    "report_on",
    "run",
]


def fuse(
    module: Module | str,
    preset: str = "default",
    passes: str | None = None,
    target: str = DEFAULT_TARGET,
    simplify: str = "auto",
    *,
    what_if: Iterable[str] = (),
    force: Iterable[tuple[str, str]] = (),
    forbid: Iterable[tuple[str, str]] = (),
    decide_again: bool = False,
    stop_after_step: int | None = None,
    choices: Iterable[str] = (),
    trip_counts: TripCounts = NO_TRIP_COUNTS,
    effort: int = DEFAULT_EFFORT,
) -> tuple[Module, Decisions]:
    """Fuse a copy of the module, or of the module that a text describes, and prove that it computes the same. Returns
    it with a decision for every edge between kernels. Decisions are computed when they are first read: read them before
    you change the module.

    `passes` (as `--passes` spells them) replace the preset. The options are those of `hlo_opt.passes.run.run`. Raises
    UsageError for unknown names and wrong options; ParseError and VerifyError for a text.
    """
    if isinstance(module, str):
        module = parse(module)
        verify(module)
    with collector_paused():
        outcome = run(
            module,
            preset,
            passes,
            target,
            simplify,
            what_if=what_if,
            force=force,
            forbid=forbid,
            decide_again=decide_again,
            stop_after_step=stop_after_step,
            choices=choices,
            trip_counts=trip_counts,
            effort=effort,
        )
    return outcome.module, Decisions(outcome.decide)
