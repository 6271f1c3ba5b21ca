"""What the options of `fuse`, `explain` and `check` ask for, and doing it."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from hlo_opt.diag import UsageError, nearest
from hlo_opt.ir import Module
from hlo_opt.passes import ExplainReport, pass_class, run
from hlo_opt.passes.base import Pass
from hlo_opt.passes.explain import report_on
from hlo_opt.passes.run import collector_paused

EVERY = "all"


@dataclass(frozen=True)
class Fusing:
    """How to fuse. The fields are the options, and the keys of a `--config` file."""

    preset: str = "default"
    passes: str | None = None
    target: str = "h100_sxm"
    simplify: str = "auto"
    stop_after_step: int | None = None
    what_if: tuple[str, ...] = ()
    force: tuple[str, ...] = ()

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Fusing:
        """From what was typed; what was not is taken from the `--config` file, where there is one. Raises UsageError."""
        typed = {name: value for name, value in options.items() if name != "config" and value not in (None, ())}
        if "preset" in typed and "passes" in typed:
            raise UsageError("--preset and --passes exclude each other")
        config = options.get("config")
        made = cls() if config is None else _from_file(config)
        if "preset" in typed:
            made = replace(made, passes=None)
        return replace(made, **typed)

    def run(self, module: Module, *, print_after: Sequence[str] = ()) -> ExplainReport:
        """Fuse a copy of the module and report on every edge. Raises UsageError for names that do not exist, ProofError."""
        with collector_paused():
            outcome = run(
                module,
                self.preset,
                self.passes,
                self.target,
                self.simplify,
                what_if=[code.upper() for code in self.what_if],
                force=[_edge(text) for text in self.force],
                stop_after_step=self.stop_after_step,
                observer=_printer(print_after),
            )
            return report_on(module, outcome)


def _edge(text: str) -> tuple[str, str]:
    producer, colon, consumer = text.partition(":")
    if not (producer and colon and consumer):
        raise UsageError(f"--force takes PRODUCER:CONSUMER, not {text!r}")
    return producer, consumer


def _printer(names: Sequence[str]) -> Callable[[Pass, Module, bool], None] | None:
    for name in names:
        if name != EVERY:
            pass_class(name)
    if not names:
        return None

    def show(done: Pass, module: Module, changed: bool) -> None:
        if EVERY in names or done.name in names:
            print(f"// after {done.name}{'' if changed else ' (nothing changed)'}\n{module}", file=sys.stderr)

    return show


def _from_file(name: str) -> Fusing:
    """The options in a TOML file. Raises UsageError, with the path, for unknown keys and values of a wrong type."""
    try:
        values = tomllib.loads(Path(name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError("no such file", filename=name) from None
    except OSError as error:
        raise UsageError(error.strerror or str(error), filename=name) from None
    except ValueError as error:
        raise UsageError(f"not TOML: {error}", filename=name) from None
    known = {f.name.replace("_", "-"): f for f in fields(Fusing)}
    found: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            close = nearest(key, known)
            hint = f"did you mean {close}?" if close else f"options: {', '.join(known)}"
            raise UsageError(f"there is no option {key!r}", filename=name, hint=hint)
        found[known[key].name] = _value(key, value, str(known[key].type), name)
    if "preset" in found and "passes" in found:
        raise UsageError("preset and passes exclude each other", filename=name)
    return Fusing(**found)


def _value(key: str, value: object, kind: str, name: str) -> object:
    """Lists are lists of strings; `passes` may be one too."""
    is_texts = isinstance(value, list) and all(isinstance(v, str) for v in value)
    if kind.startswith("tuple") and is_texts and isinstance(value, list):
        return tuple(value)
    if key == "passes" and is_texts and isinstance(value, list):
        return ",".join(value)
    if kind.startswith("str") and isinstance(value, str):
        return value
    if kind.startswith("int") and isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    wanted = {"s": "a string", "i": "a whole number", "t": "a list of strings"}[kind[0]]
    raise UsageError(f"{key} must be {wanted}, not {value!r}", filename=name)
