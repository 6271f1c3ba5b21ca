"""The verb that compares dumps: `diff OLD NEW`, and a series with `--across`."""

from __future__ import annotations

import itertools
import os
import re
from typing import TYPE_CHECKING

import click

from hlo_opt.cli import files
from hlo_opt.cli.files import read_module, show, show_json
from hlo_opt.cli.options import format_option, fuse_options, offered_files, read_options
from hlo_opt.diag import UsageError

if TYPE_CHECKING:
    from hlo_opt.cli.fusing import Fusing
    from hlo_opt.ir import Module
    from hlo_opt.report.diff.comparison import Comparison

    ShareType = click.ParamType[float]
else:
    ShareType = click.ParamType

FORMATS = ("text", "json", "github", "html")


class Share(ShareType):
    """A share of something: `5%` or `5`, in percent."""

    name = "share"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})? ?%?", value):
            self.fail(f"{value!r} is not a share such as 5%", param, ctx)
        return float(value.rstrip("% ")) / 100


@click.command("diff")
@click.argument("file", shell_complete=offered_files, metavar="OLD NEW", nargs=-1, required=True)
@click.option(
    "--across",
    is_flag=True,
    help="Take any number of files, the oldest first, and compare each with the one before it.",
)
@click.option(
    "--fuse",
    metavar="WHEN",
    type=click.Choice(("auto", "always", "never")),
    default="auto",
    show_default=True,
    help="Fuse both first: always, never, or auto: where neither has fusions and both are small.",
)
@fuse_options
@click.option("--all", "everything", is_flag=True, help="Show every difference, not only the first ten.")
@format_option(*FORMATS)
@click.option("-o", "output", metavar="OUT", default="-", help="Write html to OUT instead of stdout.")
@click.option(
    "--fail-on-regression",
    "limit",
    metavar="SHARE",
    type=Share(),
    help="Exit with 1 when the estimated time grew by more than this: 5%.",
)
@click.option("--source-root", metavar="DIR", help="github names files relative to it.  [default: the current folder]")
@read_options
def diff_command(
    file: tuple[str, ...],
    across: bool,
    fuse: str,
    everything: bool,
    form: str,
    output: str,
    limit: float | None,
    source_root: str | None,
    max_errors: int,
    allow_unknown: bool,
    **options: str | int | tuple[str, ...] | None,
) -> int:
    """Say what changed from OLD to NEW: what was added, removed, moved or changed, which kernels split or joined and
    why, and what that costs; worst first.

    Names, metadata, ids and the order of the text do not count: modules are matched by what they compute. Two texts
    without fusions are both fused first, when they are not too large; with fusions in one of them, kernels are those of
    the texts. --preset and --passes say how to fuse, and imply --fuse always.

    --across FILE... compares a series, a line for each step. --format html is the page of `hlo-opt view OLD NEW`.

    Exit status 0 even if modules differ. With --fail-on-regression 5%: exit status 1 if the estimated time grew by
    more."""
    if across and len(file) < 2:
        raise UsageError("--across takes two files and more")
    if not across and len(file) != 2:
        raise UsageError(f"diff takes two files, OLD and NEW, not {len(file)}", hint="--across compares a series")
    if list(file).count(files.STANDARD) > 1:
        raise UsageError("only one file can be stdin")
    if output != files.STANDARD and form != "html":
        raise UsageError("-o is for --format html")
    if form == "html":
        files.check_no_terminal(output)
    if across and form in ("github", "html"):
        raise UsageError(f"--across comes as text or json, not as {form}")
    files.check_writable(output)
    from hlo_opt.cli.failure import report_error
    from hlo_opt.cli.fusing import Fusing
    from hlo_opt.passes.run import collector_paused
    from hlo_opt.report.diff.series import regressions, series_json, series_page

    request = Fusing.of(options)
    if fuse == "auto" and (options.get("preset") or options.get("passes")):
        fuse = "always"
    with collector_paused():
        modules = [read_module(name, max_errors=max_errors, allow_unknown=allow_unknown) for name in file]
        steps = [compare(request, fuse, *pair) for pair in itertools.pairwise(modules)]
    failed = regressions(steps, limit)
    if across:
        if form == "json":
            show_json(series_json(steps, failed))
        else:
            show(series_page(steps))
        return max(map(report_error, failed), default=0)
    (comparison,) = steps
    if form == "text":
        from hlo_opt.report.diff.page import DIFFERENCES_SHOWN, as_page

        show(as_page(comparison, None if everything else DIFFERENCES_SHOWN))
    elif form == "json":
        from hlo_opt.report.diff.data import as_json

        show_json(as_json(comparison, failed))
    elif form == "html":
        from hlo_opt.report.view.data import comparison_data
        from hlo_opt.report.view.page import as_html

        files.write_said(output, as_html(comparison_data(comparison)))
    else:
        from hlo_opt.diag.annotation import github
        from hlo_opt.report.diff.annotations import difference_annotations

        click.echo(
            github(difference_annotations(comparison, failed, os.path.abspath(source_root or os.curdir))), nl=False
        )
    return max(map(report_error, failed), default=0)


def compare(request: Fusing, fuse: str, old: Module, new: Module) -> Comparison:
    """The comparison of two modules, with the options of the command line."""
    from hlo_opt.cli.fusing import trip_counts_of
    from hlo_opt.report.diff.comparison import diff

    return diff(
        old,
        new,
        target=request.target,
        fuse=fuse,
        preset=request.preset,
        passes=request.pipeline() if request.passes is not None or request.options else None,
        simplify=request.simplify,
        choices=request.choices,
        trip_counts=trip_counts_of(request.trip_count),
    )
