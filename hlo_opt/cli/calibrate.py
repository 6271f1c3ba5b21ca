"""The verb `calibrate`: the constants of the price model, measured on the GPU at hand."""

from __future__ import annotations

from dataclasses import asdict

import click

from hlo_opt.cli import files
from hlo_opt.cli.files import show, show_json
from hlo_opt.cli.options import json_option
from hlo_opt.cli.progress import bar


@click.command()
@click.option("-o", "output", metavar="OUT.toml", default=files.STANDARD, help="Write to OUT.toml instead of stdout.")
@json_option
def calibrate_command(output: str, as_json: bool) -> None:
    """Measure the GPU of this machine, so that prices fit it: bandwidths of memory and L2, times of a load, a barrier
    and a launch, and the clock under load. Write the device as a file for --target. It takes a few seconds.

    With --json, the assumed and the measured constants.
    """
    from hlo_opt.report.page import Page, Word
    from hlo_opt.runtime.cupy.device import import_cupy
    from hlo_opt.runtime.measure.calibration import calibrate, device_file

    files.check_writable(output)
    cupy = import_cupy()
    with bar("calibrate", None) as step:
        measured = calibrate(cupy, lambda name: step(0, name))
    if as_json:
        show_json(
            {"schema": 1, "device": asdict(measured.device), "constants": [asdict(c) for c in measured.constants]}
        )
        if output == files.STANDARD:
            return
    files.write_text(output, device_file(measured))
    page = Page()
    rows: list[list[str | Word]] = [[Word(w, "bold") for w in (measured.device.title, "assumed", "measured", "")]]
    rows += [[c.name, f"{c.before:.3g}", f"{c.after:.3g}", c.unit] for c in measured.constants]
    page.table(rows, right=frozenset({1, 2}))
    show(page, err=True)
