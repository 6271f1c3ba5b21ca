"""The verbs that show what there is: a module as text or in numbers, the passes, the op table, the devices."""

from __future__ import annotations

from dataclasses import asdict

import click

from hlo_opt.cli import files
from hlo_opt.cli.files import read_module, read_modules, show, show_json
from hlo_opt.cli.options import (
    dynamic_option,
    file_argument,
    json_option,
    offered_passes,
    offered_targets,
    read_options,
    split_option,
    target_option,
    trip_count_option,
)
from hlo_opt.diag import UsageError


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
@json_option
@click.option(
    "--hash",
    "only_hash",
    is_flag=True,
    help="Print only a hash of FILE that names, metadata, ids and order do not change.",
)
@dynamic_option
@read_options
def stats_command(
    file: str,
    target: str,
    trip_count: tuple[str, ...],
    as_json: bool,
    only_hash: bool,
    dynamic: tuple[str, ...],
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
    from hlo_opt.cli.sizes import Sized, size_json, size_page
    from hlo_opt.report import summary

    sized = Sized.wanted(module, dynamic)
    module = module if sized is None else sized.module
    trip_counts = trip_counts_of(trip_count)
    check_trip_counts(module, trip_counts)
    statistics = summary.stats(module, device, trip_counts)
    if as_json:
        sizes = {} if sized is None else {"dynamic": size_json(sized)}
        show_json(summary.as_json(statistics) | sizes)
    else:
        if sized is not None:
            show(size_page(sized))
        show(summary.as_page(statistics))


@click.command("passes")
@click.argument("name", nargs=-1, shell_complete=offered_passes)
@click.option(
    "--rules", is_flag=True, help="List the rules of the simplifier instead: what each writes, and why it is exact."
)
@json_option
def passes_command(name: tuple[str, ...], rules: bool, as_json: bool) -> None:
    """List the passes with their options and defaults, and the presets as --passes would spell them; or the passes
    NAME, with their whole description."""
    from hlo_opt.report import tables

    if rules:
        if name:
            raise UsageError("--rules lists all rules, and takes no names of passes")
        from hlo_opt.report import simplified

        if as_json:
            show_json(simplified.rules_json())
        else:
            show(simplified.rules_page())
    elif as_json:
        show_json(tables.passes_json(name))
    elif name:
        show(tables.some_passes_page(name))
    else:
        show(tables.passes_page())


@click.command("ops")
@click.argument("opcode", nargs=-1, metavar="[OPCODE|TARGET]...")
@click.option("--types", is_flag=True, help="Also by element type; implied by OPCODE.")
@click.option("--calls", is_flag=True, help="The custom calls that are known, by their targets, instead of opcodes.")
@json_option
def ops_command(opcode: tuple[str, ...], types: bool, calls: bool, as_json: bool) -> None:
    """Show what is implemented for each opcode: shape inference (infer), the meaning in NumPy (evaluate), the element
    of an operand that an element reads (index), CUDA text (cuda), an expansion into other operations (expand), and
    more. A fusion that needs what is missing is refused, with a code that names it.

    With --types, or for named opcodes: the same for each element type, and how far results may be from the exact ones,
    in ULP. With the TARGET of a custom call: the same for that call.
    """
    from hlo_opt.ops.custom_calls.targets import custom_calls
    from hlo_opt.report import tables

    if calls and opcode:
        raise UsageError("--calls lists all custom calls; a target by itself shows that one")
    targets = custom_calls() if calls else tables.chosen_calls(opcode)
    others = [name for name in opcode if name not in {spec.target for spec in targets}]
    specs = tables.chosen(others) if others or not targets else []
    types = types or bool(opcode)
    if as_json:
        show_json(tables.ops_json(specs, targets, types=types))
        return
    if targets:
        show(tables.calls_page(targets))
    if not specs:
        return
    if types:
        show(tables.types_page(specs))
    else:
        show(tables.ops_page(specs))


@click.command("targets")
@click.argument("name", nargs=-1, shell_complete=offered_targets)
@json_option
def targets_command(name: tuple[str, ...], as_json: bool) -> None:
    """List the devices that costs are estimated for; --target takes such a name or a file: .toml with the same fields,
    or .txtpb as XLA writes its device specs. As JSON, all fields of each."""
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
