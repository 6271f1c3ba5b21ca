"""`hlo-opt fuse`: the whole path."""

from __future__ import annotations

import json
import os

import click

from hlo_opt.cli import files
from hlo_opt.cli.console import show
from hlo_opt.cli.module import read_module
from hlo_opt.cli.options import backend_option, fuse_options, inputs_option, read_options, seed_option
from hlo_opt.diag import UsageError


@click.command("fuse")
@click.argument("file")
@click.option("-o", "output", metavar="OUT", default="-", help="Write the fused HLO to OUT instead of stdout.")
@fuse_options
@click.option(
    "--emit", "folder", metavar="DIR", help="Write the kernels as CUDA, and a driver that runs them with CuPy."
)
@click.option("--check", "compare", is_flag=True, help="Run the original and the fused module and compare.")
@backend_option
@inputs_option
@seed_option
@click.option(
    "--stats",
    "stats_file",
    metavar="FILE.json",
    help="Write the figures before and after, refusals by code, seconds by pass.",
)
@click.option("--print-after", metavar="PASS|all", multiple=True, help="Print the module after a pass, on stderr.")
@click.option("--time-passes", is_flag=True, help="Tell how long each pass took.")
@read_options
def command(
    file: str,
    output: str,
    folder: str | None,
    compare: bool,
    backend: str,
    inputs: str | None,
    seed: int,
    stats_file: str | None,
    print_after: tuple[str, ...],
    time_passes: bool,
    max_errors: int,
    allow_unknown: bool,
    **fusing: object,
) -> int:
    """Fuse FILE and print the fused HLO; a summary goes to stderr.

    The result is proved to be the same graph before anything is printed. With --check it is run, too, on a GPU, else on the CPU; exit status 1 when
    it differs from the original, and then nothing is written.
    """
    from hlo_opt.cli.fusing import Fusing

    request = Fusing.of(fusing)
    for name in (output, stats_file):
        files.check_writable(name)
    places = [
        os.path.realpath(name) if name != files.STANDARD else name for name in (output, stats_file, folder) if name
    ]
    if len(set(places)) < len(places):
        raise UsageError("-o, --stats and --emit need different places", filename=output)
    if folder is not None:
        from hlo_opt.runtime.emission import check_folder

        check_folder(folder)
    module = read_module(file, max_errors=max_errors, allow_unknown=allow_unknown)
    report = request.run(module, print_after=print_after)
    fused = report.outcome.module
    from hlo_opt.report.summary import seconds_page, stats_json, summary_page

    summary = summary_page(report)
    if time_passes:
        summary.extend(seconds_page(report.outcome.seconds))
    agreed = True
    if compare:
        from hlo_opt.cli import arrays
        from hlo_opt.report.runs import check_page
        from hlo_opt.runtime.compare import check

        given = None if inputs is None else arrays.load_inputs(inputs, module)
        result = check(module, fused, backend=backend, inputs=given, seed=seed)
        summary.extend(check_page(result))
        agreed = result.ok
    if agreed:
        text = str(fused)
        if folder is not None:
            from hlo_opt.runtime import emit

            emit(fused, folder)
        if stats_file is not None:
            files.write_text(stats_file, json.dumps(stats_json(report), indent=2) + "\n")
        files.write_module(output, text)
    show(summary, err=True)
    return 0 if agreed else 1
