"""Runs a schedule on a device, operation by operation. Control flow uses an explicit stack, so that no input can
exhaust Python's recursion limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from hlo_opt.analysis.graph.loops import derived_trip_count
from hlo_opt.evaluate.devices import SimulatedDevice, play
from hlo_opt.evaluate.interpreter import Stopped, endless
from hlo_opt.ir import Shape
from hlo_opt.ir.values import Array
from hlo_opt.ops.collective.module_devices import WHICH_DEVICE, exchanges
from hlo_opt.runtime.numpy import Reference
from hlo_opt.runtime.schedule import Schedule, constant_array
from hlo_opt.runtime.schedule.donation import without_donations
from hlo_opt.runtime.schedule.ops import (
    AliasOp,
    Allocate,
    BranchOp,
    CallOp,
    ConstantOp,
    Copy,
    Free,
    LaunchOp,
    LoopOp,
    Op,
    Relayout,
    Routine,
)
from hlo_opt.runtime.schedule.stretch import NOTHING, BackendDevice, Memory, Stretch


class Graphs(Protocol):
    """Runs whole loops and stretches of kernels faster than operation by operation, where possible: see
    `hlo_opt.runtime.cupy.graphs`."""

    def begin(self) -> None: ...

    @property
    def unread(self) -> int: ...

    def report(self) -> dict[str, Any]: ...

    def in_line(self, routine: Routine) -> Routine: ...

    def stretches_of(self, routine: Routine) -> Mapping[int, Stretch]: ...

    def run_stretch(self, stretch: Stretch, memory: list[Memory]) -> bool: ...

    def run_loop(
        self,
        op: LoopOp,
        state: Sequence[Memory],
        trips: int | None,
        constants: Callable[[ConstantOp, Sequence[Shape]], list[Memory]],
        count: Callable[[int], None],
    ) -> tuple[list[Memory], int] | None: ...

    def whole_run(
        self,
        routine: Routine,
        inputs: Sequence[Memory],
        constants: Callable[[ConstantOp, Sequence[Shape]], list[Memory]],
    ) -> Callable[[], int] | None: ...


@dataclass(slots=True)
class _Frame:
    """A running routine.

    `waiting` is the control flow whose callee runs now, `state` that loop's values, `iterations` the finished runs of
    its body, and `unread` the iterations that will run before its predicate is read.
    """

    routine: Routine
    memory: list[Memory]
    stretches: Mapping[int, Stretch] = field(default_factory=dict)
    position: int = 0
    waiting: Op | None = None
    state: list[Memory] | None = None
    in_condition: bool = False
    iterations: int = 0
    unread: int = 0


class Executor:
    """Runs a schedule on a device and counts launches. Constants are uploaded once and kept."""

    def __init__(
        self,
        schedule: Schedule,
        device: BackendDevice,
        max_steps: int | None = None,
        *,
        place: SimulatedDevice | None = None,
        kept: Executor | None = None,
        loads: bool = False,
    ) -> None:
        """`max_steps` limits the iterations of all loops of a run together (None: unlimited). `place` is the simulated
        device to run as (None: a single device). Data that `kept` holds for all runs is shared.
        `loads`: the device launches any kernel, not only those of the schedule."""
        self.max_steps = max_steps
        self.place = place
        self.stopped = False
        self._reference = None if place is None else Reference(schedule.module)
        if place is not None and self._reference is not None:
            self._reference.play(place)
        self.steps = 0
        self.schedule = schedule
        self.keeping = without_donations(schedule.entry, schedule.apart if loads else {})
        self.device = device
        self._launches = 0
        self.graphs: Graphs | None = None
        self._do: dict[type[Op], Callable[[_Frame, Any], _Frame | None]] = {
            AliasOp: self._alias,
            Allocate: self._allocate,
            BranchOp: self._branch,
            CallOp: self._call,
            ConstantOp: self._constants,
            Copy: self._copy,
            Free: self._free,
            LaunchOp: self._launch,
            LoopOp: self._loop,
            Relayout: self._relayout,
        }
        self._constants_of: dict[int, list[Memory]] = {} if kept is None else kept._constants_of
        self._known_trips: dict[LoopOp, int | None] = {} if kept is None else kept._known_trips

    @property
    def launches(self) -> int:
        """Kernels of the last run. Waits for the GPU where it decided by itself how many there are."""
        return self._launches + (0 if self.graphs is None else self.graphs.unread)

    @launches.setter
    def launches(self, number: int) -> None:
        self._launches = number

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The entry's output arrays for its flattened parameters; tokens are left out on both sides."""
        return self.outputs(self.run_resident(self.upload(inputs), donate=True))

    def constants(self) -> list[Memory]:
        """The buffers of constants, which persist between runs."""
        return [memory for memories in self._constants_of.values() for memory in memories]

    def outputs(self, results: Sequence[Memory]) -> list[Array]:
        """The arrays in the results of `run_resident`."""
        entry = self.schedule.entry
        outputs = [(m, entry.shapes[b]) for m, b in zip(results, entry.results, strict=True)]
        return [self.device.download(m, s) for m, s in outputs if s.is_array]

    def run_devices(self, inputs: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """The results of `run` on every device of the module, for a list of inputs per device. Raises what `play`
        raises."""
        results = self.run_devices_resident([self.upload(own) for own in inputs], donate=True)
        return [self.outputs(own) for own in results]

    def run_devices_resident(self, memory: Sequence[Sequence[Memory]], *, donate: bool = False) -> list[list[Memory]]:
        """As `run_devices`, from buffers to buffers; `donate` as for `run_resident`. Launches are those of all
        devices."""
        launches = 0

        def work(place: SimulatedDevice) -> list[Memory]:
            nonlocal launches
            place.player = player = type(self)(self.schedule, self.device, self.max_steps, place=place, kept=self)
            try:
                return player.run_resident(memory[place.number], donate=donate)
            finally:
                launches += player.launches

        try:
            return play(self.schedule.module, work)
        finally:
            self.launches = launches

    def upload(self, inputs: Sequence[Array]) -> list[Memory]:
        """The entry's flattened parameters as the device holds them."""
        entry = self.schedule.entry
        arrays = iter(inputs)
        shapes = [entry.shapes[b] for b in entry.inputs]
        return [self.device.upload(next(arrays), s) if s.is_array else NOTHING for s in shapes]

    def run_resident(self, memory: Sequence[Memory], *, donate: bool = False) -> list[Memory]:
        """As `run`, from buffers to buffers: only launches, calls and control flow, which on a GPU may still run on
        return.

        `donate`: the run may write into inputs that the module's header donates.
        """
        self.launches = self.steps = 0
        if self.graphs is not None:
            self.graphs.begin()
        return self._run(self.schedule.entry if donate else self.keeping, memory)

    def resident(self, memory: Sequence[Memory]) -> Callable[[], None]:
        """As `run_resident` of the same buffers again and again, which all stay as they are. Nobody reads the results,
        so that they may lie in the same memory each time."""
        run = None if self.graphs is None else self.graphs.whole_run(self.keeping, memory, self.constant)

        def start() -> None:
            if run is None:
                self.run_resident(memory)
            else:
                self.steps = 0
                if self.graphs is not None:
                    self.graphs.begin()
                self.launches = run()

        return start

    def _run(self, entry: Routine, inputs: Sequence[Memory]) -> list[Memory]:
        stack = [self._start(entry, inputs)]
        while True:
            frame = stack[-1]
            callee = self._go_on(frame)
            if callee is not None:
                stack.append(callee)
                continue
            results = [frame.memory[b] for b in frame.routine.results]
            stack.pop()
            if not stack:
                return results
            if (next_callee := self._returned(stack[-1], frame.routine, results)) is not None:
                stack.append(next_callee)

    def _start(self, routine: Routine, inputs: Sequence[Memory]) -> _Frame:
        if self.graphs is not None:
            routine = self.graphs.in_line(routine)
        memory: list[Memory] = [NOTHING] * len(routine.shapes)
        for b, value in zip(routine.inputs, inputs, strict=True):
            memory[b] = value
        return _Frame(routine, memory, {} if self.graphs is None else self.graphs.stretches_of(routine))

    def _go_on(self, frame: _Frame) -> _Frame | None:
        """Run operations; returns the frame of a routine that must run first, or None at the end."""
        ops, do = frame.routine.ops, self._do
        while frame.position < len(ops):
            if self.stopped:
                raise Stopped
            stretch = frame.stretches.get(frame.position)
            if stretch is not None and self._stretch(frame, stretch):
                continue
            op = ops[frame.position]
            callee = do[type(op)](frame, op)
            if callee is not None:
                return callee
            frame.position += 1
        return None

    def _stretch(self, frame: _Frame, stretch: Stretch) -> bool:
        """Run a whole stretch at once, if possible."""
        assert self.graphs is not None
        for constant in stretch.constants:
            self._constants(frame, constant)
        if not self.graphs.run_stretch(stretch, frame.memory):
            return False
        self._launches += stretch.launches
        for op in frame.routine.ops[stretch.first : stretch.last]:
            if isinstance(op, Free):
                self._free(frame, op)
        frame.position = stretch.last
        return True

    # ---- operations: each returns the frame of a routine that must run first, or None

    def _allocate(self, frame: _Frame, op: Allocate) -> None:
        for b in op.outputs:
            frame.memory[b] = self.device.allocate(frame.routine.shapes[b])

    def _copy(self, frame: _Frame, op: Copy) -> None:
        frame.memory[op.outputs[0]] = self.device.copy(frame.memory[op.inputs[0]])

    def _alias(self, frame: _Frame, op: AliasOp) -> None:
        memory, output = frame.memory[op.inputs[0]], op.outputs[0]
        frame.memory[output] = self.device.view(memory, frame.routine.shapes[output]) if op.is_view else memory

    def _relayout(self, frame: _Frame, op: Relayout) -> None:
        source, target = op.inputs[0], op.outputs[0]
        shapes = frame.routine.shapes
        frame.memory[target] = self.device.relayout(frame.memory[source], shapes[source], shapes[target])

    def _constants(self, frame: _Frame, op: ConstantOp) -> None:
        for b, value in zip(op.outputs, self.constant(op, frame.routine.shapes), strict=True):
            frame.memory[b] = value

    def _launch(self, frame: _Frame, op: LaunchOp) -> None:
        memory = frame.memory
        self.device.launch(op.kernel, [memory[b] for b in op.inputs], [memory[b] for b in op.outputs])
        self._launches += 1

    def _free(self, frame: _Frame, op: Free) -> None:
        for b in op.inputs:
            frame.memory[b] = NOTHING

    def _loop(self, frame: _Frame, op: LoopOp) -> _Frame | None:
        state = [frame.memory[b] for b in op.inputs]
        trips = self._trips(op)
        if self.graphs is not None:
            done = self.graphs.run_loop(op, state, trips, self.constant, partial(self._count, op))
            if done is not None:
                results, launches = done
                self._launches += launches
                for b, value in zip(op.outputs, results, strict=True):
                    frame.memory[b] = value
                return None
        for k in op.copied:
            state[k] = self.device.copy(state[k])
        frame.waiting, frame.state, frame.iterations, frame.unread = op, state, 0, trips or 0
        return self._again(op, frame, state)

    def _branch(self, frame: _Frame, op: BranchOp) -> _Frame:
        frame.waiting = op
        number = self._chosen(op, frame)
        arguments = [frame.memory[b] for b in op.arguments[number]]
        return self._start(self.schedule.routines[op.branches[number]], arguments)

    def _returned(self, frame: _Frame, callee: Routine, results: list[Memory]) -> _Frame | None:
        """Take a callee's results; returns a frame if the calling loop continues."""
        op = frame.waiting
        if isinstance(op, LoopOp):
            assert frame.state is not None
            if not frame.in_condition:
                frame.state = results
                return self._again(op, frame, results)
            if bool(self._scalar(results[0], callee.shapes[callee.results[0]])):
                self._count(op, frame.iterations)
                frame.iterations += 1
                frame.in_condition = False
                return self._start(self.schedule.routines[op.body], frame.state)
            results = frame.state
        assert op is not None
        for b, value in zip(op.outputs, results, strict=True):
            frame.memory[b] = value
        frame.waiting = frame.state = None
        frame.position += 1
        return None

    def _again(self, op: LoopOp, frame: _Frame, state: list[Memory]) -> _Frame:
        """The next callee of a loop: the body while known iterations remain, else the condition, whose predicate is
        read."""
        frame.in_condition = frame.unread <= 0
        if frame.in_condition:
            return self._start(self.schedule.routines[op.condition], state)
        frame.unread -= 1
        self._count(op, frame.iterations)
        frame.iterations += 1
        return self._start(self.schedule.routines[op.body], state)

    def _trips(self, op: LoopOp) -> int | None:
        """The derived trip count of a loop. A trip count in the backend config is ignored because nothing proves it;
        the condition decides in any case."""
        if op not in self._known_trips:
            self._known_trips[op] = derived_trip_count(op.instruction)
        return self._known_trips[op]

    def _count(self, op: LoopOp, done: int) -> None:
        """Count an iteration of a loop, before it runs. Raises EvaluationError (HLO402) when all loops together exceed
        `max_steps`."""
        if self.max_steps is not None and self.steps >= self.max_steps:
            raise endless(op.instruction, done, self.steps, self.max_steps)
        self.steps += 1

    def _call(self, frame: _Frame, op: CallOp) -> None:
        memory, shapes = frame.memory, frame.routine.shapes
        if op.kind == "empty":
            for b in op.outputs:
                memory[b] = self.device.allocate(shapes[b]) if shapes[b].is_array else NOTHING
            return
        operands, of = [memory[b] for b in op.inputs], [shapes[b] for b in op.inputs]
        if self._reference is not None and exchanges(op.instruction):
            values = self._exchanged(self._reference, op, operands, of)
        else:
            values = self.device.call(op, operands, of)
        for b, value in zip(op.outputs, values, strict=True):
            memory[b] = value

    def _exchanged(
        self, reference: Reference, op: CallOp, operands: Sequence[Memory], shapes: Sequence[Shape]
    ) -> list[Memory]:
        """The results of a collective on this device: the devices of a run exchange NumPy arrays, wherever their
        buffers are."""
        arrays = [self.device.download(m, s) if s.is_array else None for m, s in zip(operands, shapes, strict=True)]
        results = reference.leaves_of(op.instruction, arrays)
        leaves = op.instruction.shape.leaves()
        return [NOTHING if a is None else self.device.upload(a, s) for a, s in zip(results, leaves, strict=True)]

    def constant(self, op: ConstantOp, shapes: Sequence[Shape]) -> list[Memory]:
        """The buffers of a constant, given the shapes of its routine."""
        is_own = self.place is not None and op.instruction.opcode in WHICH_DEVICE
        key = id(op.literals)  # the same where an operation is in line, on buffers of other numbers
        memories = None if is_own else self._constants_of.get(key)
        if memories is None:
            pairs = zip(op.literals, op.outputs, strict=True)
            memories = [self.device.upload(constant_array(op, value, self.place), shapes[b]) for value, b in pairs]
            if not is_own:
                self._constants_of[key] = memories
        return memories

    def _chosen(self, op: BranchOp, frame: _Frame) -> int:
        if op.selector is None:
            return 0
        shape = frame.routine.shapes[op.selector]
        value = int(self._scalar(frame.memory[op.selector], shape))
        if shape.type.kind == "pred":
            return 0 if value else 1
        return value if 0 <= value < len(op.branches) else len(op.branches) - 1

    def _scalar(self, memory: Memory, shape: Shape) -> Any:
        return self.device.download(memory, shape)[()]
