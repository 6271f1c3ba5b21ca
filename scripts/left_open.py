"""What HLO leaves open in a module: then XLA:CPU may compute something else without anybody being wrong."""

from __future__ import annotations

import numpy as np

from hlo_opt.ir import ElementType, Instruction, Module
from hlo_opt.ops.reduction.reducers import monoid, picks

_STEPS = frozenset(
    {
        "compare", "floor", "ceil", "round-nearest-afz", "round-nearest-even", "is-finite", "sort", "sign", "topk",
        "remainder", "reduce-precision",
        "select-and-scatter", "bitcast-convert",
    }
)  # fmt: skip
"""A rounding more or less before them may change their outcome by more than a rounding."""


_GROWING = frozenset({"add", "subtract", "multiply", "divide", "negate", "exponential", "power", "reduce"})


def left_open(module: Module) -> str | None:
    """The first thing in a module that HLO leaves open, in words."""
    every = [i for c in module.computations for i in c.instructions]
    for i in every:
        found = _open(i)
        if found is not None:
            return found
    narrow = any(
        leaf.is_array and leaf.type.is_float and leaf.type.bits <= 16 for i in every for leaf in i.shape.leaves()
    )
    steps = any(i.opcode in _STEPS or (i.opcode == "convert" and i.shape.type.is_integer) for i in every)
    if narrow and steps:
        return "a step of narrow floats, of which XLA may leave out roundings"
    small = [i for i in every if i.opcode in _GROWING and i.shape.type.is_float and i.shape.type.bits <= 8]
    if len(small) > 1:
        return (
            "several sums or products in a float of 8 bits, of which XLA may leave out roundings and with them an "
            "overflow"
        )
    return None


def _open(i: Instruction) -> str | None:
    if i.literal is not None and i.literal.is_elided:
        return "an elided constant"
    if i.opcode == "bitcast":
        return "a bitcast, which the way into XLA:CPU does not keep"
    if i.opcode == "set-dimension-size" or any(leaf.is_array and any(leaf.dynamic) for leaf in i.shape.leaves()):
        return "sizes set at run time"
    if i.opcode in ("dot", "convolution") and i.shape.type.is_integer and not i.operands[0].shape.type.is_integer:
        return "a product of floats whose sums are integers: which is converted first"
    if i.opcode in ("reduce", "reduce-window", "select-and-scatter"):
        return None if _folds(i) else "a fold from something else than the identity of its reducer"
    if i.opcode == "scatter":
        combiner = i.called_by("to_apply")
        if picks(combiner) == 1 and i.word("unique_indices").lower() != "true":
            return "a scatter that overwrites at indices that may meet"
        if monoid(combiner) is None and picks(combiner) != 1:
            return "a scatter whose combiner is no fold"
    if i.opcode == "sort" and len(i.operands) > 1 and i.word("is_stable").lower() != "true":
        return "equal keys of a sort that need not be stable"
    if i.opcode in ("all-reduce", "reduce-scatter") and monoid(i.called_by("to_apply")) is None:
        return "a collective whose reducer is no fold"
    return None


def _folds(i: Instruction) -> bool:
    """Whether a reduction folds one array from the identity of its reducer, so that it may go in any order and begin
    anywhere."""
    reducer = i.called_by("scatter" if i.opcode == "select-and-scatter" else "to_apply")
    opcode, init = monoid(reducer), i.operands[-1]
    if opcode is None or i.shape.is_tuple:
        return False
    while init.opcode in ("copy", "broadcast", "reshape", "convert"):
        init = init.operands[0]
    if init.literal is None or init.literal.is_elided:
        return False
    value = np.asarray(np.asarray(init.literal.value).reshape(-1)[0]).astype(i.shape.type.dtype)
    return bool(value == np.asarray(_identity(opcode, i.shape.type)).astype(i.shape.type.dtype))


def _identity(opcode: str, element_type: ElementType) -> object:
    if opcode in ("add", "or", "xor"):
        return 0
    if opcode == "multiply":
        return 1
    if element_type.is_float:
        return -np.inf if opcode == "maximum" else np.inf
    if element_type.kind == "pred":
        return opcode != "maximum"
    signed = element_type.kind == "signed"
    low, high = -(1 << (element_type.bits - 1)) if signed else 0, (1 << (element_type.bits - signed)) - 1
    return {"maximum": low, "minimum": high, "and": -1 if signed else high}[opcode]
