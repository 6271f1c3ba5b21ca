"""What a user sees when something fails or is interrupted: one message, never a traceback.

Ctrl-C ends the program also while it is inside a library that does not look at signals: a large NumPy operation, a
kernel on the host. Python raises KeyboardInterrupt when the next instruction of its own begins, which may be minutes
away. A thread waits for the signal besides, and ends the process when the main thread has not gone by itself for a
while."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
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


def report_error(error: HloOptError) -> int:
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
    for number, (name, text) in enumerate(files.TEXTS_READ):
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


PATIENCE = 1.0
"""Seconds that the main thread gets to end by itself, so that temporary files are removed."""

INTERRUPTED = 130


@contextlib.contextmanager
def interruptible(say: Callable[[], None], patience: float = PATIENCE) -> Iterator[None]:
    """While this is entered, Ctrl-C ends the process with status 130 at the latest after `patience` seconds. `say`
    tells the user so.

    Does nothing outside the main thread, where Ctrl-C is ignored or handled by somebody else, and on systems that are
    no Unix.
    """
    if (
        os.name != "posix"
        or threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    over = threading.Event()

    def wait() -> None:
        while data := os.read(reader, 1):
            if data[0] == signal.SIGINT and not over.wait(patience):
                say()
                os._exit(INTERRUPTED)
        os.close(reader)

    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=wait, daemon=True).start()
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        os.close(writer)


@contextlib.contextmanager
def saving() -> Iterator[None]:
    """While this is entered, Ctrl-C raises KeyboardInterrupt and the process is not ended besides: there is something
    to save first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
