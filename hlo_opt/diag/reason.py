"""Why an edge was not fused, as a value: a code, the numbers that decided, and what would change the answer.

Codes: `FUS1xx` graph shape, `2xx` resources, `3xx` no lowering, `4xx` not profitable, `5xx` switched off, `6xx` aliasing and in-place. Each is
declared once, by its page, `hlo_opt/diag/pages/CODE.md`: the slug, the message, the hint, what they mean, and a module on which `hlo-opt explain`
gives the reason; the module's first line may name the passes to run. Plugins declare others, with entry points of the group `hlo_opt.reasons`:
each is a `ReasonSpec` or several of them.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from hlo_opt.diag.errors import UsageError, did_you_mean
from hlo_opt.diag.plugins import DUPLICATE, REASONS, Plugin, plugins

Number = int | float | str


@dataclass(frozen=True)
class ReasonSpec:
    """The declaration of a reason. `template`, `hint`, `short` and `change` are format strings; every field in the first two is required, and the others have no more.

    short   the message in few plain words, beside the names of both ends; the message, where it is empty
    change  what the user can change, as briefly; the hint, where it is empty
    """

    code: str
    slug: str
    template: str
    hint: str
    page: str
    example: str = ""
    short: str = ""
    change: str = ""

    @cached_property
    def fields(self) -> frozenset[str]:
        """The numbers (and names) that an instance must carry."""
        used = string.Formatter().parse(self.template + self.hint)
        return frozenset(name for _, name, _, _ in used if name)


@dataclass(frozen=True, slots=True)
class Reason:
    """One refusal. Build it with `Reason.of`, which insists on the numbers."""

    code: str
    numbers: Mapping[str, Number] = field(default_factory=dict)

    @classmethod
    def of(cls, code: str, **numbers: Number) -> Reason:
        """Raises KeyError for an undeclared code and TypeError when a number is missing or unknown."""
        spec = _spec(code) or _with_plugins()[code]
        if spec.fields != numbers.keys():
            raise TypeError(f"{code} needs {sorted(spec.fields)}, got {sorted(numbers)}")
        return cls(code, numbers)

    @property
    def spec(self) -> ReasonSpec:
        return reason_spec(self.code)

    @property
    def slug(self) -> str:
        return self.spec.slug

    @property
    def message(self) -> str:
        return self.spec.template.format(**self.numbers)

    @property
    def hint(self) -> str:
        return self.spec.hint.format(**self.numbers)

    @property
    def short(self) -> str:
        """The message in few words."""
        spec = self.spec
        return (spec.short or spec.template).format(**self.numbers)

    @property
    def change(self) -> str:
        """What the user can change, in few words."""
        spec = self.spec
        return (spec.change or spec.hint).format(**self.numbers)

    def __str__(self) -> str:
        return f"{self.code} {self.slug}: {self.message}"


_SPECS: dict[str, ReasonSpec] = {}
"""What was asked for, or registered, so far."""
_PAGES = Path(__file__).with_name("pages")
_CODE = re.compile(r"[A-Z]{3}[0-9]{3}")


@cache
def _own_codes() -> frozenset[str]:
    """The codes that have a page."""
    return frozenset(page.name.removesuffix(".md") for page in _PAGES.iterdir())


def _spec(code: str) -> ReasonSpec | None:
    """The declaration of a code of our own, or of one that is registered already."""
    if code not in _SPECS and code in _own_codes():
        _SPECS[code] = _read(code)
    return _SPECS.get(code)


def _read(code: str) -> ReasonSpec:
    """The declaration on a page: a heading, `Message:`, `Hint:`, `In short:`, `Change:`, what they mean, and the example between its fences."""
    text, _, example = (_PAGES / f"{code}.md").read_text(encoding="utf-8").partition("\n```hlo\n")
    heading, message, hint, short, change, page = text.rstrip("\n").split("\n\n", 5)
    return ReasonSpec(
        code,
        heading.removeprefix(f"# {code} "),
        message.removeprefix("Message: "),
        hint.removeprefix("Hint: "),
        page,
        example.removesuffix("```\n"),
        short.removeprefix("In short: "),
        change.removeprefix("Change: "),
    )


def register_reason(spec: ReasonSpec) -> ReasonSpec:
    """Declare a reason. Raises ValueError when the code or the slug is taken."""
    if any(spec.code == s.code or spec.slug == s.slug for s in declared().values()):
        raise ValueError(f"reason {spec.code} {spec.slug} is declared twice")
    _SPECS[spec.code] = spec
    return spec


def reason_spec(code: str) -> ReasonSpec:
    """The declaration of a code. Raises UsageError, naming the nearest code, for an unknown one."""
    found = _spec(code) or _with_plugins().get(code)
    if found is None:
        raise UsageError(f"there is no reason {code!r}", hint=did_you_mean(code, _SPECS))
    return found


def reason_specs() -> list[ReasonSpec]:
    """All declared reasons, those of plugins too, in the order of their codes. Raises UsageError for a plugin that cannot be used."""
    return sorted(_with_plugins().values(), key=lambda spec: spec.code)


def declared() -> Mapping[str, ReasonSpec]:
    """What has been declared up to now, by code."""
    for code in _own_codes() - _SPECS.keys():
        _SPECS[code] = _read(code)
    return _SPECS


def forget_reasons() -> None:
    """Take the reasons of plugins out again: for tests and plugins that clean up after themselves."""
    _SPECS.clear()
    _given.cache_clear()


def _with_plugins() -> Mapping[str, ReasonSpec]:
    """All reasons, those of plugins too. Raises UsageError, which names the plugin, for one that cannot be used."""
    for plugin in plugins(REASONS):
        for spec in _given(plugin):
            if _SPECS.get(spec.code) is spec:  # declared before: here, or by its module
                continue
            try:
                register_reason(spec)
            except ValueError as error:
                fault = plugin.broken(f"cannot be used: {error}")
                fault.code = DUPLICATE
                raise fault from None
    return declared()


@cache
def _given(plugin: Plugin) -> list[ReasonSpec]:
    """What a plugin declares."""
    given = plugin.load()
    found = [given] if isinstance(given, ReasonSpec) else list(given) if isinstance(given, Iterable) else []
    if not found or not all(isinstance(spec, ReasonSpec) for spec in found):
        raise plugin.broken("is neither a ReasonSpec nor several of them")
    for spec in found:
        if not _CODE.fullmatch(spec.code):
            raise plugin.broken(f"declares the code {spec.code!r}; a code is three capital letters and three digits")
    return found
