"""How much faster is a fused module? Both run in turn, with cold and with warm caches, next to what a plain copy reaches on the same device.

There is a clock for each backend that launches kernels. A GPU's is its event timer. Launches from Python take longer than short kernels run, so a measurement may first occupy the GPU
with a kernel that only waits: the launches queue up behind it, and the events see the device's time alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from hlo_opt.analysis.targets import target_of
from hlo_opt.fusion.summary import module_summary
from hlo_opt.ir import Module
from hlo_opt.ir.values import Array
from hlo_opt.runtime.executable import compile

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

    def between(self, first: Any, second: Any) -> float:
        """Microseconds from one mark to a later one; waits until both have passed."""

    def timed(self, work: Callable[[], None], launches: int) -> float:
        """Microseconds of a piece of work that starts about so many kernels."""

    def empty_caches(self) -> None:
        """After this, nothing that was read or written before is in the last-level cache."""

    def copy_bandwidth(self) -> float:
        """Bytes per second read and written by the fastest plain copy of a large array."""


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


ROUNDS = 11
"""Rounds by default: each variant runs once cold and once warm in every one."""
WARM_UPS = 2


@dataclass(frozen=True)
class Timing:
    """Microseconds of the runs: median, and the quartiles below and above it."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(runs: Sequence[float]) -> Timing:
        """Of at least one run."""
        if len(runs) < 2:
            return Timing(runs[0], runs[0], runs[0])
        low, middle, high = quantiles(runs, n=4, method="inclusive")
        return Timing(middle, low, high)


@dataclass(frozen=True)
class Variant:
    """A module as it was run. `kernels` are counted as `fuse` and `stats` do, calls of libraries among them; `launches` are those on all devices; `count` is bytes read and written by its kernels and calls there, as `hlo-opt stats` counts them, and `est_us` what it estimates for one of them."""

    name: str
    kernels: int
    launches: int
    library: int
    count: float
    cold: Timing
    warm: Timing
    est_us: float = 0.0


@dataclass(frozen=True)
class Bench:
    """The outcome. `copy_bandwidth` is bytes per second, read and written, of a plain copy; `cold` says how caches are emptied; `devices` are those of the modules, which are simulated in turn on
    one: times are theirs together."""

    module: str
    backend: str
    why: str
    device: str
    copy_bandwidth: float
    cold: str
    rounds: int
    variants: tuple[Variant, ...]
    devices: int = 1
    target: str = ""
    """The device that kernels are made for."""

    @property
    def speaks_for_target(self) -> bool:
        """Whether the times are a GPU's: those of a CPU say nothing of how fast the target is."""
        return self.backend == "cupy"

    def gain(self, state: str) -> float:
        """How many times faster the last variant is than the first; `state` is `cold` or `warm`."""
        first, last = (getattr(v, state).median for v in (self.variants[0], self.variants[-1]))
        return float(first / last) if last > 0 else 0.0

    def is_clear(self, state: str) -> bool:
        """Whether the quartiles of the first and the last variant lie apart: where they overlap, the gain may be noise."""
        first, last = (getattr(v, state) for v in (self.variants[0], self.variants[-1]))
        return bool(first.low > last.high or last.low > first.high)

    def at_copy_speed(self, variant: Variant) -> float:
        """Microseconds that its bytes take at the copy's speed."""
        return variant.count / self.copy_bandwidth * 1e6

    def share(self, variant: Variant) -> float:
        """Achieved bandwidth with cold caches, as a part of the copy's."""
        return self.at_copy_speed(variant) / variant.cold.median if variant.cold.median > 0 else 0.0

    def as_json(self) -> dict[str, Any]:
        """Times in microseconds, bandwidths in GB/s."""
        variants = [
            {
                **{k: v for k, v in asdict(variant).items() if k != "count"},
                "bytes": variant.count,
                "gb_per_s": variant.count / max(variant.cold.median, 1e-9) / 1e3,
                "share_of_copy": self.share(variant),
            }
            for variant in self.variants
        ]
        return {
            "module": self.module,
            "backend": self.backend,
            "why": self.why,
            "device": self.device,
            "copy_gb_per_s": self.copy_bandwidth / 1e9,
            "cold": self.cold,
            "rounds": self.rounds,
            "devices": self.devices,
            "target": self.target,
            "speaks_for_target": self.speaks_for_target,
            "variants": variants,
            "gain": {state: self.gain(state) for state in ("cold", "warm")},
            "clear": {state: self.is_clear(state) for state in ("cold", "warm")},
        }


def bench(
    modules: Mapping[str, Module],
    backend: str,
    inputs: Sequence[Sequence[Array]],
    rounds: int = ROUNDS,
    clock: Clock | None = None,
    memory_limit: int | None = None,
    *,
    precise: bool = False,
) -> Bench:
    """Run modules that take the same inputs, in turn, and compare. The first is what the others are measured against.

    backend  `host`, `cupy` or `numpy`, or `auto`
    inputs   of each device of the modules
    Kernels of all of them are made for the device that one was fused for.
    rounds   how often each runs cold and warm, at least 1; in every second one the order is reversed
    memory_limit  bytes that a run of one of them may hold at once; None: any number
    precise  as for `compile`

    Raises what `compile` raises.
    """
    fused = next((module for module in modules.values() if module.target is not None), None)
    how: dict[str, Any] = {
        "memory_limit": memory_limit,
        "precise": precise,
        "target": None if fused is None else target_of(fused),
    }
    executables = {name: compile(module, backend, **how) for name, module in modules.items()}
    backends = {e.backend for e in executables.values()}
    if len(backends) > 1:  # a GPU ran one of them only: all go where all can
        return bench(modules, "host", inputs, rounds, clock, memory_limit, precise=precise)
    one = next(iter(executables.values()))
    clock = clock or clock_of(one.backend)
    runs = {name: e.resident_devices(inputs) for name, e in executables.items()}
    for run in runs.values():
        for _ in range(WARM_UPS):
            run()
    launches = {name: int(e.report()["launches"]) for name, e in executables.items()}
    cold: dict[str, list[float]] = {name: [] for name in runs}
    warm: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        for name in runs if number % 2 == 0 else reversed(runs):
            clock.empty_caches()
            cold[name].append(clock.timed(runs[name], launches[name]))
            warm[name].append(clock.timed(runs[name], launches[name]))
    variants = []
    for name, module in modules.items():
        report = executables[name].report()
        calls = sum(report["library"].values()) + sum(report["fallbacks"].values())
        times = (Timing.of(cold[name]), Timing.of(warm[name]))
        summary = module_summary(module, target_of(module, how["target"]))
        variants.append(
            Variant(
                name,
                summary.kernels,
                launches[name],
                calls,
                one.devices * summary.bytes,
                *times,
                est_us=summary.est_us,
            )
        )
    return Bench(
        next(iter(modules.values())).name,
        one.backend,
        one.why,
        clock.device,
        clock.copy_bandwidth(),
        clock.cold,
        rounds,
        tuple(variants),
        one.devices,
        target_of(next(iter(modules.values())), how["target"]).name,
    )
