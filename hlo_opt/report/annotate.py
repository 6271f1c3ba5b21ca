"""Refused edges as annotations of the Python lines that they come from."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from hlo_opt.diag import CheckError, Reason
from hlo_opt.diag.annotation import Annotation
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.ir import Instruction, Module
from hlo_opt.passes import ExplainReport
from hlo_opt.report.page import count, counted, microseconds, size
from hlo_opt.report.sentences import EdgePrices, advice, price_words, sentence

MOST_NAMED = 5
"""Edges that one annotation names; the others are counted."""


@dataclass
class _Group:
    """The edges that one code refuses on one line; the first is the one that costs most."""

    reason: Reason
    edges: list[FusionDecision] = field(default_factory=list)


def edge_annotations(module: Module, shown: Sequence[FusionDecision], root: str) -> list[Annotation]:
    """One annotation for each line and code, those that cost most first; paths below `root` are given relative to it.

    An edge is annotated where its consumer comes from, else where its producer does, else at the consumer's line in the
    dump.
    """
    groups: dict[tuple[str, int, str], _Group] = {}
    ordered = sorted(shown, key=lambda d: -d.cost.us_saved if d.cost is not None else 0.0)
    named = {i.name: i for c in reversed(list(module.computations)) for i in c.instructions}
    for decision in ordered:
        place = place_of(decision.consumer_source) or place_of(decision.producer_source)
        file, line = place or _line_in_dump(module, named, decision)
        for reason in decision.reasons:
            group = groups.setdefault((relative(file, root), line, reason.code), _Group(reason))
            if decision not in group.edges[-1:]:  # one edge may be refused twice under one code
                group.edges.append(decision)
    return [_annotation(file, line, group) for (file, line, _), group in groups.items()]


def dearest_annotations(
    module: Module, prices: EdgePrices, shown: Sequence[FusionDecision], root: str
) -> list[Annotation]:
    """One annotation for each edge, in its order: what joining both ends would save, the cause that decides, and what
    the user can change. Then one with the figures of the module."""
    named = {i.name: i for c in reversed(list(module.computations)) for i in c.instructions}
    annotations = []
    for decision in shown:
        file, line = (
            place_of(decision.consumer_source)
            or place_of(decision.producer_source)
            or _line_in_dump(module, named, decision)
        )
        price = price_words(decision, prices)
        text = f"{price}: {decision.ends} are two kernels: {sentence(decision)}\nchange: {advice(decision)}"
        key = _key(decision.cause[0].code, decision.computation, decision.producer, decision.consumer)
        annotations.append(Annotation(decision.cause[0].code, text, file=relative(file, root), line=line, key=key))
    return [*annotations, _figures(prices.report, len(shown))]


def _figures(report: ExplainReport, shown: int) -> Annotation:
    before, after = report.before, report.after
    text = (
        f"{report.outcome.module.name} on {report.outcome.target.name}: {counted(before.kernels, 'kernel')} before, "
        f"{count(after.kernels)} after fusing; "
        f"{size(before.bytes)} before, {size(after.bytes)} after; {microseconds(before.est_us)} before, "
        f"{microseconds(after.est_us)} after. "
        f"{counted(len(report.refused), 'edge')} refused, {count(shown)} shown; --all shows every one."
    )
    return Annotation("hlo-opt", text, "note")


def budget_annotations(errors: Iterable[CheckError], root: str) -> list[Annotation]:
    """The limits of a budget that are not kept, at the dump."""
    return [
        Annotation(
            e.code,
            e.message,
            "error",
            relative(os.path.abspath(e.filename), root) if e.filename else "",
            key=_key(e.code),
        )
        for e in errors
    ]


def _annotation(file: str, line: int, group: _Group) -> Annotation:
    first = group.edges[0]
    text = f"{first.producer} -> {first.consumer} is not fused: {group.reason.message}\nhint: {group.reason.hint}"
    if first.cost is not None and first.cost.us_saved > 0:
        text += f"\nfusing it alone would save {microseconds(first.cost.us_saved)}"
    others = [f"{d.producer} -> {d.consumer}" for d in group.edges[1 : 1 + MOST_NAMED]]
    if others:
        left = len(group.edges) - 1 - len(others)
        more = f" and {counted(left, 'more edge')}" if left else ""
        text += f"\nnor are, from the same line: {', '.join(others)}{more}"
    return Annotation(
        group.reason.code,
        text,
        file=file,
        line=line,
        key=_key(group.reason.code, first.computation, first.producer, first.consumer),
        properties={
            "slug": group.reason.slug,
            "edges": [{"producer": d.producer, "consumer": d.consumer} for d in group.edges],
        },
    )


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _line_in_dump(module: Module, named: Mapping[str, Instruction], decision: FusionDecision) -> tuple[str, int]:
    for name in (decision.consumer, decision.producer):
        span = module.span(named[name]) if name in named else None
        if span is not None:
            return span.source.filename, span.line
    return "", 0


def place_of(source: str) -> tuple[str, int] | None:
    """File and line of a decision's `file:line`."""
    file, colon, line = source.rpartition(":")
    if colon and line.isdecimal() and len(line) < 10:
        return file, int(line)
    return (source, 0) if source else None


def relative(file: str, root: str) -> str:
    path = PurePath(file)
    if not path.is_absolute() or not path.is_relative_to(root):
        return file
    return path.relative_to(root).as_posix() if os.path.normpath(file) == file else file
