"""A report on a module that notebooks show: the page of `hlo-opt view` in a frame of its own, and as text what
`hlo-opt explain` prints."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path

from hlo_opt.analysis.targets import DEFAULT_TARGET
from hlo_opt.ir import Module
from hlo_opt.passes import ExplainReport
from hlo_opt.passes.run import report_on, run
from hlo_opt.report.explain import EDGES_SHOWN
from hlo_opt.report.sentences import first_page
from hlo_opt.report.view.data import data_of
from hlo_opt.report.view.page import as_html
from hlo_opt.report.view.steps import PassLog
from hlo_opt.text import parse, verify

HEIGHT = 720
"""Pixels of the frame in a notebook."""


@dataclass(frozen=True)
class Report:
    """What fusing a module gives. `str` is text, `save` writes the page; a notebook shows the page by itself."""

    explained: ExplainReport
    log: PassLog
    source_root: str | None = None

    def __str__(self) -> str:
        return str(first_page(self.explained, self.explained.refused, most=EDGES_SHOWN))

    @cached_property
    def html(self) -> str:
        """The page, whole."""
        return as_html(data_of(self.explained, self.log, self.source_root))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file. Raises OSError where that cannot be."""
        Path(path).write_text(self.html, encoding="utf-8")

    def _repr_html_(self) -> str:
        """The page in a frame that can neither reach the notebook nor load anything."""
        return (
            f'<iframe sandbox="allow-scripts" title="hlo-opt" srcdoc="{escape(self.html, quote=True)}" '
            f'width="100%" height="{HEIGHT}" frameborder="0"></iframe>'
        )


def report(
    module: Module | str, *, preset: str = "default", target: str | None = None, source_root: str | None = None
) -> Report:
    """Fuse a copy of a module, or of what a text says, and report on it.

    target       the device whose costs count; None for the default one
    source_root  the folder that has the Python files of the module

    Raises ParseError and VerifyError for a text, UsageError for unknown names.
    """
    if isinstance(module, str):
        module = parse(module)
        verify(module)
    log = PassLog.of(module)
    outcome = run(module, preset, target=target or DEFAULT_TARGET, observer=log)
    return Report(report_on(outcome), log, source_root)
