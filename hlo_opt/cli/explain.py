"""`hlo-opt explain`: why edges were not fused, or what a code means."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hlo_opt import __version__
from hlo_opt.cli import completion
from hlo_opt.cli.console import show, show_json
from hlo_opt.cli.failure import told
from hlo_opt.cli.module import read_module
from hlo_opt.cli.options import budget_options, fuse_options, read_options, rule_options
from hlo_opt.diag import CheckError, UsageError, reason_specs

if TYPE_CHECKING:
    from hlo_opt.fusion.decision import FusionDecision
    from hlo_opt.passes import ExplainReport

_CODE = re.compile(r"[A-Za-z]{3}[0-9]{3}")
FORMATS = ("text", "json", "github", "sarif")


@click.command("explain")
@click.argument("file", shell_complete=completion.file, metavar="FILE|CODE")
@click.argument("instruction", metavar="[INSTRUCTION|PRODUCER:CONSUMER|CODE]...", nargs=-1)
@fuse_options
@click.option("--all", "everything", is_flag=True, help="Show every refused edge, not only the first of them.")
@rule_options
@budget_options
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True, help="What to print.")
@click.option(
    "--source-root",
    metavar="DIR",
    help="github and sarif name files below it relative to it.  [default: the current folder]",
)
@read_options
def command(
    file: str,
    instruction: tuple[str, ...],
    everything: bool,
    form: str,
    source_root: str | None,
    max_errors: int,
    allow_unknown: bool,
    **fusing: object,
) -> int:
    """Say for the edges of FILE that were not fused why: code, numbers, hint, cost both ways, source lines.

    First a summary, then the first edges, or with --all every one. With INSTRUCTION names: only the edges that one of them is an end of, fused ones too;
    PRODUCER:CONSUMER asks for the edge between two, a CODE after FILE for the edges that it refuses. With a CODE such as FUS201 instead of a file: its page.

    --what-if and --force fuse FILE twice, and say first what the changed rules change.

    --format github and sarif annotate the Python lines that refused edges come from. --max-kernels, --max-bytes and --fail-on set a budget: exit status 1,
    with a line for each limit that is not kept, when the fused module is over it.
    """
    from hlo_opt.report import explain

    if _CODE.fullmatch(file) and not Path(file).exists():
        if form not in ("text", "json"):
            raise UsageError(f"the page of a code comes as text or json, not as {form}")
        if form == "json":
            show_json(explain.code_json(file.upper()))
        else:
            show(explain.code_page(file.upper()))
        return 0
    from hlo_opt.cli.fusing import Fusing
    from hlo_opt.report import what_if

    request = Fusing.of(fusing)
    module = read_module(file, max_errors=max_errors, allow_unknown=allow_unknown)
    unchanged = request.unchanged().run(module) if request.asks_what_if else None
    report = request.run(module, unchanged=unchanged)
    shown = explain.select(report, instruction)
    compared = None
    if unchanged is not None and form in ("text", "json"):
        compared = what_if.changes(request.what_if, request.force, unchanged, report)
    exceeded = request.budget.exceeded(report)
    if form == "text":
        show(explain.as_page(report, shown, compared, most=None if everything or instruction else explain.EDGES_SHOWN))
    elif form == "json":
        show_json(explain.as_json(report, shown, compared, exceeded))
    else:
        click.echo(_annotated(form, report, shown, exceeded, source_root), nl=False)
    return max(map(told, exceeded), default=0)


def _annotated(
    form: str,
    report: ExplainReport,
    shown: list[FusionDecision],
    exceeded: list[CheckError],
    source_root: str | None,
) -> str:
    from hlo_opt.diag.annotation import github, sarif
    from hlo_opt.report.annotate import budget_annotations, edge_annotations

    root = os.path.abspath(source_root or os.curdir)
    refused = [d for d in shown if not d.fused]
    found = [*budget_annotations(exceeded, root), *edge_annotations(report.original, refused, root)]
    if form == "github":
        return github(found)
    return json.dumps(sarif(found, reason_specs(), __version__), indent=2) + "\n"
