"""The verb `tune`: a search for the passes, options and edges with which a module takes least time."""

from __future__ import annotations

import contextlib
import os

import click

from hlo_opt.cli import failure, files
from hlo_opt.cli.files import read_module, show, show_json
from hlo_opt.cli.options import (
    Seconds,
    Whole,
    file_argument,
    json_option,
    offered_files,
    read_options,
    scheduler_option,
    simplify_option,
    target_option,
    trip_count_option,
)
from hlo_opt.cli.progress import bar
from hlo_opt.diag import UsageError


@click.command()
@file_argument
@target_option
@click.option(
    "--trials", metavar="N", type=Whole(min=1), help="Try N settings.  [default: 100, or as many as --seconds allow]"
)
@click.option("--seconds", metavar="S", type=Seconds(min=0, min_open=True), help="Begin no trial after S seconds.")
@click.option(
    "--seed", metavar="N", type=Whole(min=0), default=0, show_default=True, help="Seed of the order of trials."
)
@click.option(
    "-j", "--jobs", metavar="N", type=Whole(min=1), help="Try N settings at once.  [default: one per processor]"
)
@click.option(
    "--by",
    type=click.Choice(("price", "time")),
    default="price",
    show_default=True,
    help="What a setting is judged by: the price of its kernels for --target, or the time that they take here.",
)
@click.option(
    "--backend",
    metavar="NAME",
    default="auto",
    show_default=True,
    help="Where --by time runs them: cupy (a GPU) or host; auto: the best one available.",
)
@click.option(
    "--save",
    shell_complete=offered_files,
    metavar="OUT.toml",
    default=files.STANDARD,
    help="Write the options that hlo-opt fuse --config takes to OUT.toml instead of stdout.",
)
@scheduler_option
@simplify_option
@trip_count_option
@json_option
@read_options
def tune_command(
    file: str,
    target: str,
    trials: int | None,
    seconds: float | None,
    seed: int,
    jobs: int | None,
    by: str,
    backend: str,
    save: str,
    scheduler: str | None,
    simplify: str | None,
    trip_count: tuple[str, ...],
    as_json: bool,
    max_errors: int,
    allow_unknown: bool,
) -> int:
    """Search for the way to fuse FILE that takes least time, and print it as options for hlo-opt fuse --config.

    It starts from the presets, and tries other values of the options of their passes, another order, passes left out,
    edges that are kept apart, and edges that were refused; it keeps what lowers the price of the whole module. The same
    --seed gives the same result, on one processor or many, unless --seconds end it.

    Ctrl-C ends the search with the best setting so far, and exit status 130. The file is for this module and --target
    only: fuse refuses it for others (HLO350, HLO351).
    """
    from hlo_opt.cli.fusing import trip_counts_of
    from hlo_opt.report.tuned import tuned_json, tuned_page
    from hlo_opt.tune import tune
    from hlo_opt.tune.search import TRIALS
    from hlo_opt.tune.workers import cluster
    from hlo_opt.tune.written import toml

    if as_json and save == files.STANDARD:
        raise UsageError("--json and the file of options both go to stdout", hint="--save OUT.toml")
    files.check_writable(None if save == files.STANDARD else save)
    measured = None if by == "price" else _timed_on(backend)
    module = read_module(file, max_errors=max_errors, allow_unknown=allow_unknown)
    total = trials or (None if seconds is not None else TRIALS)
    if measured is not None and scheduler is not None:
        raise UsageError("--by time times settings on this machine, not on those of --scheduler")
    with failure.saving(), contextlib.ExitStack() as shown:
        executor = None if scheduler is None else shown.enter_context(cluster(scheduler))
        step = shown.enter_context(bar("tune", total))
        tuned = tune(
            module,
            target=target,
            trials=trials,
            seconds=seconds,
            seed=seed,
            jobs=jobs or os.cpu_count() or 1,
            executor=executor,
            backend=measured,
            simplify=simplify or "auto",
            trip_counts=trip_counts_of(trip_count),
            progress=lambda count, us: step(count, f"{us:,.4g} us"),
        )
        shown.close()
        files.write_text(save, toml(tuned))
    show(tuned_page(tuned), err=True)
    if as_json:
        show_json(tuned_json(tuned))
    return failure.INTERRUPTED if tuned.is_stopped else 0


def _timed_on(wish: str) -> str:
    """The backend that times settings. Raises UsageError for one that launches no kernels."""
    from hlo_opt.runtime.executable import choose_backend

    name, why = choose_backend(wish)
    if name == "numpy":
        raise UsageError(f"--by time needs kernels, and numpy runs none ({why})", hint="--backend host or cupy")
    return name
