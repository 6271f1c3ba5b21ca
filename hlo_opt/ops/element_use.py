"""How often elements of operands are read: the `aligned` and `reuses` faces. Source: xla/hlo/ir/hlo_instruction.cc, IsElementwise and OperandElementUse."""

from __future__ import annotations

from hlo_opt.ir import Instruction


def always(instruction: Instruction, operand: int | None) -> bool:
    return True


def first(instruction: Instruction, operand: int | None) -> bool:
    """In the first operand alone."""
    return operand == 0


def same_width(instruction: Instruction, operand: int | None) -> bool:
    """Where elements are as wide as before."""
    given, shape = instruction.operands[0].shape, instruction.shape
    return given.is_array and shape.is_array and given.type.bits == shape.type.bits


def never(instruction: Instruction, operand: int) -> bool:
    return False


def behind_first(instruction: Instruction, operand: int) -> bool:
    """An index, or what is padded with."""
    return operand > 0


def behind_second(instruction: Instruction, operand: int) -> bool:
    return operand > 1


def second_half(instruction: Instruction, operand: int) -> bool:
    """An initial value."""
    return operand >= len(instruction.operands) // 2
