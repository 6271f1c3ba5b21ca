"""Executable: a module that is ready to run on one backend."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.diag import BackendError, EvaluationError, UsageError, did_you_mean
from hlo_opt.evaluate.devices import evaluate_devices, spread
from hlo_opt.evaluate.elided import Elided, elided_constants, missing, with_values
from hlo_opt.evaluate.inputs import checked as entry_inputs
from hlo_opt.evaluate.inputs import input_shapes as entry_shapes
from hlo_opt.evaluate.memory import check_memory
from hlo_opt.ir import Module
from hlo_opt.ir.values import Array
from hlo_opt.ops.collective.module_devices import check_devices, counts, warn_of_one_device
from hlo_opt.runtime.host.lanes_schedule import lanes_schedule
from hlo_opt.runtime.host.library import KernelForm, has_compiler
from hlo_opt.runtime.host.program import HostProgram
from hlo_opt.runtime.host.sanitize import SanitizedProgram
from hlo_opt.runtime.host.words import host_routines
from hlo_opt.runtime.numpy import Reference
from hlo_opt.runtime.schedule import Schedule, build_schedule
from hlo_opt.runtime.schedule.executor import Executor
from hlo_opt.runtime.schedule.lifetimes import check_schedule
from hlo_opt.runtime.schedule.open_sizes import of_any_size, refuse_open_sizes

if TYPE_CHECKING:
    from hlo_opt.runtime.cupy.exchange import Exchange

__all__ = ["BACKENDS", "Executable", "choose_backend", "compile", "entry_inputs", "entry_shapes", "of_any_size"]

NOT_ON_A_GPU = frozenset({"HLO523", "HLO525"})
"""Codes of a module that a GPU cannot run: `auto` goes on to the host, and says so."""

BACKENDS = ("auto", "cupy", "host", "numpy")


class Executable:
    """A module on one backend: call it with arrays, one per entry parameter (tuples flattened in order). `run_devices`
    runs one for several devices on all of them.

    backend  `numpy`, `host` or `cupy`
    why      why this backend, in words, for people
    devices  how many devices the module's header asks for
    lacks    why it cannot be called: constants that have no value
    precise  whether it divides and takes square roots as the host does
    """

    def __init__(
        self,
        module: Module,
        backend: str,
        why: str,
        schedule: Schedule | None = None,
        executor: Executor | HostProgram | SanitizedProgram | None = None,
        max_steps: int | None = None,
        *,
        precise: bool = False,
    ) -> None:
        self.module = module
        self.backend = backend
        self.why = why
        self.devices = math.prod(counts(module))
        self._shapes = entry_shapes(module)
        self.schedule = schedule
        self._executor = executor
        self._max_steps = max_steps
        self._exchange: Exchange | None = None
        self.lacks: EvaluationError | None = None
        self.precise = precise or backend != "cupy"

    def _arrays(self, inputs: Sequence[Array]) -> list[Array]:
        """The inputs of a device. Raises EvaluationError where they do not fit, and for constants without values."""
        if self.lacks is not None:
            raise self.lacks
        arrays = entry_inputs(self.module, inputs, self._shapes)
        for number, (array, shape) in enumerate(zip(arrays, self._shapes, strict=True)):
            if self._executor is not None and array.shape != shape.dimensions:
                raise EvaluationError(
                    f"input {number} has the sizes {list(array.shape)}, and kernels are built for the bound of "
                    f"{shape.without_layout()}",
                    code="HLO514",
                    hint="backend numpy takes arrays of any size within it",
                )
        return arrays

    def __call__(self, *inputs: Any, donate: bool = False) -> list[Array]:
        """The outputs, tuples flattened. Raises EvaluationError for inputs that do not fit the entry parameters.

        donate  the run may write into the inputs that the module's header gives away (`input_output_alias`), as after
                `jax.jit(..., donate_argnums=...)`: on the host outputs then lie in
                their memory. Else inputs stay as they are

        A module for several devices runs as `evaluate` runs it: on the first of them, alone, with a DeviceWarning where
        that matters.
        """
        arrays = self._arrays(inputs)
        if self._executor is None:
            return Reference(self.module).run(arrays, self._max_steps)
        if self.devices > 1:
            warn_of_one_device(self.module)
        return (
            self._executor.run(arrays, donate=donate)
            if isinstance(self._executor, HostProgram)
            else self._executor.run(arrays)
        )

    def on_device(self, *inputs: Any, donate: bool = False) -> list[Any]:
        """As a call, from arrays on the GPU to arrays of CuPy, which may still be under way on return (on CuPy's
        current stream); nothing goes through the host, and nothing is copied that lies as the module wants it. Types
        that CuPy lacks are raw bits: bf16 is `uint16`. On other backends the same as a call.

        inputs  CuPy arrays, or what speaks DLPack (arrays of PyTorch and JAX); NumPy arrays are uploaded
        donate  as for a call; outputs then lie in the memory of inputs

        Raises what a call raises.
        """
        if not isinstance(self._executor, Executor):
            return list(self(*inputs, donate=donate))
        if self.lacks is not None:
            raise self.lacks
        warn_of_one_device(self.module)
        if self._exchange is None:
            from hlo_opt.runtime.cupy.exchange import Exchange

            self._exchange = Exchange(self._executor)
        return self._exchange(inputs, donate=donate)

    def run_devices(self, inputs: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """The outputs on every device of the module, in order of their numbers: replica * partitions + partition. The
        devices are simulated: they take turns on the one that there is, from one collective to the next.

        inputs  per device what a call takes. One list alone goes to all devices; its arrays may be global ones, which
                the parameters' shardings cut

        Raises what `evaluate_devices` raises.
        """
        check_devices(self.module)
        arrays = [self._arrays(own) for own in spread(self.module, inputs)]
        if self.devices == 1:
            return [self(*arrays[0])]
        if self._executor is None:
            return evaluate_devices(self.module, arrays, max_steps=self._max_steps)
        return self._executor.run_devices(arrays)

    def limit_steps(self, max_steps: int | None) -> None:
        """As `max_steps` of `compile`, for a module that did not run yet."""
        self._max_steps = max_steps
        if self._executor is not None:
            self._executor.max_steps = max_steps

    def resident(self, inputs: Sequence[Array]) -> Callable[[], None]:
        """As `resident_devices`, for a module for one device."""
        return self.resident_devices([inputs])

    def resident_devices(self, inputs: Sequence[Sequence[Array]]) -> Callable[[], None]:
        """Runs the module on all its devices, each with its inputs, on a GPU from inputs that lie there already to
        outputs that stay there, perhaps in the same memory each time: what is timed. There it may return before all is
        done."""
        executor = self._executor
        if not isinstance(executor, Executor):
            return lambda: void(self.run_devices(inputs))
        memory = [executor.upload(self._arrays(own)) for own in spread(self.module, inputs)]
        if self.devices == 1:
            return executor.resident(memory[0])
        return lambda: void(executor.run_devices_resident(memory))

    def report(self) -> dict[str, Any]:
        """What ran.

        devices    how many devices the module is for; `launches` and `memory` are those of all that ran
        launches   kernel launches of the last call, each iteration of a loop counted (0 before the first call)
        kernels    the distinct kernels: symbol, kind, grid, block, shared_bytes
        library    instructions that a library computes, by what is called
        fallbacks  instructions that have neither kernel nor library and are evaluated in NumPy; empty when all is well
        routines   on the host, which routine computes each of `library` and `fallbacks`:
                   `{"dot": ["numpy.matmul (OpenBLAS 0.3.30)"]}`
        notes      how the device does its library calls, where that needs saying
        memory     on the host, bytes of a run: buffers (in one block), constants, inputs, outputs, and peak, their sum
        graphs     on a GPU: how many loops, stretches of kernels and whole runs (`resident`) have a CUDA graph, kernels
                   that graphs launched in the last call, streams, and what CUDA refused
        """
        if self.schedule is None or self._executor is None:
            empty: dict[str, Any] = {"launches": 0, "kernels": [], "library": {}, "fallbacks": {}, "notes": {}}
            return {"backend": self.backend, "devices": self.devices, **empty}
        kernels = [{"symbol": k.symbol, "kind": k.kind, **asdict(k.launch)} for k in self.schedule.kernels]
        executor = self._executor
        notes: dict[str, str] = {}
        of_its_own: dict[str, Any] = {}
        if isinstance(executor, HostProgram):
            of_its_own = {"memory": executor.memory, "routines": host_routines(self.schedule)}
        elif isinstance(executor, Executor):
            notes = getattr(executor.device, "notes", {})
            graphs = {} if executor.graphs is None else executor.graphs.report()
            of_its_own = {"graphs": graphs} if graphs else {}
        return {
            **of_its_own,
            "backend": self.backend,
            "devices": self.devices,
            "launches": executor.launches,
            "kernels": kernels,
            "library": self.schedule.library_calls("library"),
            "fallbacks": self.schedule.library_calls("fallback"),
            "notes": dict(sorted(notes.items())),
        }


def void(_: object) -> None:
    """Lets go of a result."""


def choose_backend(wish: str) -> tuple[str, str]:
    """The backend for a wish and why, in words. `auto` is cupy where there is a GPU, else host where there is a C++
    compiler, else numpy.

    Raises UsageError, naming the backends, for an unknown one.
    """
    if wish not in BACKENDS:
        raise UsageError(
            f"there is no backend {wish!r}; there are {', '.join(BACKENDS)}",
            code="HLO320",
            hint=did_you_mean(wish, BACKENDS),
        )
    if wish != "auto":
        return wish, "asked for"
    from hlo_opt.runtime.cupy.device import has_gpu

    if has_gpu():
        return "cupy", "there is a GPU"
    if has_compiler():
        return "host", "there is no GPU, but a C++ compiler"
    return "numpy", "there is neither a GPU nor a C++ compiler"


def compile(
    module: Module,
    backend: str = "host",
    *,
    max_steps: int | None = None,
    memory_limit: int | None = None,
    sanitize: bool = False,
    form: KernelForm = "lanes",
    graphs: bool = True,
    elided: Elided = None,
    target: str | DeviceTarget | None = None,
    precise: bool = False,
) -> Executable:
    """Make a module ready to run.

    backend       `numpy` (the interpreter), `host` (the emitted CUDA text built with the C++ compiler), `cupy` (on a
                  GPU) or `auto`
    max_steps     how many iterations all loops of a run may take together, else it raises EvaluationError (HLO402);
                  None: any number
    memory_limit  bytes that a run may hold at once on all devices of the module, inputs and outputs included; None: any
                  number
    sanitize      build the kernels with address and undefined-behaviour sanitizers, and once more with a watch over
                  races between threads, and run them in a process of their
                  own; only on the host. A run then raises CheckError (HLO721) where a kernel does what it must not
    form          on the host: `lanes`, kernels rewritten for vector units, some of them planned otherwise than for a
                  device, or `plain`, the emitted text as it stands
    graphs        on a GPU, loops and stretches of kernels and products by cuBLAS run as CUDA graphs, what is
                  independent side by side;
                  `$HLO_OPT_STREAMS` says on how many streams
                  (0: no graphs). The results are the same
    target        the device that kernels are planned for; None: the one that the module was fused for, else an H100 SXM
    precise       on a GPU, division and square root of f32 as IEEE 754 says, and functions of narrow floats as of f32;
                  else as XLA:GPU's, which are a few times cheaper and within 2 ULP
    elided        as for `evaluate`; without it a module that lacks the values of constants is built, and a call of it
                  raises EvaluationError (HLO407)

    Raises EvaluationError (HLO402) for a module that would hold more, before anything is built; UsageError for an
    unknown backend, BackendError where its compiler or GPU is missing, a kernel does not build or (HLO514) a size is
    open.
    """
    original, lacking = module, elided_constants(module) if elided is None else []
    module = with_values(module, "zeros" if lacking else elided)
    name, why = choose_backend("host" if sanitize and backend == "auto" else backend)
    if backend == "auto" and not sanitize and name != "numpy" and (open_one := of_any_size(module)) is not None:
        name, why = "numpy", f"the size of {open_one.name} is open"
    if sanitize and name != "host":
        raise UsageError(f"the sanitizers run on backend host, not {name}", code="HLO322")
    if name != "numpy":
        refuse_open_sizes(module, f"backend {name}")
    devices = math.prod(counts(module))

    def built(name: str, why: str) -> Executable:
        if name == "numpy":
            check_memory(module, memory_limit, devices=devices)
            return Executable(module, name, why, max_steps=max_steps)
        if name == "host" and form == "lanes" and not sanitize:
            schedule = lanes_schedule(module, target)
        elif name == "cupy":
            from hlo_opt.runtime.cupy.gpu_schedule import gpu_schedule

            schedule = gpu_schedule(module, target, precise=precise)
        else:
            schedule = build_schedule(module, target)
        check_schedule(schedule, memory_limit, devices=devices)
        executor: Executor | HostProgram | SanitizedProgram
        if sanitize:
            executor = SanitizedProgram(schedule, max_steps)
        elif name == "host":
            executor = HostProgram(schedule, Reference(schedule.module), max_steps, form)
        else:
            from hlo_opt.runtime.cupy.device import CupyDevice
            from hlo_opt.runtime.cupy.graphs import graphs_of

            gpu = CupyDevice(schedule, precise=precise)
            executor = Executor(schedule, gpu, max_steps, loads=True)
            counted = max_steps is not None
            executor.graphs = (
                graphs_of(schedule, gpu, memory_limit, wished=graphs, counted=counted) if devices == 1 else None
            )
        return Executable(module, name, why, schedule, executor, max_steps, precise=precise)

    try:
        executable = built(name, why)
    except BackendError as error:
        if backend != "auto" or error.code not in NOT_ON_A_GPU:
            raise
        why = f"there is a GPU, but {error.message.removeprefix('backend cupy: ')}"
        executable = built("host" if has_compiler() else "numpy", why)
    if lacking:
        executable.lacks = missing(original, lacking)
    return executable
