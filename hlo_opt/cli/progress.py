"""Progress on a terminal while something takes long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hlo_opt.cli.habits import ASKED

PATIENCE = 1.0
"""Seconds after which a verb that has printed nothing says that it still runs; and between two of these lines."""


class Progress:
    """One line on a terminal that is written over and over; nothing elsewhere."""

    def __init__(self) -> None:
        stop_waiting()
        self.is_shown = sys.stderr.isatty() and not ASKED.quiet
        self.width = 0

    def __call__(self, line: str) -> None:
        if self.is_shown:
            sys.stderr.write(f"\r{line[:100].ljust(self.width)}")
            sys.stderr.flush()
            self.width = len(line[:100])

    def end(self) -> None:
        self("")
        if self.is_shown:
            sys.stderr.write("\r")


@contextmanager
def bar(title: str, total: int | None) -> Iterator[Callable[[int, str], None]]:
    """A bar on a terminal that says how much of a total is done, with a word beside it; nothing elsewhere. The function
    takes both; without a total the bar only shows that something goes on."""
    stop_waiting()
    if not sys.stderr.isatty() or ASKED.quiet:
        yield lambda done, word: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[word]}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(file=sys.stderr), transient=True) as shown:
        task = shown.add_task(title, total=total, word="")
        yield lambda done, word: shown.update(task, completed=done, word=word)


class _Waiting:
    """Says on the terminal, from a thread of its own, how long a verb has been at work, until something else is written
    there."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        started = time.monotonic()
        while not self._over.wait(PATIENCE):
            with self._lock:
                if not self._over.is_set():
                    sys.stderr.write(f"\r{self._verb}: {time.monotonic() - started:.0f} s\x1b[K\r")
                    sys.stderr.flush()

    def stop(self) -> None:
        with self._lock:
            if not self._over.is_set():
                self._over.set()
                sys.stderr.write("\x1b[K")
                sys.stderr.flush()
        self._thread.join()


_waiting: _Waiting | None = None


@contextmanager
def waiting(verb: str) -> Iterator[None]:
    """While a verb runs and has printed nothing, a terminal shows that it does."""
    global _waiting
    if sys.stderr.isatty() and not ASKED.quiet:
        _waiting = _Waiting(verb)
    try:
        yield
    finally:
        stop_waiting()


def stop_waiting() -> None:
    """Something is about to be written."""
    global _waiting
    if _waiting is not None:
        _waiting.stop()
        _waiting = None
