"""`hlo-opt check`: two modules on the same inputs."""

from __future__ import annotations

from typing import Any

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
def command(file: str, other: str | None, strict: bool, **options: Any) -> int:
    """Run FILE (the reference, in NumPy) and OTHER (on the backend) on the same inputs and compare; without OTHER, what fusing FILE gives.

    Outputs may differ by as much as rounding explains; each element has a bound of its own. Exit status 1 when one differs more. An output is called weak where agreement says
    little: its bound is above 5% of its value, or it is constant, NaN, or does not depend on the inputs.
    """
    from hlo_opt.cli.fusing import Fusing
    from hlo_opt.cli.running import Running

    module = read_module(file)
    second = Fusing.of(options).run(module).outcome.module if other is None else read_module(other)
    from hlo_opt.report.runs import check_page

    result = Running.of(options).compare(module, second)
    show(check_page(result))
    return 0 if result.ok and not (strict and result.weak) else 1
