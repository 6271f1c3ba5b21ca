"""A comparison for programs. The form is versioned: fields are only added within a version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from hlo_opt.analysis.graph.compare.flat import FlatSite
from hlo_opt.diag import CheckError
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.report.diff.changes import Change
from hlo_opt.report.diff.comparison import Comparison, Difference, Side
from hlo_opt.report.diff.kernels import KernelGroup, LaunchedKernel
from hlo_opt.report.diff.page import sentence, title
from hlo_opt.report.summary import summary_json


def as_json(comparison: Comparison, failed: Sequence[CheckError] = ()) -> dict[str, object]:
    """The whole comparison."""
    return {
        "schema": 1,
        "target": comparison.target.name,
        "fused_by": comparison.fused_by or None,
        "same": comparison.same,
        "growth": None if comparison.growth == float("inf") else round(comparison.growth, 6),
        "old": _side(comparison.old),
        "new": _side(comparison.new),
        "operations": asdict(comparison.counts),
        "differences": [_difference(d) for d in comparison.differences],
        "failed": failures_json(failed),
    }


def failures_json(failed: Sequence[CheckError]) -> list[dict[str, str]]:
    """Limits that are not kept."""
    return [{"code": e.code, "message": e.message} for e in failed]


def _side(side: Side) -> dict[str, object]:
    return {"file": side.name, "module": side.module.name, "hash": side.digest, **summary_json(side.summary)}


def _difference(difference: Difference) -> dict[str, object]:
    return {
        "title": title(difference),
        "us": round(difference.us, 3),
        "bytes": round(difference.bytes),
        "source": difference.source,
        "changes": [_change(c) for c in difference.changes],
        "kernels": [_group(g) for g in difference.groups],
    }


def _change(change: Change) -> dict[str, object]:
    return {
        "kind": change.kind,
        "what": sentence(change),
        "old": _end(change.old, change.old_source),
        "new": _end(change.new, change.new_source),
        "details": [{"what": d.what, "old": d.old, "new": d.new} for d in change.details],
        "places": change.places,
        "again": None if change.again is None else change.again.instruction.name,
    }


def _end(site: FlatSite | None, source: str) -> dict[str, str] | None:
    if site is None:
        return None
    instruction = site.instruction
    return {
        "instruction": instruction.name,
        "opcode": instruction.opcode,
        "shape": str(instruction.shape),
        "computation": instruction.computation.name,
        "source": source,
    }


def _group(group: KernelGroup) -> dict[str, object]:
    return {
        "kind": group.kind,
        "us": round(group.us, 3),
        "bytes": round(group.bytes),
        "old": [_kernel(k) for k in group.old],
        "new": [_kernel(k) for k in group.new],
        "edges": [
            {"producer": s.producer, "consumer": s.consumer, "old": _decision(s.old), "new": _decision(s.new)}
            for s in group.seams
        ],
    }


def _kernel(kernel: LaunchedKernel) -> dict[str, object]:
    return {
        "instruction": kernel.name,
        "what": kernel.label,
        "est_us": round(kernel.us, 3),
        "bytes": round(kernel.bytes),
        "rounds": kernel.rounds,
        "source": kernel.source,
    }


def _decision(decision: FusionDecision | None) -> dict[str, object]:
    if decision is None:
        return {"fused": True, "reasons": []}
    reasons = [{"code": r.code, "slug": r.slug, "message": r.message, "hint": r.hint} for r in decision.reasons]
    return {"fused": False, "reasons": reasons}
