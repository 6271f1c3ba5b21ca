"""Groups of a region's outputs that share work. The outputs of a group walk one index space together; groups have
blocks of their own.

Source of the idea: GroupDisjointReductions in xla/backends/gpu/codegen/emitters/reduction.cc, here for every kind of
output.
"""

from __future__ import annotations

from hlo_opt.ir import Instruction
from hlo_opt.plans.plan import Region, above

FREE = frozenset({"constant", "iota"})
REPEATING = frozenset({"broadcast"})


def disjoint_outputs(region: Region) -> list[tuple[int, ...]]:
    """The positions of the region's roots in groups. Two groups have nothing in common but constants, single elements
    and their broadcasts."""
    if len(region.roots) == 1:
        return [(0,)]
    leader: dict[Instruction, Instruction] = {}

    def find(instruction: Instruction) -> Instruction:
        while leader[instruction] is not instruction:
            leader[instruction] = leader[leader[instruction]]
            instruction = leader[instruction]
        return instruction

    needed = above(region.roots)
    for instruction in region.computation.instructions:
        if instruction not in needed:
            continue
        leader[instruction] = instruction
        for operand in instruction.operands:
            if not _costs_nothing(operand):
                leader[find(operand)] = find(instruction)
    groups: dict[Instruction, list[int]] = {}
    for position, root in enumerate(region.roots):
        groups.setdefault(find(root), []).append(position)
    return [tuple(group) for group in groups.values()]


def _costs_nothing(instruction: Instruction) -> bool:
    """Whether two threads can both have a value at no more than the cost of one element."""
    while instruction.opcode in REPEATING:
        instruction = instruction.operands[0]
    if instruction.opcode in FREE:
        return True
    return instruction.opcode == "parameter" and instruction.shape.element_count == 1
