"""Changes of one instruction that several cuts share. A change raises ValueError where it does not apply."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo_opt.ir import Computation, Instruction, edit
from hlo_opt.ops.writer import Writer

InstructionChange = Callable[[Instruction], None]
"""Changes the module around an instruction."""


def take(i: Instruction, other: Instruction) -> None:
    """Let the users of an instruction read another one."""
    if other is i:
        raise ValueError("nothing changes")
    edit.replace_all_uses(i, other)
    edit.sort(i.computation)


def fill(i: Instruction, value: int) -> None:
    """Replace an array by one number in every element."""
    writer = Writer("filled")
    number = writer.number(i.shape.type, value)
    filled = writer.finish([writer.spread(number, i.shape.dimensions)], [i.shape])
    put_in_place(i, filled, [])


def put_in_place(i: Instruction, callee: Computation, operands: Sequence[Instruction]) -> None:
    """Replace an instruction by the operations of a computation, applied to these operands."""
    values: dict[Instruction, Instruction] = {}
    for member in callee.instructions:
        if member.parameter_number is not None:
            values[member] = operands[member.parameter_number]
        else:
            values[member] = edit.clone_into(i.computation, member, [values[o] for o in member.operands])
    take(i, values[callee.root])


def clear(computation: Computation) -> None:
    """A computation that returns its first parameter, and has nothing else."""
    edit.set_root(computation, computation.parameters[0])
    for i in reversed(list(computation.instructions)):
        if i.parameter_number is None:
            edit.remove(i)
