"""Why an edge was not fused, as a value: a code, the numbers that decided, and what would change the answer.

Codes: `FUS1xx` graph shape, `2xx` resources, `3xx` no lowering, `4xx` not profitable, `5xx` switched off,
`6xx` aliasing and in-place. Each code is declared once, with `register_reason`, in `hlo_opt/diag/reasons.py` (or by a plugin).
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass, field

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
        spec = _SPECS[code] if code in _SPECS else _with_plugins()[code]
        if spec.fields != numbers.keys():
            raise TypeError(f"{code} needs {sorted(spec.fields)}, got {sorted(numbers)}")
        return cls(code, numbers)

    @property
    def spec(self) -> ReasonSpec:
        return _SPECS[self.code]

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


def register_reason(spec: ReasonSpec) -> ReasonSpec:
    """Declare a reason. Raises ValueError when the code or the slug is taken."""
    if spec.code in _SPECS or any(s.slug == spec.slug for s in _SPECS.values()):
        raise ValueError(f"reason {spec.code} {spec.slug} is declared twice")
    _SPECS[spec.code] = spec
    return spec


def reason_spec(code: str) -> ReasonSpec:
    """The declaration of a code. Raises UsageError, naming the nearest code, for an unknown one."""
    if code not in _SPECS and code not in _with_plugins():
        close = nearest(code, _SPECS)
        raise UsageError(f"there is no reason {code!r}", hint=f"did you mean {close}?" if close else None)
    return _SPECS[code]


def reason_specs() -> list[ReasonSpec]:
    """All declared reasons, those of plugins too, in the order of their codes. Raises UsageError for a plugin that cannot be used."""
    specs = _with_plugins()
    return [specs[code] for code in sorted(specs)]


def declared() -> Mapping[str, ReasonSpec]:
    """What has been declared up to now, by code."""
    return _SPECS


def unregister_reason(code: str) -> None:
    """Take a reason out again: for tests and plugins that clean up after themselves."""
    del _SPECS[code]


def _with_plugins() -> Mapping[str, ReasonSpec]:
    """All reasons, those of plugins too. Raises UsageError for a plugin that cannot be used."""
    from hlo_opt.diag.plugin_reasons import load_reasons

    load_reasons()
    return _SPECS
