"""`hlo-opt explain`: why edges were not fused, or what a code means."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click

from hlo_opt.cli.console import show
from hlo_opt.cli.module import read_module
from hlo_opt.cli.options import fuse_options, read_options
from hlo_opt.diag import UsageError, nearest

_CODE = re.compile(r"[A-Za-z]{3}[0-9]{3}")


@click.command("explain")
@click.argument("file", metavar="FILE|CODE")
@click.argument("instruction", nargs=-1)
@fuse_options
@click.option(
    "--what-if", metavar="CODE", multiple=True, help="Decide as if this refusal did not exist; may be repeated."
)
@click.option(
    "--force", metavar="PRODUCER:CONSUMER", multiple=True, help="Fuse this edge if it is legal; may be repeated."
)
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help="What to print."
)
@read_options
def command(
    file: str, instruction: tuple[str, ...], form: str, max_errors: int, allow_unknown: bool, **fusing: object
) -> None:
    """Say for each edge of FILE that was not fused why: code, numbers, hint, cost both ways, source lines.

    With INSTRUCTION names: only the edges that one of them is an end of, fused ones too. With a CODE such as FUS201 instead of a file: its page.
    """
    from hlo_opt.report import explain

    if _CODE.fullmatch(file) and not Path(file).exists():
        if form == "json":
            click.echo(json.dumps(explain.code_json(file.upper()), indent=2))
        else:
            show(explain.code_page(file.upper()))
        return
    from hlo_opt.cli.fusing import Fusing

    request = Fusing.of(fusing)
    module = read_module(file, max_errors=max_errors, allow_unknown=allow_unknown)
    report = request.run(module)
    known = {i.name for c in module.computations for i in c.instructions}
    known.update(name for d in report.decisions for name in explain.names_of(d))
    for name in instruction:
        if name.lstrip("%") not in known:
            close = nearest(name.lstrip("%"), sorted(known))
            raise UsageError(f"there is no instruction {name!r}", hint=f"did you mean {close}?" if close else None)
    shown = explain.select(report, instruction)
    if form == "json":
        click.echo(json.dumps(explain.as_json(report, shown), indent=2))
    else:
        show(explain.as_page(report, shown))
