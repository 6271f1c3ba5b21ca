"""The forms of kernels that a check compares on the host: the emitted text as it stands, which is what a GPU runs, and
the lanes form, which `run`, `bench` and the hook for JAX run. And the kernel at fault where only the lanes form is."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Literal

import numpy as np

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.diag import HloOptError
from hlo_opt.ir import Instruction, Module, edit
from hlo_opt.ir.values import Array
from hlo_opt.runtime.differences import far_apart
from hlo_opt.runtime.executable import Executable, choose_backend, compile
from hlo_opt.runtime.host.crashes import crashes_told
from hlo_opt.runtime.host.library import HostDevice, HostLibrary, KernelForm
from hlo_opt.runtime.numpy import Reference, from_memory
from hlo_opt.runtime.schedule import Schedule
from hlo_opt.runtime.schedule.executor import Executor
from hlo_opt.runtime.schedule.ops import LaunchOp

FORMS: tuple[KernelForm, ...] = ("plain", "lanes")
CheckedForms = Literal["both", "plain", "lanes"]


def forms_of(wish: CheckedForms, backend: str, *, sanitize: bool) -> tuple[KernelForm, ...]:
    """The forms that are compared for a wish. The sanitizers look at the emitted text, and so does a GPU. Raises
    UsageError for an unknown backend."""
    if sanitize or choose_backend(backend)[0] != "host":
        return FORMS[:1]
    return FORMS if wish == "both" else (wish,)


@contextmanager
def being_built(
    module: Module, backend: str, wish: CheckedForms, *, sanitize: bool, precise: bool, memory_limit: int | None
) -> Iterator[Callable[[int | None], dict[str, Executable]]]:
    """Gives what builds a module, with a limit of the iterations of its loops: an executable for each form on the host,
    elsewhere one, for the form "". It raises what `compile` raises; the other options are those of `compile`.

    The lanes form, which takes the compiler longest, is built in a thread of its own from the start.
    """
    forms = forms_of(wish, backend, sanitize=sanitize)
    copy = edit.clone_module(module)  # what planning notes at computations is no other thread's
    with ThreadPoolExecutor(1) if forms == FORMS else nullcontext() as pool:
        task = partial(compile, copy, backend, form=FORMS[-1], memory_limit=memory_limit)
        lanes = None if pool is None else pool.submit(contextvars.copy_context().run, task)

        def finish(max_steps: int | None) -> dict[str, Executable]:
            first = compile(
                module,
                backend,
                form=forms[0],
                sanitize=sanitize,
                max_steps=max_steps,
                memory_limit=memory_limit,
                precise=precise,
            )
            if first.backend != "host":  # a size is open
                return {"": first}
            if sanitize or wish != "both":
                return {forms[0]: first}
            second = task() if lanes is None else lanes.result()
            second.limit_steps(max_steps)
            return dict(zip(FORMS, (first, second), strict=True))

        yield finish


@contextmanager
def built(executable: Executable) -> Iterator[Callable[[int | None], dict[str, Executable]]]:
    """As `being_built`, for a module that was built before, in one form."""
    yield lambda max_steps: {"": executable}


class _FoundError(Exception):
    """Ends the run at the first kernel whose forms differ."""


class _BothForms(HostDevice):
    """Launches each kernel of a schedule in both forms on the same memory."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(HostLibrary(schedule.kernels, form="plain"), Reference(schedule.module))
        self._lanes = HostLibrary(schedule.kernels, form="lanes")
        self._launches = [op for _, op in schedule.ops() if isinstance(op, LaunchOp)]

    def instructions(self, kernel: Kernel) -> list[Instruction]:
        """What a kernel computes."""
        return [op.instruction for op in self._launches if op.kernel.symbol == kernel.symbol]

    def launch(self, kernel: Kernel, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Raises _FoundError where the results of both forms are far apart."""
        others = [self.copy(memory) for memory in outputs]
        read = [
            next((own for own, o in zip(others, outputs, strict=True) if np.may_share_memory(m, o)), m) for m in inputs
        ]
        super().launch(kernel, inputs, outputs)
        self._lanes.launch(kernel, read, others)
        number = min((len(list(i.shape.leaves())) for i in self.instructions(kernel)), default=0)
        results = list(zip(outputs, others, kernel.outputs, strict=True))[:number]  # behind them is scratch memory
        if any(far_apart(from_memory(a, s), from_memory(b, s)) for a, b, s in results):
            raise _FoundError(kernel)


def kernel_at_fault(executable: Executable, inputs: Sequence[Array], max_steps: int | None) -> str:
    """The first kernel of the lanes form whose emitted text gives other results, and the instructions that it computes;
    empty where none does, as where what is around the kernels is wrong."""
    schedule = executable.schedule
    if schedule is None:
        return ""
    try:
        device = _BothForms(schedule)
        with crashes_told():
            Executor(schedule, device, max_steps).run(inputs)
    except _FoundError as found:
        (kernel,) = found.args
        names = dict.fromkeys(i.name for i in device.instructions(kernel))
        return f"{kernel.symbol} of {', '.join(names)}"
    except HloOptError:  # it differs all the same
        pass
    return ""
