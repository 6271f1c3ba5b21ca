"""Who does the work: processes of this machine, or a Dask cluster."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Generic, ParamSpec, TypeVar

from hlo_opt.diag import EvaluationError, UsageError

P = ParamSpec("P")
T = TypeVar("T")

DIED, NO_PACKAGE, NO_CLUSTER = "HLO342", "HLO352", "HLO353"
PATIENCE_S = 10
"""Seconds that a scheduler may take to answer."""


@contextlib.contextmanager
def processes(jobs: int) -> Iterator[Executor]:
    """Processes that leave Ctrl-C to this one. When it, or an error, ends the work, they are ended with what they
    do."""
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_leave_interrupts)
    try:
        yield pool
    except BaseException:
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def cluster(address: str) -> Iterator[Executor]:
    """The workers of a Dask scheduler, which have hlo-opt installed. What they have not begun when this is left is
    cancelled.

    Raises UsageError where the package `distributed` is missing (HLO352), or no scheduler answers (HLO353).
    """
    try:
        from distributed import Client
    except ImportError:
        raise UsageError(
            "--scheduler needs the package distributed", code=NO_PACKAGE, hint="pip install 'hlo-opt[fleet]'"
        ) from None
    try:
        client = Client(address, timeout=PATIENCE_S, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"no scheduler answers at {address}: {error or 'it took too long'}",
            code=NO_CLUSTER,
            hint="`dask scheduler` prints its address: tcp://HOST:PORT",
        ) from None
    with client:
        yield client.get_executor()


@dataclass(frozen=True)
class StartedCall(Generic[T]):
    """A call that an executor has begun; without one it is made here, when its result is asked for."""

    call: Callable[[], T]
    future: Future[T] | None = None

    @classmethod
    def of(
        cls, executor: Executor | None, function: Callable[P, T], *arguments: P.args, **options: P.kwargs
    ) -> StartedCall[T]:
        """Begin a call."""
        call = functools.partial(function, *arguments, **options)
        return cls(call, None if executor is None else executor.submit(function, *arguments, **options))

    def result(self) -> T:
        """What the call returns, once it does. Raises what it raises, and EvaluationError (HLO342) where its process
        died."""
        if self.future is None:
            return self.call()
        try:
            return self.future.result()
        except BrokenProcessPool:
            raise EvaluationError(
                "a process died, perhaps for want of memory", code=DIED, hint="a smaller --jobs takes less memory"
            ) from None

    def cancel(self) -> None:
        """Leave the call, unless it has begun."""
        if self.future is not None:
            self.future.cancel()
