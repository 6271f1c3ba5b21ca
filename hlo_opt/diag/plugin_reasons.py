"""Reasons of plugins: entry points of the group `hlo_opt.reasons`, each a `ReasonSpec` or several of them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hlo_opt.diag.plugins import DUPLICATE, REASONS, Plugin, plugins
from hlo_opt.diag.reason import ReasonSpec, declared, register_reason

CODE = re.compile(r"[A-Z]{3}[0-9]{3}")
_LOADED: set[Plugin] = set()


def load_reasons() -> None:
    """Declare the reasons of every plugin, once. Raises UsageError, which names the plugin, for one that cannot be used."""
    for plugin in plugins(REASONS):
        if plugin in _LOADED:
            continue
        for spec in _specs(plugin):
            if declared().get(spec.code) is spec:  # its module has registered it
                continue
            try:
                register_reason(spec)
            except ValueError as error:
                fault = plugin.broken(f"cannot be used: {error}")
                fault.code = DUPLICATE
                raise fault from None
        _LOADED.add(plugin)


def _specs(plugin: Plugin) -> list[ReasonSpec]:
    given = plugin.load()
    found = [given] if isinstance(given, ReasonSpec) else list(given) if isinstance(given, Iterable) else []
    if not found or not all(isinstance(spec, ReasonSpec) for spec in found):
        raise plugin.broken("is neither a ReasonSpec nor several of them")
    for spec in found:
        if not CODE.fullmatch(spec.code):
            raise plugin.broken(f"declares the code {spec.code!r}; a code is three capital letters and three digits")
    return found
