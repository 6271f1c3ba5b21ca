"""The size of a region's code. Regions above the limits are refused, so that no input leads to kernels of unlimited
size."""

from __future__ import annotations

from hlo_opt.ir import Computation, Instruction
from hlo_opt.ir.index_map import Expression, Product, Quotient, Remainder, Sum
from hlo_opt.ops.accesses import SPREADS
from hlo_opt.ops.lowering import Elementwise
from hlo_opt.ops.spec import find
from hlo_opt.plans.plan import Region

DEEPEST = 60
"""Limit of nested blocks of code: an operation that reads operands under conditions or in loops opens one."""

LARGEST = 20_000
"""Limit of values that one kernel computes per element. XLA refuses code duplication much earlier
(xla/service/fusion_node_indexing_evaluation.cc)."""

HEAVIEST = 24
"""Limit of nodes of an index expression; code generation puts heavier ones into variables."""


def weight(expression: Expression, most: int) -> int:
    """The number of nodes of an expression, counted up to `most`. Not recursive, because expressions may be deep."""
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
    """Whether an operand is read at the index of the result's element."""
    spec = find(instruction.opcode)
    if spec is None:
        return False
    if isinstance(spec.cuda, Elementwise):
        return True
    read = None if spec.index is None else spec.index(instruction, number)
    return read is not None and read.is_identity


def is_direct(instruction: Instruction, number: int) -> bool:
    """Whether an operand is read once, without a condition, at a known index: it is then computed before its user,
    without nesting."""
    spec = find(instruction.opcode)
    if spec is None or instruction.opcode in ("tuple", "get-tuple-element"):
        return True
    if isinstance(spec.cuda, Elementwise) or not instruction.operands[number].shape.rank:
        return True
    read = None if spec.index is None else spec.index(instruction, number)
    return read is not None and not (read.symbols or read.runtime or read.conditions)


def computes_at_once(instruction: Instruction) -> bool:
    """Whether an operation computes an element from at most one of each operand, without loop or condition. A
    kernel that takes it in keeps its reductions in rows, so that of the kernels on the way, while many of these follow
    one another, none has to be planned."""
    spec = find(instruction.opcode)
    if spec is None:
        return False
    return not instruction.operands or instruction.opcode in SPREADS or isinstance(spec.cuda, Elementwise)


def nesting(computation: Computation, most: int = DEEPEST) -> int:
    """An upper bound of the nesting of blocks in the code of a computation. Called computations are followed `most`
    levels deep."""
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
    """An upper estimate of the values that the kernel computes per element: each instruction once per distinct index.

    Counting stops above `most`.
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
    """Whether a region is far from both limits, as nearly all are: it has fewer operations than may nest, called
    computations included, and fewer paths from its results to their operands than it may compute values."""
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
