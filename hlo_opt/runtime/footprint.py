"""How many bytes a schedule holds at once, told before anything is built or allocated: buffers with their lifetimes, and what library calls take besides."""

from __future__ import annotations

from dataclasses import dataclass, field

from hlo_opt.evaluate.memory import sized
from hlo_opt.evaluate.program import error
from hlo_opt.evaluate.scratch import scratch_bytes
from hlo_opt.ir import Instruction, Shape
from hlo_opt.runtime.donation import callees_first
from hlo_opt.runtime.schedule import Schedule
from hlo_opt.runtime.steps import (
    BranchStep,
    ConstantStep,
    KernelStep,
    LibraryStep,
    Routine,
    RoutineKey,
    Step,
    ViewStep,
    WhileStep,
    callees,
)


@dataclass(frozen=True, slots=True)
class Peak:
    """The most bytes alive at once, and the instruction where that is; None where nothing is made."""

    bytes: int
    at: Instruction | None


def check_schedule(schedule: Schedule, limit: int | None, *, devices: int = 1) -> None:
    """Raises EvaluationError (HLO402) where a run of the schedule, on so many devices at once, would hold more bytes than the limit (None: any number)."""
    if limit is None:
        return
    found = peak_of(schedule)
    if devices * found.bytes > limit:
        times = f" on {devices} devices" if devices > 1 else ""
        raise error(
            found.at or schedule.entry.computation.root,
            f"the run would hold {sized(devices * found.bytes)}{times} here; the limit is {sized(limit)}",
            code="HLO402",
            hint="--memory-limit SIZE (in Python memory_limit) sets another limit",
        )


def peak_of(schedule: Schedule) -> Peak:
    """Inputs, constants (which are kept) and buffers; at the end the outputs once more, as the caller gets them."""
    peaks: dict[RoutineKey, Peak] = {}
    for key in callees_first(schedule.routines):
        peaks[key] = _Walk(schedule.routines[key], peaks).peak()
    entry = schedule.entry
    kept = sum(_bytes(entry.shapes[b]) * (1 if entry.shapes[b].is_row_major else 2) for b in entry.inputs)
    kept += sum(
        _bytes(r.shapes[b])
        for r in schedule.routines.values()
        for step in r.steps
        if isinstance(step, ConstantStep)
        for b in step.outputs
    )
    own = [b for b in entry.results if b not in entry.inputs]
    at_the_end = sum(_bytes(entry.shapes[b]) for b in (*own, *entry.results))
    inner = peaks[next(iter(schedule.routines))]
    if at_the_end > inner.bytes:
        return Peak(kept + at_the_end, entry.computation.root)
    return Peak(kept + inner.bytes, inner.at)


def _bytes(shape: Shape) -> int:
    return max(0, shape.stored_bytes) if shape.is_array else 0


@dataclass
class _Walk:
    """Follows one routine. `memory` says which memory a buffer is in; `sizes` and `uses` are by memory. The caller's is not counted."""

    routine: Routine
    known: dict[RoutineKey, Peak]
    memory: dict[int, int | None] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    uses: dict[int, int] = field(default_factory=dict)
    alive: int = 0
    best: Peak = Peak(0, None)

    def peak(self) -> Peak:
        self.memory.update(dict.fromkeys(self.routine.inputs))
        for step, frees in zip(self.routine.steps, self.routine.frees, strict=True):
            self.step(step)
            for b in frees:
                self.free(b)
        return self.best

    def step(self, step: Step) -> None:
        shapes = self.routine.shapes
        if isinstance(step, ViewStep):
            self.share(step.outputs[0], self.memory.get(step.inputs[0]))
            return
        if isinstance(step, ConstantStep):
            self.memory.update(dict.fromkeys(step.outputs))
            return
        own = sum(_bytes(shapes[b]) for b in step.outputs)
        taken = step.in_place if isinstance(step, KernelStep | WhileStep) else {}
        own -= sum(_bytes(shapes[b]) for b in taken)
        inner = max((self.known[k] for k in callees(step)), key=lambda p: p.bytes, default=Peak(0, None))
        more = own + inner.bytes
        if isinstance(step, BranchStep):  # the results are among what the branch holds
            more = max(own, inner.bytes)
        elif isinstance(step, LibraryStep):
            more += own + scratch_bytes(step.instruction, 0)
        elif isinstance(step, WhileStep):
            more = inner.bytes + own
        if self.alive + more > self.best.bytes:
            self.best = Peak(self.alive + more, inner.at if inner.bytes > own and inner.at else step.instruction)
        for b in step.outputs:
            if b in taken:
                self.share(b, self.memory.get(taken[b]))
            else:
                self.make(b, _bytes(shapes[b]))

    def make(self, buffer: int, size: int) -> None:
        self.sizes[buffer], self.uses[buffer], self.memory[buffer] = size, 1, buffer
        self.alive += size

    def share(self, buffer: int, memory: int | None) -> None:
        self.memory[buffer] = memory
        if memory is not None:
            self.uses[memory] += 1

    def free(self, buffer: int) -> None:
        memory = self.memory.get(buffer)
        if memory is not None:
            self.uses[memory] -= 1
            self.alive -= self.sizes[memory] if not self.uses[memory] else 0
