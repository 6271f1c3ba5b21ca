"""`hlo-opt targets`: the devices."""

from __future__ import annotations

from dataclasses import asdict

import click

from hlo_opt.cli.console import show, show_json


@click.command("targets")
@click.argument("name", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Everything that is known of each device, as JSON.")
def command(name: tuple[str, ...], as_json: bool) -> None:
    """List the devices that costs are estimated for; --target takes such a name or a file: .toml with the same fields, or .txtpb as XLA writes its device specs."""
    from hlo_opt.analysis.targets import target, target_names
    from hlo_opt.report.page import Page, Word, size

    devices = [target(n) for n in (name or target_names())]
    if as_json:
        show_json({"schema": 1, "targets": [asdict(d) for d in devices]})
        return
    page = Page()
    rows: list[list[str | Word]] = [[Word(w, "bold") for w in ("target", "device", "", "memory", "L2", "cores")]]
    for device in devices:
        speed = f"{device.memory_bandwidth / 1e9:,.0f} GB/s"
        cells = [device.title, device.architecture, speed, size(device.l2_cache_size), str(device.core_count)]
        rows.append([Word(device.name, "bold"), *cells])
    page.table(rows, right=frozenset({3, 4, 5}))
    show(page)
