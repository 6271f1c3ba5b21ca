"""Executable: a module made ready to run on one backend."""

from __future__ import annotations

from typing import Any

from hlo_opt.diag import UsageError, nearest
from hlo_opt.evaluate.inputs import checked as entry_inputs
from hlo_opt.evaluate.inputs import input_shapes as entry_shapes
from hlo_opt.ir import Module
from hlo_opt.runtime.executor import Device, Executor
from hlo_opt.runtime.memory import Array
from hlo_opt.runtime.reference import Reference
from hlo_opt.runtime.schedule import Schedule, build_schedule

__all__ = ["BACKENDS", "Executable", "choose_backend", "compile", "entry_inputs", "entry_shapes"]

BACKENDS = ("auto", "cupy", "host", "numpy")


class Executable:
    """A module on one backend: call it with arrays, one per entry parameter (tuples flattened in order).

    backend  `numpy`, `host` or `cupy`
    why      why this backend, in words, for people
    """

    def __init__(
        self, module: Module, backend: str, why: str, schedule: Schedule | None, device: Device | None
    ) -> None:
        self.module = module
        self.backend = backend
        self.why = why
        self.schedule = schedule
        self._device = device
        self._executor = None if schedule is None or device is None else Executor(schedule, device)

    def __call__(self, *inputs: Any) -> list[Array]:
        """The outputs, tuples flattened. Raises EvaluationError for inputs that do not fit the entry parameters."""
        arrays = entry_inputs(self.module, inputs)
        if self._executor is None:
            return Reference(self.module).run(arrays)
        return self._executor.run(arrays)

    def report(self) -> dict[str, Any]:
        """What ran.

        launches   kernel launches of the last call, each iteration of a loop counted (0 before the first call)
        kernels    the distinct kernels: symbol, kind, grid, block, shared_bytes
        library    instructions that a library computes, by what is called
        fallbacks  instructions that have neither kernel nor library and are evaluated in NumPy; empty when all is well
        notes      how the device does its library calls, where that needs saying
        """
        if self.schedule is None or self._executor is None:
            return {"backend": self.backend, "launches": 0, "kernels": [], "library": {}, "fallbacks": {}, "notes": {}}
        kernels = [
            {
                "symbol": k.symbol,
                "kind": k.kind,
                "grid": k.launch.grid,
                "block": k.launch.block,
                "shared_bytes": k.launch.shared_bytes,
            }
            for k in self.schedule.kernels
        ]
        return {
            "backend": self.backend,
            "launches": self._executor.launches,
            "kernels": kernels,
            "library": self.schedule.library_calls("library"),
            "fallbacks": self.schedule.library_calls("fallback"),
            "notes": dict(sorted(getattr(self._device, "notes", {}).items())),
        }


def choose_backend(wish: str) -> tuple[str, str]:
    """The backend for a wish and why, in words. `auto` is cupy where there is a GPU, else host where there is a C++ compiler, else numpy.

    Raises UsageError, naming the backends, for an unknown one.
    """
    if wish not in BACKENDS:
        close = nearest(wish, BACKENDS)
        raise UsageError(
            f"there is no backend {wish!r}; there are {', '.join(BACKENDS)}",
            code="HLO320",
            hint=f"did you mean {close}?" if close else None,
        )
    if wish != "auto":
        return wish, "asked for"
    from hlo_opt.runtime.cupy_device import has_gpu
    from hlo_opt.runtime.host import has_compiler

    if has_gpu():
        return "cupy", "there is a GPU"
    if has_compiler():
        return "host", "there is no GPU, but a C++ compiler"
    return "numpy", "there is neither a GPU nor a C++ compiler"


def compile(module: Module, backend: str = "host") -> Executable:
    """Make a module ready to run.

    backend  `numpy` (the interpreter), `host` (the emitted CUDA text built with the C++ compiler), `cupy` (on a GPU) or `auto`

    Raises UsageError for an unknown backend, BackendError where its compiler or GPU is missing or a kernel does not build.
    """
    name, why = choose_backend(backend)
    if name == "numpy":
        return Executable(module, name, why, None, None)
    schedule = build_schedule(module)
    reference = Reference(module)
    device: Device
    if name == "host":
        from hlo_opt.runtime.host_device import HostDevice

        device = HostDevice(schedule.kernels, reference)
    else:
        from hlo_opt.runtime.cupy_device import CupyDevice

        device = CupyDevice(schedule.kernels, reference)
    return Executable(module, name, why, schedule, device)
