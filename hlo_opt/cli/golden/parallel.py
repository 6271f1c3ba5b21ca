"""Many golden files at once: a few processes, each running many files."""

from __future__ import annotations

import functools
import multiprocessing
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from hlo_opt.cli.golden.cases import Case
from hlo_opt.cli.golden.execute import Result, execute
from hlo_opt.diag import EvaluationError
from hlo_opt.evaluate.threads import processors

DIED = "HLO342"
FEWEST = 8
"""Cases for which a process of their own pays, unless the user says how many there are."""


def execute_all(cases: Sequence[Case], *, update: bool, timeout: float, jobs: int | None) -> Iterator[Result]:
    """The results in the order of the cases. `jobs` processes run them; when it is None, as many as there are processors, and fewer for few
    cases. With 1 this one does.

    Raises EvaluationError (HLO342) when a process dies, as for want of memory.
    """
    workers = min(jobs, len(cases)) if jobs else min(processors(), len(cases) // FEWEST)
    run = functools.partial(execute, update=update, timeout=timeout)
    if workers < 2:
        yield from map(run, cases)
        return
    method = _start_method()
    if method == "fork":
        _warm_up()
    share = max(1, min(16, len(cases) // (4 * workers)))
    with ProcessPoolExecutor(workers, multiprocessing.get_context(method)) as pool:
        try:
            yield from pool.map(run, cases, chunksize=share)
        except BrokenProcessPool:
            raise EvaluationError(
                "a process that runs golden files died, perhaps for want of memory",
                code=DIED,
                hint="--jobs 1 runs them one after the other in one process",
            ) from None


def _warm_up() -> None:
    """Load what every case needs, and build the parser, once: processes that part from this one share it."""
    import hlo_opt.passes  # noqa: F401
    from hlo_opt.text import parse

    parse("HloModule m\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n")


def _start_method() -> str:
    """Forking is quick, and safe on Linux while there is one thread."""
    return "fork" if sys.platform == "linux" and threading.active_count() == 1 else "spawn"
