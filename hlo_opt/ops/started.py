"""Short spellings of operations that run asynchronously: `X-start` is an `async-start` of X, `X-update` and `X-done` go on with it."""

from __future__ import annotations

from hlo_opt.ir import Called, Instruction, Shape
from hlo_opt.ops.spec import OpKind, find


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
    made.parent, made.offset, made.end = instruction.parent, instruction.offset, instruction.end
    return made


def at_once(instruction: Instruction) -> Instruction | None:
    """As `started`, for all starts whose result somebody computes: an `async-start` is a call, a `copy-start` a copy, and collectives have starts of their own. A start gives what goes
    in, then the result, then contexts; a copy its result first; a collective of an older form the result alone, and then the shape is the start's own."""
    base, _, part = instruction.opcode.rpartition("-")
    spec, elements, attributes = find(instruction.opcode), instruction.shape.elements, instruction.attributes
    if part != "start" or spec is None:
        return started(instruction)
    shape, count = instruction.shape, len(instruction.operands)
    if spec.kind is OpKind.COLLECTIVE:
        if elements is not None and len(elements) > 1 and "to_apply" not in attributes:
            shape = elements[1]
        elif elements is not None and len(elements) == 2 * count:
            shape = elements[1] if count == 1 else Shape.tuple_of(*elements[count:])
    elif elements is None or len(elements) < 2:
        return None
    elif "calls" in attributes:
        base, shape, attributes = "call", elements[1], {"to_apply": Called(next(instruction.called()))}
    elif base == "copy":
        shape, attributes = elements[0], {}
    else:
        return None
    made = Instruction(instruction.name, base, shape, instruction.operands, attributes)
    made.parent = instruction.parent
    return made


def goes_on(instruction: Instruction) -> tuple[int, ...] | None:
    """Where in its operand the value of an `X-update` or `X-done` is: empty for all of it, else the number of an element. None for any other instruction, and for those that end a
    transfer to somewhere else."""
    base, _, part = instruction.opcode.rpartition("-")
    spec = find(instruction.opcode)
    if part not in ("update", "done"):
        return None
    if spec is None or base == "async":
        return () if part == "update" else (1,)
    source = instruction.operands[0].shape.elements
    if spec.kind is OpKind.COLLECTIVE:
        if base == "all-reduce":  # what starts gives the results, in an older form what went in before them
            return () if source is None or instruction.shape.is_tuple else (len(source) - 1,)
        return () if source is None else (1,)
    return (0,) if base == "copy" else None
