"""What the options of `fuse`, `explain` and `check` ask for, and doing it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from hlo_opt.analysis.targets import DEFAULT_TARGET
from hlo_opt.cli.config import read_config
from hlo_opt.diag import UsageError
from hlo_opt.diag.errors import printable
from hlo_opt.ir import Module
from hlo_opt.passes import ExplainReport, Pipeline, parse_pipeline, pass_class, preset, run
from hlo_opt.passes.base import Pass
from hlo_opt.passes.explain import report_on
from hlo_opt.passes.presets import SIMPLIFY
from hlo_opt.passes.run import collector_paused
from hlo_opt.report.budget import Budget

EVERY = "all"


@dataclass(frozen=True)
class Fusing:
    """How to fuse. The fields are the options, and the keys of a `--config` file; `options` are those of passes, from the file."""

    preset: str = "default"
    passes: str | None = None
    target: str = DEFAULT_TARGET
    simplify: str = "auto"
    stop_after_step: int | None = None
    what_if: tuple[str, ...] = ()
    force: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    max_kernels: int | None = None
    max_bytes: int | None = None
    fail_on: tuple[str, ...] = ()
    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Fusing:
        """From what was typed (other options than these are left to others); what was not is taken from the `--config` file, where there is one. Raises UsageError."""
        typed = {f.name: options[f.name] for f in fields(cls) if options.get(f.name) not in (None, ())}
        if "preset" in typed and "passes" in typed:
            raise UsageError("--preset and --passes exclude each other")
        name = options.get("config")
        made = cls() if name is None else cls(**read_config(name))
        if "preset" in typed:
            made = replace(made, passes=None)
        made = replace(made, **typed)
        made.budget.check()
        return made

    @property
    def budget(self) -> Budget:
        """The limits that the result must keep."""
        return Budget(self.max_kernels, self.max_bytes, self.fail_on)

    @property
    def asks_what_if(self) -> bool:
        """Whether the rules are changed, so that there is something to compare with."""
        return bool(self.what_if or self.force)

    def unchanged(self) -> Fusing:
        """The same without `--what-if` and `--force`."""
        return replace(self, what_if=(), force=())

    def pipeline(self) -> Pipeline:
        """The passes. What a pipeline of the user's own spells wins over the file's options of passes; a preset gives way to them."""
        if self.passes is not None:
            return parse_pipeline(self.passes, self.options)
        return parse_pipeline(preset(self.preset), self.options, override=True)

    def run(
        self, module: Module, *, print_after: Sequence[str] = (), unchanged: ExplainReport | None = None
    ) -> ExplainReport:
        """Fuse a copy of the module and report on every edge. `unchanged` is the report without `--what-if` and `--force`, where it is known.

        Raises UsageError for names and edges that do not exist, ProofError.
        """
        pipeline = self.pipeline()
        forced = self._forced(unchanged or self.unchanged().run(module)) if self.force else []
        with collector_paused():
            outcome = run(
                module,
                passes=pipeline,
                target=self.target,
                simplify=self.simplify,
                what_if=[code.upper() for code in self.what_if],
                force=forced,
                stop_after_step=self.stop_after_step,
                choices=self.choices,
                observer=_printer(print_after, pipeline, self.simplify),
            )
            return report_on(module, outcome)

    def _forced(self, report: ExplainReport) -> list[tuple[str, str]]:
        """The edges to force, each by the names of its instructions: it may be given by those of its kernels, too, as `explain` prints both."""
        from hlo_opt.report.explain import select

        return [(d.producer, d.consumer) for d in select(report, [_checked_edge(text) for text in self.force])]


def _checked_edge(text: str) -> str:
    producer, colon, consumer = text.partition(":")
    if not (producer and colon and consumer):
        raise UsageError(f"--force takes PRODUCER:CONSUMER, not {text!r}")
    return text


def _printer(names: Sequence[str], pipeline: Pipeline, simplify: str) -> Callable[[Pass, Module, bool], None] | None:
    """What prints the module after these passes. Raises UsageError for one that does not exist, or does not run."""
    if not names:
        return None
    running = [p.name for p in pipeline.passes()]
    if simplify != "never":
        running += [p.name for p in parse_pipeline(SIMPLIFY).passes()]
    for name in names:
        if name == EVERY:
            continue
        pass_class(name)
        if name not in running:
            raise UsageError(
                f"--print-after {name}: the pipeline does not run it", hint=f"it runs {', '.join(sorted(set(running)))}"
            )
    runs: Counter[str] = Counter()
    last = ""

    def show(done: Pass, module: Module, changed: bool) -> None:
        nonlocal last
        runs[done.name] += 1
        if EVERY not in names and done.name not in names:
            return
        text = str(module)
        again = f", run {runs[done.name]}" if runs[done.name] > 1 else ""
        if text == last:
            print(f"// after {done.name}{again}: as above", file=sys.stderr)
            return
        last = text
        shown = "\n".join(map(printable, text.split("\n"))) if sys.stderr.isatty() else text
        print(f"// after {done.name}{again}{'' if changed else ': nothing changed'}\n{shown}", file=sys.stderr)

    return show
