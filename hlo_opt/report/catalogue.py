"""The passes and presets that there are, straight from their tables."""

from __future__ import annotations

from typing import Any

from hlo_opt.fusion.plugin_choices import choice_names, choices
from hlo_opt.passes import pass_class, pass_names, pass_options, preset, preset_names
from hlo_opt.passes.table import plugin_of
from hlo_opt.report.page import Page, Word


def _default(value: object) -> str:
    """As a pipeline spells it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def purpose(name: str) -> str:
    """The first sentence of a pass's description."""
    text = " ".join((pass_class(name).__doc__ or "").split())
    return text.partition(". ")[0].rstrip(".")


def as_page() -> Page:
    """The list for people."""
    page = Page()
    page.add(Word("passes", "bold"))
    for name in pass_names():
        plugin = plugin_of(pass_class(name))
        origin = f", from {plugin.package}" if plugin is not None else ""
        page.add("  ", Word(name, "bold"), f" (keeps the {pass_class(name).preserves}{origin}): {purpose(name)}")
        rows = [[option, kind, _default(default)] for option, (kind, default) in pass_options(name).items()]
        page.table(rows, indent=6)
    page.add()
    page.add(Word("presets", "bold"))
    for name in preset_names():
        page.add("  ", Word(name, "bold"), f": {preset(name)}")
    installed = choices(choice_names())
    if installed:
        page.add()
        page.add(Word("choices", "bold"))
    for choice in installed:
        page.add("  ", Word(choice.name, "bold"), f" (from {choice.plugin.package}): {choice.purpose}")
    return page


def as_json() -> dict[str, Any]:
    """The list for programs."""
    return {
        "schema": 1,
        "passes": [
            {
                "name": name,
                "preserves": pass_class(name).preserves,
                "purpose": purpose(name),
                "options": {
                    option: {"type": kind, "default": default} for option, (kind, default) in pass_options(name).items()
                },
            }
            for name in pass_names()
        ],
        "presets": {name: preset(name) for name in preset_names()},
        "choices": [{"name": c.name, "purpose": c.purpose} for c in choices(choice_names())],
    }
