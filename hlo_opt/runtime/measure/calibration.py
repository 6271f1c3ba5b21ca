"""The constants of the price model, measured on the GPU at hand: what `hlo-opt calibrate` does.

A few small kernels each show one of them: a copy, loads that depend on each other, reads from L2, a barrier of all
blocks, a count of cycles, and kernels that do nothing. The result is a device for `--target`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from statistics import median
from types import ModuleType

import numpy as np

from hlo_opt import __version__
from hlo_opt.analysis.targets import DeviceTarget, target, target_names
from hlo_opt.codegen.device_code import helpers
from hlo_opt.runtime.measure.bench import CupyClock

ROUNDS = 9
"""How often each is timed; the median counts."""
EMPTY, MEETINGS, CHASED, READINGS = 256, 64, 4096, 32
"""Kernels that do nothing, barriers, loads one after another, and readings of an array that L2 holds."""
CHASED_BYTES = 1 << 28
BLOCK = 256
_OPTIONS = ("--std=c++17",)
SPUN = 1 << 16
"""Steps of the kernel whose cycles are counted: a millisecond or less."""

_ATTRIBUTES = {
    "core_count": 16,
    "l2_cache_size": 38,
    "threads_per_core_limit": 39,
    "shared_memory_per_core": 81,
    "shared_memory_per_block": 8,
    "shared_memory_per_block_optin": 97,
    "threads_per_block_limit": 1,
    "threads_per_warp": 10,
    "registers_per_block_limit": 12,
}
"""Fields of a device by their number in `cudaDeviceAttr` (CUDA Runtime API)."""
_CLOCK, _MEMORY_CLOCK, _BUS, _MAJOR, _MINOR = 13, 36, 37, 75, 76
_FPUS = {60: 64, 61: 128, 70: 64, 80: 64, 86: 128}
"""Multiply-adds of f32 per cycle of a multiprocessor, from a compute capability on (CUDA C++ Programming Guide,
"Arithmetic Instructions")."""

_TEXT = """
extern "C" __global__ void hlo_opt_nothing() {}

extern "C" __global__ void hlo_opt_chase(const unsigned int* next, unsigned int* end, const int steps) {
  unsigned int at = 0;
  for (int step = 0; step < steps; ++step) at = next[at];
  *end = at;
}

extern "C" __global__ void __launch_bounds__(256) hlo_opt_reread(const uint4* data, unsigned int* end, const int count,
                                                                 const int rounds) {
  unsigned int sum = 0;
  for (int round = 0; round < rounds; ++round)
#pragma unroll 4
    for (int i = blockIdx.x * 256 + threadIdx.x; i < count; i += gridDim.x * 256) {
      const uint4 read = __ldcg(data + i);
      sum += read.x ^ read.y ^ read.z ^ read.w;
    }
  if (sum == 1u) *end = sum;
}

extern "C" __global__ void __launch_bounds__(256) hlo_opt_spin(long long* taken, float* end, const int steps) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  const long long first = clock64();
  float sum = threadIdx.x;
  for (int step = 0; step < steps; ++step) sum = sum * 0.5f + 1.0f;
  const long long last = clock64();
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  if (sum == 0.0f) *end = sum;
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    taken[0] = last - first;
    taken[1] = (long long)(now - start);
  }
}
"""

_MEETING = """
extern "C" __global__ void __launch_bounds__(256) hlo_opt_meet(unsigned int* arrived, const int rounds) {
  for (int round = 0; round < rounds; ++round) hlo_meet_grid(arrived);
}
"""
"""A launch of its own kind: all blocks run at the same time."""


@dataclass(frozen=True)
class MeasuredConstant:
    """A constant of the price model, before and after it was measured.

    name    the field of `DeviceTarget`
    unit    of both numbers, "" for a share
    before  what the model assumes
    after   what this GPU showed
    """

    name: str
    unit: str
    before: float
    after: float


@dataclass(frozen=True)
class Calibration:
    """A GPU as a target, and the constants that were measured on it."""

    device: DeviceTarget
    constants: tuple[MeasuredConstant, ...]


def device_at_hand(cupy: ModuleType) -> DeviceTarget:
    """The GPU as its driver describes it, with the constants that the model assumes."""
    runtime = cupy.cuda.runtime
    number = int(runtime.getDevice())

    def attribute(code: int) -> int:
        return int(runtime.deviceGetAttribute(code, number))

    name = CupyClock(cupy).device
    capability = 10 * attribute(_MAJOR) + attribute(_MINOR)
    return DeviceTarget(
        name="".join(c if c.isalnum() else "_" for c in name.lower()),
        title=name,
        compute_capability=capability,
        memory_bandwidth=_published(name) or 2e3 * attribute(_MEMORY_CLOCK) * attribute(_BUS) / 8,
        fpus_per_core=_FPUS[max((c for c in _FPUS if c <= capability), default=60)],
        clock_rate_ghz=attribute(_CLOCK) / 1e6,
        device_memory_size=int(runtime.memGetInfo()[1]),
        **{key: attribute(code) for key, code in _ATTRIBUTES.items()},
    )


def _published(name: str) -> float | None:
    """The bandwidth that NVIDIA gives for a device, where one target's title names it."""
    known = [target(n) for n in target_names()]
    words = set(name.lower().split())
    fitting = [device for device in known if words <= set(device.title.lower().split())]
    return max((device.memory_bandwidth for device in fitting), default=None)


def calibrate(cupy: ModuleType, step: Callable[[str], None] = lambda name: None) -> Calibration:
    """Measure the constants on the current GPU; about two seconds. `step` is told the name of each before it is
    measured."""
    device, clock = device_at_hand(cupy), CupyClock(cupy)
    module = cupy.RawModule(code=_TEXT, options=_OPTIONS)
    bench = _Bench(cupy, clock, module, device)
    changed: dict[str, float] = {}
    for name, measure in (
        ("copy_share", bench.copy_share),
        ("l2_share", bench.l2_share),
        ("idle_load_us", bench.idle_load_us),
        ("barrier_us", bench.barrier_us),
        ("clock_share", bench.clock_share),
        ("kernel_launch_us", bench.kernel_launch_us),
    ):
        step(name)
        changed[name] = measure()
    constants = [MeasuredConstant(n, _unit(n), getattr(device, n), value) for n, value in changed.items()]
    values = {f.name: getattr(device, f.name) for f in fields(DeviceTarget)}
    return Calibration(DeviceTarget(**(values | changed)), tuple(constants))


def _unit(name: str) -> str:
    return "us" if name.endswith("_us") else ""


class _Bench:
    def __init__(self, cupy: ModuleType, clock: CupyClock, module: ModuleType, device: DeviceTarget) -> None:
        self.cupy, self.clock, self.module, self.device = cupy, clock, module, device
        self.end = cupy.zeros(1, "uint32")

    def _us(self, work: Callable[[], None], launches: int = 1) -> float:
        """Microseconds of work, the median."""
        work()
        return median(self.clock.timed(work, launches) for _ in range(ROUNDS))

    def copy_share(self) -> float:
        return self.clock.copy_bandwidth() / self.device.memory_bandwidth

    def l2_share(self) -> float:
        """Readings beyond the first of an array of a quarter of L2, of which a multiprocessor holds little in L1."""
        count = self.device.l2_cache_size // 4 // 16
        data = self.cupy.zeros(4 * count, "uint32")
        kernel, grid = self.module.get_function("hlo_opt_reread"), 8 * self.device.core_count

        def read(rounds: int) -> float:
            arguments = (data, self.end, np.int32(count), np.int32(rounds))
            return self._us(lambda: kernel((grid,), (BLOCK,), arguments))

        taken = (read(READINGS) - read(1)) / (READINGS - 1)
        return 16 * count / (taken * 1e-6) / self.device.memory_bandwidth

    def idle_load_us(self) -> float:
        """Loads from memory, each at the address that the one before gave."""
        line = 64  # elements between two places: 256 bytes
        places = np.random.default_rng(0).permutation(CHASED_BYTES // 4 // line)[: 2 * CHASED]
        following = np.zeros(CHASED_BYTES // 4, np.uint32)
        order = np.concatenate([[0], places[places != 0]]) * line
        following[order[:-1]] = order[1:]
        array = self.cupy.asarray(following)
        kernel = self.module.get_function("hlo_opt_chase")

        def chase(steps: int) -> float:
            arguments = (array, self.end, np.int32(steps))
            times = []
            for _ in range(3):
                self.clock.empty_caches()
                times.append(self.clock.timed(lambda: kernel((1,), (1,), arguments), 1))
            return median(times)

        chase(CHASED)
        return (chase(CHASED) - chase(CHASED // 4)) / (CHASED - CHASED // 4)

    def barrier_us(self) -> float:
        """Barriers of all blocks, two on each multiprocessor, by the helper that kernels use."""
        text = helpers(["hlo_meet_grid"]) + _MEETING
        module = self.cupy.RawModule(code=text, options=_OPTIONS, enable_cooperative_groups=True)
        kernel, arrived = module.get_function("hlo_opt_meet"), self.cupy.zeros(1, "uint32")
        grid = 2 * self.device.core_count

        def meet(rounds: int) -> float:
            arguments = (arrived, np.int32(rounds))
            return self._us(lambda: kernel((grid,), (BLOCK,), arguments))

        return (meet(MEETINGS) - meet(1)) / (MEETINGS - 1)

    def clock_share(self) -> float:
        """Cycles by time while all multiprocessors compute."""
        kernel, taken = self.module.get_function("hlo_opt_spin"), self.cupy.zeros(2, "int64")
        grid = 8 * self.device.core_count
        for _ in range(ROUNDS):
            kernel((grid,), (BLOCK,), (taken, self.end.view("float32"), np.int32(SPUN)))
        cycles, nanoseconds = self.cupy.asnumpy(taken)
        return float(cycles / nanoseconds / self.device.clock_rate_ghz)

    def kernel_launch_us(self) -> float:
        """From one kernel that does nothing to the next."""
        kernel = self.module.get_function("hlo_opt_nothing")

        def launch(count: int) -> float:
            def launches() -> None:
                for _ in range(count):
                    kernel((1,), (32,), ())

            return self._us(launches, count)

        return (launch(EMPTY) - launch(EMPTY // 4)) / (EMPTY - EMPTY // 4)


def device_file(calibration: Calibration) -> str:
    """The device as a TOML file for `--target`."""
    device = calibration.device
    measured = {c.name for c in calibration.constants}
    lines = [f"# {device.title}, as its driver describes it; measured by hlo-opt calibrate {__version__} where marked."]
    for field in fields(DeviceTarget):
        if field.name == "name":
            continue
        value = getattr(device, field.name)
        written = (
            f'"{_escaped(value)}"' if isinstance(value, str) else f"{value:.6g}" if field.name in measured else value
        )
        lines.append(f"{field.name} = {written}" + ("  # measured" if field.name in measured else ""))
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """As a basic string of TOML has it: a driver's name of a device is no more than letters, but nobody says so."""
    return "".join(c if c.isprintable() and c not in '"\\' else f"\\u{ord(c):04x}" for c in text)
