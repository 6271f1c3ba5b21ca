"""Where XLA:CPU leaves out the rounding to bf16.

HLO rounds after every operation, and so do kernels. XLA may keep more (`xla_allow_excess_precision`, on by default): XLA:CPU has no bf16 arithmetic,
computes in f32 and drops a rounding that a conversion back follows at once (xla/service/float_normalization.cc with
xla/hlo/transforms/simplifiers/algebraic_simplifier.cc), and its library keeps everything that it takes together with a sum in f32
(xla/backends/cpu/transforms/ynn_matcher.h). Which it does was found by experiment with jaxlib 0.10.2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hlo_opt.ir import Computation, Instruction, Shape
from hlo_opt.ir.element_type import BF16, F32
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.reducers import monoid
from hlo_opt.ops.reduction_numpy import LIBRARY

Evaluate = Callable[[Any, Instruction, list[Any]], Any]

_MOVES = frozenset({"bitcast", "broadcast", "copy", "reshape", "transpose"})
_EXACT = frozenset({"bitcast-convert", "convert", "copy", "reduce-precision", "stochastic-convert"})
"""Elementwise operations that XLA:CPU does not move to f32."""


def _is_bf16(instruction: Instruction) -> bool:
    return instruction.shape.element_type is BF16


def converted(instruction: Instruction) -> Instruction | None:
    """The bf16 operation whose unrounded f32 result a conversion gives; None where it gives the rounded one."""
    if instruction.opcode != "convert" or instruction.shape.element_type is not F32:
        return None
    source = instruction.operands[0]
    if not _is_bf16(source) or not all(map(_is_bf16, source.operands)) or not source.operands:
        return None
    spec = find(source.opcode)
    elementwise = spec is not None and spec.kind is OpKind.ELEMENTWISE and source.opcode not in _EXACT
    return source if elementwise or _is_plain_dot(source) else None


def _is_plain_dot(instruction: Instruction) -> bool:
    """A matrix product, or a batch of them, after which XLA:CPU reshapes nothing (xla/hlo/transforms/expanders/dot_decomposer.cc)."""
    if instruction.opcode != "dot":
        return False
    batch = len(instruction.ints("lhs_batch_dims"))
    free = [
        operand.shape.rank - batch - len(instruction.ints(f"{side}_contracting_dims"))
        for side, operand in zip(("lhs", "rhs"), instruction.operands, strict=True)
    ]
    return batch <= 1 and max(free) <= 1


def absorbed(computation: Computation) -> set[Instruction]:
    """The bf16 operations that XLA:CPU's library computes in f32 on the way to a sum, and never rounds."""
    found: set[Instruction] = set()
    for reduce in computation.instructions:
        if not is_library_sum(reduce):
            continue
        taken = {reduce}
        todo = [reduce]
        while todo:
            for operand in todo.pop().operands:
                if operand not in taken and _can_absorb(operand) and all(user in taken for user in operand.users):
                    taken.add(operand)
                    todo.append(operand)
        found |= {i for i in taken if _is_bf16(i)}
    return found


def is_library_sum(instruction: Instruction) -> bool:
    """Whether XLA:CPU gives the reduction to its library, which adds in f32."""
    return (
        instruction.opcode == "reduce"
        and instruction.shape.element_type is F32
        and instruction.operands[0].shape.element_count >= LIBRARY
        and monoid(instruction.called_by("to_apply")) == "add"
    )


def _can_absorb(instruction: Instruction) -> bool:
    if instruction.shape.element_type not in (F32, BF16) or not instruction.operands:
        return False
    if not all(o.shape.element_type in (F32, BF16) for o in instruction.operands) or instruction.is_root:
        return False
    spec = find(instruction.opcode)
    if instruction.opcode == "dot" or instruction.opcode in _MOVES or instruction.opcode == "convert":
        return True
    return spec is not None and spec.kind is OpKind.ELEMENTWISE and instruction.opcode not in _EXACT


def in_f32(instruction: Instruction) -> Instruction:
    """The same operation with f32 for bf16 in its operands and its result."""
    operands = [Instruction(o.name, "parameter", _widened(o.shape)) for o in instruction.operands]
    wide = Instruction(
        instruction.name, instruction.opcode, _widened(instruction.shape), operands, instruction.attributes
    )
    wide.parent = instruction.parent
    return wide


def _widened(shape: Shape) -> Shape:
    return shape.with_type(F32) if shape.element_type is BF16 else shape


def widening(wide: Instruction, evaluate: Evaluate) -> Evaluate:
    """The face of `in_f32`'s instruction for values some of which may still be bf16."""

    def run(evaluator: Any, instruction: Instruction, values: list[Any]) -> Any:
        return evaluate(evaluator, wide, [_to_f32(v, o) for v, o in zip(values, wide.operands, strict=True)])

    return run


def _to_f32(value: Any, operand: Instruction) -> Any:
    return np.asarray(value).astype(np.float32, copy=False) if operand.shape.element_type is F32 else value
