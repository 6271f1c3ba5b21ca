"""`hlo-opt passes`: what a pipeline can be made of."""

from __future__ import annotations

import click

from hlo_opt.cli.console import show, show_json


@click.command("passes")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(as_json: bool) -> None:
    """List the passes with their options and defaults, and the presets as --passes would spell them."""
    from hlo_opt.report import catalogue

    if as_json:
        show_json(catalogue.as_json())
    else:
        show(catalogue.as_page())
