"""The verb that finds what costs time or memory at the lines of a program: `lint FILE`, `lint FOLDER`, `lint CODE`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hlo_opt import __version__
from hlo_opt.cli.codes import CODE
from hlo_opt.cli.files import columns, read_module, show, show_json
from hlo_opt.cli.options import (
    OptionValue,
    dynamic_option,
    format_option,
    fuse_options,
    offered_files,
    offered_rules,
    read_options,
)
from hlo_opt.diag import UsageError

if TYPE_CHECKING:
    from hlo_opt.ir import Module
    from hlo_opt.report.lint.base import Finding

FORMATS = ("text", "json", "github", "sarif")
MOST_FILES = 200
"""The most modules of a folder that are checked."""


@click.command("lint")
@click.argument("file", shell_complete=offered_files, metavar="FILE|FOLDER|CODE", required=False)
@click.option(
    "--select",
    shell_complete=offered_rules,
    metavar="RULE",
    multiple=True,
    help="Only this rule: a code, the beginning of one, or its name; may be repeated.",
)
@click.option(
    "--ignore", shell_complete=offered_rules, metavar="RULE", multiple=True, help="Not this rule; may be repeated."
)
@click.option("--all", "everything", is_flag=True, help="Show findings of less than 0.5 % of the module's time, too.")
@click.option("--list", "lists", is_flag=True, help="List the rules, and exit.")
@format_option(*FORMATS)
@click.option("--strict", is_flag=True, help="Exit with 1 when there is a finding.")
@click.option(
    "--source-root",
    metavar="DIR",
    help="github and sarif name files relative to it.  [default: the current folder]",
)
@fuse_options
@dynamic_option
@read_options
def lint_command(
    file: str | None,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    everything: bool,
    lists: bool,
    form: str,
    strict: bool,
    source_root: str | None,
    dynamic: tuple[str, ...],
    max_errors: int,
    allow_unknown: bool,
    **options: OptionValue,
) -> int:
    """Say what costs time or memory in FILE, at the Python line, and what to write instead; what saves most first.

    FILE is fused first, so what fusing removes is not reported. Times are the estimates that every verb shows: `saves`
    is what the change saved in a copy of the module, `takes` what the place takes as it is. In a FOLDER every module is
    checked, and then all of them together. With a CODE such as LNT101 instead of a file: the rule's page."""
    from hlo_opt.cli.sizes import Sized, size_json, size_page
    from hlo_opt.report.lint import page
    from hlo_opt.report.lint.base import rule_specs
    from hlo_opt.report.lint.check import chosen

    if lists:
        show(page.list_page())
        return 0
    if file is None:
        raise UsageError(
            "lint takes a file, a folder of dumps, or the code of a rule", hint="hlo-opt lint --list shows the rules"
        )
    if file.upper() in rule_specs() and not Path(file).exists():
        from hlo_opt.report.explain import spec_page

        show(spec_page(rule_specs()[file.upper()], columns()))
        return 0
    if CODE.fullmatch(file) and not Path(file).exists():
        raise _no_rule(file)
    if dynamic and os.path.isdir(file):
        raise UsageError("--dynamic is for one module, not for a folder", filename=file)
    codes = chosen(select, ignore)
    names = _modules_in(file) if os.path.isdir(file) else [file]
    modules = [read_module(name, max_errors=max_errors, allow_unknown=allow_unknown) for name in names]
    sized = Sized.wanted(modules[0], dynamic) if len(modules) == 1 else None
    modules = modules if sized is None else [sized.module]
    if sized is not None and form == "text":
        show(size_page(sized))
    findings, total, left, untried = _findings(modules, names, codes, options, everything)
    if form == "text":
        show(page.as_page(findings, total, left, untried))
    elif form == "json":
        show_json(page.as_json(findings, total, untried) | ({} if sized is None else {"dynamic": size_json(sized)}))
    else:
        from hlo_opt.diag.annotation import github, sarif

        annotations = page.as_annotations(findings, names[0], os.path.abspath(source_root or os.curdir))
        specs = rule_specs().values()
        click.echo(
            github(annotations)
            if form == "github"
            else json.dumps(sarif(annotations, specs, __version__), indent=2) + "\n",
            nl=False,
        )
    return 1 if strict and findings else 0


def _no_rule(code: str) -> UsageError:
    """What to type instead of a code that is no rule's."""
    from hlo_opt.diag import reason_specs

    is_reason = any(spec.code == code.upper() for spec in reason_specs())
    hint = f"it is a reason: hlo-opt explain {code.upper()}" if is_reason else "hlo-opt lint --list shows all rules"
    return UsageError(f"there is no rule {code!r}, and no such file", hint=hint)


def _modules_in(folder: str) -> list[str]:
    from hlo_opt.cli.mistaken import MODULE

    names = sorted(str(p) for p in Path(folder).iterdir() if p.is_file() and MODULE.search(p.name))
    if not names:
        from hlo_opt.cli.mistaken import beside_folder

        raise UsageError("is a folder without a module", filename=folder, hint=beside_folder(Path(folder)))
    if len(names) > MOST_FILES:
        raise UsageError(f"is a folder with {len(names)} modules, more than {MOST_FILES}", filename=folder)
    return names


def _findings(
    modules: list[Module],
    names: list[str],
    codes: Iterable[str],
    options: Mapping[str, OptionValue],
    everything: bool,
) -> tuple[list[Finding], float | None, int, int]:
    """The findings; for a single module, its microseconds; how many findings are left out because they cost next to
    nothing, unless `everything` is wanted; and at how many places no change was tried."""
    from hlo_opt.cli.fusing import Fusing
    from hlo_opt.report.lint.base import FusedProgram
    from hlo_opt.report.lint.check import RULES, in_order, lint_program, lint_together, matters

    request = Fusing.of(options)
    wanted = frozenset(codes)
    programs = [FusedProgram(request.run(module)) for module in modules] if wanted & RULES.keys() else []
    files = names if len(names) > 1 else [""]
    every = [
        (replace(finding, file=file), program.summary.est_us)
        for program, file in zip(programs, files, strict=False)
        for finding in lint_program(program, wanted)
    ]
    findings = [finding for finding, total in every if everything or matters(finding, total)]
    left = len(every) - len(findings)
    if len(modules) > 1:
        by_name = {module.name: name for module, name in zip(modules, names, strict=True)}
        findings += [replace(finding, file=by_name[finding.name]) for finding in lint_together(modules, wanted)]
    untried = sum(program.untried.total() for program in programs)
    return in_order(findings), programs[0].summary.est_us if len(programs) == 1 else None, left, untried
