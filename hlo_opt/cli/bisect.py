"""The verb `bisect`: the step, the pass or the dump at which something changes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hlo_opt.cli import failure
from hlo_opt.cli.files import read_module, show, show_json
from hlo_opt.cli.options import (
    OptionValue,
    backend_option,
    fuse_options,
    jobs_option,
    json_option,
    offered_files,
    seed_option,
)
from hlo_opt.cli.progress import Progress
from hlo_opt.diag import ParseError, UsageError, VerifyError

if TYPE_CHECKING:
    from hlo_opt.cli.fusing import Fusing
    from hlo_opt.cutting.bisect import Bisection, NoChange, OnPass, Rewrites
    from hlo_opt.ir import Module
    from hlo_opt.passes import Pipeline
    from hlo_opt.passes.run import Outcome


@click.command("bisect")
@click.argument("files", shell_complete=offered_files, metavar="FILE|FOLDER [FILE]...", nargs=-1, required=True)
@click.option(
    "--watch",
    metavar="WHAT",
    default="check",
    show_default=True,
    help="check (another result than the first module's), nan, or 'kernels > 3'.",
)
@click.option(
    "--run",
    "command",
    metavar="'COMMAND {}'",
    help="Watch whether this command ends with status 0; {} is the file's name.",
)
@click.option("--module", "wanted", metavar="NAME", default="", help="The program, where FOLDER has dumps of several.")
@fuse_options
@backend_option
@seed_option
@jobs_option
@json_option
def bisect_command(
    files: tuple[str, ...],
    watch: str,
    command: str | None,
    wanted: str,
    backend: str,
    seed: int,
    jobs: int | None,
    as_json: bool,
    **options: OptionValue,
) -> int:
    """Find, by halving, the first step after which something changes: the results, an error, a NaN, a figure, or the
    exit status of a command.

    Of one FILE the steps are the rewrites of `hlo-opt fuse FILE` (`--stop-after-step`); of a FOLDER the modules that
    XLA dumped after its passes (XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_pass_re=.*'); of several FILEs these, in
    the order given.

    --watch names the question: check, whether a module gives other results than the first one; nan, whether it has a
    NaN; 'kernels > 3', a figure of the module as it is (kernels, launches, bytes, est_us, instructions). With --run,
    whether the exit status of a command is 0. Modules that cannot be compared are left out. Exit status 1 when nothing
    changes.
    """
    from hlo_opt.analysis.targets import target
    from hlo_opt.cli.fusing import Fusing
    from hlo_opt.cutting import bisect
    from hlo_opt.cutting.questions import command_of
    from hlo_opt.report.turns import turn_json, turn_page

    fusing = Fusing.of(options)
    device = target(fusing.target)
    series: bisect.Series
    is_ours = len(files) == 1 and not Path(files[0]).is_dir()
    question = bisect.watch_of(watch, device, backend, seed, is_ours=is_ours)
    if command is not None:
        question = bisect.by_command(command_of(command))
    if is_ours:
        series = rewrites(fusing, read_module(files[0]))
    elif len(files) == 1:
        series = bisect.dumped(Path(files[0]), wanted)
    else:
        for place, file in enumerate(files):
            try:
                read_module(file, allow_unknown=True)
            except (ParseError, VerifyError) as error:
                if place in (0, len(files) - 1):
                    raise
                failure.say(f"{file} is left out: {error.code} {error.message}")
        series = bisect.Files(tuple(map(Path, files)))
    progress = Progress()
    bisection = bisect.Bisection(series, question, jobs or os.cpu_count() or 1, progress)
    try:
        change = bisection.find()
    finally:
        progress.end()
    if isinstance(change, bisect.NoChange):
        _say_no_change(bisection, change, as_json)
        return 1
    if isinstance(series, bisect.Rewrites):
        difference = bisect.rewrite(series, change.after)
    else:
        difference = bisect.between(series, change)
    if as_json:
        show_json(turn_json(bisection, change, difference))
    else:
        show(turn_page(bisection, change, difference))
    return 0


def _say_no_change(bisection: Bisection, result: NoChange, as_json: bool) -> None:
    """Say that nothing changes; where every module shows it, the instructions of the first that do so by themselves."""
    from hlo_opt.cutting.alone import alone
    from hlo_opt.cutting.bisect import CHECK, NO
    from hlo_opt.cutting.questions import NAN
    from hlo_opt.report.turns import stays_json, stays_lines

    is_asked = result.answer != NO and bisection.watch.title in (CHECK, NAN) and bisection.first is not None
    shown = alone(bisection) if is_asked else None
    if as_json:
        show_json(stays_json(bisection, result, shown))
    for line in stays_lines(bisection, result, shown):
        failure.say(line)


def rewrites(fusing: Fusing, module: Module) -> Rewrites:
    """The rewrites of our own passes: of those that fusing chooses, or, where fusing fails, of the first that fail."""
    from hlo_opt.cutting.bisect import Rewrites
    from hlo_opt.passes import Pipeline

    try:
        outcome = fusing.outcome(module)
        chosen, last = outcome.pipeline, outcome.steps
    except UsageError:
        raise
    except Exception:
        first = fusing.first(module).steps
        pipelines = [Pipeline((*first, *way.steps)) for way in fusing.pipeline().alternatives()]
        chosen, last = next(p for p in pipelines if _fails(fusing, module, p)), None

    def run(number: int | None, tell: OnPass | None) -> Outcome:
        observer = None if tell is None else lambda step, module, changed: tell(step.name, module)
        return fusing.outcome(module, pipeline=chosen, stop_after_step=number, observer=observer)

    return Rewrites(run, last)


def _fails(fusing: Fusing, module: Module, pipeline: Pipeline) -> bool:
    try:
        fusing.outcome(module, pipeline=pipeline)
    except Exception:
        return True
    return False
