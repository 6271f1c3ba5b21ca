"""The click group: knows the verbs and what each is for, loads a verb's file when it is called, and turns every failure
into an exit status."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import click

from hlo_opt import __version__, imported
from hlo_opt.cli import failure, files
from hlo_opt.cli.failure import INTERRUPTED, interruptible
from hlo_opt.cli.habits import COLOURS, asked, versions
from hlo_opt.cli.progress import waiting
from hlo_opt.cli.refused import NoVerbError, coded
from hlo_opt.diag.errors import HloOptError, UsageError

NARROW = 60
"""Columns below which an option's help stands under the option, not beside it."""


class Formatter(click.HelpFormatter):
    """Help that fits terminals narrower than the 50 columns that click asks for."""

    def __init__(self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None) -> None:
        there = shutil.get_terminal_size().columns - 2
        super().__init__(indent_increment, max(there, 20) if width is None and there < 50 else width, max_width)

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl(list(rows), 6 if self.width < NARROW else col_max, col_spacing)


class Context(click.Context):
    formatter_class = Formatter


VERBS = {
    "fuse": "Fuse a module and print it.",
    "simplify": "Simplify a module by rules and print it.",
    "explain": "Say why edges were not fused, or what a code such as FUS201 means.",
    "run": "Run a module on a backend.",
    "check": "Run two modules on the same inputs and compare.",
    "bench": "Time a module against its fused form and against a plain copy.",
    "diff": "Say what changed between two dumps, and what it costs.",
    "view": "Draw a module before and after fusing, on a page of HTML.",
    "lint": "Name Python lines that cost time or memory, and what to write instead.",
    "memory": "Say what holds the memory at the peak, and what would lower it.",
    "print": "Parse, verify and print canonical text.",
    "tune": "Search for the passes, options and edges that take least time.",
    "stats": "Count kernels, launches, bytes and opcodes.",
    "bisect": "Find the step, pass or dump after which results or a figure change.",
    "reduce": "Make a module as small as it can be while it still shows something.",
    "isolate": "Take one fusion, loop or computation out as a module that runs.",
    "convert": "Write a module in another form: HLO text, protobuf or StableHLO.",
    "build": "Build a shared library, a module for JAX and the CUDA texts.",
    "test": "Run golden and FileCheck files.",
    "passes": "List passes, their options and the presets.",
    "ops": "Show what the op table covers.",
    "targets": "List the devices that costs are estimated for.",
    "calibrate": "Measure a GPU, for prices that fit it.",
    "help": "Show the page of a topic, a verb or a code.",
}


_FILES = {
    **dict.fromkeys(("fuse", "explain"), "deciding"),
    **dict.fromkeys(("run", "check", "bench"), "running"),
    **dict.fromkeys(("print", "stats", "passes", "ops", "targets"), "showing"),
}
"""Where verbs are that have no file of their own."""


def _command(verb: str) -> click.Command:
    command: click.Command = getattr(imported(f"hlo_opt.cli.{_FILES.get(verb, verb)}"), f"{verb}_command")
    command.context_class = Context
    return command


def _list_passes(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        context.exit(context.invoke(_command("passes")))


def _versions(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        click.echo(f"hlo-opt {__version__}\n{versions()}")
        context.exit()


READER_GONE = 141
SLOW = frozenset({"fuse", "explain", "check", "diff", "view", "lint", "memory"})
"""Verbs that may take seconds before they print anything. Those that measure times are left alone."""


class InterruptError(Exception):
    """Ctrl-C. Raised instead of KeyboardInterrupt, for which click prints an empty line."""


class ReaderGoneError(Exception):
    """Whoever read stdout closed it. Raised instead of BrokenPipeError, which click would turn into exit status 1."""


class Verbs(click.Group):
    """A group whose commands are imported from files of `hlo_opt.cli` on first use, each under the name
    `VERB_command`."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderGoneError from error
        except KeyboardInterrupt as stop:
            raise InterruptError from stop

    context_class = Context

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _command(cmd_name) if cmd_name in VERBS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            raise NoVerbError(args[0], ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(
    cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}, no_args_is_help=True
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_versions,
    help="Show the versions of the program and of what it uses, and exit.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print results and errors only: no summaries, no progress.")
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Show time and peak memory at the end. After the verbs explain and test, -v is another option.",
)
@click.option(
    "--color",
    type=click.Choice(COLOURS),
    default="auto",
    show_default=True,
    help="Colours: on a terminal only, always, or never.",
)
@click.pass_context
@click.option(
    "--list-passes",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_passes,
    help="List passes and presets, and exit.",
)
def group(context: click.Context, quiet: bool, verbose: bool, color: str) -> None:
    """Read a dump of HLO, fuse it, say why each edge was not fused, and write and run the kernels.

    A FILE may be HLO text, one of XLA's protobufs, StableHLO or a folder of dumps (hlo-opt help forms); - is stdin.
    Results go to stdout, everything else to stderr. Options of this page come before the verb. hlo-opt help questions
    says which verb answers what.
    """
    context.with_resource(asked(color, quiet, verbose))
    if context.invoked_subcommand in SLOW:
        context.with_resource(waiting(context.invoked_subcommand))


def _interrupted() -> None:
    failure.say("interrupted")


@contextlib.contextmanager
def _whole_writes() -> Iterator[None]:
    """Put a buffer before a stdout that has none (`PYTHONUNBUFFERED`, `python -u`): the file below may take a part of
    what it is given, and the rest would be lost without a word. Lines still go out one by one."""
    plain = sys.stdout
    raw = getattr(plain, "buffer", None)
    if not isinstance(raw, io.RawIOBase):
        yield
        return
    buffered = io.TextIOWrapper(io.BufferedWriter(raw), plain.encoding, plain.errors, line_buffering=True)
    sys.stdout = buffered
    try:
        yield
    finally:
        sys.stdout = plain
        with contextlib.suppress(OSError):  # reported already
            buffered.detach().detach()  # and leave what is below open


def run(arguments: list[str]) -> int:
    """Run a command line; returns the exit status. Every failure has been reported on stderr by then, in one
    message."""
    if sys.stderr is None:
        return 2
    if sys.stdout is None:
        return failure.report_error(UsageError("is closed", filename=files.STDOUT))
    with _whole_writes():
        status = _status(arguments)
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            status = READER_GONE
        except OSError as error:
            status = 2 if status == 2 else _say_unwritten(error)
        else:
            return status
        # What could not be written is written once more when the interpreter ends; give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return status


def _say_unwritten(error: OSError) -> int:
    return failure.report_error(UsageError(f"cannot write: {error.strerror or error}", filename=files.STDOUT))


def _say_os_error(error: OSError) -> int:
    if error.filename == files.STDOUT:
        return _say_unwritten(error)
    if error.filename:
        return failure.report_error(UsageError(error.strerror or str(error), filename=str(error.filename)))
    try:
        sys.stdout.flush()
    except OSError:
        return _say_unwritten(error)
    failure.say(error.strerror or str(error))
    return 2


def _status(arguments: list[str]) -> int:
    """Run a command line and tell what failed; what is still to be written to stdout may fail later."""
    try:
        with interruptible(_interrupted):
            status: Any = group.main(arguments, prog_name="hlo-opt", standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        return failure.report_error(coded(error, list(VERBS), arguments))
    except HloOptError as error:
        return failure.report_error(error)
    except (click.Abort, InterruptError, KeyboardInterrupt):
        _interrupted()
        return INTERRUPTED
    except (BrokenPipeError, ReaderGoneError):
        return READER_GONE
    except MemoryError:
        failure.say("out of memory")
        return 2
    except OSError as error:
        return _say_os_error(error)
    except Exception as error:
        return failure.internal(error, arguments)
    return status if isinstance(status, int) else 0
