"""How large the code of a region would get. Regions above the limits are refused, so that no input makes kernels
without end."""

from __future__ import annotations

from hlo_opt.ir import Computation, Instruction
from hlo_opt.ir.index_map import Expression, Product, Quotient, Remainder, Sum
from hlo_opt.ops.lowering import Elementwise
from hlo_opt.ops.spec import find
from hlo_opt.plans.plan import Region

DEEPEST = 60
"""Operations nested in each other that ask for operands under conditions or in loops: each is a pair of braces inside
the other."""

LARGEST = 20_000
"""Values that one kernel computes per element. XLA refuses code duplication much earlier
(xla/service/fusion_node_indexing_evaluation.cc)."""

HEAVIEST = 24
"""Nodes of an index expression; code generation puts heavier ones into variables."""


def weight(expression: Expression, most: int) -> int:
    """Number of nodes, counted up to `most`. No recursion, however deep the expression is."""
    count, stack = 0, [expression]
    while stack and count < most:
        node = stack.pop()
        count += 1
        match node:
            case Sum():
                stack += (node.left, node.right)
            case Product() | Quotient() | Remainder():
                stack.append(node.left)
    return count


def same_index(instruction: Instruction, number: int) -> bool:
    """Whether the operand is read exactly at the index that is computed."""
    spec = find(instruction.opcode)
    if spec is None:
        return False
    if isinstance(spec.cuda, Elementwise):
        return True
    found = None if spec.index is None else spec.index(instruction, number)
    return found is not None and found.is_identity


def is_direct(instruction: Instruction, number: int) -> bool:
    """Whether the operand is read once, at an index known beforehand: then it is computed first, without nesting."""
    spec = find(instruction.opcode)
    if spec is None or instruction.opcode in ("tuple", "get-tuple-element"):
        return True
    if isinstance(spec.cuda, Elementwise) or not instruction.operands[number].shape.rank:
        return True
    found = None if spec.index is None else spec.index(instruction, number)
    return found is not None and not (found.symbols or found.runtime or found.conditions)


def nesting(computation: Computation, most: int = DEEPEST) -> int:
    """How deep braces may nest in the code of a computation. Called computations are looked into `most` deep."""
    depths: dict[Instruction, int] = {}
    for instruction in computation.instructions:
        depth = 0
        for number, operand in enumerate(instruction.operands):
            above = depths[operand]
            if above >= depth:
                depth = above + (not is_direct(instruction, number))
        if most >= 0:
            for called in instruction.called():
                depth = max(depth, 1 + nesting(called, most - 1))
        depths[instruction] = depth
    return depths[computation.root]


def values_computed(region: Region, most: int = LARGEST) -> int:
    """An upper estimate of the values that the kernel computes per element: each instruction once per distinct index at
    which it is needed.

    Counted up to a little above `most`.
    """
    indices: dict[Instruction, set[object]] = {root: {number} for number, root in enumerate(region.roots)}
    total = 0
    for instruction in reversed(list(region.computation.instructions)):
        mine = indices.pop(instruction, None)
        if mine is None:
            continue
        total += len(mine)
        if total > most:
            break
        spec = find(instruction.opcode)
        passes_on = instruction.opcode in ("tuple", "get-tuple-element") or (
            spec is not None and isinstance(spec.cuda, Elementwise)
        )
        for number, operand in enumerate(instruction.operands):
            shape = operand.shape
            if shape.is_array and not shape.rank:
                there: set[object] = {()}
            elif passes_on or same_index(instruction, number):
                there = mine
            else:
                there = {(instruction, number, hash(index)) for index in mine}
            known = indices.get(operand)
            indices[operand] = there if known is None else known if known is there else known | there
    return total


def is_small(region: Region) -> bool:
    """Whether a region is far from both limits, as nearly all are: it holds fewer operations than may nest, those of
    called computations too, and there are fewer ways from its results to all that they need than it may compute values.
    """
    instructions = list(region.computation.instructions)
    todo, size = [region.computation], 0
    while todo and size <= DEEPEST:
        members = list(todo.pop().instructions)
        size += 1 + len(members)
        todo += [called for i in members if i.attributes for called in i.called()]
    if todo or size > DEEPEST:
        return False
    ways, total = dict.fromkeys(region.roots, 1), 0
    for instruction in reversed(instructions):
        mine = ways.get(instruction, 0)
        total += mine
        for operand in instruction.operands if mine else ():
            ways[operand] = ways.get(operand, 0) + mine
    return total <= LARGEST
