"""Bytes and operations of one instruction on a GPU: how much of each operand it reads, what it writes, what it computes."""

from __future__ import annotations

from hlo_opt.analysis.memory.flops import per_element
from hlo_opt.analysis.memory.transposes import only_renames
from hlo_opt.ir import Computation, Instruction
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.accesses import RULES, Accesses, whole
from hlo_opt.ops.sets import COPIES, is_elementwise, is_free


def accesses(instruction: Instruction, capability: int) -> Accesses:
    """The accesses of an instruction that is no fusion and no control flow; nothing for one that launches no work."""
    opcode, count = instruction.opcode, len(instruction.operands)
    if is_free(opcode) or only_renames(instruction):
        return Accesses(0.0, (1.0,) * count, (0.0,) * count, 0.0)
    rule = RULES.get(opcode)
    if rule is not None:
        return rule(instruction, lambda called: reducer_flops(called, capability))
    flops = 0.0
    if is_elementwise(instruction) and opcode not in COPIES:
        flops = instruction.shape.element_count * per_element(instruction, capability)
    return whole(instruction, flops)


def reducer_flops(computation: Computation, capability: int) -> float:
    """Operations of one call of a reducer."""
    specs = [(i, find(i.opcode)) for i in computation.instructions]
    return sum(accesses(i, capability).flops for i, spec in specs if spec is None or spec.kind is not OpKind.CONTROL)
