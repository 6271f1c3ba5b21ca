"""NumPy functions that do at once what an `evaluate` face does, for the operations and types where they are the same.

A face widens, rounds and guards for every type; for f32, f64, the plain integers and pred the commonest operations need none of it, and loops over
scalars spend their time in exactly those.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from hlo_opt.ir import Instruction
from hlo_opt.ops.numeric import larger, smaller

Evaluate = Callable[[Any, Instruction, list[Any]], Any]

_NUMBERS = frozenset({"f32", "f64", "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"})
_BITS = frozenset({"s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "pred"})
_FUNCTIONS: dict[str, tuple[Callable[..., Any], frozenset[str]]] = {
    "add": (np.add, _NUMBERS),
    "subtract": (np.subtract, _NUMBERS),
    "multiply": (np.multiply, _NUMBERS),
    "and": (np.bitwise_and, _BITS),
    "or": (np.bitwise_or, _BITS),
    "xor": (np.bitwise_xor, _BITS),
    "maximum": (partial(larger, np), _NUMBERS),
    "minimum": (partial(smaller, np), _NUMBERS),
}
_COMPARISONS: dict[str, Callable[..., Any]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def direct(instruction: Instruction) -> Evaluate | None:
    """The function for an instruction, or None where its face must be asked."""
    operands = instruction.operands
    if len(operands) != 2 or not all(o.shape.is_array for o in operands):
        return None
    name = operands[0].shape.type.name
    if name != operands[1].shape.type.name:
        return None
    if instruction.opcode == "compare":
        function = _COMPARISONS.get(instruction.word("direction"))
        known = name in _NUMBERS and instruction.word("type") != "TOTALORDER"
    else:
        function, types = _FUNCTIONS.get(instruction.opcode, (None, frozenset()))
        known = name in types and instruction.shape.is_array and instruction.shape.type.name == name
    if function is None or not known:
        return None
    chosen = function

    def evaluate(evaluator: Any, instruction: Instruction, values: list[Any]) -> Any:
        return chosen(values[0], values[1])

    return evaluate
