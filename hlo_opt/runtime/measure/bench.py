"""How much faster is a fused module? Both run in turn, with cold and with warm caches, next to what a plain copy reaches on the same device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import quantiles
from typing import Any

from hlo_opt.analysis.memory.traffic import module_bytes
from hlo_opt.analysis.targets import target_of
from hlo_opt.fusion.summary import launched
from hlo_opt.ir import Module
from hlo_opt.ir.values import Array
from hlo_opt.runtime.executable import compile
from hlo_opt.runtime.measure.clock import Clock, clock_of

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
    """A module as it was run. `kernels` are counted as `fuse` and `stats` do, calls of libraries among them; `launches` are those on all devices; `count` is bytes read and written by its kernels and calls there, as `hlo-opt stats` counts them."""

    name: str
    kernels: int
    launches: int
    library: int
    count: float
    cold: Timing
    warm: Timing


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
) -> Bench:
    """Run modules that take the same inputs, in turn, and compare. The first is what the others are measured against.

    backend  `host`, `cupy` or `numpy`, or `auto`
    inputs   of each device of the modules
    Kernels of all of them are made for the device that one was fused for.
    rounds   how often each runs cold and warm, at least 1; in every second one the order is reversed
    memory_limit  bytes that a run of one of them may hold at once; None: any number

    Raises what `compile` raises.
    """
    fused = next((module for module in modules.values() if module.target is not None), None)
    how: dict[str, Any] = {"memory_limit": memory_limit, "target": None if fused is None else target_of(fused)}
    executables = {name: compile(module, backend, **how) for name, module in modules.items()}
    backends = {e.backend for e in executables.values()}
    if len(backends) > 1:  # a GPU ran one of them only: all go where all can
        return bench(modules, "host", inputs, rounds, clock, memory_limit)
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
        variants.append(
            Variant(name, len(launched(module)), launches[name], calls, one.devices * module_bytes(module), *times)
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
    )
