"""Microseconds of executables of JAX on a GPU: of calls in a batch, and of each kernel where JAX's profiler runs."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

BATCH, ROUNDS, TRACED = 20, 5, 5


def batches(actions: Sequence[Callable[[], Any]]) -> list[float]:
    """Median microseconds of a call of each action in a batch of calls that waits for the last; the actions take
    turns."""
    import jax

    times: list[list[float]] = [[] for _ in actions]
    for _ in range(ROUNDS):
        for action, own in zip(actions, times, strict=True):
            jax.block_until_ready(action())
            start = time.perf_counter()
            for _ in range(BATCH):
                last = action()
            jax.block_until_ready(last)
            own.append((time.perf_counter() - start) / BATCH * 1e6)
    return [statistics.median(own) for own in times]


def kernels(action: Callable[[], Any]) -> dict[str, float]:
    """Microseconds of each kernel in a call, by its name: the mean of a few calls. Raises RuntimeError where the
    profiler says nothing of a GPU."""
    import jax
    from jax.profiler import ProfileData

    jax.block_until_ready(action())
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(TRACED):
                jax.block_until_ready(action())
        total: Counter[str] = Counter()
        for path in Path(folder).rglob("*.xplane.pb"):
            for plane in ProfileData.from_file(str(path)).planes:
                for line in plane.lines if "GPU" in plane.name else ():
                    for event in line.events if "Stream" in line.name else ():
                        total[event.name] += event.duration_ns / 1e3 / TRACED
    if not total:
        raise RuntimeError("the profiler has no kernels")
    return dict(total.most_common())
