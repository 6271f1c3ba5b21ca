"""What each pass did: how many rewrites, which instructions came and went, and how many kernels were left."""

from __future__ import annotations

from dataclasses import dataclass, field

from hlo_opt.fusion.summary import launched
from hlo_opt.ir import Module
from hlo_opt.passes.base import Pass
from hlo_opt.report.view.graph import text_of

LINES_SHOWN = 60
"""The most lines shown of what one run of a pass removed, and of what it added."""


@dataclass(frozen=True)
class PassRun:
    """One run of a pass that changed something. The lines are texts of instructions; there are at most LINES_SHOWN of
    each."""

    name: str
    instructions: int
    kernels: int
    gone: int
    new: int
    gone_lines: list[str]
    new_lines: list[str]


@dataclass
class PassLog:
    """An observer of a pipeline that notes what each run of a pass changed."""

    runs: list[PassRun] = field(default_factory=list)
    _last: dict[tuple[str, str], str] = field(default_factory=dict)
    _first: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, module: Module) -> PassLog:
        """A log that begins with the module as it was read."""
        log = cls(_last=_texts(module))
        log._first = (len(log._last), len(launched(module)))
        return log

    def __call__(self, step: Pass, module: Module, changed: bool) -> None:
        if not changed:
            return
        texts = _texts(module)
        gone = [text for key, text in self._last.items() if texts.get(key) != text]
        new = [text for key, text in texts.items() if self._last.get(key) != text]
        self._last = texts
        if gone or new:
            run = PassRun(
                step.name,
                len(texts),
                len(launched(module)),
                len(gone),
                len(new),
                gone[:LINES_SHOWN],
                new[:LINES_SHOWN],
            )
            self.runs.append(run)

    def as_json(self) -> list[dict[str, object]]:
        """The runs in order, after what there was at first."""
        instructions, kernels = self._first
        rows: list[dict[str, object]] = [{"name": "", "instructions": instructions, "kernels": kernels}]
        for run in self.runs:
            rows.append(
                {
                    "name": run.name,
                    "instructions": run.instructions,
                    "kernels": run.kernels,
                    "gone": run.gone,
                    "new": run.new,
                    "gone_lines": run.gone_lines,
                    "new_lines": run.new_lines,
                }
            )
        return rows


def _texts(module: Module) -> dict[tuple[str, str], str]:
    return {(c.name, i.name): text_of(i) for c in module.computations for i in c.instructions}
