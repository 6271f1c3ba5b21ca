"""`hlo-opt stats`: a module in numbers."""

from __future__ import annotations

import click

from hlo_opt.cli import completion
from hlo_opt.cli.console import show, show_json
from hlo_opt.cli.module import read_module
from hlo_opt.cli.options import read_options, target_option


@click.command("stats")
@click.argument("file", shell_complete=completion.file)
@target_option
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@read_options
def command(file: str, target: str, as_json: bool, max_errors: int, allow_unknown: bool) -> None:
    """Count the kernels, launches, bytes, estimated microseconds and opcodes of FILE, as it is (nothing is fused first)."""
    from hlo_opt.analysis.targets import target as find_target

    device = find_target(target)
    module = read_module(file, max_errors=max_errors, allow_unknown=allow_unknown)
    from hlo_opt.report import stats

    found = stats.stats(module, device)
    if as_json:
        show_json(stats.as_json(found))
    else:
        show(stats.as_page(found))
