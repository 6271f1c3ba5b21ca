"""The linear program that a module is lowered to: routines, each a list of operations over numbered buffers.

Every backend and the emitted driver walk it. An executed computation becomes a routine. A buffer is one array leaf; it
gets memory once each time its routine runs: its own (`Allocate`, `Copy`, and the results of calls and control flow),
or that of another buffer (`AliasOp`). Loops and branches are structured jumps: they name the routines that they run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal as OneOf

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.ir import Computation, Instruction, Literal, Shape

Buffers = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Op:
    """One operation for an instruction.

    `inputs` and `outputs` are the buffers that it reads and writes; for control flow and library calls these are the
    array leaves of the operands and of the result, in order.
    """

    instruction: Instruction
    inputs: Buffers
    outputs: Buffers


@dataclass(frozen=True, eq=False)
class Allocate(Op):
    """Give the outputs uninitialised memory."""


@dataclass(frozen=True, eq=False)
class Copy(Op):
    """Give the output memory with the elements of the input: before a kernel updates, in place, an operand that is
    still needed."""


@dataclass(frozen=True, eq=False)
class AliasOp(Op):
    """The output uses the memory of the input: under another shape if `is_view` (`bitcast`); otherwise a kernel writes
    there, and nothing else needs it."""

    is_view: bool


@dataclass(frozen=True, eq=False)
class Relayout(Op):
    """Give the output memory with the input's elements in another layout. No instruction asks for it, so that reports
    do not count it as a launch."""


@dataclass(frozen=True, eq=False)
class ConstantOp(Op):
    """The outputs are literals, one each; their memory persists between runs."""

    literals: tuple[Literal, ...]


@dataclass(frozen=True, eq=False)
class LaunchOp(Op):
    """Launch a kernel. Its pointers are the inputs, then the outputs, which already have memory."""

    kernel: Kernel


@dataclass(frozen=True, eq=False)
class CallOp(Op):
    """A computation without a generated kernel; the outputs get memory.

    kind  `library` (the op table says so, or CuPy has it), `fallback` (neither plan nor library: the NumPy interpreter
          evaluates it) or `empty` (nothing runs: no output has an element, or the results are the operands and there
          are no outputs)
    call  what is called: the opcode, or the target of a custom call
    """

    kind: OneOf["library", "fallback", "empty"]
    call: str


@dataclass(frozen=True, slots=True)
class RoutineKey:
    """A computation with its caller's layouts: dimension numbers, minor to major, for each leaf. `donated`: as in
    `Routine`, of a branch whose caller gives arguments away."""

    computation: Computation
    inputs: tuple[tuple[int, ...], ...]
    results: tuple[tuple[int, ...], ...]
    donated: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, eq=False)
class LoopOp(Op):
    """Run `body` on the state while `condition` returns true for the state. The other fields are leaf numbers of the
    state:

    unchanged  the body returns them unchanged: they stay in place
    updated    the body writes them into the memory of the same leaf
    owned      nothing else needs the memory of their inputs, so that the loop may use it
    """

    condition: RoutineKey
    body: RoutineKey
    unchanged: tuple[int, ...] = ()
    updated: tuple[int, ...] = ()
    owned: tuple[int, ...] = ()

    @property
    def copied(self) -> tuple[int, ...]:
        """The leaves to copy before the first iteration: they are updated in place, and their initial values are needed
        elsewhere."""
        return tuple(k for k in self.updated if k not in self.owned)


@dataclass(frozen=True, eq=False)
class BranchOp(Op):
    """`conditional` and `call`: run one routine.

    `selector` picks it (None: there is only one): true takes branch 0, an integer out of range the last branch
    (xla/hlo/ir/hlo_instruction.h, kConditional). `arguments` are per branch.

    able  (number of an output, buffer): every branch can make the output in the memory of this argument, or finds it
          there
    held  those of them where nothing else needs that memory, so that they do
    """

    selector: int | None
    branches: tuple[RoutineKey, ...]
    arguments: tuple[Buffers, ...]
    able: tuple[tuple[int, int], ...] = ()
    held: tuple[tuple[int, int], ...] = ()

    def with_argument(self, old: int, new: int) -> BranchOp:
        """The same with another buffer for one that the branches get."""

        def of(buffers: Buffers) -> Buffers:
            return tuple(new if b == old else b for b in buffers)

        held = tuple((number, new if b == old else b) for number, b in self.held)
        return replace(self, inputs=of(self.inputs), arguments=tuple(map(of, self.arguments)), held=held)


@dataclass(frozen=True, eq=False)
class Free(Op):
    """Nothing uses the inputs from here on."""


@dataclass(frozen=True, eq=False)
class Routine:
    """The operations of one executed computation.

    shapes   of the buffers, by number, with their layouts
    inputs   the caller's buffers: the leaves of all parameters
    results  the leaves of the root
    donated  results written into the memory of an input: (number of the input, number of the result). For the entry
             these are among the header's `input_output_alias`; of a loop body both numbers are that of a leaf of the
             state; of a branch they are those of its key, and a result may be an input as it stands
    apart    why donated inputs hold no result, in words, by their numbers
    """

    computation: Computation
    shapes: tuple[Shape, ...]
    inputs: Buffers
    results: Buffers
    ops: tuple[Op, ...]
    donated: tuple[tuple[int, int], ...] = ()
    apart: tuple[tuple[int, str], ...] = ()


def outputs_of(op: Op) -> Buffers:
    """The buffers that an operation defines or gives memory."""
    return () if isinstance(op, LaunchOp | Free) else op.outputs


def callees(op: Op) -> tuple[RoutineKey, ...]:
    """The routines that an operation runs."""
    if isinstance(op, LoopOp):
        return (op.condition, op.body)
    return op.branches if isinstance(op, BranchOp) else ()
