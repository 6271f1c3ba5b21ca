"""The NumPy and CuPy functions of elementwise operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hlo_opt.ir import Instruction
from hlo_opt.ops.numeric import COMPARISONS, maximum, minimum

_SAME = "abs add divide imag log logistic maximum minimum multiply power real sqrt subtract tanh"
FUNCTIONS = {
    **{name: name for name in _SAME.split()},
    "and": "bitwise_and",
    "complex": "pair",
    "cosine": "cos",
    "exponential": "exp",
    "exponential-minus-one": "expm1",
    "negate": "negative",
    "not": "invert",
    "or": "bitwise_or",
    "select": "where",
    "sine": "sin",
    "xor": "bitwise_xor",
}
"""By opcode, for types that CuPy has. `logistic` and `pair` (which makes complex numbers) are in `hlo_opt.library`."""

NOT_COMPLEX = frozenset({"exponential-minus-one", "logistic", "maximum", "minimum", "select"})
"""Those that NumPy and CuPy do not define for complex numbers."""

ArrayFunction = Callable[..., Any]

_BITS = frozenset({"s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "pred"})
_NUMBERS = _BITS - {"pred"} | {"f32", "f64"}
_PLAIN: dict[str, tuple[frozenset[str], ArrayFunction]] = {
    **{opcode: (_NUMBERS, getattr(np, FUNCTIONS[opcode])) for opcode in ("add", "subtract", "multiply")},
    **{opcode: (_BITS, getattr(np, FUNCTIONS[opcode])) for opcode in ("and", "or", "xor")},
    "maximum": (_NUMBERS, maximum),
    "minimum": (_NUMBERS, minimum),
}
"""(types of operands and result, function)."""


def plain(instruction: Instruction) -> ArrayFunction | None:
    """The binary function that equals the `evaluate` face on two operands of one type; None where there is none."""
    name, shape = instruction.operands[0].shape.type.name, instruction.shape
    if instruction.opcode == "compare":
        is_total = name not in _NUMBERS or instruction.word("type") == "TOTALORDER"
        comparison = None if is_total else COMPARISONS.get(instruction.word("direction"))
        return None if comparison is None else getattr(np, comparison)
    types, function = _PLAIN.get(instruction.opcode, (frozenset(), None))
    return function if name in types and shape.is_array and shape.type.name == name else None
