"""The functions of NumPy and of CuPy that compute elementwise operations."""

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
"""By opcode, on types that CuPy holds. `hlo_opt.library` has `logistic` itself, and `pair`, which makes complex numbers."""

NOT_COMPLEX = frozenset({"exponential-minus-one", "logistic", "maximum", "minimum", "select"})
"""Those of them that are no functions of complex numbers there."""

Function = Callable[..., Any]

_BITS = frozenset({"s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "pred"})
_NUMBERS = _BITS - {"pred"} | {"f32", "f64"}
_PLAIN: dict[str, tuple[frozenset[str], Function]] = {
    **{opcode: (_NUMBERS, getattr(np, FUNCTIONS[opcode])) for opcode in ("add", "subtract", "multiply")},
    **{opcode: (_BITS, getattr(np, FUNCTIONS[opcode])) for opcode in ("and", "or", "xor")},
    "maximum": (_NUMBERS, maximum),
    "minimum": (_NUMBERS, minimum),
}
"""For two operands and a result of one of these types."""


def plain(instruction: Instruction) -> Function | None:
    """The function on two operands of one type that does what the `evaluate` face does, where there is one."""
    name, shape = instruction.operands[0].shape.type.name, instruction.shape
    if instruction.opcode == "compare":
        is_total = name not in _NUMBERS or instruction.word("type") == "TOTALORDER"
        found = None if is_total else COMPARISONS.get(instruction.word("direction"))
        return None if found is None else getattr(np, found)
    types, function = _PLAIN.get(instruction.opcode, (frozenset(), None))
    return function if name in types and shape.is_array and shape.type.name == name else None
