"""The emitter of pairwise plans: a thread folds a few rows with a few columns, each pair in registers of its own."""

from __future__ import annotations

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.folds import Fold, open_folds, places_at
from hlo_opt.codegen.loop import own_thread
from hlo_opt.codegen.scalars import memory_type, stored
from hlo_opt.codegen.vectors import Targets
from hlo_opt.ir import Shape
from hlo_opt.ir.index_map import Expression, Variable, add, constant, multiply
from hlo_opt.ops.code import Code, FirstRound, Name, code, of
from hlo_opt.ops.lowering import Index
from hlo_opt.plans.folding import operand_index, root_index
from hlo_opt.plans.pairwise import Pairs
from hlo_opt.plans.plan import Plan, Segment

UNROLLED = 4
"""The most chunks of a fold that are unrolled."""


def emit(builder: Builder, plan: Plan, segment: Segment[Pairs], first_block: int, targets: Targets) -> None:
    """Fold all pairs of a thread side by side, then write their elements, row by row."""
    part = segment.part
    row, first = part.first(own_thread(builder, "thread", plan, segment, first_block, part.threads))
    last = part.batches * part.rows - part.height
    row = _at_most(builder, "row", row, last)  # the last thread of a column has rows that others have too
    lanes = part.tiling[-1]
    columns = [
        _at_most(builder, "column", add(first, constant(n * lanes)), part.columns - 1) for n in range(part.width)
    ]
    pairs = [
        add(multiply(add(row, constant(r)), part.columns), column) for r in range(part.height) for column in columns
    ]
    opened = [(kept, open_folds(builder, part.reduces)) for kept in pairs]
    chunks = part.reduced // part.chunk
    number, counter = Variable(0, chunks - 1, builder.names.fresh("chunk")), builder.numbered("k")
    unrolled = 0 if chunks <= UNROLLED else 1
    with builder.walk("int", number, constant(0), chunks, 1, counter, unrolled=unrolled):
        # all are read before the first fold, so that neighbours are read together
        values: list[tuple[Fold, list[Code], list[int], bool]] = []
        for step in (add(multiply(number, part.chunk), constant(n)) for n in range(part.chunk)):
            for kept, folds in opened:
                for fold in folds:
                    at = operand_index(fold.reduce, kept, step)
                    read = [builder.value(o, at) for o in fold.operands]
                    values.append((fold, read, places_at(fold, at, step), len(values) < len(opened) * len(folds)))
        for fold, read, numbers, may_be_first in values:
            is_first = Code((FirstRound(Name(number.name), 1, counter),)) if may_be_first else False
            fold.take(builder, read, is_first, numbers)
    for kept, folds in opened:
        for fold in folds:
            fold.finish(builder, fold.accumulators, kept)
    writes: list[tuple[Name, Shape, Index, Code]] = []  # all are computed before the first is written
    for kept in pairs:
        for root_number in part.roots:
            root = plan.region.roots[root_number]
            index = root_index(part.space, part.reduces, root, kept, None)
            for element, (pointer, shape) in enumerate(targets[root_number]):
                value = builder.element(root, element, index) if root.shape.is_tuple else builder.value(root, index)
                made = builder.let(memory_type(shape.type), "made", stored(shape.type, value))
                writes.append((pointer, shape, index, of(made)))
    for write in writes:
        builder.put(*write)


def _at_most(builder: Builder, stem: str, place: Expression, most: int) -> Expression:
    """The place, or the last one for a thread that has none of its own: it then has results that another has too."""
    declared = builder.declare_index(stem, place)
    if declared.high <= most:
        return declared
    assert isinstance(declared, Variable)
    return builder.clamped(stem, code("{} <= {}", declared, most), declared, most)
