"""Runs a schedule on a device. Control flow is an explicit stack, so that no input decides how deep Python recurses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from hlo_opt.analysis.loops import derived_trip_count
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.evaluate.devices import SimulatedDevice, play
from hlo_opt.evaluate.interpreter import Stopped, endless
from hlo_opt.ir import Shape
from hlo_opt.ops.module_devices import WHICH_DEVICE, exchanges
from hlo_opt.runtime.memory import Array
from hlo_opt.runtime.reference import Reference
from hlo_opt.runtime.schedule import Schedule, told_array
from hlo_opt.runtime.steps import (
    BranchStep,
    ConstantStep,
    KernelStep,
    LibraryStep,
    RelayoutStep,
    Routine,
    Step,
    ViewStep,
    WhileStep,
)

Memory = Any
"""A buffer as a device holds it; None for a token."""


class Device(Protocol):
    """How a backend allocates and launches. Buffers are flat and lie as their shape's layout says."""

    def upload(self, array: Array, shape: Shape) -> Memory:
        """A buffer holding a logical array."""
        ...

    def download(self, memory: Memory, shape: Shape) -> Array:
        """The logical array in a buffer, in memory of its own."""
        ...

    def allocate(self, shape: Shape) -> Memory:
        """An uninitialised buffer."""
        ...

    def copy(self, memory: Memory) -> Memory:
        """Another buffer with the same elements."""
        ...

    def view(self, memory: Memory, shape: Shape) -> Memory:
        """The same memory as a buffer of another shape of the same size."""
        ...

    def relayout(self, memory: Memory, shape: Shape, target: Shape) -> Memory:
        """A buffer with the elements of another where the target's layout wants them."""
        ...

    def launch(self, kernel: Kernel, inputs: Sequence[Memory], outputs: Sequence[Memory]) -> None:
        """Start a kernel. Everything started later sees its results."""
        ...

    def call(self, step: LibraryStep, inputs: Sequence[Memory], shapes: Sequence[Shape]) -> list[Memory]:
        """The outputs of a library call or a fallback."""
        ...


class Loops(Protocol):
    """Runs whole loops faster than step by step, where it can."""

    def begin(self) -> None:
        """A run starts."""
        ...

    def run(
        self,
        step: WhileStep,
        state: Sequence[Memory],
        trips: int | None,
        constants: Callable[[ConstantStep, Sequence[Shape]], list[Memory]],
        count: Callable[[int], None],
    ) -> tuple[list[Memory], int] | None:
        """The final state and the number of launches, or None. `trips` is the number of iterations where it is known; `count` gets how many are done before each one,
        and may raise."""
        ...


class Stretch(Protocol):
    """Consecutive steps that only launch kernels, up to step `last`. The constants on the way must be in memory before."""

    @property
    def last(self) -> int: ...

    @property
    def launches(self) -> int: ...

    @property
    def constants(self) -> tuple[ConstantStep, ...]: ...


class Stretches(Protocol):
    """Runs straight stretches of kernels faster than step by step, where it can."""

    def begin(self) -> None:
        """A run starts."""
        ...

    def line_at(self, routine: Routine, position: int) -> Any:
        """The `Stretch` that starts at a step of a routine, or None."""
        ...

    def run(self, line: Any, memory: list[Memory]) -> bool:
        """Start its launches, on the buffers of a routine that runs; False where it must run step by step."""
        ...


@dataclass(slots=True)
class _Frame:
    """A running routine. `waiting` is the control-flow step whose callee runs now; `state` that loop's values, `iterations` how often its body has run,
    `unread` how often it runs on before its predicate is looked at."""

    routine: Routine
    memory: list[Memory]
    position: int = 0
    waiting: Step | None = None
    state: list[Memory] | None = None
    in_condition: bool = False
    iterations: int = 0
    unread: int = 0


class Executor:
    """Runs a schedule on a device and counts launches. Constants are uploaded once and kept."""

    def __init__(
        self,
        schedule: Schedule,
        device: Device,
        max_steps: int | None = None,
        *,
        place: SimulatedDevice | None = None,
        kept: Executor | None = None,
    ) -> None:
        """`max_steps` is how many iterations all loops of a run may take together; None: any number. `place` is the device to play, None one that is alone. What `kept` holds
        for all runs is shared."""
        self.max_steps = max_steps
        self.place = place
        self.stopped = False
        self._reference = None if place is None else Reference(schedule.module)
        if place is not None and self._reference is not None:
            self._reference.play(place)
        self.steps = 0
        self.schedule = schedule
        self.device = device
        self.launches = 0
        self.loops: Loops | None = None
        self.stretches: Stretches | None = None
        self._constants_of: dict[ConstantStep, list[Memory]] = {} if kept is None else kept._constants_of
        self._known_trips: dict[WhileStep, int | None] = {} if kept is None else kept._known_trips

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The entry's output arrays for its flattened parameters; tokens are left out on both sides."""
        return self.outputs(self.run_resident(self.upload(inputs)))

    def outputs(self, results: Sequence[Memory]) -> list[Array]:
        """The arrays in what `run_resident` gave."""
        entry = self.schedule.entry
        outputs = [(m, entry.shapes[b]) for m, b in zip(results, entry.results, strict=True)]
        return [self.device.download(m, s) for m, s in outputs if s.is_array]

    def run_devices(self, inputs: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """What `run` gives on every device of the module for its inputs. Raises what `play` raises."""
        results = self.run_devices_resident([self.upload(own) for own in inputs])
        return [self.outputs(own) for own in results]

    def run_devices_resident(self, memory: Sequence[Sequence[Memory]]) -> list[list[Memory]]:
        """What `run_devices` does, from buffers to buffers. Launches are those of all devices."""
        launches = 0

        def work(place: SimulatedDevice) -> list[Memory]:
            nonlocal launches
            place.player = player = type(self)(self.schedule, self.device, self.max_steps, place=place, kept=self)
            try:
                return player.run_resident(memory[place.number])
            finally:
                launches += player.launches

        try:
            return play(self.schedule.module, work)
        finally:
            self.launches = launches

    def upload(self, inputs: Sequence[Array]) -> list[Memory]:
        """The entry's flattened parameters as the device holds them."""
        entry = self.schedule.entry
        given = iter(inputs)
        shapes = [entry.shapes[b] for b in entry.inputs]
        return [self.device.upload(next(given), s) if s.is_array else None for s in shapes]

    def run_resident(self, memory: Sequence[Memory]) -> list[Memory]:
        """What `run` does, from buffers to buffers: nothing but launches, calls and control flow, which on a GPU may still be under way on return."""
        self.launches = self.steps = 0
        for faster in (self.loops, self.stretches):
            if faster is not None:
                faster.begin()
        return self._run(self.schedule.entry, memory)

    def _run(self, entry: Routine, inputs: Sequence[Memory]) -> list[Memory]:
        stack = [_start(entry, inputs)]
        while True:
            frame = stack[-1]
            steps = frame.routine.steps
            callee = None
            while callee is None and frame.position < len(steps):
                if not self._stretch(frame):
                    callee = self._step(frame, steps[frame.position])
            if callee is not None:
                stack.append(callee)
                continue
            results = [frame.memory[b] for b in frame.routine.results]
            stack.pop()
            if not stack:
                return results
            if (next_callee := self._returned(stack[-1], frame.routine, results)) is not None:
                stack.append(next_callee)

    def _stretch(self, frame: _Frame) -> bool:
        """Run the stretch that starts here, if one does."""
        line: Stretch | None = None if self.stretches is None else self.stretches.line_at(frame.routine, frame.position)
        if self.stretches is None or line is None:
            return False
        for step in line.constants:
            self._step_constants(step, frame)
        if not self.stretches.run(line, frame.memory):
            return False
        self.launches += line.launches
        while frame.position < line.last:
            self._finish(frame)
        return True

    def _step_constants(self, step: ConstantStep, frame: _Frame) -> None:
        for b, value in zip(step.outputs, self._constant(step, frame.routine.shapes), strict=True):
            frame.memory[b] = value

    def _step(self, frame: _Frame, step: Step) -> _Frame | None:
        """Do one step; a frame when a routine must run first."""
        if self.stopped:
            raise Stopped
        memory, shapes = frame.memory, frame.routine.shapes
        match step:
            case KernelStep():
                started, taken = dict(step.copies), step.in_place
                for b in step.outputs:
                    if b in taken:
                        memory[b] = memory[taken[b]]
                    else:
                        memory[b] = (
                            self.device.copy(memory[started[b]]) if b in started else self.device.allocate(shapes[b])
                        )
                self.device.launch(step.kernel, [memory[b] for b in step.inputs], [memory[b] for b in step.outputs])
                self.launches += 1
            case ConstantStep():
                self._step_constants(step, frame)
            case ViewStep():
                memory[step.outputs[0]] = self.device.view(memory[step.inputs[0]], shapes[step.outputs[0]])
            case RelayoutStep():
                source, target = step.inputs[0], step.outputs[0]
                memory[target] = self.device.relayout(memory[source], shapes[source], shapes[target])
            case LibraryStep():
                self._library(step, memory, shapes)
            case WhileStep():
                state = [memory[b] for b in step.inputs]
                trips = self._trips(step)
                done = (
                    None
                    if self.loops is None
                    else self.loops.run(step, state, trips, self._constant, partial(self._count, step))
                )
                if done is None:
                    state = self._owned(step, state)
                    frame.waiting, frame.state, frame.iterations, frame.unread = step, state, 0, trips or 0
                    return self._again(step, frame, state)
                results, launches = done
                self.launches += launches
                for b, value in zip(step.outputs, results, strict=True):
                    memory[b] = value
            case BranchStep():
                frame.waiting = step
                number = self._branch(step, frame)
                arguments = [memory[b] for b in step.arguments[number]]
                return _start(self.schedule.routines[step.branches[number]], arguments)
            case _:
                raise AssertionError(type(step).__name__)
        self._finish(frame)
        return None

    def _returned(self, frame: _Frame, callee: Routine, results: list[Memory]) -> _Frame | None:
        """Take a callee's results; a frame when the loop that called it goes on."""
        step = frame.waiting
        if isinstance(step, WhileStep):
            assert frame.state is not None
            if not frame.in_condition:
                frame.state = results
                return self._again(step, frame, results)
            if bool(self._scalar(results[0], callee.shapes[callee.results[0]])):
                self._count(step, frame.iterations)
                frame.iterations += 1
                frame.in_condition = False
                return _start(self.schedule.routines[step.body], frame.state)
            results = frame.state
        assert step is not None
        for b, value in zip(step.outputs, results, strict=True):
            frame.memory[b] = value
        frame.waiting = frame.state = None
        self._finish(frame)
        return None

    def _owned(self, step: WhileStep, state: Sequence[Memory]) -> list[Memory]:
        """What a loop begins with. What its body updates in place has to be the loop's own."""
        found = list(state)
        for k in self.schedule.routines[step.body].donated:
            if step.outputs[k] not in step.in_place:
                found[k] = self.device.copy(state[k])
        return found

    def _again(self, step: WhileStep, frame: _Frame, state: list[Memory]) -> _Frame:
        """The next thing that a loop does: the body, while iterations are known to remain, else the condition, whose answer is read."""
        frame.in_condition = frame.unread <= 0
        if frame.in_condition:
            return _start(self.schedule.routines[step.condition], state)
        frame.unread -= 1
        self._count(step, frame.iterations)
        frame.iterations += 1
        return _start(self.schedule.routines[step.body], state)

    def _trips(self, step: WhileStep) -> int | None:
        """How often a counted loop's body runs. What a backend config states is no proof and is not believed; the condition has the last word in any case."""
        if step not in self._known_trips:
            self._known_trips[step] = derived_trip_count(step.instruction)
        return self._known_trips[step]

    def _count(self, step: WhileStep, done: int) -> None:
        """Before an iteration of a loop that has done so many. Raises EvaluationError (HLO402) where all loops together have had their share."""
        if self.max_steps is not None and self.steps >= self.max_steps:
            raise endless(step.instruction, done, self.steps, self.max_steps)
        self.steps += 1

    def _library(self, step: LibraryStep, memory: list[Memory], shapes: Sequence[Shape]) -> None:
        if step.kind == "empty":
            for b in step.outputs:
                memory[b] = self.device.allocate(shapes[b]) if shapes[b].is_array else None
            return
        given, of = [memory[b] for b in step.inputs], [shapes[b] for b in step.inputs]
        if self._reference is not None and exchanges(step.instruction):
            values = self._exchanged(self._reference, step, given, of)
        else:
            values = self.device.call(step, given, of)
        for b, value in zip(step.outputs, values, strict=True):
            memory[b] = value

    def _exchanged(
        self, reference: Reference, step: LibraryStep, given: Sequence[Memory], shapes: Sequence[Shape]
    ) -> list[Memory]:
        """What a collective gives this device: the devices of a run meet in NumPy, wherever their buffers are."""
        arrays = [self.device.download(m, s) if s.is_array else None for m, s in zip(given, shapes, strict=True)]
        results = reference.leaves_of(step.instruction, arrays)
        leaves = step.instruction.shape.leaves()
        return [None if a is None else self.device.upload(a, s) for a, s in zip(results, leaves, strict=True)]

    def _constant(self, step: ConstantStep, shapes: Sequence[Shape]) -> list[Memory]:
        is_own = self.place is not None and step.instruction.opcode in WHICH_DEVICE
        found = None if is_own else self._constants_of.get(step)
        if found is None:
            pairs = zip(step.literals, step.outputs, strict=True)
            found = [self.device.upload(told_array(step, value, self.place), shapes[b]) for value, b in pairs]
            if not is_own:
                self._constants_of[step] = found
        return found

    def _branch(self, step: BranchStep, frame: _Frame) -> int:
        if step.selector is None:
            return 0
        shape = frame.routine.shapes[step.selector]
        value = int(self._scalar(frame.memory[step.selector], shape))
        if shape.type.kind == "pred":
            return 0 if value else 1
        return value if 0 <= value < len(step.branches) else len(step.branches) - 1

    def _scalar(self, memory: Memory, shape: Shape) -> Any:
        return self.device.download(memory, shape)[()]

    def _finish(self, frame: _Frame) -> None:
        for b in frame.routine.frees[frame.position]:
            frame.memory[b] = None
        frame.position += 1


def _start(routine: Routine, inputs: Sequence[Memory]) -> _Frame:
    memory: list[Memory] = [None] * len(routine.shapes)
    for b, value in zip(routine.inputs, inputs, strict=True):
        memory[b] = value
    return _Frame(routine, memory)
