"""A schedule as the words that `host_runtime.cpp` runs, with a place for every buffer.

Every routine gets a table of slots (one pointer per buffer, then scratch pointers of its loops, then the places that its caller wants the results in) and a piece of
memory in which the buffers of its own lie; a callee's piece lies in its caller's. What a routine returns is made where the caller wants it, unless it is
no value of its own (a parameter, a constant, the same value twice): then it is copied.

Loops: a leaf of the state that the body hands on unchanged stays where it is. One that a kernel of the body updates in place is copied once, before the loop.
Any other goes back and forth between two places. Both lie where the loop got them, if nothing else needs that memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from hlo_opt.codegen.lanes import may_spread
from hlo_opt.ir import Literal, Shape
from hlo_opt.runtime.arena import Arena
from hlo_opt.runtime.donation import callees_first, origins, unchanged_leaves
from hlo_opt.runtime.schedule import Schedule
from hlo_opt.runtime.steps import (
    BranchStep,
    ConstantStep,
    KernelStep,
    LibraryStep,
    RelayoutStep,
    Routine,
    RoutineKey,
    Step,
    ViewStep,
    WhileStep,
    callees,
)


class Operation(IntEnum):
    """What a word asks for; `host_runtime.cpp` has the same."""

    KERNEL = 0
    VIEW = 1
    COPY = 2
    LIBRARY = 3
    WHILE = 4
    BRANCH = 5
    RETURN = 6
    PRODUCT = 7


class Mode(IntEnum):
    """Where a loop keeps a leaf of its state."""

    SWAP = 0
    SAME = 1
    IN_PLACE = 2


@dataclass(frozen=True)
class RoutineWords:
    """A routine, ready to run.

    buffers  slots of buffers and scratch pointers; the destinations of results lie behind them
    slots    all slots of a frame
    deepest  slots of this frame and of all that it calls
    depth    frames, itself included
    bytes    the memory of its own buffers and of what it calls
    """

    words: tuple[int, ...]
    buffers: int
    slots: int
    deepest: int
    depth: int
    bytes: int


@dataclass(frozen=True)
class HostCall:
    """What Python does for a routine: a library call, or elements moved to another layout. Buffers are slots."""

    step: LibraryStep | RelayoutStep
    inputs: tuple[tuple[int, Shape], ...]
    outputs: tuple[tuple[int, Shape], ...]


@dataclass
class ProgramWords:
    """A whole schedule; `routines[0]` is the entry. `loops` are the steps that `at_instruction` counts; `pointers` the most that a kernel takes.
    `spread`: several processors may run blocks of a launch."""

    routines: list[RoutineWords] = field(default_factory=list)
    calls: list[HostCall] = field(default_factory=list)
    constants: list[tuple[ConstantStep, Literal, Shape]] = field(default_factory=list)
    loops: list[WhileStep] = field(default_factory=list)
    pointers: int = 1
    spread: bool = True


def buffer_bytes(shape: Shape) -> int:
    """Bytes of a buffer; 0 for a token."""
    return shape.stored_bytes if shape.is_array else 0


def words_of(schedule: Schedule, *, spread: bool = True) -> ProgramWords:
    """The words of a schedule. `spread`: several processors may run blocks of a launch."""
    order = callees_first(schedule.routines)
    entry = next(iter(schedule.routines))
    numbers = {key: len(order) - 1 - position for position, key in enumerate(order)}
    assert numbers[entry] == 0
    program = ProgramWords(spread=spread)
    launchers = {kernel.symbol: number for number, kernel in enumerate(schedule.kernels)}
    done: dict[RoutineKey, RoutineWords] = {}
    unchanged: dict[RoutineKey, tuple[int, ...]] = {}
    donated = {key: routine.donated for key, routine in schedule.routines.items()}
    for key in order:
        routine = schedule.routines[key]
        of = origins(routine, unchanged)
        unchanged[key] = unchanged_leaves(routine, of)
        done[key] = _Writer(routine, of, program, launchers, numbers, done, unchanged, donated).write()
    program.routines = [done[key] for key in reversed(order)]
    return program


def product_of(step: LibraryStep, shapes: Sequence[Shape]) -> tuple[int, ...] | None:
    """Rows, columns, terms, and strides in elements of a product of two f32 matrices: left by row and by term, right by term and by column, result by row and by
    column. None for other steps."""
    i = step.instruction
    if i.opcode != "dot" or len(step.inputs) != 2 or len(step.outputs) != 1:
        return None
    left, right, result = (shapes[b] for b in (*step.inputs, *step.outputs))
    sums = (i.ints("lhs_contracting_dims"), i.ints("rhs_contracting_dims"))
    if any(s.rank != 2 or s.type.name != "f32" or not s.element_count for s in (left, right, result)):
        return None
    if any(len(s) != 1 for s in sums):
        return None
    (across,), (down,) = sums
    (l0, l1), (r0, r1), (o0, o1) = left.strides, right.strides, result.strides
    left_row, left_term = (l0, l1) if across == 1 else (l1, l0)
    right_term, right_column = (r0, r1) if down == 0 else (r1, r0)
    sizes = (*result.dimensions, left.dimensions[across])
    return (*sizes, left_row, left_term, right_term, right_column, o0, o1)


class _Writer:
    """Writes one routine."""

    def __init__(
        self,
        routine: Routine,
        origin: Sequence[int],
        program: ProgramWords,
        launchers: Mapping[str, int],
        numbers: Mapping[RoutineKey, int],
        done: Mapping[RoutineKey, RoutineWords],
        unchanged: Mapping[RoutineKey, Sequence[int]],
        donated: Mapping[RoutineKey, Sequence[int]],
    ) -> None:
        self.routine, self.origin, self.program = routine, origin, program
        self.launchers, self.numbers, self.done, self.unchanged = launchers, numbers, done, unchanged
        self.shapes, self.donated = routine.shapes, donated
        self.arena = Arena()
        self.places: dict[int, int] = {}
        """Offsets, by slot, of what lies in this routine's memory."""
        self.held: dict[int, int] = {}
        """How many names of a buffer's memory are alive."""
        self.slots = len(self.shapes)
        self.known: list[tuple[int, int]] = []
        self.targets: dict[int, int] = {}
        self.words: list[int] = []
        self.borrowed: list[int] = []
        """Offsets of the step at hand, given back after it."""
        self.deepest = self.depth = 0

    # ---- slots and places

    def slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def scratch(self, count: int) -> int:
        """An offset for the length of one step."""
        offset = self.arena.take(count)
        self.borrowed.append(offset)
        return offset

    def place(self, buffer: int) -> None:
        """Give a buffer that a step makes its place: the caller's where it is a result, else in this routine's memory."""
        if self.origin[buffer] != buffer:
            self.hold(buffer)
            return
        if buffer in self.targets or not self.shapes[buffer].is_array:
            return
        offset = self.arena.take(buffer_bytes(self.shapes[buffer]))
        self.places[buffer] = offset
        self.held[buffer] = 1
        self.known.append((buffer, offset))

    def hold(self, buffer: int) -> None:
        """Another name for a memory."""
        source = self.origin[buffer]
        if source in self.places:
            self.held[source] += 1

    def free(self, buffer: int) -> None:
        source = self.origin[buffer]
        if source in self.places:
            self.held[source] -= 1
            if not self.held[source]:
                self.arena.give_back(self.places[source])

    # ---- the routine

    def write(self) -> RoutineWords:
        routine = self.routine
        made = {b for step in routine.steps if not isinstance(step, ConstantStep) for b in step.outputs}
        for k, b in enumerate(routine.results):
            source = self.origin[b]
            if source in made and source not in self.targets and buffer_bytes(self.shapes[source]):
                self.targets[source] = k
        constants: list[tuple[int, int]] = []
        for step, frees in zip(routine.steps, routine.frees, strict=True):
            self.borrowed = []
            if isinstance(step, ConstantStep):
                for b, literal in zip(step.outputs, step.literals, strict=True):
                    constants.append((b, len(self.program.constants)))
                    self.program.constants.append((step, literal, self.shapes[b]))
                continue
            for b in step.outputs:
                self.place(b)
            self.step(step)
            for offset in self.borrowed:
                self.arena.give_back(offset)
            for b in frees:
                self.free(b)
        self.results()
        head = [len(self.known), *(w for pair in self.known for w in pair)]
        head += [len(constants), *(w for pair in constants for w in pair)]
        head += [len(self.targets), *(w for pair in self.targets.items() for w in pair)]
        total = self.slots + len(routine.results)
        words = (*head, *self.words)
        return RoutineWords(words, self.slots, total, total + self.deepest, 1 + self.depth, self.arena.size)

    def results(self) -> None:
        copies = []
        for k, b in enumerate(self.routine.results):
            size = buffer_bytes(self.shapes[b])
            if self.targets.get(self.origin[b]) != k and size:
                copies += [k, b, size]
        self.words += [Operation.RETURN, len(copies) // 3, *copies]

    def step(self, step: Step) -> None:
        match step:
            case KernelStep():
                self.kernel(step)
            case ViewStep():
                self.words += [Operation.VIEW, step.outputs[0], step.inputs[0]]
            case RelayoutStep():
                self.call(step)
            case LibraryStep():
                product = product_of(step, self.shapes)
                if product is not None:
                    self.words += [Operation.PRODUCT, *step.inputs, *step.outputs, *product]
                elif step.kind != "empty":
                    self.call(step)
            case WhileStep():
                self.loop(step)
            case BranchStep():
                self.branch(step)
            case _:
                raise AssertionError(type(step).__name__)

    def kernel(self, step: KernelStep) -> None:
        kernel = step.kernel
        for output, source in step.takes:
            self.words += [Operation.VIEW, output, source]
        for output, source in step.copies:
            self.words += [Operation.COPY, output, source, buffer_bytes(self.shapes[output])]
        if not kernel.launch.grid:
            return
        pointers = (*step.inputs, *step.outputs)
        self.program.pointers = max(self.program.pointers, len(pointers))
        touched = sum(buffer_bytes(self.shapes[b]) for b in pointers)
        number = self.launchers[kernel.symbol]
        self.words += [
            Operation.KERNEL,
            number,
            kernel.launch.grid,
            touched,
            int(self.program.spread and may_spread(kernel)),
        ]
        self.words += [len(pointers), *pointers]

    def call(self, step: LibraryStep | RelayoutStep) -> None:
        inputs = tuple((b, self.shapes[b]) for b in step.inputs)
        outputs = tuple((b, self.shapes[b]) for b in step.outputs)
        self.words += [Operation.LIBRARY, len(self.program.calls)]
        self.program.calls.append(HostCall(step, inputs, outputs))

    def callees_base(self, step: Step) -> int:
        found = [self.done[k] for k in callees(step)]
        self.deepest = max(self.deepest, *(r.deepest for r in found))
        self.depth = max(self.depth, *(r.depth for r in found))
        return self.scratch(max(r.bytes for r in found))

    def loop(self, step: WhileStep) -> None:
        same, donated = set(self.unchanged[step.body]), self.donated[step.body]
        base = self.callees_base(step)
        predicate = self.slot()
        self.known.append((predicate, self.scratch(1)))
        words = [self.numbers[step.condition], self.numbers[step.body], predicate, base, len(self.program.loops)]
        words.append(len(step.inputs))
        self.program.loops.append(step)
        for output, source in step.takes:
            self.words += [Operation.VIEW, output, source]
        for k, (source, target) in enumerate(zip(step.inputs, step.outputs, strict=True)):
            size = buffer_bytes(self.shapes[target])
            mode = Mode.SAME if k in same else (Mode.IN_PLACE if k in donated else Mode.SWAP)
            spare = target
            if mode is Mode.SWAP and size:
                spare = self.slot()
                self.known.append((spare, self.scratch(size)))
            words += [source, target, spare, self.slot(), mode, size]
        self.words += [Operation.WHILE, *words]

    def branch(self, step: BranchStep) -> None:
        base = self.callees_base(step)
        width, signed = 0, 0
        if step.selector is not None:
            selector = self.shapes[step.selector].type
            width = 0 if selector.kind == "pred" else selector.dtype.itemsize
            signed = int(selector.kind == "signed")
        tail: list[int] = [len(step.branches)]
        for key, arguments in zip(step.branches, step.arguments, strict=True):
            tail += [self.numbers[key], len(arguments), *arguments]
        head = [-1 if step.selector is None else step.selector, width, signed, base]
        length = len(head) + 2 + len(step.outputs) + len(tail)
        self.words += [Operation.BRANCH, *head, length, len(step.outputs), *step.outputs, *tail]
