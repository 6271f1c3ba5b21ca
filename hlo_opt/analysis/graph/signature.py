"""What a plain instruction is, but for where its operands come from: instructions of one signature have the same costs and the same lowering.

An unrolled loop or a random generator repeats a few dozen signatures thousands of times; what depends on them alone is computed once.
"""

from __future__ import annotations

from collections.abc import Hashable

from hlo_opt.analysis.graph.numbering import attribute_key
from hlo_opt.ir import Called, Instruction
from hlo_opt.ops import OpKind, find


def signature(instruction: Instruction) -> Hashable:
    """Opcode, shape, attributes, operands' opcodes and shapes; the instruction itself where more counts (what it holds or calls)."""
    spec = find(instruction.opcode)
    is_opaque = spec is not None and spec.kind is OpKind.OPAQUE
    is_leaf = instruction.literal is not None or instruction.parameter_number is not None
    if is_opaque or is_leaf or any(isinstance(value, Called) for value in instruction.attributes.values()):
        return instruction
    return (
        instruction.opcode,
        instruction.shape,
        attribute_key(instruction),
        tuple((o.opcode, o.shape) for o in instruction.operands),
    )


def edge_signature(producer: Instruction, consumer: Instruction, above: Hashable, below: Hashable) -> Hashable:
    """What the cost of fusing two instructions depends on: their signatures and which operands they share."""
    numbers: dict[Instruction, int] = {producer: 0}
    return (
        above,
        below,
        tuple(numbers.setdefault(o, len(numbers)) for o in producer.operands),
        tuple(numbers.setdefault(o, len(numbers)) for o in consumer.operands),
    )
