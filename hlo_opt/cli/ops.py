"""`hlo-opt ops`: the coverage of the op table."""

from __future__ import annotations

import click

from hlo_opt.cli.console import show, show_json


@click.command("ops")
@click.argument("opcode", nargs=-1)
@click.option("--types", is_flag=True, help="By element type, too; so it is when opcodes are named.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(opcode: tuple[str, ...], types: bool, as_json: bool) -> None:
    """Show which faces each opcode of the op table has: shape inference, NumPy meaning, index map, CUDA, ...

    With --types, or with the opcodes named, for which element types they are there, and how many ULP results may be off.
    Missing entries are reported as coded reasons when a dump needs them.
    """
    from hlo_opt.report import coverage

    specs = coverage.chosen(opcode)
    types = types or bool(opcode)
    if as_json:
        show_json(coverage.as_json(specs, types=types))
    elif types:
        show(coverage.types_page(specs))
    else:
        show(coverage.as_page(specs))
