"""The row-reduction plan: a warp or a block folds each row of a reduce whose fastest varying dimensions are reduced.

Threads walk an index space [rows, columns]. Reduces over the same space are folded in one pass; one that needs the results of others (the sum of a softmax
needs the maximum) comes in a later pass over the same row, a *level*. An output has one element per row or one per position of the space.
Which reduces qualify: xla/service/gpu/reduction_utils.cc; sizes and launch: xla/backends/gpu/codegen/emitters/reduction.cc.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import Expression, add, delinearize, multiply, variable
from hlo_opt.ops.reducers import monoid
from hlo_opt.ops.spec import find
from hlo_opt.plans.limits import HEAVIEST, weight
from hlo_opt.plans.loop import physical_index
from hlo_opt.plans.plan import Launch, Plan, Region, Segment

WARP = 32
_PER_THREAD = 16  # elements of a row that one thread folds, before the row gets more threads
_MOST_THREADS = 1024
_SHORT_ROW_BLOCK = 256
_MOST_STEPS = 20_000  # of the walk that follows indices from outputs to reduces

Index = tuple[Expression, ...]


def space_of(reduce: Instruction) -> tuple[int, int] | None:
    """[rows, columns] of a reduce whose minor-most dimensions are reduced, or None when it is no row reduction."""
    shape = reduce.operands[0].shape
    gone = set(reduce.ints("dimensions"))
    minor = 1
    for d in shape.minor_to_major:
        if d not in gone and shape.dimensions[d] != 1:
            break
        minor *= shape.dimensions[d]
    columns = math.prod(shape.dimensions[d] for d in gone)
    if minor < WARP or not shape.element_count or not _may_be_reordered(reduce):
        return None
    return shape.element_count // columns, columns


def _may_be_reordered(reduce: Instruction) -> bool:
    """Whether folding in another order stays close to HLO's own. Sums of bf16 or f16 round after every step, and a running sum stops growing where a tree's
    does not: those keep their order, in a loop. (JAX sums narrow floats in f32.)"""
    exact = monoid(reduce.called_by("to_apply")) in ("maximum", "minimum")
    return exact or not any(leaf.type.is_narrow_float for leaf in reduce.shape.leaves())


def operand_index(reduce: Instruction, row: Expression, column: Expression) -> Index:
    """The logical index of a reduce's operand at a row and a column; neighbouring columns are neighbours in memory."""
    shape = reduce.operands[0].shape
    gone = set(reduce.ints("dimensions"))
    order = shape.minor_to_major[::-1]
    found: dict[int, Expression] = {}
    for position, dims in (
        (row, [d for d in order if d not in gone]),
        (column, [d for d in order if d in gone]),
    ):
        found.update(zip(dims, delinearize(position, [shape.dimensions[d] for d in dims]), strict=True))
    return tuple(found[d] for d in range(shape.rank))


def result_index(reduce: Instruction, row: Expression) -> Index:
    """The logical index of a reduce's result at a row."""
    gone = set(reduce.ints("dimensions"))
    index = operand_index(reduce, row, row)
    return tuple(e for d, e in enumerate(index) if d not in gone)


def root_index(
    levels: tuple[tuple[Instruction, ...], ...], root: Instruction, row: Expression, column: Expression | None
) -> Index:
    """The logical index at which an output is written: at a row, or at a row and a column."""
    shape = next(root.shape.leaves())
    for reduce in (r for level in levels for r in level):
        if column is None and next(reduce.shape.leaves()).dimensions == shape.dimensions:
            return result_index(reduce, row)
        if column is not None and reduce.operands[0].shape.dimensions == shape.dimensions:
            return operand_index(reduce, row, column)
    if column is None:
        return physical_index(shape, row)
    return physical_index(shape, add(multiply(row, column.high + 1), column))


def match(region: Region) -> Plan | None:
    """The row-reduction plan of a region, or None when it has no reduce of this form or uses one at indices that a row's threads do not have."""
    spaces: dict[tuple[int, int], list[Instruction]] = {}
    for instruction in region.computation.instructions:
        space = space_of(instruction) if instruction.opcode == "reduce" else None
        if space is not None:
            spaces.setdefault(space, []).append(instruction)
    for (rows, columns), heroes in sorted(spaces.items(), key=lambda item: (-item[0][0] * item[0][1], item[0])):
        sizes = {next(root.shape.leaves()).element_count for root in region.roots}
        if sizes <= {rows, rows * columns}:
            levels = _levels(region, heroes, rows, columns)
            if levels:
                return _plan(region, levels, rows, columns)
    return None


def _plan(region: Region, levels: tuple[tuple[Instruction, ...], ...], rows: int, columns: int) -> Plan:
    warps = math.ceil(math.ceil(columns / _PER_THREAD) / WARP)
    threads = min(_MOST_THREADS, warps * WARP)
    rows_per_block = min(rows, _SHORT_ROW_BLOCK // threads) if 2 * threads <= _SHORT_ROW_BLOCK else 1
    shared = 0
    if threads > WARP:
        leaves = [leaf for level in levels for r in level for leaf in r.shape.leaves()]
        shared = sum(max(4, leaf.type.bytes) for leaf in leaves) * rows_per_block * threads // WARP
    segment = Segment(
        "row-reduction",
        (rows, columns),
        levels[0][0],
        tuple(range(len(region.roots))),
        math.ceil(rows / rows_per_block),
        threads_per_row=threads,
        rows_per_block=rows_per_block,
        levels=levels,
    )
    return Plan(region, Launch(math.ceil(rows / rows_per_block), threads * rows_per_block, shared), (segment,))


def _levels(
    region: Region, heroes: list[Instruction], rows: int, columns: int
) -> tuple[tuple[Instruction, ...], ...] | None:
    """The reduces that the outputs need, by level; None when an index does not fit."""
    row, column = variable("row", rows), variable("column", columns)
    chosen = set(heroes)
    above = _depending_on(region, chosen)
    everything = (tuple(heroes),)
    reached: dict[Instruction, int] = {}
    for hero in heroes:  # operands come before users
        half = len(hero.operands) // 2
        at = operand_index(hero, row, column)
        starts = [(o, at) for o in hero.operands[:half]] + [(o, ()) for o in hero.operands[half:]]
        found = _reduces_read(starts, chosen, above, row)
        if found is None:
            return None
        reached[hero] = max((reached[h] + 1 for h in found), default=0)
    needed: set[Instruction] = set()
    for root in region.roots:
        size = next(root.shape.leaves()).element_count
        at = root_index(everything, root, row, None if size == rows else column)
        found = _reduces_read([(root, at)], chosen, above, row)
        if found is None:
            return None
        needed |= found
    for hero in reversed(heroes):  # what a needed reduce needs
        if hero in needed:
            half = len(hero.operands) // 2
            at = operand_index(hero, row, column)
            starts = [(o, at) for o in hero.operands[:half]] + [(o, ()) for o in hero.operands[half:]]
            needed |= _reduces_read(starts, chosen, above, row) or set()
    kept = [h for h in heroes if h in needed]
    count = 1 + max((reached[h] for h in kept), default=-1)
    return tuple(tuple(h for h in kept if reached[h] == level) for level in range(count))


def _depending_on(region: Region, heroes: set[Instruction]) -> set[Instruction]:
    found = set(heroes)
    for instruction in region.computation.instructions:
        if any(o in found for o in instruction.operands):
            found.add(instruction)
    return found


def _reduces_read(
    starts: Iterable[tuple[Instruction, Index]], heroes: set[Instruction], above: set[Instruction], row: Expression
) -> set[Instruction] | None:
    """The reduces whose results are read first on the way down from the starts; None when one is read at another row than the threads' own."""
    found: set[Instruction] = set()
    stack = [(i, at) for i, at in starts if i in above]
    seen = set(stack)
    while stack:
        instruction, index = stack.pop()
        if instruction in heroes:
            if index != result_index(instruction, row):
                return None
            found.add(instruction)
            continue
        if len(seen) > _MOST_STEPS or any(weight(e, HEAVIEST) >= HEAVIEST for e in index):
            return None
        spec = find(instruction.opcode)
        for number, operand in enumerate(instruction.operands):
            if operand not in above:
                continue
            if instruction.opcode in ("tuple", "get-tuple-element"):
                below = index
            else:
                read = None if spec is None or spec.index is None else spec.index(instruction, number)
                if read is None or read.symbols or read.runtime:
                    return None
                below = read.apply(index)
            if (operand, below) not in seen:
                seen.add((operand, below))
                stack.append((operand, below))
    return found
