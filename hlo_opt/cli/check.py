"""`hlo-opt check`: two modules on the same inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hlo_opt.cli import completion
from hlo_opt.cli.console import show
from hlo_opt.cli.module import read_module
from hlo_opt.cli.options import (
    backend_option,
    elided_option,
    fuse_options,
    inputs_option,
    memory_option,
    sanitize_option,
    seed_option,
)

if TYPE_CHECKING:
    from hlo_opt.ir import Module
    from hlo_opt.runtime.check.compare import CheckReport


@click.command("check")
@click.argument("file", shell_complete=completion.file)
@click.argument("other", shell_complete=completion.file, required=False)
@fuse_options
@backend_option
@inputs_option
@seed_option
@memory_option
@sanitize_option
@elided_option
@click.option("--strict", is_flag=True, help="Exit with 1, too, where agreement says little: the outputs called weak.")
def command(
    file: str,
    other: str | None,
    backend: str,
    inputs: str | None,
    seed: int,
    memory_limit: int | None,
    sanitize: bool,
    elided: str | None,
    strict: bool,
    **fusing: object,
) -> int:
    """Run FILE (the reference, in NumPy) and OTHER (on the backend) on the same inputs and compare; without OTHER, what fusing FILE gives.

    Outputs may differ by as much as rounding explains; each element has a bound of its own. Exit status 1 when one differs more. An output is called weak where agreement says
    little: its bound is above 5% of its value, or it is constant, NaN, or does not depend on the inputs.
    """
    from hlo_opt.cli.fusing import Fusing

    module = read_module(file)
    second = Fusing.of(fusing).run(module).outcome.module if other is None else read_module(other)
    from hlo_opt.report.runs import check_page

    result = compared(
        module,
        second,
        inputs,
        backend=backend,
        seed=seed,
        memory_limit=memory_limit,
        sanitize=sanitize,
        elided=elided,
    )
    show(check_page(result))
    return 0 if result.ok and not (strict and result.weak) else 1


def compared(module: Module, second: Module, inputs: str | None, **how: Any) -> CheckReport:
    """Run both on the inputs in a file, else on drawn ones; `how` and what is raised are those of `runtime.check.compare.check`, and of `load_for_check`."""
    from hlo_opt.cli.arrays import load_for_check
    from hlo_opt.runtime.check.compare import check, on_named_devices

    given = None
    if inputs is not None:
        module, second = on_named_devices(module, second)
        given = load_for_check(inputs, module)
    return check(module, second, inputs=given, **how)
