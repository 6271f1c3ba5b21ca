"""Why an edge was not fused, as a value: a code, the numbers that decided, and what would change the answer.

Codes: `FUS1xx` graph shape, `2xx` resources, `3xx` no lowering, `4xx` not profitable, `5xx` switched off,
`6xx` aliasing and in-place. Each code is declared once: by its page, `hlo_opt/diag/pages/CODE.md`, or by a plugin with `register_reason`. A page gives the slug, the message, the hint, what
they mean, and a module on which `hlo-opt explain` gives the reason; the module's first line may name the passes to run.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from hlo_opt.diag.errors import UsageError, nearest

Number = int | float | str


@dataclass(frozen=True, slots=True)
class ReasonSpec:
    """The declaration of a reason. `template` and `hint` are format strings; every field in them is required."""

    code: str
    slug: str
    template: str
    hint: str
    page: str
    example: str = ""

    @property
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

    def __str__(self) -> str:
        return f"{self.code} {self.slug}: {self.message}"


_SPECS: dict[str, ReasonSpec] = {}
"""What was asked for, or registered, so far."""
_PAGES = Path(__file__).with_name("pages")


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
    """The declaration on a page: a heading, `Message:`, `Hint:`, what they mean, and the example between its fences."""
    text, _, example = (_PAGES / f"{code}.md").read_text(encoding="utf-8").partition("\n```hlo\n")
    heading, message, hint, page = text.rstrip("\n").split("\n\n", 3)
    return ReasonSpec(
        code,
        heading.removeprefix(f"# {code} "),
        message.removeprefix("Message: "),
        hint.removeprefix("Hint: "),
        page,
        example.removesuffix("```\n"),
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
        close = nearest(code, _SPECS)
        raise UsageError(f"there is no reason {code!r}", hint=f"did you mean {close}?" if close else None)
    return found


def reason_specs() -> list[ReasonSpec]:
    """All declared reasons, those of plugins too, in the order of their codes. Raises UsageError for a plugin that cannot be used."""
    specs = _with_plugins()
    return [specs[code] for code in sorted(specs)]


def declared() -> Mapping[str, ReasonSpec]:
    """What has been declared up to now, by code."""
    for code in _own_codes() - _SPECS.keys():
        _SPECS[code] = _read(code)
    return _SPECS


def unregister_reason(code: str) -> None:
    """Take a reason of a plugin out again: for tests and plugins that clean up after themselves."""
    del _SPECS[code]


def _with_plugins() -> Mapping[str, ReasonSpec]:
    """All reasons, those of plugins too. Raises UsageError for a plugin that cannot be used."""
    from hlo_opt.diag.plugin_reasons import load_reasons

    load_reasons()
    return declared()
