"""What a user sees when something fails: one message, never a traceback."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hlo_opt import __version__
from hlo_opt.cli import files
from hlo_opt.diag.errors import CheckError, HloOptError, printable

if TYPE_CHECKING:
    from pathlib import Path

_DEPENDENCIES = (
    "click",
    "lark",
    "ml_dtypes",
    "numpy",
    "rich",
    "threadpoolctl",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "jaxlib",
)


def say(message: str) -> None:
    """One line on stderr, under the program's name."""
    print(f"hlo-opt: {printable(message)}", file=sys.stderr)


def told(error: HloOptError) -> int:
    """Print an error that is the input's or the user's fault; returns the exit status."""
    print(error, file=sys.stderr)
    return 1 if isinstance(error, CheckError) else 2


def internal(error: Exception, arguments: list[str]) -> int:
    """Save what it takes to see an unexpected failure again, say where it is, and return the exit status."""
    cause = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    try:
        folder = reproducer(error, arguments)
    except OSError as why:
        say(f"internal error: {cause} (and no reproducer could be written: {why})")
    else:
        say(f"internal error: {cause}; please report it with what is in {folder}")
    return 2


def reproducer(error: Exception, arguments: list[str]) -> Path:
    """A new folder with the inputs as read, the command, the versions and the traceback. Raises OSError."""
    import shlex
    import tempfile
    import traceback
    from pathlib import Path

    folder = Path(tempfile.mkdtemp(prefix="hlo-opt-reproducer-"))
    for number, (name, text) in enumerate(files.texts_read()):
        (folder / f"input{number or ''}.hlo").write_text(text, encoding="utf-8")
        arguments = [f"input{number or ''}.hlo" if a == name else a for a in arguments]
    (folder / "command.txt").write_text(f"hlo-opt {shlex.join(arguments)}\n", encoding="utf-8", errors="replace")
    (folder / "versions.txt").write_text("\n".join(versions()) + "\n", encoding="utf-8")
    trace = "".join(traceback.format_exception(error))
    (folder / "traceback.txt").write_text(trace, encoding="utf-8", errors="replace")
    return folder


def versions() -> list[str]:
    """The program, Python, the platform and the packages that are installed, a line each."""
    import platform
    from importlib import metadata

    lines = [f"hlo-opt {__version__}", f"Python {platform.python_version()}", platform.platform()]
    for name in _DEPENDENCIES:
        try:
            lines.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return lines
