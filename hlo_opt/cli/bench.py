"""`hlo-opt bench`: how much faster the fused module is."""

from __future__ import annotations

from typing import Any

import click

from hlo_opt.cli import completion, files
from hlo_opt.cli.console import show, show_json
from hlo_opt.cli.module import read_module
from hlo_opt.cli.options import fuse_options, run_options
from hlo_opt.diag import UsageError


@click.command("bench")
@click.argument("file", shell_complete=completion.file)
@fuse_options
@run_options
@click.option(
    "--rounds",
    metavar="N",
    type=click.IntRange(min=1, max=10_000),
    default=11,
    show_default=True,
    help="How often each module runs with cold and with warm caches.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON; times in microseconds.")
@click.option("--plot", metavar="OUT.svg|png", help="Draw it. A PNG needs the extra `plot`.")
def command(file: str, rounds: int, as_json: bool, plot: str | None, **options: Any) -> None:
    """Run FILE and what fusing it gives, in turn, and compare their times with each other and with a plain copy on the same device.

    Each round runs each module twice: once after the last-level cache was emptied (cold), once straight after that (warm). On a GPU inputs and
    outputs stay there, and launches are queued before the clock starts. A module for several devices runs on all of them, which take turns; the times are theirs together.
    """
    from hlo_opt.cli.fusing import Fusing
    from hlo_opt.cli.running import Running

    if plot is not None and not plot.endswith((".svg", ".png")):
        raise UsageError("a plot ends in .svg or .png", filename=plot, code="HLO341")
    files.check_writable(plot)
    module = read_module(file)
    fused = Fusing.of(options).run(module).outcome.module
    from hlo_opt.evaluate.elided import all_with_values
    from hlo_opt.report import timings
    from hlo_opt.runtime.measure.bench import bench

    running = Running.of(options)
    module, fused = all_with_values([module, fused], running.elided)
    running.devices(module)
    given = running.given(module)
    both = {"unfused": module, "fused": fused}
    found = bench(both, running.backend, given, rounds, memory_limit=running.memory_limit)
    if plot is not None:
        drawn = timings.bench_svg(found).encode() if plot.endswith(".svg") else timings.bench_png(found)
        with files.whole_file(plot) as stream:
            stream.write(drawn)
    if as_json:
        show_json(found.as_json())
    else:
        show(timings.bench_page(found))
