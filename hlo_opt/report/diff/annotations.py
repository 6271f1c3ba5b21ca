"""Differences as annotations of the Python lines that they come from: what is slower as a warning, what is not as a
notice, what is over the limit as an error."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

from hlo_opt.diag import CheckError
from hlo_opt.diag.annotation import Annotation
from hlo_opt.report.annotate import budget_annotations, place_of, relative
from hlo_opt.report.diff.comparison import Comparison, Difference
from hlo_opt.report.diff.page import difference_page, title

CODE = "HLO715"
"""The code of a difference."""

MOST = 10
"""Differences that are annotated."""


def difference_annotations(comparison: Comparison, failed: Sequence[CheckError], root: str) -> list[Annotation]:
    """One for each limit that is not kept, and one for each of the first differences; paths below `root` are given
    relative to it."""
    return [
        *budget_annotations(failed, root),
        *(_annotation(d, comparison, root) for d in comparison.differences[:MOST]),
    ]


def _annotation(difference: Difference, comparison: Comparison, root: str) -> Annotation:
    place = place_of(difference.source)
    file, line = place or _line_in_dump(difference, comparison)
    lines = str(difference_page(difference)).rstrip("\n").split("\n")[1:]
    return Annotation(
        CODE,
        "\n".join([title(difference), *lines]),
        "warning" if difference.us > 0 else "note",
        relative(file, root),
        line,
        key=hashlib.sha256(title(difference).encode("utf-8", "surrogatepass")).hexdigest()[:32],
    )


def _line_in_dump(difference: Difference, comparison: Comparison) -> tuple[str, int]:
    for change in difference.changes:
        for site, side in ((change.new, comparison.new), (change.old, comparison.old)):
            span = side.module.span(site.instruction) if site is not None else None
            if span is not None:
                return os.path.abspath(span.source.filename), span.line
    return os.path.abspath(comparison.new.name), 0
