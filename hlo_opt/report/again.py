"""The passes of a report once more: on a changed module, or with other edges kept apart."""

from __future__ import annotations

from collections.abc import Iterable

from hlo_opt.fusion.preparation import prepare
from hlo_opt.fusion.summary import ModuleSummary, module_summary
from hlo_opt.ir import Module, edit
from hlo_opt.passes import ExplainReport, Outcome, run


def prepared(report: ExplainReport) -> Module:
    """A copy of the module as it was read, with the names by which passes know its instructions."""
    module = edit.clone_module(report.outcome.original)
    prepare(module)
    return module


def run_again(report: ExplainReport, module: Module, forbid: Iterable[tuple[str, str]] = ()) -> Outcome:
    """The passes of the report on a module, without what the user forced, forbade or stopped: that is said of the
    instructions and steps of one module."""
    return run(
        module,
        passes=report.outcome.pipeline,
        target=report.outcome.target,
        simplify="never",
        forbid=forbid,
        own_passes=True,
        trip_counts=report.outcome.context.options.trip_counts,
    )


def summary_of(outcome: Outcome) -> ModuleSummary:
    """The figures of what a run gave."""
    return module_summary(outcome.module, outcome.target, trip_counts=outcome.context.options.trip_counts)
