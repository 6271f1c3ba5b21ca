"""Ctrl-C ends the program also while it is inside a library that does not look at signals: a large NumPy operation, a kernel on the host.

Python raises KeyboardInterrupt when the next instruction of its own begins, which may be minutes away. A thread waits for the signal besides, and ends the
process when the main thread has not gone by itself for a while.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

PATIENCE = 1.0
"""Seconds that the main thread gets to end by itself, so that temporary files are removed."""

INTERRUPTED = 130


@contextlib.contextmanager
def interruptible(say: Callable[[], None], patience: float = PATIENCE) -> Iterator[None]:
    """While this is entered, Ctrl-C ends the process with status 130 at the latest after `patience` seconds. `say` tells the user so.

    Does nothing outside the main thread, where Ctrl-C is ignored or handled by somebody else, and on systems that are no Unix.
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
