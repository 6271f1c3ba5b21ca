"""The verb `reduce`: the smallest module that still shows something."""

from __future__ import annotations

import os
import time

import click

from hlo_opt.cli import failure, files
from hlo_opt.cli.files import read_module
from hlo_opt.cli.options import OptionValue, backend_option, file_argument, fuse_options, jobs_option, seed_option
from hlo_opt.cli.progress import Progress
from hlo_opt.diag import UsageError


@click.command()
@file_argument
@click.option(
    "--keep",
    metavar="CHECK",
    required=True,
    help="What OUT must still show: 'fuse --check fails', 'fuse fails', 'run fails', nan, a code such as FUS201, "
    "'kernels > 3', or 'COMMAND {}'.",
)
@click.option(
    "--limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Fusing, or a run, that takes longer has no end, and so fails.  [default: 600 for fusing; for a run, at least "
    "10, by what comes before it]",
)
@click.option("-o", "output", metavar="OUT", default=files.STANDARD, help="Write to OUT instead of stdout.")
@fuse_options
@backend_option
@seed_option
@jobs_option
def reduce_command(
    file: str,
    keep: str,
    limit: float | None,
    output: str,
    backend: str,
    seed: int,
    jobs: int | None,
    **options: OptionValue,
) -> int:
    """Reduce FILE to the smallest module that still shows what --keep says, and print it.

    'fuse --check fails': fusing ends in an error, or the result computes other values; 'fuse fails': fusing
    it ends in an error; 'run fails': running it as it is does; nan: a NaN is computed; FUS201: an edge is refused under
    this code; 'kernels > 3' (kernels, launches, bytes, est_us, instructions; <, <=, ==, !=, >=, >): true after fusing.
    A failure counts only if it is the same failure. A crash, and what does not end (--limit), are failures.

    Anything else is a command with {} where the file's name goes, and exit status 0 says that the file still shows it,
    as for creduce (unlike `git bisect run`). Where it succeeds without the names and the metadata of FILE, they go
    first: 'grep -q scatter {}' keeps the operation, and not what is only called so. No shell reads it:
    'sh -c "... {} | ..."' for one. It may run several times at once.

    Every module that is tried is verified. Ctrl-C ends the search and gives the smallest so far. Exit status 2 when
    FILE does not show it.
    """
    from hlo_opt.cli.fusing import Fusing
    from hlo_opt.cutting.questions import Command, question_of
    from hlo_opt.cutting.search import Reducer

    files.check_writable(output)
    fusing = Fusing.of(options)
    fusing.pipeline()
    question = question_of(keep, fusing.outcome, backend, seed, limit)
    text = str(read_module(file))
    progress = Progress()
    reducer = Reducer(text, question, jobs or os.cpu_count() or 1, progress)
    begun, before, is_stopped = time.monotonic(), reducer.instructions, False
    with failure.saving():
        try:
            reducer.run()
        except KeyboardInterrupt:
            is_stopped = True
            if not reducer.answer:
                raise
        except UsageError as error:
            if isinstance(question, Command):
                status = question.status(text)
                hint = f"it ends with status {status} for FILE as `hlo-opt print` prints it; 0 says that it shows it"
                raise UsageError(f"the module does not show {keep!r}", filename=file, hint=hint) from None
            hint = error.hint or (
                "`hlo-opt fuse FILE` shows figures and refusals, `hlo-opt run FILE --check-nans` NaNs; --preset, "
                "--passes, --target, --backend and --seed count here as they do there"
            )
            raise UsageError(f"the module does not show {keep!r}", filename=file, hint=hint) from None
        finally:
            progress.end()
        files.write_module(output, reducer.text)
    how = f", tries: {reducer.trials.tried}, in {time.monotonic() - begun:.0f} s" if progress.is_shown else ""
    failure.say(
        f"{before:,} instructions, now {reducer.instructions:,}: {reducer.answer}{how}{', interrupted' * is_stopped}"
    )
    return failure.INTERRUPTED if is_stopped else 0
