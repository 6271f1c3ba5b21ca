"""The verb `isolate`: a part of a module as a module that runs."""

from __future__ import annotations

import os

import click

from hlo_opt.cli import files
from hlo_opt.cli.files import read_module
from hlo_opt.cli.options import (
    Whole,
    elided_option,
    file_argument,
    inputs_option,
    memory_option,
    offered_instructions,
    seed_option,
)
from hlo_opt.diag import UsageError


@click.command("isolate")
@file_argument
@click.argument("name", shell_complete=offered_instructions)
@click.option("-o", "output", metavar="OUT", default=files.STANDARD, help="Write to OUT instead of stdout.")
@click.option("--recorded", metavar="OUT.npz", help="Run FILE, and write the operands that NAME had: in0, in1, ...")
@inputs_option
@seed_option
@click.option(
    "--call",
    metavar="N",
    type=Whole(min=1),
    default=1,
    show_default=True,
    help="With --recorded: the operands of the N-th time that NAME ran.",
)
@elided_option
@memory_option
def isolate_command(
    file: str,
    name: str,
    output: str,
    recorded: str | None,
    inputs: str | None,
    seed: int,
    call: int,
    elided: str | None,
    memory_limit: int | None,
) -> None:
    """Take NAME, an instruction (a fusion, a loop, any other) or a computation, out of FILE as a module of its own,
    which can be run.

    Its operands become the parameters of the entry, in order; constants are copied. With --recorded, FILE runs in
    NumPy, on --inputs or on drawn inputs, and the operands that NAME had are written: `hlo-opt run OUT --inputs
    OUT.npz` repeats that computation.
    """
    from hlo_opt.cutting.isolate import inputs_of, isolated

    files.check_writable(output)
    files.check_writable(recorded)
    if recorded is not None and os.path.realpath(recorded) == os.path.realpath(output):
        raise UsageError("-o and --recorded need different places", filename=recorded)
    module = read_module(file)
    part = isolated(module, name)
    if recorded is None:
        files.write_module(output, str(part.module))
    else:
        from hlo_opt.cli.arrays import as_npz
        from hlo_opt.cli.running import Running
        from hlo_opt.evaluate.elided import with_values

        how = Running("numpy", inputs, seed, memory_limit, elided, file=file)
        whole = with_values(module, elided)
        how.devices(whole)
        part = isolated(whole, name)
        arrays = inputs_of(whole, name, part, how.inputs_of_each(whole), call)
        several = len(arrays) > 1
        named = {f"in{n}" + f".d{d}" * several: array for d, own in enumerate(arrays) for n, array in enumerate(own)}
        files.write_module_with(output, str(part.module), recorded, as_npz(named))
