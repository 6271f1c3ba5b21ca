"""Clocks and what a device can do at best: time of pieces of work, copy bandwidth, emptied caches. One class per backend that launches kernels.

A GPU's clock is its event timer. Launches from Python take longer than short kernels run, so a measurement may first occupy the GPU with a kernel that
only waits: the launches queue up behind it, and the events see the device's time alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from types import ModuleType
from typing import Any, Protocol

import numpy as np

COPIED_BYTES = 1 << 28
"""Bytes of the array whose copy gives a GPU's copy bandwidth: far more than any L2 cache."""
HOST_COPIED_BYTES = 1 << 26
"""The same on the host."""
COPIES = 9
"""Copies that are timed; the median counts."""
_LAUNCH_US = 30.0  # longest that a launch from Python is taken to need
_LONGEST_WAIT_US = 200_000.0

_DELAY = """\
extern "C" __global__ void hlo_opt_delay(const long long nanoseconds) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - start < (unsigned long long)nanoseconds);
}
"""


class Clock(Protocol):
    """Times work on a backend.

    device  its name
    cold    how caches are emptied, in words
    """

    device: str
    cold: str

    def mark(self) -> Any:
        """A point in time, in the order of the work that was started."""
        ...

    def between(self, first: Any, second: Any) -> float:
        """Microseconds from one mark to a later one; waits until both have passed."""
        ...

    def timed(self, work: Callable[[], None], launches: int) -> float:
        """Microseconds of a piece of work that starts about so many kernels."""
        ...

    def empty_caches(self) -> None:
        """After this, nothing that was read or written before is in the last-level cache."""
        ...

    def copy_bandwidth(self) -> float:
        """Bytes per second read and written by the fastest plain copy of a large array."""
        ...


class HostClock:
    """The processor's clock. Work is done when it returns."""

    def __init__(self) -> None:
        self.device = "CPU"
        self.cold = f"{HOST_COPIED_BYTES >> 20} MiB are written before each run"
        self._dirt = np.zeros(HOST_COPIED_BYTES // 8)

    def mark(self) -> float:
        return time.perf_counter() * 1e6

    def between(self, first: float, second: float) -> float:
        return second - first

    def timed(self, work: Callable[[], None], launches: int) -> float:
        first = self.mark()
        work()
        return self.mark() - first

    def empty_caches(self) -> None:
        self._dirt += 1

    def copy_bandwidth(self) -> float:
        source, target = np.ones(HOST_COPIED_BYTES // 8), np.zeros(HOST_COPIED_BYTES // 8)
        np.copyto(target, source)
        return _bandwidth(HOST_COPIED_BYTES, [self.timed(lambda: np.copyto(target, source), 0) for _ in range(COPIES)])


class CupyClock:
    """A GPU's event timer."""

    def __init__(self, cupy: ModuleType) -> None:
        self.cupy = cupy
        number = int(cupy.cuda.runtime.getDevice())
        properties = cupy.cuda.runtime.getDeviceProperties(number)
        name = properties["name"]
        self.device = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
        self._cache_bytes = max(int(properties.get("l2CacheSize", 0)), 1 << 22)
        self.cold = f"{2 * self._cache_bytes >> 20} MiB are written before each run, twice the L2 cache"
        self._dirt: Any = None
        self._delay: Any = None

    def mark(self) -> Any:
        event = self.cupy.cuda.Event()
        event.record()
        return event

    def between(self, first: Any, second: Any) -> float:
        second.synchronize()
        return float(self.cupy.cuda.get_elapsed_time(first, second)) * 1e3

    def timed(self, work: Callable[[], None], launches: int) -> float:
        """Work that waits in between (a loop whose predicate is read) is timed as it is, waits included."""
        self._occupy(min(_LAUNCH_US * (launches + 2), _LONGEST_WAIT_US))
        first = self.mark()
        work()
        return self.between(first, self.mark())

    def _occupy(self, microseconds: float) -> None:
        if self._delay is None:
            self._delay = self.cupy.RawModule(code=_DELAY, options=("--std=c++17",)).get_function("hlo_opt_delay")
        self._delay((1,), (1,), (np.int64(int(microseconds * 1e3)),))

    def empty_caches(self) -> None:
        if self._dirt is None:
            self._dirt = self.cupy.zeros(2 * self._cache_bytes // 4, "int32")
        self._dirt += 1

    def copy_bandwidth(self) -> float:
        source = self.cupy.ones(COPIED_BYTES // 4, "float32")
        target = self.cupy.empty(COPIED_BYTES // 4, "float32")

        def by_kernel() -> None:
            target[...] = source

        def by_driver() -> None:
            target.data.copy_from_device_async(source.data, source.nbytes)

        found = []
        for copy in (by_kernel, by_driver):
            copy()
            found.append(_bandwidth(COPIED_BYTES, [self.timed(copy, 1) for _ in range(COPIES)]))
        return max(found)


def _bandwidth(count: int, microseconds: list[float]) -> float:
    return 2 * count / (max(median(microseconds), 1e-3) * 1e-6)


def clock_of(backend: str) -> Clock:
    """The clock of a backend. Raises BackendError where there is no GPU."""
    if backend != "cupy":
        return HostClock()
    from hlo_opt.runtime.cupy.device import import_cupy

    return CupyClock(import_cupy())
