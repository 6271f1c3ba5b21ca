"""The verbs that show what there is: a module as text or in numbers, the passes, the op table, the devices."""

from __future__ import annotations

from dataclasses import asdict

import click

from hlo_opt.cli import files
from hlo_opt.cli.files import read_module, read_modules, show, show_json
from hlo_opt.cli.options import file_argument, read_options, split_option, target_option, trip_count_option


@click.command("print")
@file_argument
@click.option("-o", "output", metavar="OUT", default="-", help="Write to OUT instead of stdout.")
@click.option(
    "--style",
    metavar="STYLE",
    default="canonical",
    show_default=True,
    help="canonical (as XLA prints), as-read or short.",
)
@split_option
@read_options
def print_command(file: str, output: str, style: str, split: bool, max_errors: int, allow_unknown: bool) -> None:
    """Parse FILE, verify it and print it as canonical HLO text."""
    files.check_writable(output)
    modules = read_modules(file, split=split, max_errors=max_errors, allow_unknown=allow_unknown)
    from hlo_opt.text import print_module

    texts = [print_module(module, style) for module in modules]
    files.write_module(output, files.SEPARATOR.join(texts))


@click.command("stats")
@file_argument
@target_option
@trip_count_option
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.option(
    "--hash",
    "only_hash",
    is_flag=True,
    help="Print only a hash of FILE that names, metadata, ids and order do not change.",
)
@read_options
def stats_command(
    file: str,
    target: str,
    trip_count: tuple[str, ...],
    as_json: bool,
    only_hash: bool,
    max_errors: int,
    allow_unknown: bool,
) -> None:
    """Count the kernels, launches, bytes, estimated microseconds and opcodes of FILE, without fusing it."""
    if only_hash and not as_json:
        from hlo_opt.analysis.graph.digest import module_digest

        click.echo(module_digest(read_module(file, max_errors=max_errors, allow_unknown=allow_unknown)))
        return
    from hlo_opt.analysis.targets import target as find_target

    device = find_target(target)
    module = read_module(file, max_errors=max_errors, allow_unknown=allow_unknown)
    from hlo_opt.analysis.graph.loops import check_trip_counts
    from hlo_opt.cli.fusing import trip_counts_of
    from hlo_opt.report import summary

    trip_counts = trip_counts_of(trip_count)
    check_trip_counts(module, trip_counts)
    statistics = summary.stats(module, device, trip_counts)
    if as_json:
        show_json(summary.as_json(statistics))
    else:
        show(summary.as_page(statistics))


@click.command("passes")
@click.option(
    "--rules", is_flag=True, help="List the rules of the simplifier instead: what each writes, and why it is exact."
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def passes_command(rules: bool, as_json: bool) -> None:
    """List the passes with their options and defaults, and the presets as --passes would spell them."""
    from hlo_opt.report import tables

    if rules:
        from hlo_opt.report import simplified

        if as_json:
            show_json(simplified.rules_json())
        else:
            show(simplified.rules_page())
    elif as_json:
        show_json(tables.passes_json())
    else:
        show(tables.passes_page())


@click.command("ops")
@click.argument("opcode", nargs=-1)
@click.option("--types", is_flag=True, help="Also by element type; implied by OPCODE.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def ops_command(opcode: tuple[str, ...], types: bool, as_json: bool) -> None:
    """Show which faces each opcode of the op table has: shape inference, NumPy meaning, index map, CUDA, ...

    With --types, or for named opcodes: for which element types each face exists, and the ULP bound of results. A dump
    that needs a missing entry gets a coded reason.
    """
    from hlo_opt.report import tables

    specs = tables.chosen(opcode)
    types = types or bool(opcode)
    if as_json:
        show_json(tables.ops_json(specs, types=types))
    elif types:
        show(tables.types_page(specs))
    else:
        show(tables.ops_page(specs))


@click.command("targets")
@click.argument("name", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="All fields of each device, as JSON.")
def targets_command(name: tuple[str, ...], as_json: bool) -> None:
    """List the devices that costs are estimated for; --target takes such a name or a file: .toml with the same fields,
    or .txtpb as XLA writes its device specs."""
    from hlo_opt.analysis.targets import target, target_names
    from hlo_opt.report.page import Page, Word, size

    devices = [target(n) for n in (name or target_names())]
    if as_json:
        show_json({"schema": 1, "targets": [asdict(d) for d in devices]})
        return
    page = Page()
    rows: list[list[str | Word]] = [[Word(w, "bold") for w in ("target", "device", "", "memory", "L2", "cores")]]
    for device in devices:
        speed = f"{device.memory_bandwidth / 1e9:,.0f} GB/s"
        cells = [device.title, device.architecture, speed, size(device.l2_cache_size), str(device.core_count)]
        rows.append([Word(device.name, "bold"), *cells])
    page.table(rows, right=frozenset({3, 4, 5}))
    show(page)
