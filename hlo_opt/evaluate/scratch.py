"""Bytes that NumPy takes on the way to one value, besides the value: operands and results in wider types, index arrays, copies in another order."""

from __future__ import annotations

from hlo_opt.evaluate.plain_functions import direct
from hlo_opt.ir import Instruction
from hlo_opt.ops import find
from hlo_opt.ops.elementwise.declare import Evaluation
from hlo_opt.ops.scratch import arrays, count, wide_bytes


def scratch_bytes(instruction: Instruction, inner: int) -> int:
    """Bytes besides operands and result. `inner` is what one run of a called scalar computation takes (a reducer, a comparator)."""
    spec = find(instruction.opcode)
    if spec is not None and isinstance(spec.evaluate, Evaluation):
        return _elementwise(instruction, spec.evaluate)
    return 0 if spec is None or spec.scratch is None else spec.scratch(instruction, inner)


def _elementwise(instruction: Instruction, evaluation: Evaluation) -> int:
    """Widened operands, the result before it is rounded, and as much again for a meaning of several steps."""
    if not instruction.shape.is_array or direct(instruction) is not None or evaluation.precision == "own":
        return 0
    further = evaluation.precision == "f64"
    found = 0
    for shape in arrays(instruction):
        wide = wide_bytes(shape.type, further=further)
        if wide != shape.type.bytes or shape.type.bits < 8:
            found += count(shape) * wide
    own = instruction.shape.type
    wide = wide_bytes(own, further=further)
    if wide != own.bytes or own.bits < 8:
        found += count(instruction.shape) * wide
    return found if evaluation.one_step else found + 2 * count(instruction.shape) * max(wide, 4)
