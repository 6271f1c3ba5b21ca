"""What the shell offers when a value is half typed: names of presets, devices, passes and codes, read when they are asked for; and files."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from hlo_opt.diag.reason import reason_specs

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def _offering(names: Callable[[], Iterable[str]]) -> Callable[[object, object, str], list[str]]:
    def complete(context: object, parameter: object, typed: str) -> list[str]:
        return [name for name in names() if name.startswith(typed)]

    return complete


def _listed(module: str, function: str) -> Callable[[object, object, str], list[str]]:
    """The names that a function of a module gives; the module is loaded when somebody asks."""
    return _offering(lambda: getattr(importlib.import_module(module), function)())


presets = _listed("hlo_opt.passes", "preset_names")
targets = _listed("hlo_opt.analysis.targets", "target_names")
passes = _listed("hlo_opt.passes", "pass_names")
codes = _offering(lambda: (spec.code for spec in reason_specs()))
simplify = _offering(lambda: ("auto", "always", "never"))
backends = _offering(lambda: ("auto", "numpy", "host", "cupy"))


def file(context: object, parameter: object, typed: str) -> list[CompletionItem]:
    """Let the shell offer files."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(typed, type="file")]
