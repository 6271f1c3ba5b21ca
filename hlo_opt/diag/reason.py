"""Why an edge was not fused, as a value: a code, the numbers behind it, and what would change the answer.

Codes: `FUS1xx` graph shape, `2xx` resources, `3xx` no lowering, `4xx` not profitable, `5xx` switched off, `6xx`
aliasing and in-place. The page of a code, `hlo_opt/diag/pages/CODE.md`, declares it: slug, message, hint, explanation,
and a module on which `hlo-opt explain` gives this reason (its first line may name the passes to run). Plugins declare
reasons through entry points of the group `hlo_opt.reasons`: a `ReasonSpec` or an iterable of them.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources.abc import Traversable
from pathlib import Path

from hlo_opt.diag.errors import UsageError, did_you_mean
from hlo_opt.diag.plugins import DUPLICATE, REASONS, Plugin, plugins

ReasonValue = int | float | str


@dataclass(frozen=True)
class ReasonSpec:
    """The declaration of a reason.

    `template`, `hint`, `short` and `change` are format strings. Fields of the first two are required of every instance;
    the other two may use only those.

    short   the cause in a few plain words, shown next to the names of both ends; the message where it is empty
    change  what the user can change, in a few words; the hint where it is empty
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
        """The fields that an instance must supply: numbers and names."""
        used = string.Formatter().parse(self.template + self.hint)
        return frozenset(name for _, name, _, _ in used if name)


@dataclass(frozen=True, slots=True)
class Reason:
    """One refusal. Make it with `Reason.of`, which requires all fields."""

    code: str
    numbers: Mapping[str, ReasonValue] = field(default_factory=dict)

    @classmethod
    def of(cls, code: str, **numbers: ReasonValue) -> Reason:
        """A reason with its fields. Raises KeyError for an undeclared code, TypeError for a missing or unknown
        field."""
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
        """The cause in a few words."""
        spec = self.spec
        return (spec.short or spec.template).format(**self.numbers)

    @property
    def change(self) -> str:
        """What the user can change, in a few words."""
        spec = self.spec
        return (spec.change or spec.hint).format(**self.numbers)

    def __str__(self) -> str:
        return f"{self.code} {self.slug}: {self.message}"

    def is_among(self, reasons: Iterable[Reason]) -> bool:
        """Whether one of `reasons` has the same message. Only reasons of the same code are compared."""
        return any(other.code == self.code and str(other) == str(self) for other in reasons)


_SPECS: dict[str, ReasonSpec] = {}
"""The declarations read or registered so far, by code."""
_PAGES = Path(__file__).with_name("pages")
CODE = re.compile(r"[A-Z]{3}[0-9]{3}")
"""The form of a code."""


@cache
def _own_codes() -> frozenset[str]:
    """The codes with a page in this package."""
    return frozenset(page.name.removesuffix(".md") for page in _PAGES.iterdir())


def _spec(code: str) -> ReasonSpec | None:
    """The declaration of a built-in or registered code; None for others."""
    if code not in _SPECS and code in _own_codes():
        _SPECS[code] = read_page(_PAGES, code)
    return _SPECS.get(code)


def read_page(folder: Traversable, code: str) -> ReasonSpec:
    """Parse a page of a folder: heading, `Message:`, `Hint:`, `In short:`, `Change:`, explanation, fenced example."""
    text, _, example = (folder / f"{code}.md").read_text(encoding="utf-8").partition("\n```hlo\n")
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
    """Declare a reason. Raises ValueError when its code or slug is taken."""
    if any(spec.code == s.code or spec.slug == s.slug for s in declared().values()):
        raise ValueError(f"reason {spec.code} {spec.slug} is declared twice")
    _SPECS[spec.code] = spec
    return spec


def reason_spec(code: str) -> ReasonSpec:
    """The declaration of a code. Raises UsageError, which names the nearest codes, for an unknown one."""
    spec = _spec(code) or _with_plugins().get(code)
    if spec is None:
        raise no_reason(code)
    return spec


def no_reason(code: str) -> UsageError:
    """The error for a code that no reason has. Its hint has the codes around the number, or for a slip in the letters
    the nearest code, and says where all are listed."""
    wanted, known = code.upper(), declared()
    if CODE.fullmatch(wanted) and any(c[:3] == wanted[:3] for c in known):
        beside = [c for c in known if c[:4] == wanted[:4]]
        near = sorted(beside, key=lambda c: abs(int(c[3:]) - int(wanted[3:])))[:2]
        hint = f"near it: {', '.join(sorted(near))}; " if near else ""
    elif wanted[3:].isdecimal() and any(c[:3] == wanted[:3] for c in known):  # other digits are no slip of the pen
        longer = [c for c in sorted(known) if c.startswith(wanted)][:2]
        hint = f"{', '.join(longer)} and others begin so; " if longer else ""
    else:
        close = did_you_mean(wanted, known)
        hint = f"{close} " if close else ""
    return UsageError(f"there is no reason {code!r}", hint=f"{hint}hlo-opt help codes lists all")


def reason_specs() -> list[ReasonSpec]:
    """All declared reasons, plugins' included, sorted by code. Raises UsageError for a broken plugin."""
    return sorted(_with_plugins().values(), key=lambda spec: spec.code)


def declared() -> Mapping[str, ReasonSpec]:
    """The declarations of built-in and registered reasons, by code."""
    for code in _own_codes() - _SPECS.keys():
        _SPECS[code] = read_page(_PAGES, code)
    return _SPECS


def forget_reasons() -> None:
    """Remove the reasons of plugins, for tests and for plugins that unregister themselves."""
    _SPECS.clear()
    _declared_by.cache_clear()


def _with_plugins() -> Mapping[str, ReasonSpec]:
    """All reasons, plugins' included. Raises UsageError, which names the plugin, for a broken one."""
    for plugin in plugins(REASONS):
        for spec in _declared_by(plugin):
            if _SPECS.get(spec.code) is spec:  # registered already, by an earlier call or by the plugin's module
                continue
            try:
                register_reason(spec)
            except ValueError as error:
                fault = plugin.broken(f"cannot be used: {error}")
                fault.code = DUPLICATE
                raise fault from None
    return declared()


@cache
def _declared_by(plugin: Plugin) -> list[ReasonSpec]:
    """The reasons that a plugin declares. Raises UsageError when its object is not a ReasonSpec or an iterable of
    them."""
    declaration = plugin.load()
    specs = (
        [declaration]
        if isinstance(declaration, ReasonSpec)
        else list(declaration)
        if isinstance(declaration, Iterable)
        else []
    )
    if not specs or not all(isinstance(spec, ReasonSpec) for spec in specs):
        raise plugin.broken("is neither a ReasonSpec nor several of them")
    for spec in specs:
        if not CODE.fullmatch(spec.code):
            raise plugin.broken(f"declares the code {spec.code!r}; a code is three capital letters and three digits")
    return specs
