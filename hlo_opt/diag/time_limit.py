"""The time that a caller has. Work that may take long looks at it, and ends when the time is up."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from hlo_opt.diag.errors import BackendError


class TimeUpError(BackendError):
    """Work was ended because its caller has no time left. That says nothing of the work itself: on a machine with less
    to do it may be quick."""

    default_code = "HLO511"


_end: ContextVar[float] = ContextVar("end", default=math.inf)


@contextmanager
def time_until(end: float) -> Iterator[None]:
    """Ends work of this thread that is not done at this time of `time.monotonic()`, or at that of an outer limit: it
    raises TimeUpError. That holds for runs of the C++ compiler, too: a limit of processor time says nothing of how
    long a busy machine needs."""
    before = _end.set(min(end, _end.get()))
    try:
        yield
    finally:
        _end.reset(before)


def time_left() -> float:
    """The seconds until the end; infinite without one."""
    return _end.get() - time.monotonic()


def check_time() -> None:
    """Raises TimeUpError where the caller has no time left. Called once in each step of what may take seconds."""
    if time.monotonic() > _end.get():
        raise TimeUpError("no time is left")
