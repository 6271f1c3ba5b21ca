"""What changes when a rule is switched off or an edge is forced: the same module fused both ways."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.passes import ExplainReport
from hlo_opt.report.page import Page, Word, count, counted
from hlo_opt.report.summary import add_figures, summary_json

MOST_SHOWN = 10
"""Edges of each kind that the text names."""

Ends = tuple[str, str, str]


@dataclass(frozen=True)
class Changes:
    """The report as things are, the report with the changed rules, and the edges whose answer differs.

    fused    refused as things are, fused with the changed rules
    moved    refused both times, but for other reasons; the decision is the one with the changed rules
    refused  fused as things are, refused with the changed rules
    gone     refused as things are, and no edge between kernels with the changed rules: one of its ends fused with others, and reads under another name
    """

    codes: tuple[str, ...]
    forced: tuple[str, ...]
    before: ExplainReport
    after: ExplainReport
    fused: list[FusionDecision]
    moved: list[FusionDecision]
    refused: list[FusionDecision]
    gone: list[FusionDecision]


def changes(codes: Iterable[str], forced: Iterable[str], before: ExplainReport, after: ExplainReport) -> Changes:
    """Compare two reports on one module."""
    old, new = ({_ends(d): d for d in report.decisions} for report in (before, after))
    left = [(d, new.get(ends)) for ends, d in old.items() if not d.fused]
    return Changes(
        tuple(code.upper() for code in codes),
        tuple(forced),
        before,
        after,
        fused=[now for _, now in left if now is not None and now.fused],
        moved=[now for d, now in left if now is not None and not now.fused and _codes(now) != _codes(d)],
        refused=[d for ends, d in new.items() if not d.fused and ends in old and old[ends].fused],
        gone=[d for d, now in left if now is None],
    )


def _ends(decision: FusionDecision) -> Ends:
    return (decision.computation, decision.producer, decision.consumer)


def _codes(decision: FusionDecision) -> list[str]:
    return sorted({r.code for r in decision.reasons})


def as_page(found: Changes) -> Page:
    """The comparison for people."""
    page = Page()
    asked = [f"without {code}" for code in found.codes] + [f"with {edge} forced" for edge in found.forced]
    page.add(Word("what if: " + ", ".join(asked), "bold"))
    add_figures(page, ("as it is", found.before.after), ("what if", found.after.after))
    kinds: tuple[tuple[str, str, Sequence[FusionDecision]], ...] = (
        ("would fuse", "green", found.fused),
        ("would be refused for other reasons", "yellow", found.moved),
        ("would be refused that fuse now", "yellow", found.refused),
        ("would be gone: an end fuses with others", "", found.gone),
    )
    for title, style, edges in kinds:
        if edges:
            page.add("  ", Word(f"{counted(len(edges), 'edge')} {title}", style))
            page.table([_row(d, told=edges is not found.gone) for d in edges[:MOST_SHOWN]], indent=4)
        if len(edges) > MOST_SHOWN:
            page.add(f"    and {count(len(edges) - MOST_SHOWN)} more")
    if not any(edges for _, _, edges in kinds):
        page.add("  no edge would be decided differently")
    return page


def _row(decision: FusionDecision, *, told: bool) -> list[str | Word]:
    codes = ", ".join(dict.fromkeys(f"{r.code} {r.slug}" for r in decision.reasons)) if told else ""
    return [f"{decision.producer} -> {decision.consumer}", Word(codes, "yellow")]


def as_json(found: Changes) -> dict[str, Any]:
    """The comparison for programs."""

    def edges(decisions: Iterable[FusionDecision]) -> list[dict[str, Any]]:
        return [{"producer": d.producer, "consumer": d.consumer, "codes": _codes(d)} for d in decisions]

    return {
        "codes": list(found.codes),
        "forced": list(found.forced),
        "as_it_is": summary_json(found.before.after),
        "what_if": summary_json(found.after.after),
        "fused": edges(found.fused),
        "other_reasons": edges(found.moved),
        "refused": edges(found.refused),
        "gone": edges(found.gone),
    }
