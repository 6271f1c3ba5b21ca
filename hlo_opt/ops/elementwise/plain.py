"""The NumPy function of an operation on two operands of one type, where it does what the `evaluate` face does: the `plain` faces of the table."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from hlo_opt.ir import Instruction
from hlo_opt.ops.numeric import larger, smaller

Function = Callable[..., Any]

_NUMBERS = frozenset({"f32", "f64", "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"})
_BITS = frozenset({"s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "pred"})
_COMPARISONS: dict[str, Function] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def _on(types: frozenset[str], function: Function) -> Callable[[Instruction], Function | None]:
    """The function for operands and result of one of these types."""

    def plain(instruction: Instruction) -> Function | None:
        name, shape = instruction.operands[0].shape.type.name, instruction.shape
        return function if name in types and shape.is_array and shape.type.name == name else None

    return plain


add, subtract, multiply = _on(_NUMBERS, np.add), _on(_NUMBERS, np.subtract), _on(_NUMBERS, np.multiply)
maximum, minimum = _on(_NUMBERS, partial(larger, np)), _on(_NUMBERS, partial(smaller, np))
and_, or_, xor = _on(_BITS, np.bitwise_and), _on(_BITS, np.bitwise_or), _on(_BITS, np.bitwise_xor)


def compare(instruction: Instruction) -> Function | None:
    if instruction.operands[0].shape.type.name not in _NUMBERS or instruction.word("type") == "TOTALORDER":
        return None
    return _COMPARISONS.get(instruction.word("direction"))
