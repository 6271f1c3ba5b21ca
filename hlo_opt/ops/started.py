"""Short spellings of operations that run asynchronously: `X-start` is an `async-start` of X, `X-update` and `X-done` go on with it."""

from __future__ import annotations

from hlo_opt.ir import Instruction
from hlo_opt.ops.spec import find


def started(instruction: Instruction) -> Instruction | None:
    """The operation that a short `X-start` starts, as one that is done at once. None for any other instruction: also for `async-start`, `copy-start` and the like, which
    the op table has, and where the shape is no ((operands), results, contexts...)."""
    opcode, _, part = instruction.opcode.rpartition("-")
    elements = instruction.shape.elements
    if part != "start" or find(instruction.opcode) is not None or find(opcode) is None:
        return None
    if elements is None or len(elements) < 2:
        return None
    made = Instruction(instruction.name, opcode, elements[1], instruction.operands, instruction.attributes)
    made.parent = instruction.parent
    return made
