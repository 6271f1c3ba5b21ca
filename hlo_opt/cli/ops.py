"""`hlo-opt ops`: the coverage of the op table."""

from __future__ import annotations

import json

import click

from hlo_opt.cli.console import show


@click.command("ops")
@click.argument("opcode", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(opcode: tuple[str, ...], as_json: bool) -> None:
    """Show which faces each opcode of the op table has: shape inference, NumPy meaning, index map, CUDA, ...

    A hole is no crash: it becomes a coded reason when a dump needs it.
    """
    from hlo_opt.report import coverage

    rows = coverage.rows(opcode)
    if as_json:
        click.echo(json.dumps(coverage.as_json(rows), indent=2))
    else:
        show(coverage.as_page(rows))
