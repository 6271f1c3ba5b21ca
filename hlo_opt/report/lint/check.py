"""All rules on a module, or on the modules of a folder; and which of them the user wants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from hlo_opt.diag import UsageError, did_you_mean
from hlo_opt.ir import Module
from hlo_opt.passes import ExplainReport
from hlo_opt.report.lint import donated, movement, products, running, scatters, values
from hlo_opt.report.lint.base import LEAST_SHARE, Finding, FusedProgram, rule_specs

LintRule = Callable[[FusedProgram], Iterator[Finding]]

RULES: Mapping[str, LintRule] = {
    "LNT101": movement.concatenates,
    "LNT102": movement.copies,
    "LNT103": movement.reductions,
    "LNT104": values.wide_types,
    "LNT105": running.loop_launches,
    "LNT106": scatters.scatters,
    "LNT107": values.large_constants,
    "LNT108": donated.missed_donations,
    "LNT109": values.random_in_loops,
    "LNT111": running.too_small,
    "LNT112": donated.lost_donations,
    "LNT113": donated.states_held_twice,
    "LNT114": products.wide_products,
}
"""The rules about one module, by code."""

FOLDER_RULES: Mapping[str, Callable[[Sequence[Module]], Iterator[Finding]]] = {"LNT110": running.recompiled}
"""Those about several."""


def chosen(select: Iterable[str], ignore: Iterable[str]) -> frozenset[str]:
    """The codes of the rules that are wanted: those of `select`, else all, without those of `ignore`. A name is a code,
    the beginning of one, or a slug. Raises UsageError."""
    wanted = {code for name in select for code in _named(name)} or set(rule_specs())
    return frozenset(wanted - {code for name in ignore for code in _named(name)})


def _named(name: str) -> list[str]:
    specs = rule_specs()
    named = [code for code, spec in specs.items() if code.startswith(name.upper()) or spec.slug == name]
    if not named or not name:
        known = [*specs, *(spec.slug for spec in specs.values())]
        raise UsageError(
            f"there is no rule {name!r}", hint=did_you_mean(name, known) or "hlo-opt lint --list shows all"
        )
    return named


def lint(report: ExplainReport, codes: Iterable[str] | None = None) -> list[Finding]:
    """What the rules find in a module that was fused, in the order of `in_order`."""
    return lint_program(FusedProgram(report), codes)


def lint_program(program: FusedProgram, codes: Iterable[str] | None = None) -> list[Finding]:
    """The same of a program, which then knows how many places had no try."""
    wanted = set(RULES if codes is None else codes)
    findings = [finding for code, rule in RULES.items() if code in wanted for finding in rule(program)]
    return in_order(findings)


def matters(finding: Finding, total: float) -> bool:
    """Whether what a finding costs is worth a change, in a module that takes `total` microseconds."""
    return finding.us is None or finding.bytes > 0 or finding.us >= LEAST_SHARE * total


def lint_together(modules: Sequence[Module], codes: Iterable[str]) -> list[Finding]:
    """What the rules about several modules find."""
    wanted = set(codes)
    return [finding for code, rule in FOLDER_RULES.items() if code in wanted for finding in rule(modules)]


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """What a change saves, then what a place takes, then memory; the most first."""
    return sorted(findings, key=lambda f: (not f.saves, -(f.us or 0.0), -f.bytes, f.code, f.source, f.name))
