"""`hlo-opt passes`: what a pipeline can be made of."""

from __future__ import annotations

import json

import click

from hlo_opt.cli.console import show


@click.command("passes")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(as_json: bool) -> None:
    """List the passes with their options and defaults, and the presets as --passes would spell them."""
    from hlo_opt.report import catalogue

    if as_json:
        click.echo(json.dumps(catalogue.as_json(), indent=2))
    else:
        show(catalogue.as_page())
