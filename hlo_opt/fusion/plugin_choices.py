"""Choices of plugins: rules that refuse a legal edge because it is not worth fusing, besides those of the passes.

An entry point of the group `hlo_opt.choices` names a function `(Edge) -> Reason | None`. It is asked where `--choices NAME` asks for it, by every fusion
pass, after legality. A choice can only refuse, so it never makes a wrong program; an edge that the user forces is not put to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hlo_opt.diag import HloOptError, Reason, UsageError, nearest
from hlo_opt.diag.plugins import CHOICES, Plugin, plugins, told
from hlo_opt.fusion.legality import Edge


@dataclass(frozen=True)
class Choice:
    """One rule of a plugin."""

    plugin: Plugin
    function: Callable[[Edge], object]

    @property
    def name(self) -> str:
        return self.plugin.name

    @property
    def purpose(self) -> str:
        """The first sentence of the function's description."""
        text = " ".join((self.function.__doc__ or "").split())
        return text.partition(". ")[0].rstrip(".")

    def against(self, edge: Edge) -> Reason | None:
        """What the rule has against the edge. Raises UsageError, which names the plugin, when it fails or answers with something else."""
        try:
            answer = self.function(edge)
        except HloOptError:
            raise
        except Exception as error:
            raise self.plugin.broken(f"failed: {told(error)}") from error
        if answer is not None and not isinstance(answer, Reason):
            raise self.plugin.broken(f"answered with {type(answer).__name__}, not with a Reason or None")
        return answer


def choice_names() -> list[str]:
    """The names of all choices that are installed, sorted."""
    return [p.name for p in plugins(CHOICES)]


def choices(names: Iterable[str]) -> tuple[Choice, ...]:
    """The choices of these names. Raises UsageError, naming the nearest one, for an unknown name, and naming the plugin for one that cannot be used."""
    known = {p.name: p for p in plugins(CHOICES)}
    found = []
    for name in dict.fromkeys(names):
        if name not in known:
            close = nearest(name, known)
            hint = f"did you mean {close}?" if close else f"installed: {', '.join(known) or 'none'}"
            raise UsageError(f"there is no choice {name!r}", hint=hint)
        function = known[name].load()
        if not callable(function):
            raise known[name].broken("cannot be called")
        found.append(Choice(known[name], function))
    return tuple(found)
