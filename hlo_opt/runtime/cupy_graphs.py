"""Loops as CUDA graphs: where body and condition are straight lines of kernels, one launch per iteration does both.

The state that the body changes lies in two fixed sets of buffers; one graph runs the body from the first to the second, another one back, each followed by the
condition on what it made. Where the number of iterations is known, they are all launched without looking at the predicate; it is read once, at the end. Else one
byte is read per iteration. A loop that cannot be captured runs step by step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.diag import BackendError
from hlo_opt.runtime.executor import Device
from hlo_opt.runtime.schedule import Schedule
from hlo_opt.runtime.steps import ConstantStep, KernelStep, Routine, ViewStep, WhileStep

LEAST = 3
"""Iterations, where their number is known, from which on capturing pays."""

Constants = Callable[[ConstantStep, Sequence[Any]], list[Any]]
"""The buffers of a constant step, given the shapes of its routine."""

_Launch = tuple[Kernel | None, list[Any], list[Any]]
"""A kernel with its inputs and outputs, or (None) a copy of one buffer to another."""


class CannotCaptureError(Exception):
    """A loop has no graph: it is no straight line of kernels, or its results are not what kernels write."""


@dataclass
class _Half:
    """A graph of one iteration, where its predicate lies, and how many kernels it launches."""

    graph: Any
    predicate: Any
    launches: int


@dataclass
class LoopGraphs:
    """The captured loops of a schedule on a device. `refused` says by loop why there is no graph."""

    cupy: Any
    device: Device
    schedule: Schedule
    refused: dict[WhileStep, str] = field(default_factory=dict)
    _captured: dict[WhileStep, _Loop] = field(default_factory=dict)

    def run(
        self, step: WhileStep, state: Sequence[Any], trips: int | None, constants: Constants
    ) -> tuple[list[Any], int] | None:
        """The final state and how many kernels were launched; None where the loop must run step by step."""
        if step in self.refused or (trips is not None and trips < LEAST):
            return None
        loop = self._captured.get(step)
        try:
            if loop is None or not loop.fits(state):
                loop = _Loop(self, step, state, constants)
                self._captured[step] = loop
        except (CannotCaptureError, BackendError) as error:
            self.refused[step] = str(error)
            return None
        return loop.run(state, trips)

    def captured(self, launches: Sequence[_Launch]) -> Any:
        """A graph of launches. Raises CannotCaptureError with what CUDA says."""
        stream = self.cupy.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            try:
                for kernel, inputs, outputs in launches:
                    if kernel is None:
                        outputs[0].data.copy_from_device_async(inputs[0].data, inputs[0].nbytes)
                    else:
                        self.device.launch(kernel, inputs, outputs)
            except BaseException:
                with contextlib.suppress(Exception):
                    stream.end_capture()
                raise
            try:
                return stream.end_capture()
            except self.cupy.cuda.runtime.CUDARuntimeError as error:
                raise CannotCaptureError(str(error)) from None


class _Loop:
    def __init__(self, owner: LoopGraphs, step: WhileStep, state: Sequence[Any], constants: Constants) -> None:
        self.owner = owner
        self.constants = constants
        self.body = owner.schedule.routines[step.body]
        self.condition = owner.schedule.routines[step.condition]
        self.carried = [k for k, (a, b) in enumerate(zip(self.body.inputs, self.body.results, strict=True)) if a != b]
        self.roots = self._roots()
        self.fixed = {k: m for k, m in enumerate(state) if k not in set(self.carried)}
        first = [self._allocated(self.roots[k]) for k in self.carried]
        updated = set(self.body.donated)
        second = [
            m if k in updated else self._allocated(self.roots[k]) for k, m in zip(self.carried, first, strict=True)
        ]
        self.sets = [first, second]
        self.test = self._half(None, 0)
        self.halves = [self._half(0, 1), self._half(1, 0)]

    def _roots(self) -> dict[int, int]:
        """For each element that the body changes, the buffer of a kernel that its result is, or is a view of."""
        made_by = {b: s for s in self.body.steps for b in s.outputs}
        roots: dict[int, int] = {}
        for k in self.carried:
            b = self.body.results[k]
            while isinstance(made_by.get(b), ViewStep):
                b = made_by[b].inputs[0]
            if not isinstance(made_by.get(b), KernelStep) or b in roots.values():
                raise CannotCaptureError(f"element {k} of the state is not what one kernel writes")
            roots[k] = b
        return roots

    def _allocated(self, buffer: int) -> Any:
        return self.owner.device.allocate(self.body.shapes[buffer])

    def _state(self, number: int) -> list[Any]:
        """The state in one of the two sets, as the body's parameters are shaped."""
        found = dict(self.fixed)
        for k, memory in zip(self.carried, self.sets[number], strict=True):
            found[k] = self.owner.device.view(memory, self.body.shapes[self.body.inputs[k]])
        return [found[k] for k in range(len(self.body.inputs))]

    def _half(self, source: int | None, target: int) -> _Half:
        """The body from one set to the other, then the condition there; only the condition where there is no source."""
        launches: list[_Launch] = []
        if source is not None:
            placed = {self.roots[k]: m for k, m in zip(self.carried, self.sets[target], strict=True)}
            self._collect(self.body, self._state(source), placed, launches)
        memory = self._collect(self.condition, self._state(target), {}, launches)
        return _Half(
            self.owner.captured(launches), memory[self.condition.results[0]], sum(k is not None for k, _, _ in launches)
        )

    def _collect(
        self, routine: Routine, inputs: Sequence[Any], placed: dict[int, Any], launches: list[_Launch]
    ) -> list[Any]:
        """All buffers of a routine; its launches are added to the list."""
        device, memory = self.owner.device, [None] * len(routine.shapes)
        for b, value in zip(routine.inputs, inputs, strict=True):
            memory[b] = value
        for step in routine.steps:
            match step:
                case KernelStep():
                    own = dict(step.donated)  # of the state, which lies in the same place in both sets
                    own.update((b, source) for b, source in step.takes if b not in placed)
                    for b in step.outputs:
                        if b in own:
                            memory[b] = memory[own[b]]
                        else:
                            memory[b] = placed[b] if b in placed else device.allocate(routine.shapes[b])
                    for b, source in (*step.copies, *step.takes):
                        if b not in own and not _is_same(memory[source], memory[b]):
                            launches.append((None, [memory[source]], [memory[b]]))
                    taken = [memory[b] for b in step.inputs]
                    launches.append((step.kernel, taken, [memory[b] for b in step.outputs]))
                case ViewStep():
                    memory[step.outputs[0]] = device.view(memory[step.inputs[0]], routine.shapes[step.outputs[0]])
                case ConstantStep():
                    for b, value in zip(step.outputs, self.constants(step, routine.shapes), strict=True):
                        memory[b] = value
                case _:
                    raise CannotCaptureError(f"{step.instruction.opcode} {step.instruction.name} is no kernel")
        return memory

    def fits(self, state: Sequence[Any]) -> bool:
        """Whether what the body leaves alone lies where it lay when the graphs were captured."""
        return all(_is_same(state[k], m) for k, m in self.fixed.items())

    def run(self, state: Sequence[Any], trips: int | None) -> tuple[list[Any], int]:
        for k, target in self._changed(0):
            target[...] = state[k]
        current, launches, unread, predicate = 0, 0, trips or 0, self.test.predicate
        if not unread:
            self.test.graph.launch()
            launches += self.test.launches
        while unread > 0 or bool(self.owner.cupy.asnumpy(predicate)[0]):
            half = self.halves[current]
            half.graph.launch()
            launches, predicate = launches + half.launches, half.predicate
            current, unread = 1 - current, unread - 1
        results = list(state)
        for k, memory in self._changed(current):
            results[k] = memory.copy()  # the sets belong to the graphs
        return results, launches

    def _changed(self, number: int) -> list[tuple[int, Any]]:
        found = self._state(number)
        return [(k, found[k]) for k in self.carried]


def _is_same(one: Any, other: Any) -> bool:
    """Whether two buffers of equal size (None: tokens) are the same memory."""
    return one is other or (one is not None and other is not None and bool(one.data.ptr == other.data.ptr))
