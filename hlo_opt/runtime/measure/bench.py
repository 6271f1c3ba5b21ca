"""How much faster is a fused module? Both modules run in turn, with cold and with warm caches, next to a plain copy.

Each backend that launches kernels has a clock. A GPU's is its event timer. Launches from Python take longer than
short kernels run, so a kernel that only waits may occupy the GPU first: the launches queue up behind it, and the
events then measure device time alone.
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
from hlo_opt.runtime.executable import Executable, compile

COPIED_BYTES = 1 << 28
"""Bytes of the array whose copy gives a GPU's copy bandwidth: much more than any L2 cache."""
HOST_COPIED_BYTES = 1 << 26
"""The same for the host."""
COPIES = 9
"""Timed copies; the median counts."""
_LAUNCH_US = 30.0  # of a launch from Python with a few arguments
_LONGEST_WAIT_US = 200_000.0
_TRIES = 3

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
        """A point in time, ordered with the work that was started."""

    def between(self, first: Any, second: Any) -> float:
        """Microseconds from one mark to a later one; waits until both have passed."""

    def timed(self, work: Callable[[], None], launches: int) -> float:
        """Microseconds of work that starts about `launches` kernels."""

    def hold(self, microseconds: float) -> None:
        """Keep the device busy for so long, or a fifth of a second, so that what is launched meanwhile queues up."""

    def empty_caches(self) -> None:
        """Evict all earlier data from the last-level cache."""

    def copy_bandwidth(self) -> float:
        """Bytes per second, read plus written, of the fastest plain copy of a large array."""


class HostClock:
    """The processor's clock. Work is complete when its call returns."""

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

    def hold(self, microseconds: float) -> None:
        pass

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
        self.cold = f"{2 * self._cache_bytes >> 20} MiB are read before each run, twice the L2 cache"
        self._other: Any = None
        self._delay: Any = None
        self._is_cold = False

    def mark(self) -> Any:
        event = self.cupy.cuda.Event()
        event.record()
        return event

    def between(self, first: Any, second: Any) -> float:
        second.synchronize()
        return float(self.cupy.cuda.get_elapsed_time(first, second)) * 1e3

    def timed(self, work: Callable[[], None], launches: int) -> float:
        """Work that waits in between (for a loop's predicate) is timed including its waits. Where the host takes longer
        than the GPU is occupied, so that the GPU would wait for it, the work runs again behind a longer wait, with
        caches as before."""
        is_cold, self._is_cold = self._is_cold, False
        wait = min(_LAUNCH_US * (launches + 2), _LONGEST_WAIT_US)
        for number in range(_TRIES):
            if number and is_cold:
                self.empty_caches()
                self._is_cold = False
            self.hold(wait)
            first, start = self.mark(), time.perf_counter()
            work()
            last, host = self.mark(), (time.perf_counter() - start) * 1e6
            elapsed = self.between(first, last)
            if host < wait or wait >= _LONGEST_WAIT_US:
                break
            wait = min(2 * host, _LONGEST_WAIT_US)
        return elapsed

    def hold(self, microseconds: float) -> None:
        microseconds = min(microseconds, _LONGEST_WAIT_US)
        if self._delay is None:
            self._delay = self.cupy.RawModule(code=_DELAY, options=("--std=c++17",)).get_function("hlo_opt_delay")
        self._delay((1,), (1,), (np.int64(int(microseconds * 1e3)),))

    def empty_caches(self) -> None:
        """What is read is not written back later, at the cost of the work that is timed."""
        if self._other is None:
            self._other = self.cupy.zeros(2 * self._cache_bytes // 4, "int32")
        self._other.max()
        self._is_cold = True

    def copy_bandwidth(self) -> float:
        source = self.cupy.ones(COPIED_BYTES // 4, "float32")
        target = self.cupy.empty(COPIED_BYTES // 4, "float32")

        def by_kernel() -> None:
            target[...] = source

        def by_driver() -> None:
            target.data.copy_from_device_async(source.data, source.nbytes)

        bandwidths = []
        for copy in (by_kernel, by_driver):
            copy()
            bandwidths.append(_bandwidth(COPIED_BYTES, [self.timed(copy, 1) for _ in range(COPIES)]))
        return max(bandwidths)


def _bandwidth(count: int, microseconds: list[float]) -> float:
    return 2 * count / (max(median(microseconds), 1e-3) * 1e-6)


def clock_of(backend: str) -> Clock:
    """The clock of a backend. Raises BackendError if cupy has no GPU."""
    if backend != "cupy":
        return HostClock()
    from hlo_opt.runtime.cupy.device import import_cupy

    return CupyClock(import_cupy())


ROUNDS = 11
"""Rounds by default; in each, every variant runs once cold and once warm."""
WARM_UPS = 2


@dataclass(frozen=True)
class Timing:
    """Microseconds of several runs: the median, and the lower and upper quartiles."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(runs: Sequence[float]) -> Timing:
        """The timing of at least one run."""
        if len(runs) < 2:
            return Timing(runs[0], runs[0], runs[0])
        low, middle, high = quantiles(runs, n=4, method="inclusive")
        return Timing(middle, low, high)


@dataclass(frozen=True)
class Variant:
    """The measurements of one module.

    `kernels` are counted as `fuse` and `stats` do, library calls included. `launches` and `count` are over all devices;
    `count` is the bytes that its kernels and calls read and write, as `hlo-opt stats` counts them. `est_us` is the
    estimate for one device.
    """

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
    """The outcome of a benchmark.

    `copy_bandwidth` is bytes per second, read plus written, of a plain copy; `cold` says how caches are emptied;
    `devices` are those of the modules, simulated in turn on one device: times are their sum.
    """

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
    """The device that kernels are planned for."""

    @property
    def speaks_for_target(self) -> bool:
        """Whether the times are a GPU's: CPU times say nothing about the target."""
        return self.backend == "cupy"

    def gain(self, state: str) -> float:
        """The speedup of the last variant over the first; `state` is `cold` or `warm`."""
        first, last = (getattr(v, state).median for v in (self.variants[0], self.variants[-1]))
        return float(first / last) if last > 0 else 0.0

    def is_clear(self, state: str) -> bool:
        """Whether the quartile ranges of the first and the last variant are disjoint; if not, the gain may be noise."""
        first, last = (getattr(v, state) for v in (self.variants[0], self.variants[-1]))
        return bool(first.low > last.high or last.low > first.high)

    def at_copy_speed(self, variant: Variant) -> float:
        """Microseconds that the variant's bytes take at copy bandwidth."""
        return variant.count / self.copy_bandwidth * 1e6

    def share(self, variant: Variant) -> float:
        """Bandwidth with cold caches, relative to the copy's."""
        return self.at_copy_speed(variant) / variant.cold.median if variant.cold.median > 0 else 0.0

    def as_json(self) -> dict[str, Any]:
        """The outcome for JSON: times in microseconds, bandwidths in GB/s."""
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
    compiled: Callable[[str], Mapping[str, Executable]] | None = None,
) -> Bench:
    """Run modules that take the same inputs, in turn. The first is the baseline of the others.

    backend  `host`, `cupy` or `numpy`, or `auto`
    inputs   one list per device of the modules
    rounds   how often each runs cold and warm, at least 1; the order is reversed in every second round
    memory_limit  bytes that a run may hold at once; None: unlimited
    precise  as for `compile`
    compiled  further executables for a backend, by their names: what runs last, in another way than `compile` would

    All kernels are planned for the device of the first module that was fused. Raises what `compile` raises.
    """
    fused = next((module for module in modules.values() if module.target is not None), None)
    how: dict[str, Any] = {
        "memory_limit": memory_limit,
        "precise": precise,
        "target": None if fused is None else target_of(fused),
    }
    executables = {name: compile(module, backend, **how) for name, module in modules.items()}
    if compiled is not None:
        executables.update(compiled(backend))
    backends = {e.backend for e in executables.values()}
    if len(backends) > 1:  # some module cannot run on the GPU, so that all run on the host
        return bench(modules, "host", inputs, rounds, clock, memory_limit, precise=precise, compiled=compiled)
    executable = next(iter(executables.values()))
    clock = clock or clock_of(executable.backend)
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
    for name, one in executables.items():
        report = one.report()
        calls = sum(report["library"].values()) + sum(report["fallbacks"].values())
        times = (Timing.of(cold[name]), Timing.of(warm[name]))
        summary = module_summary(one.module, target_of(one.module, how["target"]))
        variants.append(
            Variant(
                name,
                summary.kernels,
                launches[name],
                calls,
                executable.devices * summary.bytes,
                *times,
                est_us=summary.est_us,
            )
        )
    return Bench(
        next(iter(modules.values())).name,
        executable.backend,
        executable.why,
        clock.device,
        clock.copy_bandwidth(),
        clock.cold,
        rounds,
        tuple(variants),
        executable.devices,
        target_of(next(iter(modules.values())), how["target"]).name,
    )
