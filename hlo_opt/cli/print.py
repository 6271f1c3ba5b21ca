"""`hlo-opt print`: parse, verify, print."""

from __future__ import annotations

import click

from hlo_opt.cli import completion, files
from hlo_opt.cli.module import read_modules
from hlo_opt.cli.options import read_options, split_option


@click.command("print")
@click.argument("file", shell_complete=completion.file)
@click.option("-o", "output", metavar="OUT", default="-", help="Write to OUT instead of stdout.")
@click.option(
    "--style",
    metavar="STYLE",
    default="canonical",
    show_default=True,
    help="canonical (as XLA prints), as-read or short.",
)
@split_option
@read_options
def command(file: str, output: str, style: str, split: bool, max_errors: int, allow_unknown: bool) -> None:
    """Parse FILE, verify it and print it as canonical HLO text."""
    files.check_writable(output)
    modules = read_modules(file, split=split, max_errors=max_errors, allow_unknown=allow_unknown)
    from hlo_opt.text import print_module

    texts = [print_module(module, style) for module in modules]
    files.write_module(output, files.SEPARATOR.join(texts))
