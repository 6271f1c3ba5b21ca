"""What the options of `fuse`, `explain` and `check` ask for, typed or in the TOML file of `--config`, and doing it.
testdata/hlo-opt.toml shows every key."""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from hlo_opt.analysis.targets import DEFAULT_TARGET
from hlo_opt.diag import Source, Span, UsageError, did_you_mean
from hlo_opt.diag.errors import printable
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.ir import Module
from hlo_opt.passes import ExplainReport, Pipeline, parse_pipeline, pass_class, preset, run
from hlo_opt.passes.base import Pass
from hlo_opt.passes.pipeline import Observer
from hlo_opt.passes.run import DEFAULT_EFFORT, Outcome, report_on
from hlo_opt.passes.stages import first_stage, without_simplifying
from hlo_opt.passes.table import option_kind
from hlo_opt.report.page import parse_size
from hlo_opt.report.summary import Budget

LARGEST = 1_000_000
"""Bytes of a file that is read."""

KINDS = {
    "preset": "text",
    "passes": "pipeline",
    "target": "text",
    "simplify": "text",
    "effort": "count",
    "stop-after-step": "count",
    "what-if": "texts",
    "force": "texts",
    "forbid": "texts",
    "choices": "texts",
    "trip-count": "texts",
    "max-kernels": "count",
    "max-bytes": "size",
    "fail-on": "texts",
    "fingerprint": "text",
}
OPTIONS = "options"
"""The table whose tables are the options of passes: `[options.instruction-fusion]`."""

_WANTED = {
    "text": "a string",
    "pipeline": "a string or a list of strings",
    "count": "a whole number from 0 on",
    "size": 'a number of bytes, or a string such as "12MB"',
    "texts": "a list of strings",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
}


def read_config(name: str) -> dict[str, Any]:
    """What a file says: options under the names of the command's arguments (`max_bytes`), and under `options` those by
    pass and field name. Raises UsageError, with file, line and the nearest key, for what is not TOML, unknown keys,
    passes and options, and values of a wrong type."""
    try:
        with Path(name).open("rb") as stream:
            data = stream.read(LARGEST + 1)
    except FileNotFoundError:
        raise UsageError("no such file", filename=name) from None
    except (OSError, ValueError) as error:
        raise UsageError(getattr(error, "strerror", None) or str(error), filename=name) from None
    if len(data) > LARGEST:
        raise UsageError(f"is larger than {LARGEST} bytes", filename=name)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"is not UTF-8 (byte {error.start})", filename=name) from None
    return _Reader(Source(text, name)).config()


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source = source

    def config(self) -> dict[str, Any]:
        try:
            tables = tomllib.loads(self.source.text)
        except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
            raise self._not_toml(error) from None
        values: dict[str, Any] = {}
        for key, value in tables.items():
            if key == OPTIONS:
                values[OPTIONS] = self._options(value)
            elif key in KINDS:
                values[key.replace("-", "_")] = self._value(key, value, KINDS[key], ())
            else:
                raise self._unknown(key, [*KINDS, OPTIONS], "there is no option", ())
        if "preset" in values and "passes" in values:
            raise UsageError("preset and passes exclude each other", span=self._span("passes", ()))
        return values

    def _options(self, tables: object) -> dict[str, Mapping[str, object]]:
        values: dict[str, Mapping[str, object]] = {}
        if not isinstance(tables, dict):
            raise UsageError("options is a table of passes: [options.instruction-fusion]", span=self._span(OPTIONS, ()))
        for name, table in tables.items():
            try:
                known = {f.name.replace("_", "-"): f for f in fields(pass_class(name))}
            except UsageError as fault:
                raise UsageError(
                    fault.message, code=fault.code, hint=fault.hint, span=self._span(name, (OPTIONS,))
                ) from None
            if not isinstance(table, dict):
                raise UsageError(
                    f"the options of {name} are a table: [options.{name}]", span=self._span(name, (OPTIONS,))
                )
            chosen: dict[str, object] = {}
            for key, value in table.items():
                spelt = key.replace("_", "-")
                if spelt not in known:
                    raise self._unknown(key, list(known), f"{name} has no option", (OPTIONS, name))
                if known[spelt].name in chosen:
                    raise UsageError(f"option {key!r} is given twice", span=self._span(key, (OPTIONS, name)))
                chosen[known[spelt].name] = self._value(key, value, option_kind(known[spelt]), (OPTIONS, name))
            values[name] = chosen
        return values

    def _value(self, key: str, value: Any, kind: str, table: tuple[str, ...]) -> object:
        is_texts = isinstance(value, list) and all(isinstance(v, str) for v in value)
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if kind == "texts" and is_texts:
            return tuple(value)
        if kind == "pipeline" and is_texts:
            return ",".join(value)
        kinds = kind.split(" | ")
        if (kind in ("text", "pipeline") or "str" in kinds) and isinstance(value, str):
            return value
        if kind in ("count", "size") and is_whole and value >= 0:
            return value
        if kind == "size" and isinstance(value, str):
            try:
                return parse_size(value)
            except ValueError as error:
                raise UsageError(f"{key}: {error}", span=self._span(key, table)) from None
        if kind == "bool" and isinstance(value, bool):
            return value
        if "int" in kinds and is_whole:
            return value
        if kind == "float" and (is_whole or isinstance(value, float)):
            return float(value)
        shown = value if isinstance(value, (str, int, float)) else type(value).__name__
        raise UsageError(
            f"{key} must be {' or '.join(_WANTED[one] for one in kinds)}, not {shown!r}", span=self._span(key, table)
        )

    def _unknown(self, key: str, known: list[str], message: str, table: tuple[str, ...]) -> UsageError:
        hint = did_you_mean(key, known) or f"options: {', '.join(known) or 'none'}"
        return UsageError(f"{message} {key!r}", span=self._span(key, table), hint=hint)

    def _span(self, key: str, table: tuple[str, ...]) -> Span:
        """Where a key of a table stands: its own line, or else that of its table's header, or else the start of the
        file.

        TOML's reader does not tell, so the lines are looked through for it.
        """
        name = _spelling(key)
        header = re.compile(rf"^[ \t]*\[[ \t]*{_dotted((*table, key))}[ \t]*(?:\.[^\]\n]*)?\]", re.MULTILINE)
        start, end = 0, len(self.source.text)
        if table:
            inside = re.search(rf"^[ \t]*\[[ \t]*{_dotted(table)}[ \t]*\][^\n]*\n", self.source.text, re.MULTILINE)
            start = inside.end() if inside else 0
        following = re.compile(r"^[ \t]*\[", re.MULTILINE).search(self.source.text, start)
        end = following.start() if following else end
        entry = re.compile(rf"(?:^|[{{,.])[ \t]*({name})[ \t]*(?:\.[^=\n]*)?=", re.MULTILINE)
        place = entry.search(self.source.text, start, end) or header.search(self.source.text)
        place = place or entry.search(self.source.text)
        if place is None:
            return Span(self.source, start, start)
        return Span(self.source, *(place.span(1) if place.re is entry else place.span()))

    def _not_toml(self, error: Exception) -> UsageError:
        message = " ".join(str(error).split())
        place = re.search(r" ?\(at line (\d+), column (\d+)\)$", message)
        starts = [0, *(m.end() for m in re.finditer("\n", self.source.text))]
        offset = len(self.source.text)
        if place is not None and int(place[1]) <= len(starts):
            offset = min(starts[int(place[1]) - 1] + int(place[2]) - 1, offset)
        message = message if place is None else message[: place.start()]
        return UsageError(f"not TOML: {message}", span=Span(self.source, offset, offset + 1))


def _spelling(key: str) -> str:
    """A pattern for a key as TOML may spell it: bare or quoted."""
    return rf"[\"']?{re.escape(key)}[\"']?"


def _dotted(path: tuple[str, ...]) -> str:
    return r"[ \t]*\.[ \t]*".join(map(_spelling, path))


EVERY = "all"


@dataclass(frozen=True)
class Fusing:
    """How to fuse. The fields are the options, and the keys of a `--config` file; `options` are those of passes, from
    the file, and `fingerprint` is that of the only module that the file is for."""

    preset: str = "default"
    passes: str | None = None
    target: str = DEFAULT_TARGET
    simplify: str = "auto"
    effort: int = DEFAULT_EFFORT
    stop_after_step: int | None = None
    what_if: tuple[str, ...] = ()
    force: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    trip_count: tuple[str, ...] = ()
    max_kernels: int | None = None
    max_bytes: int | None = None
    fail_on: tuple[str, ...] = ()
    fingerprint: str | None = None
    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Fusing:
        """From what was typed (other options than these are left to others); what was not is taken from the `--config`
        file, where there is one. Raises UsageError."""
        typed = {f.name: options[f.name] for f in fields(cls) if options.get(f.name) not in (None, ())}
        if "preset" in typed and "passes" in typed:
            raise UsageError("--preset and --passes exclude each other")
        name = options.get("config")
        request = cls() if name is None else cls(**read_config(name))
        if request.fingerprint is not None:
            _check_target(str(name), request.target, str(typed.get("target", request.target)))
        if "preset" in typed:
            request = replace(request, passes=None)
        request = replace(request, **typed)
        request.budget.check()
        return request

    @property
    def budget(self) -> Budget:
        """The limits that the result must keep."""
        return Budget(self.max_kernels, self.max_bytes, self.fail_on)

    @property
    def asks_what_if(self) -> bool:
        """Whether the rules are changed, so that there is something to compare with."""
        return bool(self.what_if or self.force or self.forbid)

    def unchanged(self) -> Fusing:
        """The same without `--what-if`, `--force` and `--forbid`."""
        return replace(self, what_if=(), force=(), forbid=(), fingerprint=None)

    def pipeline(self) -> Pipeline:
        """The passes. What a pipeline of the user's own spells wins over the file's options of passes; a preset gives
        way to them, and simplifies nothing where nothing is to be simplified."""
        if self.passes is not None:
            return parse_pipeline(self.passes, self.options)
        pipeline = parse_pipeline(preset(self.preset), self.options, override=True)
        return without_simplifying(pipeline) if self.simplify == "never" else pipeline

    def first(self, module: Module) -> Pipeline:
        """What runs before them."""
        return first_stage(module, self.simplify, own_passes=self.passes is not None)

    def run(
        self,
        module: Module,
        *,
        print_after: Sequence[str] = (),
        unchanged: ExplainReport | None = None,
        observer: Observer | None = None,
    ) -> ExplainReport:
        """Fuse a copy of the module and report on every edge. `unchanged` is the report without `--what-if`,
        `--force` and `--forbid`, where it is known; `observer` is called after each pass, in place of what
        `print_after` prints.

        Raises UsageError for names and edges that do not exist, ProofError.
        """
        self._check_module(module)
        pipeline = self.pipeline()
        forced = self._forced(self._unforced(module, unchanged)) if self.force else []
        names = [(d.producer, d.consumer) for d in forced]
        # Where rules are switched off, kernels of the result may have other names.
        joined = names if self.what_if else [d.edge for d in forced]
        run_with = partial(
            run,
            module,
            passes=pipeline,
            target=self.target,
            simplify=self.simplify,
            effort=self.effort,
            own_passes=self.passes is not None,
            what_if=[code.upper() for code in self.what_if],
            stop_after_step=self.stop_after_step,
            choices=self.choices,
            trip_counts=trip_counts_of(self.trip_count),
            forbid=list(map(_ends, self.forbid)),
        )
        observing = observer or _printer(print_after, Pipeline((*self.first(module).steps, *pipeline.steps)))
        outcome = run_with(force=joined, observer=observing)
        again = run_with(force=names, decide_again=True).module if forced else None
        return report_on(outcome, again)

    def outcome(
        self,
        module: Module,
        *,
        pipeline: Pipeline | None = None,
        stop_after_step: int | None = None,
        observer: Observer | None = None,
    ) -> Outcome:
        """Fuse a copy of the module, with no edge forced and no report on any; with a pipeline, by just these passes.
        Raises UsageError, ProofError."""
        self._check_module(module)
        return run(
            module,
            passes=pipeline or self.pipeline(),
            target=self.target,
            simplify=self.simplify if pipeline is None else "never",
            effort=self.effort,
            own_passes=self.passes is not None or pipeline is not None,
            stop_after_step=self.stop_after_step if stop_after_step is None else stop_after_step,
            choices=self.choices,
            trip_counts=trip_counts_of(self.trip_count),
            observer=observer,
        )

    def _check_module(self, module: Module) -> None:
        """Raises UsageError (HLO350) where the options are for another module."""
        from hlo_opt.analysis.graph.digest import module_digest

        if self.fingerprint is not None and (digest := module_digest(module)) != self.fingerprint:
            raise UsageError(
                f"the options of --config are for the module {self.fingerprint}, and {module.name} is {digest}",
                code=OTHER_MODULE,
                hint="hlo-opt tune FILE --save OUT.toml makes them for this one; hlo-opt stats --hash FILE prints a "
                "module's",
            )

    def _unforced(self, module: Module, unchanged: ExplainReport | None) -> ExplainReport:
        """The report whose names `--force` takes: without what changes the rules, but with the forbidden edges, around
        which everything is decided."""
        if unchanged is not None and not self.forbid:
            return unchanged
        return replace(self, what_if=(), force=(), fingerprint=None).run(module)

    def _forced(self, report: ExplainReport) -> list[FusionDecision]:
        """The edges to force, one for each text. Raises UsageError for names and edges that do not exist."""
        from hlo_opt.passes.forcing import chosen
        from hlo_opt.report.explain import EDGE_ASKED_FOR, select

        pairs = []
        for text in self.force:
            edge = _ends(text)
            there = select(report, [text], EDGE_ASKED_FOR)
            pairs.append(chosen(there, edge) or there[0])
        return pairs


OTHER_MODULE, OTHER_TARGET = "HLO350", "HLO351"


def _check_target(name: str, tuned_for: str, wanted: str) -> None:
    """Raises UsageError (HLO351) where the options of a module are for another device than the user wants."""
    from hlo_opt.analysis.targets import target

    if target(tuned_for) != target(wanted):
        raise UsageError(
            f"is for {tuned_for}, not for {wanted}",
            code=OTHER_TARGET,
            filename=name,
            hint=f"hlo-opt tune FILE --target {wanted} --save OUT.toml makes options for it",
        )


def trip_counts_of(texts: Sequence[str]) -> dict[str, int]:
    """Rounds by the names of loops, from `NAME=N`. Raises UsageError."""
    counts: dict[str, int] = {}
    for text in texts:
        name, _, count = text.rpartition("=")
        if not name or not (count.isascii() and count.isdecimal()):
            raise UsageError(f"--trip-count takes NAME=N with a whole number from 0 on, not {text!r}")
        counts[name.lstrip("%")] = int(count)
    return counts


def _ends(text: str) -> tuple[str, str]:
    """The names of an edge's ends. Raises UsageError."""
    producer, colon, consumer = text.partition(":")
    if not (producer and colon and consumer):
        raise UsageError(f"--force and --forbid take PRODUCER:CONSUMER, not {text!r}")
    return producer.lstrip("%"), consumer.lstrip("%")


def _printer(names: Sequence[str], pipeline: Pipeline) -> Callable[[Pass, Module, bool], None] | None:
    """What prints the module after these passes. Raises UsageError for one that does not exist, or does not run."""
    if not names:
        return None
    running = [p.name for p in pipeline.passes()]
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

    def show(step: Pass, module: Module, changed: bool) -> None:
        nonlocal last
        runs[step.name] += 1
        if EVERY not in names and step.name not in names:
            return
        text = str(module)
        again = f", run {runs[step.name]}" if runs[step.name] > 1 else ""
        if text == last:
            print(f"// after {step.name}{again}: as above", file=sys.stderr)
            return
        last = text
        shown = "\n".join(map(printable, text.split("\n"))) if sys.stderr.isatty() else text
        print(f"// after {step.name}{again}{'' if changed else ': nothing changed'}\n{shown}", file=sys.stderr)

    return show
