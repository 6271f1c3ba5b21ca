"""Colours, verbosity and versions: the options before a verb, in force while that verb runs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

COLOURS = ("auto", "always", "never")
PACKAGES = ("numpy", "ml_dtypes", "lark", "click", "rich", "jax", "jaxlib", "cupy-cuda12x", "cupy-cuda13x")
"""Packages whose versions change what the program does, or whether it can."""


@dataclass
class Habits:
    """What was asked for.

    colour  `auto`: on a terminal, unless NO_COLOR is set or the terminal is a dumb one; `always`, `never`
    quiet   nothing but results and errors: no summaries on stderr, no progress
    loud    whether time and memory are shown at the end
    """

    colour: str = "auto"
    quiet: bool = False
    loud: bool = False


ASKED = Habits()
"""The habits of the command that runs now."""


@contextmanager
def asked(colour: str, quiet: bool, loud: bool) -> Iterator[None]:
    """Put the options in force while a verb runs. With `loud`, show time and memory at its end."""
    before = (ASKED.colour, ASKED.quiet, ASKED.loud)
    ASKED.colour, ASKED.quiet, ASKED.loud = colour, quiet, loud
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        yield
    finally:
        ASKED.colour, ASKED.quiet, ASKED.loud = before
        if loud:
            took = f"{time.perf_counter() - wall:.1f} s, {time.process_time() - cpu:.1f} s of processor"
            print(f"hlo-opt: {took}{_most_memory()}", file=sys.stderr)


def _most_memory() -> str:
    """The peak memory of the process; empty on systems that do not report it."""
    try:
        import resource
    except ImportError:
        return ""
    unit = 1 if sys.platform == "darwin" else 1024
    return f", at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6:,.0f} MB"


def wants_colour(stream: IO[str]) -> bool:
    """Whether a stream gets colours: see `Habits.colour`."""
    if ASKED.colour != "auto":
        return ASKED.colour == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def versions() -> str:
    """The versions of Python and of the packages that matter, a line each; missing packages are named."""
    import platform
    from importlib import metadata

    lines, missing = [f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"], []
    for name in PACKAGES:
        try:
            lines.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    return "\n".join([*lines, *([f"not installed: {', '.join(missing)}"] if missing else [])])
