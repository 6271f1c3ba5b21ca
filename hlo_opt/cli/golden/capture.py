"""Running a command line of this program inside this process, with streams of its own and a limit of time."""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType


@dataclass(frozen=True)
class Captured:
    """What a command gave: exit status, stdout (with stderr in it where both were merged) and stderr, as text with `\\n` ends."""

    status: int
    out: str
    err: str


class TimedOutError(BaseException):
    """A case took too long. Not an Exception, so that nothing on the way takes it for a failure of its own."""


def run_captured(arguments: Sequence[str], given: str = "", *, merged: bool = False) -> Captured:
    """Run `hlo-opt` with these arguments. `given` is its stdin; `merged` sends stderr the way of stdout."""
    from hlo_opt.cli import files, group

    files.forget_texts()
    out = io.BytesIO()
    err = out if merged else io.BytesIO()
    streams = [_text(io.BytesIO(given.encode("utf-8", "surrogateescape"))), _text(out), _text(err)]
    kept = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = streams
    try:
        status = group.run(list(arguments))
    finally:
        sys.stdin, sys.stdout, sys.stderr = kept
        for stream in streams:
            stream.detach()
    return Captured(status, _decoded(out), "" if merged else _decoded(err))


def _text(stream: io.BytesIO) -> io.TextIOWrapper:
    return io.TextIOWrapper(stream, encoding="utf-8", errors="backslashreplace", newline="\n", write_through=True)


def _decoded(stream: io.BytesIO) -> str:
    return stream.getvalue().decode("utf-8", "backslashreplace").replace("\r\n", "\n")


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise TimedOutError when what is inside takes longer. 0 sets no limit, nor do systems and threads without timer signals."""
    if seconds <= 0 or not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimedOutError

    before = signal.signal(signal.SIGALRM, stop)
    started = time.monotonic()
    others, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if others > 0:  # somebody else's limit, of the test that this one is
            signal.setitimer(signal.ITIMER_REAL, max(others - (time.monotonic() - started), 1e-3))
