"""The verb that says what a module holds in memory: `memory FILE`."""

from __future__ import annotations

import click

from hlo_opt.cli.files import read_module, show, show_json
from hlo_opt.cli.options import OptionValue, file_argument, format_option, fuse_options, read_options, rule_options


@click.command("memory")
@file_argument
@fuse_options
@rule_options
@click.option("--all", "everything", is_flag=True, help="Show every buffer of the peak, not only the largest.")
@format_option("text", "json")
@read_options
def memory_command(
    file: str, everything: bool, form: str, max_errors: int, allow_unknown: bool, **options: OptionValue
) -> None:
    """Show the peak memory of FILE before and after fusing: at which instruction, which arrays hold it, and what would
    lower it.

    Counts inputs, constants, results and temporaries, as a device holds them. Each way to a lower peak was tried on a
    copy of the module: joining two kernels (--force), another order, donating inputs (donate_argnums). Each donated
    input is listed, with the result that uses its memory, or the reason why none does."""
    from hlo_opt.cli.fusing import Fusing
    from hlo_opt.report.memory import page

    request = Fusing.of(options)
    module = read_module(file, max_errors=max_errors, allow_unknown=allow_unknown)
    report = page.memory_report(request.run(module))
    if form == "json":
        show_json(page.as_json(report))
    else:
        show(page.as_page(report, None if everything else page.HOLDERS_SHOWN))
