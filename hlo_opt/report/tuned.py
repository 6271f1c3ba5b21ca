"""What a search found, for people and for programs."""

from __future__ import annotations

from hlo_opt.report.page import Page, Word, counted, microseconds
from hlo_opt.report.summary import add_figures, summary_json
from hlo_opt.tune import Tuned


def tuned_page(tuned: Tuned) -> Page:
    """The figures with `default` and with the best setting, and what is different."""
    page = Page()
    page.add(Word(tuned.module, "bold"), f" on {tuned.target}")
    add_figures(page, ("default", tuned.before.summary), ("tuned", tuned.after.summary), brief=True)
    if tuned.task.backend is not None:
        before, after = microseconds(tuned.before.us), microseconds(tuned.after.us)
        page.add(f"  measured on {tuned.task.backend}: {before}, tuned ", Word(after, "bold"))
    end = "no neighbour is left" if tuned.is_done else "interrupted" if tuned.is_stopped else ""
    page.add(f"  after {counted(tuned.trials, 'trial')}{f'; {end}' if end else ''}: from {tuned.start}")
    for change in tuned.changes:
        page.add(f"    {change}")
    for why, count in tuned.failed.items():
        page.add("  ", Word(f"{counted(count, 'trial')} failed", "yellow"), f": {why}")
    return page


def tuned_json(tuned: Tuned) -> dict[str, object]:
    """The same for programs. Times in microseconds."""
    return {
        "module": tuned.module,
        "target": tuned.target,
        "fingerprint": tuned.fingerprint,
        "before": {"us": round(tuned.before.us, 3), **summary_json(tuned.before.summary)},
        "after": {"us": round(tuned.after.us, 3), **summary_json(tuned.after.summary)},
        "measured_on": tuned.task.backend,
        "start": tuned.start,
        "changes": list(tuned.changes),
        "passes": tuned.setting.pipeline.spelt(),
        "forbid": [":".join(ends) for ends in tuned.setting.forbid],
        "force": [":".join(ends) for ends in tuned.setting.force],
        "trials": tuned.trials,
        "failed": dict(tuned.failed),
        "interrupted": tuned.is_stopped,
        "done": tuned.is_done,
    }
