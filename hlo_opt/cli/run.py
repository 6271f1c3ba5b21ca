"""`hlo-opt run`: run a module."""

from __future__ import annotations

import click

from hlo_opt.cli import files
from hlo_opt.cli.console import show
from hlo_opt.cli.module import read_module
from hlo_opt.cli.options import backend_option, inputs_option, seed_option


@click.command("run")
@click.argument("file")
@backend_option
@inputs_option
@seed_option
@click.option("--outputs", metavar="OUT.npz", help="Write the outputs as out0, out1, ... instead of printing them.")
def command(file: str, backend: str, inputs: str | None, seed: int, outputs: str | None) -> None:
    """Run FILE as it is (nothing is fused first) and print its outputs, or write them with --outputs.

    Types that NumPy lacks are stored as their raw bits. What ran is told on stderr.
    """
    files.check_writable(outputs)
    module = read_module(file)
    from hlo_opt.cli import arrays
    from hlo_opt.evaluate.inputs import module_inputs
    from hlo_opt.report.runs import outputs_page, run_page
    from hlo_opt.runtime import compile

    executable = compile(module, backend)
    given = module_inputs(module, seed) if inputs is None else arrays.load_inputs(inputs, module)
    results = executable(*given)
    if outputs is None:
        show(outputs_page(results))
    else:
        arrays.save_outputs(outputs, results)
    show(run_page(executable), err=True)
