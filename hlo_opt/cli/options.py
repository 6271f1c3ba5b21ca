"""Options that several verbs take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])

backend_option = click.option(
    "--backend",
    metavar="NAME",
    default="auto",
    show_default=True,
    help="numpy, host (the CUDA text built with the C++ compiler), cupy (a GPU), or auto: the best that there is.",
)
inputs_option = click.option("--inputs", metavar="IN.npz", help="Inputs as in0, in1, ...; without it they are drawn.")
seed_option = click.option(
    "--seed", metavar="N", type=click.IntRange(min=0), default=0, show_default=True, help="Draw the inputs with it."
)
target_option = click.option(
    "--target",
    metavar="NAME|FILE.toml",
    default="h100_sxm",
    show_default=True,
    help="The device whose costs count; hlo-opt targets lists them.",
)

_FUSING = (
    click.option(
        "--preset", metavar="NAME", help="The passes to run, by the name of a list of them.  [default: default]"
    ),
    click.option("--passes", metavar="SPEC", help="The passes to run: 'instruction-fusion{may-duplicate=false},dce'."),
    click.option("--config", metavar="FILE.toml", help="Read these options from a file; those typed win."),
    click.option("--target", metavar="NAME|FILE.toml", help="The device whose costs count.  [default: h100_sxm]"),
    click.option("--simplify", metavar="WHEN", help="Simplify first: auto, always or never.  [default: auto]"),
    click.option(
        "--stop-after-step", metavar="N", type=click.IntRange(min=0), help="Stop after N rewrites, to bisect."
    ),
)


_READING = (
    click.option(
        "--max-errors",
        metavar="N",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Go on at the next computation after a syntax error, and show up to N.",
    ),
    click.option(
        "--allow-unknown", is_flag=True, help="Take opcodes and attributes that hlo-opt does not know as they are."
    ),
)


def read_options(function: Function) -> Function:
    """The options that say how a text is read; the arguments `max_errors` and `allow_unknown`."""
    for option in reversed(_READING):
        function = option(function)
    return function


def fuse_options(function: Function) -> Function:
    """The options that say how a module is fused."""
    for option in reversed(_FUSING):
        function = option(function)
    return function
