"""The linear program that a module is lowered to: routines, each a list of operations over numbered buffers. Every backend and the emitted driver walk it.

An executed computation becomes a routine. A buffer is one array leaf; it gets memory once each time its routine runs: its own (`Allocate`, `Copy`, and what calls and
control flow return), or that of another buffer (`Alias`). Loops and branches are jumps whose shape is known: they name the routines that they run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as OneOf

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.ir import Computation, Instruction, Literal, Shape

Buffers = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Op:
    """One thing to do for an instruction. `inputs` and `outputs` are the buffers that it reads and writes; of a step of control flow or a library, the array leaves of the operands and
    of the result, in order."""

    instruction: Instruction
    inputs: Buffers
    outputs: Buffers


@dataclass(frozen=True, eq=False)
class Allocate(Op):
    """The outputs get memory, whatever lies in it."""


@dataclass(frozen=True, eq=False)
class Copy(Op):
    """The output gets memory and the elements of the input: a kernel updates an operand in place that somebody else still needs."""


@dataclass(frozen=True, eq=False)
class Alias(Op):
    """The output is the memory of the input: under another shape where it `is_view` (`bitcast`); else a kernel updates it, and nothing else needs it."""

    is_view: bool


@dataclass(frozen=True, eq=False)
class Relayout(Op):
    """The output gets memory and the input's elements, moved to another layout. No instruction of the module asks for it: it is no launch in reports."""


@dataclass(frozen=True, eq=False)
class Constant(Op):
    """The outputs are literals, one each; their memory lasts from run to run."""

    literals: tuple[Literal, ...]


@dataclass(frozen=True, eq=False)
class Launch(Op):
    """Launch a kernel; its pointers are the inputs, then the outputs, which have their memory already."""

    kernel: Kernel


@dataclass(frozen=True, eq=False)
class Call(Op):
    """Anything that is computed without a kernel of ours; the outputs get memory.

    kind  `library` (the op table says so, or CuPy does it), `fallback` (neither plan nor library: the NumPy interpreter evaluates it) or `empty` (nothing runs: no output has
          an element, or the results are the operands and there are no outputs)
    call  what is called: the opcode, or the target of a custom call
    """

    kind: OneOf["library", "fallback", "empty"]
    call: str


@dataclass(frozen=True, slots=True)
class RoutineKey:
    """A computation with the layouts that its caller uses: dimension numbers, fastest first, for each leaf."""

    computation: Computation
    inputs: tuple[tuple[int, ...], ...]
    results: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class Loop(Op):
    """Run `body` on the state as long as `condition`, given the state, returns true. The others are numbers of leaves of the state:

    unchanged  the body returns them as it got them: they stay where they are
    updated    the body makes them in the memory in which it gets them
    owned      nothing else needs the memory in which the loop gets them, so that the loop may use it
    """

    condition: RoutineKey
    body: RoutineKey
    unchanged: tuple[int, ...] = ()
    updated: tuple[int, ...] = ()
    owned: tuple[int, ...] = ()

    @property
    def copied(self) -> tuple[int, ...]:
        """The leaves that are copied before the first iteration: they are updated in place, and somebody else needs what they were."""
        return tuple(k for k in self.updated if k not in self.owned)


@dataclass(frozen=True, eq=False)
class Branch(Op):
    """`conditional` and `call`: run one routine. `selector` picks it (None: there is only one): true takes branch 0, an integer out of range the last branch (xla/hlo/ir/hlo_instruction.h,
    kConditional). `arguments` are per branch."""

    selector: int | None
    branches: tuple[RoutineKey, ...]
    arguments: tuple[Buffers, ...]


@dataclass(frozen=True, eq=False)
class Free(Op):
    """Nothing uses the inputs from here on."""


@dataclass(frozen=True, eq=False)
class Routine:
    """The operations of one executed computation.

    shapes   of the buffers, by number; their layouts say how the elements lie
    inputs   buffers that the caller gives: the leaves of all parameters
    results  the leaves of the root
    donated  results that it makes in the memory of an input: (number of the input, number of the result). Of the entry these are among its header's `input_output_alias`; others that
             have any are bodies of loops and nothing else, and both numbers are that of a leaf of the state
    """

    computation: Computation
    shapes: tuple[Shape, ...]
    inputs: Buffers
    results: Buffers
    ops: tuple[Op, ...]
    donated: tuple[tuple[int, int], ...] = ()


def made_by(op: Op) -> Buffers:
    """The buffers that have no value before an operation and have one afterwards, or memory for one."""
    return () if isinstance(op, Launch | Free) else op.outputs


def callees(op: Op) -> tuple[RoutineKey, ...]:
    """The routines that an operation runs."""
    if isinstance(op, Loop):
        return (op.condition, op.body)
    return op.branches if isinstance(op, Branch) else ()
