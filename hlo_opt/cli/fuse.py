"""`hlo-opt fuse`: the whole path."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from hlo_opt.cli import completion, files
from hlo_opt.cli.console import show
from hlo_opt.cli.failure import told
from hlo_opt.cli.module import read_modules
from hlo_opt.cli.options import budget_options, fuse_options, read_options, rule_options, run_options, split_option
from hlo_opt.diag import UsageError


@click.command("fuse")
@click.argument("file", shell_complete=completion.file)
@click.option("-o", "output", metavar="OUT", default="-", help="Write the fused HLO to OUT instead of stdout.")
@fuse_options
@rule_options
@budget_options
@click.option(
    "--emit", "folder", metavar="DIR", help="Write the kernels as CUDA, and a driver that runs them with CuPy."
)
@click.option("--check", "checks", is_flag=True, help="Run the original and the fused module and compare.")
@run_options
@click.option(
    "--stats",
    "stats_file",
    metavar="FILE.json",
    help="Write the figures before and after, refusals by code, seconds by pass.",
)
@click.option("--print-after", metavar="PASS|all", multiple=True, help="Print the module after a pass, on stderr.")
@click.option("--time-passes", is_flag=True, help="Tell how long each pass took, and how often it ran.")
@split_option
@read_options
def command(
    file: str,
    output: str,
    folder: str | None,
    checks: bool,
    stats_file: str | None,
    print_after: tuple[str, ...],
    time_passes: bool,
    split: bool,
    max_errors: int,
    allow_unknown: bool,
    **options: Any,
) -> int:
    """Fuse FILE and print the fused HLO; a summary goes to stderr.

    The result is proved to be the same graph before anything is printed. With --check it is run, too, on a GPU, else on the CPU; exit status 1 when
    it differs from the original, and then nothing is written.

    --what-if and --force change which edges fuse; the result is proved all the same.

    --max-kernels, --max-bytes and --fail-on set a budget: exit status 1, with a line for each limit that is not kept, when the result is over it. It
    is written all the same: it is correct, just over budget.
    """
    from hlo_opt.cli.fusing import Fusing
    from hlo_opt.cli.running import Running

    fusing, running = Fusing.of(options), Running.of(options)
    _check_places(output, stats_file, folder)
    if split and (folder is not None or running.inputs is not None):
        raise UsageError("--emit and --inputs are for one module, not for --split-input-file")
    modules = read_modules(file, split=split, max_errors=max_errors, allow_unknown=allow_unknown)
    from hlo_opt.report.summary import seconds_page, stats_json, steps_page, summary_page

    reports = [fusing.run(module, print_after=print_after) for module in modules]
    agreed = True
    for module, report in zip(modules, reports, strict=True):
        summary = summary_page(report)
        if fusing.stop_after_step is not None:
            summary.extend(steps_page(report.outcome))
        if time_passes:
            summary.extend(seconds_page(report.outcome))
        if checks:
            from hlo_opt.report.runs import check_page

            result = running.compare(module, report.outcome.module)
            summary.extend(check_page(result))
            agreed &= result.ok
        show(summary, err=True)
    if not agreed:
        return 1
    texts = [str(report.outcome.module) for report in reports]
    if folder is not None:
        from hlo_opt.runtime import emit

        emit(reports[0].outcome.module, folder)
    if stats_file is not None:
        figures = [stats_json(report) for report in reports]
        files.write_text(stats_file, json.dumps(figures if split else figures[0], indent=2) + "\n")
    files.write_module(output, files.SEPARATOR.join(texts))
    exceeded = [error for report in reports for error in fusing.budget.exceeded(report)]
    return max(map(told, exceeded), default=0)


def _check_places(output: str, stats_file: str | None, folder: str | None) -> None:
    """Before any work is done: what is to be written can be, and to different places. Raises UsageError."""
    for name in (output, stats_file):
        files.check_writable(name)
    places = [
        os.path.realpath(name) if name != files.STANDARD else name for name in (output, stats_file, folder) if name
    ]
    if len(set(places)) < len(places):
        raise UsageError("-o, --stats and --emit need different places", filename=output)
    if folder is not None:
        from hlo_opt.runtime.driver.emission import check_folder

        check_folder(folder)
