"""Options that several verbs take, and what the shell offers when a value of one is half typed: names, read when they
are asked for; and files."""

from __future__ import annotations

import importlib
import math
import os
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hlo_opt.analysis.targets import DEFAULT_TARGET
from hlo_opt.diag import UsageError
from hlo_opt.diag.reason import reason_specs

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
OptionValue = str | int | tuple[str, ...] | None
"""The value of an option."""


if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    SizeType = click.ParamType[int]
else:
    SizeType = click.ParamType  # older versions of click do not know what a parameter becomes


def _offering(names: Callable[[], Iterable[str]]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    def complete(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
        return [name for name in names() if name.startswith(typed)]

    return complete


def _listed(module: str, function: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """The names that a function of a module gives; the module is loaded when somebody asks."""
    return _offering(lambda: getattr(importlib.import_module(module), function)())


_presets = _listed("hlo_opt.passes", "preset_names")
offered_targets = _listed("hlo_opt.analysis.targets", "target_names")
offered_passes = _listed("hlo_opt.passes", "pass_names")
_codes = _offering(lambda: (spec.code for spec in reason_specs()))
_simplify = _offering(lambda: ("auto", "always", "never"))
topics_offered = _offering(
    lambda: (
        *importlib.import_module("hlo_opt.cli.help").TOPICS,
        *importlib.import_module("hlo_opt.cli.group").VERBS,
    )
)
forms_offered = _offering(lambda: ("hlo", "pb", "hlo.pb", "mlir", "mlirbc"))
_backends = _offering(lambda: importlib.import_module("hlo_opt.runtime.executable").BACKENDS)


def _rule_names() -> Iterable[str]:
    from hlo_opt.report.lint.base import rule_specs

    return (*rule_specs(), *(spec.slug for spec in rule_specs().values()))


offered_rules = _offering(_rule_names)


def offered_files(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Let the shell offer files."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(typed, type="file")]


_DEFINED = re.compile(r"^[ \t]*(?:ROOT )?%?([A-Za-z_][\w.-]*) = ", re.MULTILINE)
MOST_READ = 20_000_000
"""Characters of a file that are looked through for names while somebody types."""


def offered_instructions(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    """Let the shell offer the names of the instructions of the FILE that stands before."""
    try:
        with open(str(context.params.get("file")), encoding="utf-8", errors="replace") as stream:
            text = stream.read(MOST_READ)
    except (OSError, ValueError):
        return []
    return sorted({name for name in _DEFINED.findall(text) if name.startswith(typed)})


file_argument = click.argument("file", shell_complete=offered_files)


def _together(*options: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """Several options as one decorator, in the order of the help."""

    def decorate(function: Decorated) -> Decorated:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


_JSON = "hlo_opt.json"
"""Where the context of a verb notes that JSON is wanted, for verbs know it under two spellings."""


def _note_json(context: click.Context, option: click.Parameter, value: bool | str | None) -> None:
    if value in (True, "json"):
        context.meta[_JSON] = True


def _as_json(context: click.Context, option: click.Parameter, value: bool) -> bool:
    return value or context.meta.get(_JSON, False)


def _form(context: click.Context, option: click.Parameter, value: str) -> str:
    return "json" if context.meta.get(_JSON, False) else value


json_option = _together(
    click.option("--json", "as_json", is_flag=True, callback=_as_json, help="--format json."),
    click.option(
        "--format",
        "form",
        type=click.Choice(("text", "json")),
        expose_value=False,
        is_eager=True,
        callback=_note_json,
        help="What to print.  [default: text]",
    ),
)
"""JSON instead of text: the argument `as_json`."""


def format_option(*forms: str, default: str = "text", text: str = "What to print.") -> Callable[[Decorated], Decorated]:
    """What is printed, of several forms: the argument `form`. `--json` is JSON here, too."""
    return _together(
        click.option(
            "--format", "form", type=click.Choice(forms), default=default, show_default=True, callback=_form, help=text
        ),
        click.option(
            "--json", is_flag=True, expose_value=False, is_eager=True, callback=_note_json, help="--format json."
        ),
    )


class ByteSize(SizeType):
    """A number of bytes: `12000000`, `12MB` or `12 MiB`."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from hlo_opt.report.page import parse_size

        if isinstance(value, int):
            return value
        try:
            return parse_size(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Whole(click.IntRange):
    """A whole number from `min` on, up to `max` where there is one."""

    def convert(self, value: int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            limits = f"from {self.min} on" if self.max is None else f"from {self.min} to {self.max}"
            self.fail(f"{value!r} is not a whole number {limits}", param, ctx)


class Seconds(click.FloatRange):
    """A number of seconds from `min` on, up to `max` where there is one. NaN, which no comparison refuses, is none."""

    def convert(self, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(super().convert(value, param, ctx))
        except click.BadParameter:
            seconds = math.nan
        if seconds != seconds:
            least = f"above {self.min}" if self.min_open else f"from {self.min} on"
            limits = least if self.max is None else f"from {self.min} to {self.max}"
            self.fail(f"'{value}' is not a number of seconds {limits}", param, ctx)
        return seconds


def _known_backend(context: click.Context, option: click.Parameter, value: str) -> str:
    """Raises UsageError for a backend that does not exist, also where nothing will run."""
    if value != "auto":  # what knows the others takes long to load
        from hlo_opt.runtime.executable import choose_backend

        choose_backend(value)
    return value


backend_option = click.option(
    "--backend",
    callback=_known_backend,
    shell_complete=_backends,
    metavar="NAME",
    default="auto",
    show_default=True,
    help="numpy, host (the CUDA text built with the C++ compiler), cupy (a GPU), or auto: the best one available.",
)
inputs_option = click.option(
    "--inputs",
    shell_complete=offered_files,
    metavar="IN.npz",
    help="Read the inputs in0, in1, ... from a file, instead of drawing them.",
)
seed_option = click.option(
    "--seed", metavar="N", type=Whole(min=0), default=0, show_default=True, help="Seed of drawn inputs."
)


def _zeros_or_file(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Raises UsageError for a file that does not exist, also where no constant needs it."""
    if value not in (None, "zeros", "random") and not os.path.exists(value):
        raise UsageError("no such file", filename=value, hint="--elided takes zeros, random or FILE.npz")
    return value


elided_option = click.option(
    "--elided",
    callback=_zeros_or_file,
    metavar="zeros|random|FILE.npz",
    help="Values of constants that the text leaves out ({...}); a file holds them by name.",
)


def _or_share(context: click.Context, option: click.Parameter, value: int | None) -> int | None:
    from hlo_opt.evaluate.memory import default_limit

    return default_limit() if value is None else value


memory_option = click.option(
    "--memory-limit",
    metavar="SIZE",
    type=ByteSize(),
    callback=_or_share,
    help="Refuse to run a module that needs more memory: 4GiB, 500MB.  [default: 80 % of the machine's memory]",
)
sanitize_option = click.option(
    "--sanitize",
    is_flag=True,
    help="Build the kernels with address and undefined-behaviour sanitizers, for the CPU, and look for races in "
    "another run; exit status 1 when a kernel has such a fault.",
)
precise_option = click.option(
    "--precise",
    is_flag=True,
    help="On a GPU, divide and take square roots as IEEE 754 says, not within 2 ULP as XLA does.",
)
jobs_option = click.option(
    "-j", "--jobs", metavar="N", type=Whole(min=1), help="Try N modules at once.  [default: one per processor]"
)
scheduler_option = click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Work on the machines of this Dask scheduler (tcp://HOST:PORT) instead. Needs the extra `fleet`.",
)
split_option = click.option(
    "--split-input-file", "split", is_flag=True, help="FILE holds several modules, divided by `// -----` lines."
)
target_option = click.option(
    "--target",
    shell_complete=offered_targets,
    metavar="NAME|FILE",
    default=DEFAULT_TARGET,
    show_default=True,
    help="Estimate for this device; hlo-opt targets lists them.",
)
trip_count_option = click.option(
    "--trip-count",
    metavar="NAME=N",
    multiple=True,
    help="Assume that loop NAME, whose trip count is unknown, runs N iterations; may be repeated.",
)
dynamic_option = click.option(
    "--dynamic",
    metavar="pN:D[=[A]..B][@P]|like=FILE",
    multiple=True,
    help="Dimension D of parameter N has A to B elements [default: up to as many as FILE says]: kernels take the size "
    "as an argument; prices are for size P. May be repeated for other dimensions of that size; like=FILE is a dump at "
    "another size, which must agree.",
)
run_options = _together(backend_option, inputs_option, seed_option, memory_option, elided_option, precise_option)
"""The options that say how modules are run: see `Running`."""

simplify_option = click.option(
    "--simplify",
    shell_complete=_simplify,
    metavar="WHEN",
    help="Simplify first: always, never, or auto: a module without fusions and bitcasts.  [default: auto]",
)
fuse_options = _together(
    click.option(
        "--preset",
        shell_complete=_presets,
        metavar="NAME",
        help="Run this list of passes; hlo-opt passes shows them.  [default: default]",
    ),
    click.option(
        "--passes",
        shell_complete=offered_passes,
        metavar="SPEC",
        help="Run these passes: 'instruction-fusion{may-duplicate=false},dce'.",
    ),
    click.option(
        "--config",
        shell_complete=offered_files,
        metavar="FILE.toml",
        help="Read these options from a file; the command line overrides it.",
    ),
    click.option(
        "--target",
        shell_complete=offered_targets,
        metavar="NAME|FILE",
        help="Estimate for this device; hlo-opt targets lists them.  [default: h100_sxm]",
    ),
    simplify_option,
    click.option(
        "--effort",
        metavar="N",
        type=Whole(min=0, max=2),
        help="How many of a preset's alternatives to try: one (0), all for small modules (1), all (2).  [default: 1]",
    ),
    click.option("--stop-after-step", metavar="N", type=Whole(min=0), help="Stop after N rewrites, to bisect."),
    click.option(
        "--choices",
        metavar="NAME",
        multiple=True,
        help="Also ask this rule of an installed plugin, which may refuse edges; may be repeated.",
    ),
    trip_count_option,
)
"""The options that say how a module is fused."""

rule_options = _together(
    click.option(
        "--what-if",
        shell_complete=_codes,
        metavar="CODE",
        multiple=True,
        help="Decide as if this refusal did not exist; may be repeated.",
    ),
    click.option(
        "--force",
        metavar="PRODUCER:CONSUMER",
        multiple=True,
        help="Fuse these two kernels of the result and change nothing else; may be repeated.",
    ),
    click.option(
        "--forbid",
        metavar="PRODUCER:CONSUMER",
        multiple=True,
        help="Keep these two in separate kernels, and decide everything else around that; may be repeated.",
    ),
)
"""The options that change what may fuse: the arguments `what_if`, `force` and `forbid`."""

budget_options = _together(
    click.option(
        "--max-kernels",
        metavar="N",
        type=Whole(min=0),
        help="Exit with 1 when the fused module has more kernels.",
    ),
    click.option(
        "--max-bytes",
        metavar="SIZE",
        type=ByteSize(),
        help="Exit with 1 when the fused module's kernels read and write more: 12MB, 1.5 GiB.",
    ),
    click.option(
        "--fail-on",
        shell_complete=_codes,
        metavar="CODE",
        multiple=True,
        help="Exit with 1 when an edge is refused under this code; may be repeated.",
    ),
)
"""The options that say how much a fused module may cost: the arguments `max_kernels`, `max_bytes` and `fail_on`."""


read_options = _together(
    click.option(
        "--max-errors",
        metavar="N",
        type=Whole(min=1),
        default=1,
        show_default=True,
        help="Show up to N syntax errors, at most one in each computation.",
    ),
    click.option("--allow-unknown", is_flag=True, help="Keep opcodes and attributes that hlo-opt does not know."),
)
"""The options that say how a text is read: the arguments `max_errors` and `allow_unknown`."""
