"""Cuts that put one operation in place of several which do the same to memory: what matters to a fault is often that
elements meet, and not how.

A loop needs nine instructions before anything happens in it, so each one that it does without counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hlo_opt.cutting.changes import InstructionChange, take
from hlo_opt.ir import Computation, Instruction, edit
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.sets import multiplies_matrices
from hlo_opt.ops.writer import Writer


def stand_ins(i: Instruction, source: int | None) -> Iterator[InstructionChange]:
    """What can be tried in place of an instruction; `source` is the number of the nearest one of its shape that it is
    computed from through others."""
    spec = find(i.opcode)
    if not i.shape.is_array or spec is None:
        return
    folds = spec.kind is OpKind.REDUCTION and not spec.is_library and len(i.operands) == 2
    if folds and i.ints("dimensions") and i.shape.type.is_float and i.operands[0].shape.type == i.shape.type:
        yield square_sum
    if multiplies_matrices(i) and i.operands[0] is not i.operands[1]:
        yield partial(own_square_sum, number=0)
        yield partial(own_square_sum, number=1)
    if source is not None and i.shape.rank:
        yield partial(turn, number=source)


def square_sum(fold: Instruction) -> None:
    """The product of an array with itself in place of what folds it: no start and no computation of two."""
    array = fold.operands[0]
    writer = Writer("product", fold.computation)
    take(fold, writer.sum_of_products(array, array, fold.ints("dimensions"), fold.shape))


def own_square_sum(product: Instruction, number: int) -> None:
    """The product of one operand with itself, element by element, in place of that with another one, summed over the
    same dimensions: nothing needs the other one."""
    array = product.operands[number]
    summed = product.ints(("lhs_contracting_dims", "rhs_contracting_dims")[number])
    left = tuple(size for place, size in enumerate(array.shape.dimensions) if place not in summed)
    if left != product.shape.dimensions:
        raise ValueError("the result has dimensions of the other one")
    writer = Writer("product", product.computation)
    take(product, writer.sum_of_products(array, array, summed, product.shape))


def turn(i: Instruction, number: int) -> None:
    """An array in the other direction in place of what is computed from it: each element reads another one, too."""
    computation: Computation = i.computation
    source = list(computation.instructions)[number]
    writer = Writer("turned", computation)
    take(i, writer.turned(source))
    edit.sort(computation)
