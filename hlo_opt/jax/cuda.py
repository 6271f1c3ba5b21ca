"""Our kernels in XLA's programs on an NVIDIA GPU: the typed FFI handler of `cuda.cpp`, and regions as programs for it.
The gain of a region is estimated."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np

from hlo_opt.analysis.targets import DeviceTarget, target, target_names
from hlo_opt.codegen.options import compile_options
from hlo_opt.diag import BackendError
from hlo_opt.fusion.summary import module_summary
from hlo_opt.ir import Module
from hlo_opt.jax import records
from hlo_opt.jax.backend import Backend
from hlo_opt.jax.device import DeviceProgram, steps_of
from hlo_opt.jax.estimates import call_us, least_us, xla_us
from hlo_opt.jax.nvrtc import nvrtc
from hlo_opt.jax.region_handler import POINTER, WORD, RegionHandler
from hlo_opt.jax.regions import simple_form
from hlo_opt.passes import run
from hlo_opt.runtime.cupy.device import architecture, compiled
from hlo_opt.runtime.host.compiler import cache_directory
from hlo_opt.runtime.schedule import build_schedule


class _Kernel(ctypes.Structure):
    _fields_: ClassVar = [
        ("code", ctypes.c_char_p),
        ("symbol", ctypes.c_char_p),
        *((name, WORD) for name in ("grid", "block", "cooperative")),
    ]


class _Region(ctypes.Structure):
    """`Region` of `cuda.cpp`."""

    _fields_: ClassVar = [
        ("kernel_count", WORD),
        ("kernels", POINTER),
        ("word_count", WORD),
        ("words", POINTER),
        ("constant_bytes", WORD),
        ("constants", POINTER),
        ("input_count", WORD),
        ("input_bytes", POINTER),
        ("output_count", WORD),
        ("output_bytes", POINTER),
        ("pointers", WORD),
        ("held", POINTER),
    ]


class _Loaded:
    """A region in this process. It owns the memory that the handler points to."""

    def __init__(self, program: DeviceProgram) -> None:
        steps = program.steps
        self.memory = steps.memory
        self.arrays = (np.ascontiguousarray(steps.words, np.int64), np.ascontiguousarray(steps.constants, np.uint8))
        outputs = (*steps.outputs, *((steps.memory,) if steps.memory else ()))
        self.sizes = np.array(steps.inputs or [0], np.int64), np.array(outputs or [0], np.int64)
        self.held = np.array(steps.held or [-1], np.int64)
        rows = zip(program.code, steps.kernels, strict=True)
        self.kernels = (_Kernel * max(1, len(steps.kernels)))(
            *(_Kernel(code, k.symbol.encode(), k.grid, k.block, int(k.cooperative)) for code, k in rows)
        )
        words, constants = self.arrays
        self.region = _Region(
            len(steps.kernels),
            ctypes.addressof(self.kernels),
            len(words),
            words.ctypes.data,
            len(constants),
            constants.ctypes.data,
            len(steps.inputs),
            self.sizes[0].ctypes.data,
            len(outputs),
            self.sizes[1].ctypes.data,
            steps.pointers,
            self.held.ctypes.data,
        )


class CudaHandler(RegionHandler[DeviceProgram, _Loaded]):
    """The FFI handler for GPUs."""

    platform = "CUDA"
    state = "hlo_opt.CudaState"
    stages: ClassVar = {
        "instantiate": "HloOptInstantiate",
        "initialize": "HloOptInitialize",
        "execute": "HloOptExecute",
    }

    def __init__(self, find: Callable[[str], DeviceProgram | None]) -> None:
        """Builds and loads the handler. Raises as `RegionHandler`."""
        super().__init__(find, _Loaded, "regions.h", "cuda.cpp")

    def memory(self, key: str) -> int:
        """Bytes of the intermediate memory of a loaded region, which a call has as its last result."""
        return self.loaded(key).memory


@dataclass(frozen=True)
class Gpu:
    """The compute capability without a dot, the number of streaming multiprocessors, and the device's name."""

    capability: str
    cores: int
    title: str = ""

    @property
    def target(self) -> DeviceTarget:
        """The nearest of our targets, by compute capability, by the words of its name that the device's has, and then
        by multiprocessors."""
        known = [target(name) for name in target_names()]
        words = set(self.title.lower().split())

        def distance(t: DeviceTarget) -> tuple[int, int, int]:
            common = len(words.intersection(t.title.lower().split()))
            return abs(t.compute_capability - int(self.capability)), -common, abs(t.core_count - self.cores)

        return min(known, key=distance)


@cache
def gpu() -> Gpu:
    """The kind of JAX's GPUs. Raises BackendError (HLO521) if there are none, or several kinds."""
    import jax

    try:
        devices = jax.local_devices(backend="cuda")
    except RuntimeError as fault:
        raise BackendError(f"backend cuda: JAX has no NVIDIA GPU ({fault})", code="HLO521") from None
    kinds = {Gpu(str(d.compute_capability).replace(".", ""), int(d.core_count), d.device_kind) for d in devices}
    if len(kinds) != 1:
        raise BackendError("backend cuda: the GPUs of this machine are of several kinds", code="HLO521")
    return kinds.pop()


def has_cuda() -> bool:
    """Whether JAX has an NVIDIA GPU. Starts JAX's backends."""
    try:
        gpu()
    except BackendError:
        return False
    return True


@cache
def cuda_handler() -> CudaHandler:
    """The handler of this process, registered. Raises BackendError as `CudaHandler`, and as `gpu`."""
    gpu()
    new = CudaHandler(records.device_program_of)
    new.register()
    return new


def program_of(module: Module, preset: str, device: Gpu) -> tuple[DeviceProgram, float, float]:
    """A region's program for a GPU, and the estimated microseconds of a call of ours and of XLA's kernels. Raises an
    HloOptError if it needs a library or the host."""
    outcome = run(simple_form(module), preset, target=device.target)
    schedule = build_schedule(outcome.module)
    steps = steps_of(schedule)
    ours_us = module_summary(outcome.module, device.target).est_us + call_us(steps, device.target)
    library = nvrtc()
    wanted = architecture(library, device.capability)
    code = compiled(library, schedule.kernels, wanted, cache_directory(), compile_options())
    program = DeviceProgram(steps, tuple(code[k.symbol] for k in steps.kernels))
    return program, ours_us, xla_us(module, device.target)


def build_for_cuda(module: Module, key: str, preset: str) -> tuple[float, float]:
    """Builds a region's kernels for the GPUs of this process and stores them under a key. Returns the estimates of
    `program_of`, and raises its errors."""
    program, ours, xla = program_of(module, preset, gpu())
    records.keep_device_program(key, program)
    cuda_handler().add(key, program)
    return ours, xla


def estimates(module: Module) -> tuple[float, float]:
    """Estimated microseconds that a call of ours takes at least on the GPUs of this process, and those of XLA's
    kernels."""
    device = gpu().target
    return least_us(module, device), xla_us(module, device)


@cache
def cuda() -> Backend:
    """The CUDA backend. Raises BackendError as `gpu`."""
    device = gpu()
    name = f"cuda {device.capability} {device.target.name}"
    return Backend(
        name,
        cuda_handler,
        build_for_cuda,
        is_timed=False,
        estimate=estimates,
        memory=lambda key: cuda_handler().memory(key),
        keeps_donations=True,
    )
