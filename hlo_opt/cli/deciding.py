"""The verbs that fuse and tell: `fuse`, and `explain`, which says why edges were not fused, or what a code means."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hlo_opt import __version__
from hlo_opt.analysis.sizes import size_specs
from hlo_opt.cli import files
from hlo_opt.cli.codes import CODE, check_no_part, check_reason, show_page
from hlo_opt.cli.failure import report_error
from hlo_opt.cli.files import check_folder, columns, read_module, read_modules, show, show_json
from hlo_opt.cli.mistaken import second_file
from hlo_opt.cli.options import (
    Whole,
    budget_options,
    dynamic_option,
    file_argument,
    format_option,
    fuse_options,
    offered_files,
    offered_instructions,
    read_options,
    rule_options,
    run_options,
    scheduler_option,
    split_option,
)
from hlo_opt.diag import CheckError, UsageError, reason_specs

if TYPE_CHECKING:
    from hlo_opt.fusion.decision import FusionDecision
    from hlo_opt.report.sentences import EdgePrices
    from hlo_opt.report.totals import By


@click.command("fuse")
@file_argument
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
@click.option("--time-passes", is_flag=True, help="Show how long each pass took, and how often it ran.")
@click.option(
    "-j", "--jobs", metavar="N", type=Whole(min=1), help="Fuse all modules of the folder FILE, N at once, into -o OUT."
)
@scheduler_option
@dynamic_option
@split_option
@read_options
def fuse_command(
    file: str,
    output: str,
    folder: str | None,
    checks: bool,
    stats_file: str | None,
    print_after: tuple[str, ...],
    time_passes: bool,
    jobs: int | None,
    scheduler: str | None,
    dynamic: tuple[str, ...],
    split: bool,
    max_errors: int,
    allow_unknown: bool,
    **options: Any,
) -> int:
    """Fuse FILE and print the fused HLO; a summary goes to stderr.

    The result is proved to be the same graph before anything is printed. With --check it is also run, on a GPU if there
    is one, else on the CPU. When the values differ from the original's, nothing is written, and the exit status is 1.

    --what-if, --force and --forbid change which edges fuse; the result is proved as always.

    --max-kernels, --max-bytes and --fail-on set a budget: exit status 1, with a line for each limit that is exceeded.
    The result is written all the same: it is correct, just over budget.

    With --jobs or --scheduler, FILE is a folder. All its modules are fused; of a program that XLA dumped at several
    stages, the one before optimisations. They are shown in one table, and written into the folder that -o names. A file
    that fails does not stop the others, and Ctrl-C keeps what is done. The exit status is that of the worst file.

    With --dynamic the kernels are for all sizes of a range; --check tries five of them, --emit writes the kernels and a
    manifest without a driver. What needs the size to be known is refused with a code (SIZ101, ...) that has a page.
    """
    from hlo_opt.cli.fusing import Fusing
    from hlo_opt.cli.running import Running

    fusing, running = Fusing.of(options), Running.of(options, file)
    if jobs is not None or scheduler is not None:
        from hlo_opt.cli.fleet import FleetTask, fuse_folder

        if not os.path.isdir(file):
            raise UsageError("--jobs and --scheduler are for a folder of modules", filename=file)
        if checks or folder is not None or print_after or time_passes or split or running.inputs is not None:
            raise UsageError("a folder of modules takes no --check, --emit, --print-after, --time-passes or --inputs")
        files.check_writable(stats_file)
        into = None if output == files.STANDARD else output
        order = FleetTask(fusing, max_errors, allow_unknown, into is not None)
        return fuse_folder(file, into, order, jobs, scheduler, stats_file)
    _check_places(output, stats_file, folder)
    if split and (folder is not None or running.inputs is not None or dynamic):
        raise UsageError("--emit, --inputs and --dynamic are for one module, not for --split-input-file")
    modules = read_modules(file, split=split, max_errors=max_errors, allow_unknown=allow_unknown)
    from hlo_opt.cli.sizes import Sized, checked_page, size_page

    sized = None if split else Sized.wanted(modules[0], dynamic)
    from hlo_opt.report.summary import seconds_page, stats_json, steps_page, summary_page

    kernels = None
    if sized is None:
        reports = [fusing.run(module, print_after=print_after) for module in modules]
    else:
        report, kernels = sized.fuse(fusing, running.memory_limit, print_after=print_after)
        modules, reports = [sized.module], [report]
    agreed = True
    for module, report in zip(modules, reports, strict=True):
        summary = summary_page(report)
        if fusing.stop_after_step is not None:
            summary.extend(steps_page(report.outcome))
        if time_passes:
            summary.extend(seconds_page(report.outcome))
        if sized is not None:
            summary.extend(size_page(sized, kernels))
        if checks and sized is not None and kernels is not None:
            results = sized.check(kernels, running)
            summary.extend(checked_page(results))
            agreed &= all(result.ok for result in results.values())
        elif checks:
            from hlo_opt.report.runs import check_page

            result = running.compare(module, report.outcome.module)
            summary.extend(check_page(result))
            agreed &= result.ok
        show(summary, err=True)
    if not agreed:
        return 1
    texts = [str(report.outcome.module) if sized is None else sized.text(report.outcome.module) for report in reports]
    if folder is not None and kernels is not None:
        from hlo_opt.runtime.family.emission import emit_family

        emit_family(kernels, folder, precise=running.precise)
    elif folder is not None:
        from hlo_opt.runtime.driver.emission import emit

        emit(reports[0].outcome.module, folder, precise=running.precise)
    if stats_file is not None:
        figures = [stats_json(report) for report in reports]
        files.write_text(stats_file, json.dumps(figures if split else figures[0], indent=2) + "\n")
    files.write_module(output, files.SEPARATOR.join(texts))
    exceeded = [error for report in reports for error in fusing.budget.exceeded(report)]
    return max(map(report_error, exceeded), default=0)


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


FORMATS = ("text", "json", "github", "sarif")
PLACES = ("line", "function", "op")


@click.command("explain")
@click.argument("file", shell_complete=offered_files, metavar="FILE|CODE")
@click.argument(
    "instruction",
    shell_complete=offered_instructions,
    metavar="[INSTRUCTION|PRODUCER:CONSUMER|FILE.py[:LINE]|CODE]...",
    nargs=-1,
)
@fuse_options
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Show all reasons of each edge, their hints, both costs, and causes that many edges share.",
)
@click.option("--all", "everything", is_flag=True, help="Show every refused edge, not only the costliest.")
@rule_options
@click.option(
    "--as",
    "types",
    metavar="OLD=NEW",
    help="As if all arrays of type OLD were of type NEW, such as f32=bf16: what that would save.",
)
@budget_options
@click.option(
    "--by", type=click.Choice(PLACES), help="Time, bytes, kernels and refusals by Python line, function or operation."
)
@click.option(
    "--measured",
    shell_complete=offered_files,
    metavar="FILE",
    help="Take times from a profile of FILE's kernels: *.xplane.pb, a Perfetto trace, or nsys stats as CSV.",
)
@format_option(*FORMATS)
@click.option(
    "--source-root",
    metavar="DIR",
    help="--by line lists the Python files below it; github and sarif name them relative to it.  [default: the current "
    "folder]",
)
@dynamic_option
@read_options
def explain_command(
    file: str,
    instruction: tuple[str, ...],
    verbose: bool,
    everything: bool,
    types: str | None,
    by: By | None,
    measured: str | None,
    form: str,
    source_root: str | None,
    dynamic: tuple[str, ...],
    max_errors: int,
    allow_unknown: bool,
    **fusing: object,
) -> int:
    """Say why edges of FILE were not fused: what that costs, the Python line, the cause, and what you can change.

    First the figures, and how many edges each reason refuses (an edge may be refused for several), then the ten edges
    whose joining would save most, or with --all every one; -v shows all reasons of each. INSTRUCTION names select the
    edges at these instructions, fused ones too; PRODUCER:CONSUMER one edge, FILE.py those of a file of the program,
    FILE.py:LINE those of a line, a CODE after FILE the edges refused under it. With a CODE such as FUS201 instead of a
    file: its page.

    --by adds up time, bytes, kernels and refusals by Python line, function or operation; with --source-root the
    program's text is listed with them. --measured takes times from a profile, joined by the names of instructions: feed
    the module that ran, after optimisations.

    With --what-if, --force, --forbid or --as FILE is fused twice, and the difference is shown first.

    --format github and sarif annotate the Python lines that refused edges come from. --max-kernels, --max-bytes and
    --fail-on set a budget: exit status 1, with a line for each limit that the fused module exceeds.
    """
    from hlo_opt.report import explain

    if by is not None and (instruction or form not in ("text", "json")):
        raise UsageError("--by is for the whole module, as text or json")
    if file.upper() in size_specs() and not instruction and not Path(file).exists():
        show_page(file.upper())
        return 0
    if CODE.fullmatch(file) and not Path(file).exists():
        if form not in ("text", "json"):
            raise UsageError(f"the page of a code comes as text or json, not as {form}")
        if instruction:
            raise UsageError("the page of a code comes alone", hint=f"hlo-opt explain {file}")
        check_reason(file.upper())
        if form == "json":
            show_json(explain.code_json(file.upper()))
        else:
            show(explain.code_page(file.upper(), columns()))
        return 0
    check_no_part(file)
    from hlo_opt.cli.fusing import Fusing
    from hlo_opt.cli.sizes import Sized, size_json, size_page
    from hlo_opt.report import summary
    from hlo_opt.report.sentences import EdgePrices, dearest_first, first_page
    from hlo_opt.report.totals import by_page, totals, totals_json

    request = Fusing.of(fusing)
    module = read_module(file, max_errors=max_errors, allow_unknown=allow_unknown)
    sized = Sized.wanted(module, dynamic)
    module = module if sized is None else sized.module
    for name in instruction:
        if os.path.isfile(name) and not any(i.name == name for c in module.computations for i in c.instructions):
            raise second_file(name)
    unchanged = request.unchanged().run(module) if request.asks_what_if or types else None
    if types:
        from hlo_opt.report.retyped import with_type

        report = request.run(with_type(module, types))
    else:
        report = request.run(module, unchanged=unchanged)
    shown = explain.select(report, instruction)
    compared = None
    if unchanged is not None and form in ("text", "json"):
        compared = summary.changes(request.what_if, request.force, unchanged, report, request.forbid, types or "")
    exceeded = request.budget.exceeded(report)
    prices: EdgePrices | None = None
    if by is not None:
        check_folder(source_root)
    spent: Mapping[str, float] | None = None
    more: dict[str, object] = {}
    if measured is not None:
        from hlo_opt.report.measured.prices import MeasuredPrices

        prices = measured_prices = MeasuredPrices.read(report, measured)
        spent, more = measured_prices.joined.microseconds, {"measured": measured_prices.json()}
    if sized is not None and form == "json":
        more["dynamic"] = size_json(sized)
    elif sized is not None and form == "text":
        show(size_page(sized))
    if form == "json":
        if by is not None:
            more["totals"] = totals_json(totals(report, by, spent))
        show_json(explain.as_json(report, shown, compared, exceeded, more))
    elif by is not None:
        show(by_page(report, totals(report, by, spent), prices, source_root))
    elif form == "text":
        page = explain.as_page if verbose else first_page
        most = None if everything or instruction else explain.EDGES_SHOWN
        show(page(report, shown, compared, most=most, prices=prices))
        if instruction and not shown:
            show(explain.without_edges(report, instruction))
    else:
        prices = prices or EdgePrices(report)
        if form == "github":
            shown = dearest_first(prices, shown)[: None if everything or instruction else explain.EDGES_SHOWN]
        click.echo(_annotated(form, prices, shown, exceeded, source_root), nl=False)
    return max(map(report_error, exceeded), default=0)


def _annotated(
    form: str, prices: EdgePrices, shown: list[FusionDecision], exceeded: list[CheckError], source_root: str | None
) -> str:
    from hlo_opt.diag.annotation import github, sarif
    from hlo_opt.report.annotate import budget_annotations, dearest_annotations, edge_annotations

    root, module = os.path.abspath(source_root or os.curdir), prices.report.outcome.original
    refused = [d for d in shown if not d.fused]
    over = budget_annotations(exceeded, root)
    if form == "github":
        return github([*over, *dearest_annotations(module, prices, refused, root)])
    return (
        json.dumps(sarif([*over, *edge_annotations(module, refused, root)], reason_specs(), __version__), indent=2)
        + "\n"
    )
