"""The steps of a schedule: plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal as OneOf

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.ir import Computation, Instruction, Literal, Shape

Buffers = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Step:
    """One thing to do. `inputs` and `outputs` are buffer numbers: the array leaves of the operands and of the result, in order."""

    instruction: Instruction
    inputs: Buffers
    outputs: Buffers


@dataclass(frozen=True, eq=False)
class KernelStep(Step):
    """Launch a kernel; its pointers are the inputs, then the outputs.

    takes    (output, input) for `kernel.aliases` whose output may be made in the input's memory, which nothing needs after this step; the other
             outputs of `kernel.aliases` get memory of their own and a copy of the input's elements
    donated  (output, input) where that holds because the loop around owns the state that it hands to its body (`Routine.donated`)
    """

    kernel: Kernel
    takes: tuple[tuple[int, int], ...] = ()
    donated: tuple[tuple[int, int], ...] = ()

    @property
    def in_place(self) -> Mapping[int, int]:
        """The inputs, by output, in whose memory these are made."""
        return dict((*self.takes, *self.donated))

    @property
    def copies(self) -> tuple[tuple[int, int], ...]:
        """(output, input): what is copied before the launch."""
        found = [(self.outputs[output], self.inputs[source]) for output, source in self.kernel.aliases]
        return tuple(pair for pair in found if pair not in self.takes and pair not in self.donated)


@dataclass(frozen=True, eq=False)
class LibraryStep(Step):
    """Anything that is computed without a kernel of ours.

    kind  `library` (the op table says so, or CuPy does it), `fallback` (neither plan nor library: the NumPy interpreter evaluates it) or `empty` (nothing runs: no output has
          an element, or the results are the operands and there are no outputs)
    call  what is called: the opcode, or the target of a custom call
    """

    kind: OneOf["library", "fallback", "empty"]
    call: str


@dataclass(frozen=True, eq=False)
class ConstantStep(Step):
    """Put literals, one per output, into buffers."""

    literals: tuple[Literal, ...]


@dataclass(frozen=True, eq=False)
class ViewStep(Step):
    """The output is the memory of the input under another shape (`bitcast`)."""


@dataclass(frozen=True, eq=False)
class RelayoutStep(Step):
    """The output is the input with its elements moved to another layout. No instruction of the module asks for it: it is no launch in reports."""


@dataclass(frozen=True, slots=True)
class RoutineKey:
    """A computation with the layouts that its caller uses: dimension numbers, fastest first, for each leaf."""

    computation: Computation
    inputs: tuple[tuple[int, ...], ...]
    results: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class WhileStep(Step):
    """Run `body` on the state as long as `condition`, given the state, returns true. `takes` and `donated` as for kernels."""

    condition: RoutineKey
    body: RoutineKey
    takes: tuple[tuple[int, int], ...] = ()
    donated: tuple[tuple[int, int], ...] = ()

    @property
    def in_place(self) -> Mapping[int, int]:
        """The inputs, by output, in whose memory these may be made."""
        return dict((*self.takes, *self.donated))


@dataclass(frozen=True, eq=False)
class BranchStep(Step):
    """`conditional` and `call`: run one computation. `selector` picks it (None: there is only one); `arguments` are per branch.

    A pred selector takes branch 0 when true; an integer out of range takes the last branch (xla/hlo/ir/hlo_instruction.h, kConditional).
    """

    selector: int | None
    branches: tuple[RoutineKey, ...]
    arguments: tuple[Buffers, ...]


@dataclass(frozen=True, eq=False)
class Routine:
    """The steps of one executed computation.

    shapes   of the buffers, by number; their layouts say how the elements lie
    inputs   buffers that the caller gives: the leaves of all parameters
    results  the leaves of the root
    frees    for each step, the buffers that nothing reads after it (never a result)
    donated  where it is the body of loops and nothing else: the leaves of the state that it makes in the memory in which it gets them
    """

    computation: Computation
    shapes: tuple[Shape, ...]
    inputs: Buffers
    results: Buffers
    steps: tuple[Step, ...]
    frees: tuple[Buffers, ...]
    donated: tuple[int, ...] = ()


def callees(step: Step) -> tuple[RoutineKey, ...]:
    """The routines that a step runs."""
    if isinstance(step, WhileStep):
        return (step.condition, step.body)
    return step.branches if isinstance(step, BranchStep) else ()


def last_uses(steps: Sequence[Step], results: Buffers) -> tuple[Buffers, ...]:
    """For each step, the buffers that no later step reads and that are no results, in ascending order."""
    last: dict[int, int] = {}
    for position, step in enumerate(steps):
        for buffer in (*step.outputs, *step.inputs):
            last[buffer] = position
    frees: list[list[int]] = [[] for _ in steps]
    kept = set(results)
    for buffer in sorted(last):
        if buffer not in kept:
            frees[last[buffer]].append(buffer)
    return tuple(tuple(f) for f in frees)
