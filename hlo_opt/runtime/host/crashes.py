"""Kernels that crash: where it is asked for, a signal ends their launch with an error, not the process.

A kernel that reads what is not there, divides by zero or fills its stack would take the user's process with it, and a
check would end without a word of which kernel it was. A process of its own for each check would help as well, but costs
a copy of all outputs, and what has threads (JAX, for one) cannot be forked safely. Outside of a check nothing is asked
for: signals are the user's, and a run whose kernel crashed has nothing to go on with.
"""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hlo_opt.diag import BackendError, Span
from hlo_opt.runtime.host.own_routines import runtime

CRASHED = "HLO532"
"""The code of a kernel's crash."""
STATUS = 64
"""What a run returns more than the number of the signal; `host_crashes.h` has the same."""

_guards = 0


def are_told() -> bool:
    """Whether somebody asks for it now."""
    return _guards > 0


def address() -> int:
    """What the last crash was about, where it was an access to memory."""
    found: int | None = runtime().hlo_crash_address()
    return found or 0


@contextmanager
def crashes_told(wished: bool = True) -> Iterator[None]:
    """While it is open, a kernel on the host that crashes raises BackendError (HLO532), in any thread of the process;
    the handlers of signals are those from before when the last has closed. Raises BackendError as `runtime`."""
    global _guards
    if not wished:
        yield
        return
    guard = runtime().hlo_guard
    guard(1)
    _guards += 1
    try:
        yield
    finally:
        _guards -= 1
        guard(-1)


def launched(launcher: Callable[..., int], pointers: ctypes.Array[ctypes.c_void_p], first: int, last: int) -> int:
    """What a launcher returns, or `STATUS` and more where it crashes and that is told."""
    status: int = runtime().hlo_launch(launcher, pointers, first, last) if _guards else launcher(pointers, first, last)
    return status


def crash(status: int, what: str, where: str = "", span: Span | None = None) -> BackendError:
    """The error of a launch with such a status: `what` is a noun with its name, `where` what stands behind the verb."""
    number = status - STATUS
    return BackendError(
        f"{what} crashed{where}: {signal.strsignal(number)} ({signal.Signals(number).name})",
        code=CRASHED,
        span=span,
        hint="this is a fault of hlo-opt; `hlo-opt reduce --keep 'check fails'` makes a small module that shows it",
    )
