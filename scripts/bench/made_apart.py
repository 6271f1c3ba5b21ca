"""Programs fused in processes that see no GPU, as many at a time as there are processors.

Tracing, fusing and planning hold the interpreter's lock, so threads do not help; a process of its own does. Kernels are
compiled there, too, into the cache on disk, where backend cupy finds them. What comes back is a row: the fused module's
text and what the job says about it, or why it failed.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import hlo_opt
from hlo_opt.analysis.targets import target as find
from hlo_opt.codegen.options import compile_options
from hlo_opt.ir import Module
from hlo_opt.runtime.schedule import build_schedule

Item = TypeVar("Item")
Row = dict[str, Any]
Job = Callable[[Item, str], tuple[Module, Row]]
"""Fuses what an item stands for, for a target: the fused module, and what else the row has. It is a function of a
module, and all it takes and gives can be pickled."""
TEXT = "text"
"""The key of the fused module's text in a row."""


def fault_of(error: Exception) -> Row:
    """What a row says of a program that failed."""
    return {"fault": f"{type(error).__name__}: {error}"[:2000], "trace": traceback.format_exc()[-4000:]}


def started(job: Job[Item], items: Sequence[Item], target: str) -> list[Future[Row]]:
    """Start all jobs; their rows, in the order of items."""
    pool = ProcessPoolExecutor(
        max(1, min(len(items), os.cpu_count() or 1)), multiprocessing.get_context("spawn"), _without_gpu
    )
    rows = [pool.submit(_row, job, item, target) for item in items]
    pool.shutdown(wait=False)
    return rows


def ready(
    job: Job[Item],
    items: Sequence[Item],
    target: str,
    backend: str,
    others: Callable[[Item], Row],
    threads: int,
    seconds: float,
) -> list[Row]:
    """The rows of all items, in order; in each `ours`, the executable, and what `others` adds, which runs in threads of
    this process. What takes longer than `seconds` has a fault instead."""
    rows = started(job, items, target)

    def whole(item: Item, row: Future[Row]) -> Row:
        try:
            also = others(item)
            found = row.result()
            if "fault" not in found:
                module = hlo_opt.parse(found.pop(TEXT))
                found |= {"ours": hlo_opt.compile(module, backend, target=target), "fused": module}
            return found | also
        except Exception as error:  # whatever fails is told in the row; the others still run
            return fault_of(error)

    pool = ThreadPoolExecutor(threads)
    wholes = [pool.submit(whole, item, row) for item, row in zip(items, rows, strict=True)]
    wait(wholes, seconds)
    late = [each.cancel() or not each.done() for each in wholes]
    pool.shutdown(wait=False, cancel_futures=True)
    pairs = zip(wholes, late, strict=True)
    return [{"fault": "not compiled in time"} if is_late else each.result() for each, is_late in pairs]


def _without_gpu() -> None:
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    if "jax" in sys.modules:  # imported with the module that started this process
        sys.modules["jax"].config.update("jax_platforms", "cpu")


def _row(job: Job[Item], item: Item, target: str) -> Row:
    try:
        fused, row = job(item, target)
        fill_cache(fused, target)
        return row | {TEXT: str(fused)}
    except Exception as error:
        return fault_of(error)


def fill_cache(fused: Module, target: str) -> None:
    """Put the kernels' machine code into the cache, where NVRTC is there."""
    kernels = build_schedule(fused, target).kernels
    if not kernels:
        return
    try:
        from cupy.cuda import nvrtc
    except ImportError:
        return
    from hlo_opt.runtime.cupy.device import compiled
    from hlo_opt.runtime.host.library import cache_directory

    compiled(nvrtc, kernels, find(target).architecture, cache_directory(), compile_options())
