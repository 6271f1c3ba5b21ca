"""`hlo-opt print`: parse, verify, print."""

from __future__ import annotations

import click

from hlo_opt.cli import files
from hlo_opt.cli.module import read_module


@click.command("print")
@click.argument("file")
@click.option("-o", "output", metavar="OUT", default="-", help="Write to OUT instead of stdout.")
@click.option(
    "--style",
    metavar="STYLE",
    default="canonical",
    show_default=True,
    help="canonical (as XLA prints), as-read or short.",
)
def command(file: str, output: str, style: str) -> None:
    """Parse FILE, verify it and print it as canonical HLO text."""
    files.check_writable(output)
    module = read_module(file)
    from hlo_opt.text import print_module

    files.write_text(output, print_module(module, style))
