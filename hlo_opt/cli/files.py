"""Reading inputs, modules among them, and writing outputs: files, which are written whole or not at all, and pages,
coloured on a terminal that wants colours."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING

from hlo_opt.cli.habits import ASKED, wants_colour
from hlo_opt.cli.progress import stop_waiting
from hlo_opt.diag import ParseError, Source, UsageError
from hlo_opt.diag.errors import nearest, printable

if TYPE_CHECKING:
    from hlo_opt.forms.kinds import Form
    from hlo_opt.ir import Module
    from hlo_opt.ir.values import Array
    from hlo_opt.report.page import Page


STANDARD = "-"
STDOUT = "stdout"
"""What errors of writing to stdout name as the file."""
SEPARATOR = "\n// -----\n\n"
"""Between the modules of one file."""
MIN_COLUMNS = 40
"""The least width, also on a terminal that is narrower."""
TEXTS_READ: list[tuple[str, str]] = []
"""Name and text of every module that this process has read, for a reproducer."""


RECORDED: dict[str, list[list[Array]]] = {}
"""By the name of each snapshot that this process has read, the arrays that it holds for each device."""


def read_text(name: str) -> Source:
    """The HLO text of a file, or of stdin for `-`, whatever form the module has there; of a folder, that of the module
    that `folders.chosen` takes.

    Raises UsageError (with the path) for what cannot be opened or converted, and ParseError for what is no text:
    binary, not UTF-8.
    """
    data, shown = read_bytes(name)
    from hlo_opt.forms.kinds import Form
    from hlo_opt.jax.conversion import hlo_text, unpacked

    data, form = unpacked(data, shown)
    text = hlo_text(data, form, shown)
    source = Source(text, shown)
    TEXTS_READ.append((name, text))
    if form in (Form.SNAPSHOT, Form.PARTITIONS):
        RECORDED[name] = recorded(data, form, shown)
    return source


def recorded(data: bytes, form: Form, shown: str) -> list[list[Array]]:
    """The arrays that a snapshot holds for each device. Raises UsageError (HLO305) for a damaged one."""
    from hlo_opt.forms.snapshot import recorded_inputs
    from hlo_opt.jax.conversion import DAMAGED

    try:
        return recorded_inputs(data, form)
    except ValueError as fault:
        raise UsageError(f"a damaged snapshot: {fault}", code=DAMAGED, filename=shown) from None


def read_bytes(name: str) -> tuple[bytes, str]:
    """What a file holds, or stdin for `-`, and its name as messages have it. Raises UsageError, with the path, for what
    cannot be opened."""
    if name == STANDARD:
        if sys.stdin is None:
            raise UsageError("is closed", filename="<stdin>")
        return sys.stdin.buffer.read(), "<stdin>"
    if not name:
        raise UsageError("the name of the file is empty")
    path = name
    try:
        if Path(name).is_dir():
            from hlo_opt.cli.folders import chosen

            path = str(chosen(Path(name)))
        return Path(path).read_bytes(), path
    except (OSError, ValueError) as error:
        raise UsageError(_why(error), filename=path, hint=_near_file(path, error)) from None


MOST_NAMES, LIKENESS = 10_000, 0.8
"""Files of a folder that are looked at for the one that is meant, and how alike names must be: names of files have
endings in common."""


def _near_file(name: str, error: OSError | ValueError) -> str | None:
    """The hint for a misspelt file: the one beside it whose name is most like it."""
    if not isinstance(error, FileNotFoundError):
        return None
    folder, base = os.path.split(name)
    try:
        with os.scandir(folder or ".") as entries:
            close = nearest(base, [e.name for e in islice(entries, MOST_NAMES)], likeness=LIKENESS)
    except OSError:
        return None
    return None if close is None else f"did you mean {printable(os.path.join(folder, close))}?"


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, IsADirectoryError):
        return "is a folder, not a file"
    return (error.strerror or str(error)) if isinstance(error, OSError) else "not a file name"


def check_folder(name: str | None) -> None:
    """Raises UsageError for a folder to read from that does not exist; None is no folder."""
    if name is not None and not Path(name).is_dir():
        raise UsageError("no such folder", filename=name)


def check_writable(name: str | None) -> None:
    """Fail before any work is done when an output could never be written. Raises UsageError."""
    if name is None or name == STANDARD:
        return
    path = Path(name)
    if path.is_dir():
        raise UsageError("cannot write: is a folder", filename=name)
    parent = path.resolve().parent
    if not parent.is_dir():
        raise UsageError(f"cannot write: there is no folder {parent}", filename=name)
    special = path.exists() and not path.is_file()
    if not os.access(path if special else parent, os.W_OK) or (path.is_file() and not os.access(path, os.W_OK)):
        raise UsageError("cannot write: permission denied", filename=name)


def check_no_terminal(name: str) -> None:
    """Raises UsageError for a page of HTML that would go to a terminal."""
    if name == STANDARD and sys.stdout.isatty():
        raise UsageError("a page of HTML is for a browser, not for a terminal", hint="-o out.html")


@contextlib.contextmanager
def _to_stdout() -> Iterator[None]:
    """Name stdout in the errors of what is written to it."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, STDOUT) from None


@contextlib.contextmanager
def whole_file(name: str) -> Iterator[IO[bytes]]:
    """A file to write that takes its name when it is complete; what was there before stays until then. `-` is stdout.

    Raises UsageError, with the path, for what cannot be written, BrokenPipeError when a reader went away.
    """
    if name == STANDARD:
        with _to_stdout():
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        return
    try:
        with _replacing(name) as stream:
            yield stream
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(f"cannot write: {error.strerror or error}", filename=name) from None


@contextlib.contextmanager
def _replacing(name: str) -> Iterator[IO[bytes]]:
    path = Path(name).resolve()
    if path.exists() and not path.is_file():  # a pipe or a device: nothing to replace
        with path.open("wb") as stream:
            yield stream
        return
    partial = path.with_name(f".{path.name[:200]}.{os.urandom(6).hex()}.partial")
    try:
        with partial.open("xb") as stream:
            yield stream
            stream.flush()
        if path.exists():
            partial.chmod(stat.S_IMODE(path.stat().st_mode))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_text(name: str, text: str) -> None:
    """Write a text whole or not at all, in UTF-8; `-` is stdout."""
    stop_waiting()
    sys.stdout.flush()
    with whole_file(name) as stream:
        stream.write(text.encode("utf-8"))


def write_said(name: str, text: str) -> None:
    """Write as `write_text` does, for a verb that says nothing else on stderr: of a file, say that it was written."""
    write_text(name, text)
    say_written(name)


def say_written(name: str) -> None:
    """Say on stderr that a file was written, unless it is stdout or `-q` was asked for."""
    if name != STANDARD and not ASKED.quiet:
        print(f"hlo-opt: wrote {printable(name)}", file=sys.stderr)


def write_module(name: str, text: str) -> None:
    """Write HLO text as `write_text` does. On a terminal it is coloured, and control characters in its strings are
    escaped."""
    write_text(name, _as_shown(name, text))


def _as_shown(name: str, text: str) -> str:
    if name != STANDARD or not (sys.stdout.isatty() or ASKED.colour == "always"):
        return text
    text = "\n".join(map(printable, text.split("\n")))
    if not wants_colour(sys.stdout):
        return text
    from pygments import highlight
    from pygments.formatters import TerminalFormatter

    from hlo_opt.text.lexer import HloLexer

    return highlight(text, HloLexer(), TerminalFormatter())


class _NotWrittenError(Exception):
    """Why the module that belongs to a file could not be written: no fault of that file."""

    def __init__(self, error: OSError | UsageError) -> None:
        self.error = error


def write_module_with(name: str, text: str, beside: str, data: bytes) -> None:
    """Write HLO text as `write_module` does, and a file that belongs to it: both or none. Raises as `whole_file`
    does."""
    try:
        with whole_file(beside) as stream:
            stream.write(data)
            stream.flush()
            try:
                write_module(name, text)
            except (OSError, UsageError) as error:
                raise _NotWrittenError(error) from None
    except _NotWrittenError as failed:
        raise failed.error from None


def read_module(name: str, *, max_errors: int = 1, allow_unknown: bool = False) -> Module:
    """The verified module of a file, or of stdin for `-`. Raises as `read_modules` does."""
    return read_modules(name, max_errors=max_errors, allow_unknown=allow_unknown)[0]


def read_modules(name: str, *, split: bool = False, max_errors: int = 1, allow_unknown: bool = False) -> list[Module]:
    """The verified module of a file, or of stdin for `-`; with `split` all those that `// -----` lines divide.

    Raises ParseError or VerifyError (the first `max_errors` of them in one) with line and column, UsageError with the
    path for what cannot be opened.
    """
    from hlo_opt.text import parse, parse_file_parts, verify

    source: Source | None = None
    try:
        source = read_text(name)
        if split:
            modules = parse_file_parts(source.text, filename=source.filename, max_errors=max_errors)
        else:
            modules = [parse(source.text, filename=source.filename, max_errors=max_errors)]
    except ParseError as error:
        from hlo_opt.cli.mistaken import explained

        raise explained(error, name, "" if source is None else source.text, split=split) from None
    for module in modules:
        verify(module, allow_unknown, max_errors)
    return modules


def show_json(value: object) -> None:
    """Print a value as JSON on stdout."""
    import json

    import click

    stop_waiting()
    with _to_stdout():
        click.echo(json.dumps(value, indent=2))


def columns(stream: IO[str] | None = None) -> int:
    """How many columns a stream (None: stdout) shows; no terminal has no limit."""
    stream = sys.stdout if stream is None else stream
    return max(MIN_COLUMNS, shutil.get_terminal_size().columns) if stream.isatty() else sys.maxsize


def show(page: Page, *, err: bool = False) -> None:
    """Print a page on stdout, or on stderr, where `-q` leaves it out. On a terminal its lines are wrapped to the
    width."""
    if err and ASKED.quiet:
        return
    stop_waiting()
    stream = sys.stderr if err else sys.stdout
    if stream.isatty():
        page = page.wrapped(columns(stream))
    if not wants_colour(stream):
        encoding = stream.encoding or "utf-8"
        with contextlib.nullcontext() if err else _to_stdout():
            stream.write(str(page).encode(encoding, "backslashreplace").decode(encoding))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False, soft_wrap=True, force_terminal=True)
    for line in page.lines:
        console.print(Text.assemble(*((w.text, w.style) for w in line)))
