"""The verb that says what a module holds in memory: `memory FILE`."""

from __future__ import annotations

import click

from hlo_opt.cli.files import read_module, show, show_json
from hlo_opt.cli.options import Given, file_argument, fuse_options, read_options, rule_options


@click.command("memory")
@file_argument
@fuse_options
@rule_options
@click.option("--all", "everything", is_flag=True, help="Show every buffer of the peak, not only the largest.")
@click.option(
    "--format", "form", type=click.Choice(("text", "json")), default="text", show_default=True, help="What to print."
)
@read_options
def memory_command(
    file: str, everything: bool, form: str, max_errors: int, allow_unknown: bool, **options: Given
) -> None:
    """Say how much memory FILE holds at the most, before and after fusing; when that is, who holds it, and what would
    lower it.

    Counted are inputs, constants, results and what kernels store for each other, as a device holds them. Each way to a
    lower peak was tried on a copy of the module: joining two kernels (--force), another order, inputs given away
    (donate_argnums).
    """
    from hlo_opt.cli.fusing import Fusing
    from hlo_opt.report.memory import page

    request = Fusing.of(options)
    module = read_module(file, max_errors=max_errors, allow_unknown=allow_unknown)
    found = page.memory_report(request.run(module))
    if form == "json":
        show_json(page.as_json(found))
    else:
        show(page.as_page(found, None if everything else page.HOLDERS_SHOWN))
