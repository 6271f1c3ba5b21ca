"""The verb that draws a module: `view FILE`, or two of them, `view OLD NEW`."""

from __future__ import annotations

import json

import click

from hlo_opt.cli import files
from hlo_opt.cli.files import read_module
from hlo_opt.cli.options import (
    OptionValue,
    dynamic_option,
    format_option,
    fuse_options,
    offered_files,
    read_options,
    rule_options,
)
from hlo_opt.diag import UsageError

PAGE, DATA = "html", "json"
EXPORTS = ["dot", "perfetto"]
FORMATS = (PAGE, DATA, *EXPORTS)


@click.command("view")
@click.argument("file", shell_complete=offered_files, metavar="FILE [NEW]", nargs=-1, required=True)
@click.option("-o", "output", metavar="OUT", default="-", help="Write to OUT instead of stdout.")
@format_option(
    *FORMATS,
    default=PAGE,
    text="A page; all that it shows, as JSON; the fused graph for Graphviz; or a trace of the estimated times.",
)
@click.option(
    "--source-root", metavar="DIR", help="Show the Python files below this folder with what their lines cost."
)
@fuse_options
@rule_options
@dynamic_option
@read_options
def view_command(
    file: tuple[str, ...],
    output: str,
    form: str,
    source_root: str | None,
    dynamic: tuple[str, ...],
    max_errors: int,
    allow_unknown: bool,
    **options: OptionValue,
) -> None:
    """Draw FILE before and after fusing, on one page of HTML that needs no network.

    Both graphs stand side by side, and a selection is carried across. Each kernel comes with its HLO, its CUDA text,
    its plan and what its estimated time is made of; each edge that was not fused with the reason and what joining it
    would save; each Python line with its cost; each pass with what it changed.

    With two files the page compares them, as `hlo-opt diff OLD NEW` does. With --dynamic it shows FILE at the size that
    prices are for. --format perfetto is a trace for https://ui.perfetto.dev.
    """
    if len(file) > 2:
        raise UsageError(f"view takes a file, or two to compare, not {len(file)}")
    if len(file) == 2 and form in EXPORTS:
        raise UsageError(f"two files come as html or json, not as {form}")
    if len(file) == 2 and dynamic:
        raise UsageError("--dynamic is for one module, not for two to compare")
    if list(file).count(files.STANDARD) > 1:
        raise UsageError("only one file can be stdin")
    files.check_writable(output)
    if form == PAGE:
        files.check_no_terminal(output)
    files.check_folder(source_root)
    from hlo_opt.cli.fusing import Fusing
    from hlo_opt.cli.sizes import Sized, size_json

    request = Fusing.of(options)
    modules = [read_module(name, max_errors=max_errors, allow_unknown=allow_unknown) for name in file]
    if len(modules) == 2:
        from hlo_opt.cli.diff import compare
        from hlo_opt.report.view.data import comparison_data

        fuse = "always" if options.get("preset") or options.get("passes") else "auto"
        data = comparison_data(compare(request, fuse, modules[0], modules[1]))
    else:
        from hlo_opt.report.view.data import data_of
        from hlo_opt.report.view.steps import PassLog

        sized = Sized.of(modules[0], dynamic) if dynamic else None
        module = modules[0] if sized is None else sized.module
        log = PassLog.of(module)
        report = request.run(module, observer=log)
        if form in EXPORTS:
            from hlo_opt.report.view import exports

            files.write_said(output, getattr(exports, form)(report))
            return
        data = data_of(report, log, source_root)
        if sized is not None:
            data["dynamic"] = size_json(sized)
    if form == DATA:
        files.write_said(output, json.dumps(data, indent=1) + "\n")
    else:
        from hlo_opt.report.view.page import as_html

        files.write_said(output, as_html(data))
