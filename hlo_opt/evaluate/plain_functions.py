"""NumPy functions that do at once what an `evaluate` face does, for the operations and types where they are the same.

A face widens, rounds and guards for every type; for f32, f64, the plain integers and pred the commonest operations need none of it, and loops over
scalars spend their time in exactly those.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hlo_opt.ir import Instruction
from hlo_opt.ops import find
from hlo_opt.ops.spec import Evaluator
from hlo_opt.ops.values import Value

Evaluate = Callable[[Any, Instruction, list[Any]], Any]


def direct(instruction: Instruction) -> Evaluate | None:
    """The function for an instruction, or None where its face must be asked."""
    operands = instruction.operands
    if len(operands) != 2 or not all(o.shape.is_array for o in operands):
        return None
    if operands[0].shape.type.name != operands[1].shape.type.name:
        return None
    spec = find(instruction.opcode)
    chosen = None if spec is None or spec.plain is None else spec.plain(instruction)
    if chosen is None:
        return None

    def evaluate(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
        return chosen(values[0], values[1])

    return evaluate
