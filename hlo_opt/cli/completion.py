"""What the shell offers when a value is half typed: names of presets, devices, passes and codes, read when they are asked for; and files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def _offering(names: Callable[[], Iterable[str]]) -> Callable[[object, object, str], list[str]]:
    def complete(context: object, parameter: object, typed: str) -> list[str]:
        return [name for name in names() if name.startswith(typed)]

    return complete


def _presets() -> Iterable[str]:
    from hlo_opt.passes import preset_names

    return preset_names()


def _targets() -> Iterable[str]:
    from hlo_opt.analysis.targets import target_names

    return target_names()


def _passes() -> Iterable[str]:
    from hlo_opt.passes import pass_names

    return pass_names()


def _codes() -> Iterable[str]:
    from hlo_opt.diag import reason_specs

    return (spec.code for spec in reason_specs())


presets = _offering(_presets)
targets = _offering(_targets)
passes = _offering(_passes)
codes = _offering(_codes)
simplify = _offering(lambda: ("auto", "always", "never"))
backends = _offering(lambda: ("auto", "numpy", "host", "cupy"))


def file(context: object, parameter: object, typed: str) -> list[CompletionItem]:
    """Let the shell offer files."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(typed, type="file")]
