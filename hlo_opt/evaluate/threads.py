"""The number of processors a run may use: `$HLO_OPT_THREADS`, for kernels on the host and for the libraries below
NumPy."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hlo_opt.diag import UsageError

VARIABLE = "HLO_OPT_THREADS"


def threads_wished() -> int | None:
    """The value of `$HLO_OPT_THREADS`; None where unset. Raises UsageError unless it is a positive integer."""
    return positive(VARIABLE)


def positive(variable: str, least: int = 1) -> int | None:
    """The integer in an environment variable; None where it is unset or empty. Raises UsageError for anything else."""
    wish = os.environ.get(variable, "").strip()
    if not wish:
        return None
    if not (wish.isascii() and wish.isdigit() and len(wish) < 10) or int(wish) < least:
        raise UsageError(f"${variable} must be a whole number from {least}, not {wish[:40]!r}", code="HLO312")
    return int(wish)


def processors() -> int:
    """The number of processors for kernels: `$HLO_OPT_THREADS`, else those of this process. Raises UsageError as
    `threads_wished` does."""
    wish = threads_wished()
    if wish is not None:
        return wish
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def bounded_libraries(most: int | None = None) -> Iterator[None]:
    """Bound the threads of the libraries below NumPy (OpenBLAS, MKL, BLIS, OpenMP) while entered.

    The bound is `most`, else `$HLO_OPT_THREADS`; without either there is none. It holds for the whole process, other
    threads included. Raises UsageError as `threads_wished` does.
    """
    wish = threads_wished() if most is None else most
    before = [] if wish is None else [(pool, pool.num_threads) for pool in _pools()]
    try:
        for pool, _ in before:
            pool.set_num_threads(wish)
        yield
    finally:
        for pool, count in before:
            pool.set_num_threads(count)


@functools.cache
def _pools() -> list[Any]:
    """The thread pools of the loaded libraries. Finding them takes 1 ms, bounding them a few microseconds."""
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().lib_controllers)
