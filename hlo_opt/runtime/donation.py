"""Which steps make their outputs in the memory of inputs that nothing needs any more: kernels that update an operand in place, and loops their state.

Within a routine the memory must be its own (`takes`). The state of a loop belongs to the loop: it has been copied before, where that was needed, so that the body may make
a leaf of its result in the memory in which it got that leaf (`donated`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hlo_opt.runtime.steps import (
    BranchStep,
    KernelStep,
    LibraryStep,
    Routine,
    RoutineKey,
    Step,
    ViewStep,
    WhileStep,
    callees,
)


def with_donations(routines: Mapping[RoutineKey, Routine]) -> dict[RoutineKey, Routine]:
    """The routines, the steps of which say what memory they take, in the same order."""
    unchanged: dict[RoutineKey, tuple[int, ...]] = {}
    done: dict[RoutineKey, Routine] = {}
    shared = _run_otherwise(routines)
    for key in callees_first(routines):
        donor = _Donor(routines[key], unchanged, done)
        done[key] = donor.with_takes() if key in shared else donor.with_donated()
        unchanged[key] = unchanged_leaves(done[key], origins(done[key], unchanged))
    return {key: done[key] for key in routines}


def callees_first(routines: Mapping[RoutineKey, Routine]) -> list[RoutineKey]:
    """Each routine after those that it runs; the entry, which comes first in `routines`, last."""
    order: list[RoutineKey] = []
    seen: set[RoutineKey] = set()
    todo = [(next(iter(routines)), False)]
    while todo:
        key, is_done = todo.pop()
        if is_done:
            order.append(key)
        elif key not in seen:
            seen.add(key)
            todo.append((key, True))
            todo.extend((k, False) for step in routines[key].steps for k in callees(step))
    return order


def _run_otherwise(routines: Mapping[RoutineKey, Routine]) -> set[RoutineKey]:
    """The routines that are not, or not only, bodies of loops."""
    found = {next(iter(routines))}
    for routine in routines.values():
        for step in routine.steps:
            if isinstance(step, WhileStep):
                found.add(step.condition)
            elif isinstance(step, BranchStep):
                found.update(step.branches)
    return found


def origins(routine: Routine, unchanged: Mapping[RoutineKey, Sequence[int]]) -> list[int]:
    """For each buffer the one whose memory it is: views, what steps make in the memory of an input, and what loops hand on unchanged, are other names."""
    of = list(range(len(routine.shapes)))
    for step in routine.steps:
        if isinstance(step, ViewStep):
            of[step.outputs[0]] = of[step.inputs[0]]
        elif isinstance(step, KernelStep | WhileStep):
            for output, source in step.takes:
                of[output] = of[source]
        if isinstance(step, WhileStep):
            for k in unchanged[step.body]:
                of[step.outputs[k]] = of[step.inputs[k]]
    return of


def unchanged_leaves(routine: Routine, of: Sequence[int]) -> tuple[int, ...]:
    """The leaves that a routine, as the body of a loop, returns as it got them."""
    return tuple(k for k, (i, r) in enumerate(zip(routine.inputs, routine.results, strict=False)) if of[r] == i)


_READ_ONLY = frozenset({"dot", "convolution"})
"""Library calls whose results are no views of what they read."""


def _reads_only(step: Step) -> bool:
    if isinstance(step, LibraryStep):
        return step.instruction.opcode in _READ_ONLY
    return isinstance(step, KernelStep | ViewStep)


@dataclass
class _Donor:
    plain: Routine
    unchanged: Mapping[RoutineKey, Sequence[int]]
    done: Mapping[RoutineKey, Routine]

    def pairs(self, step: Step) -> Iterator[tuple[int, int]]:
        """(output, input) of a step where the output may lie in the input's memory."""
        if isinstance(step, KernelStep):
            for output, source in step.kernel.aliases:
                if output in step.kernel.own:
                    yield step.outputs[output], step.inputs[source]
        elif isinstance(step, WhileStep):
            same = set(self.unchanged[step.body])
            yield from ((o, i) for k, (o, i) in enumerate(zip(step.outputs, step.inputs, strict=True)) if k not in same)

    def is_free(self, memory: int, position: int, of: Sequence[int]) -> bool:
        """Whether the step at a position reads a memory once, and nothing else can see it then or later. What other control flow and libraries read may live on as their
        results."""
        for other, step in enumerate(self.plain.steps):
            count = [of[b] for b in step.inputs].count(memory)
            if count and (other > position or (other == position and count > 1)):
                return False
            if count and other < position and not _reads_only(step):
                return False
        return True

    def with_takes(self) -> Routine:
        """What may be made in the memory of another kernel's output."""
        routine = self.plain
        of = origins(routine, self.unchanged)
        made = {b for step in routine.steps if isinstance(step, KernelStep) for b in step.outputs}
        kept = {of[b] for b in routine.results}
        steps: list[Step] = []
        for position, step in enumerate(routine.steps):
            takes = []
            for output, source in self.pairs(step):
                memory = of[source]
                if memory in made and memory not in kept and self.is_free(memory, position, of):
                    takes.append((output, source))
                    if isinstance(step, WhileStep) and step.outputs.index(output) in self.done[step.body].donated:
                        made.add(output)  # the loop's own memory, not something that its body got from elsewhere
            steps.append(
                replace(step, takes=tuple(takes)) if takes and isinstance(step, KernelStep | WhileStep) else step
            )
        return replace(routine, steps=tuple(steps))

    def with_donated(self) -> Routine:
        """As `with_takes`, and what a step may make in the memory in which a loop hands a leaf of its state to the body: it is that leaf of the result, and of no other."""
        routine = self.with_takes()
        of = origins(routine, self.unchanged)
        returned = [of[b] for b in routine.results]
        numbers = {b: k for k, b in enumerate(routine.inputs)}
        leaves: set[int] = set()
        steps: list[Step] = []
        for position, step in enumerate(routine.steps):
            donated = []
            for output, source in self.pairs(step):
                memory, made = of[source], of[output]
                k = numbers.get(memory, -1)
                if k < 0 or k in leaves or memory in returned or made != returned[k] or returned.count(made) > 1:
                    continue
                if self.is_free(memory, position, of):
                    leaves.add(k)
                    donated.append((output, source))
            steps.append(
                replace(step, donated=tuple(donated)) if donated and isinstance(step, KernelStep | WhileStep) else step
            )
        return replace(routine, steps=tuple(steps), donated=tuple(sorted(leaves)))
