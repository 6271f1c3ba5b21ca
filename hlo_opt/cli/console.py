"""Pages on a stream: coloured on a terminal that wants colours, plain everywhere else."""

from __future__ import annotations

import os
import sys
from typing import IO

from hlo_opt.report.page import Page


def wants_colour(stream: IO[str]) -> bool:
    """True on a terminal, unless NO_COLOR is set or the terminal is a dumb one."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def show_json(value: object) -> None:
    """Print a value as JSON on stdout."""
    import json

    import click

    click.echo(json.dumps(value, indent=2))


def show(page: Page, *, err: bool = False) -> None:
    """Print a page on stdout, or on stderr."""
    stream = sys.stderr if err else sys.stdout
    if not wants_colour(stream):
        encoding = stream.encoding or "utf-8"
        stream.write(str(page).encode(encoding, "backslashreplace").decode(encoding))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False, soft_wrap=True)
    for line in page.lines:
        console.print(Text.assemble(*((w.text, w.style) for w in line)))
