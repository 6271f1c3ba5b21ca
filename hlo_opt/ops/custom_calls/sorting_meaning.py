"""The NumPy meaning of custom calls that order elements."""

from __future__ import annotations

import numpy as np

from hlo_opt.ir import Attribute, Called, Instruction, Shape
from hlo_opt.ir.values import Array
from hlo_opt.ops.call_config import is_true, option
from hlo_opt.ops.control.meaning import zeros
from hlo_opt.ops.ordering.meaning import first_of, sort, total_order_key
from hlo_opt.ops.spec import Evaluator
from hlo_opt.ops.values import Value, parts


def top_k(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """The k first elements along the last dimension and their positions; equal ones keep their order.

    The called comparator says whether the greatest or the least come first, as xla/service/topk_rewriter.cc writes it; without one `largest` does.
    """
    assert instruction.shape.elements is not None
    value_shape, position_shape = instruction.shape.elements
    comparator = next(instruction.called(), None)
    if comparator is None:
        descends = is_true(instruction, "largest", True)
    else:
        descends = comparator.root.word("direction") in ("GT", "GE")
    value, t = np.asarray(values[0]), instruction.operands[0].shape.type
    found, order = first_of(value, t, value_shape.dimensions[-1], largest=descends)
    return found, order.astype(position_shape.type.dtype)


def best(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """The first elements under the called comparator along a dimension, as many as the result has room for; initial values where there are fewer.

    Operands, then an initial value for each. How good an approximation must be is all that the call promises; this one misses nothing.
    """
    count = len(values) // 2
    arrays = [np.asarray(value) for value in values[:count]]
    axis = int(option(instruction, "reduction_dim", str(arrays[0].ndim - 1)))
    comparator = next(instruction.called(), None)
    leaves = list(instruction.shape.leaves())
    if comparator is None or not 0 <= axis < arrays[0].ndim or len(leaves) != count or len(values) != 2 * count:
        raise ValueError("operands, initial values and a comparator do not fit together")
    operands = instruction.operands[:count]
    shape = Shape.tuple_of(*(operand.shape.without_layout() for operand in operands))
    attributes: dict[str, Attribute | Called] = {
        "dimensions": Attribute.of((axis,)),
        "is_stable": Attribute.of(True),
        "to_apply": Called(comparator),
    }
    ordered = sort(evaluator, Instruction("sort", "sort", shape, operands, attributes), arrays)
    found = []
    for line, initial, leaf in zip(parts(ordered), values[count:], leaves, strict=True):
        array = np.asarray(line)
        kept = np.take(array, range(min(leaf.dimensions[axis], array.shape[axis])), axis=axis)
        made = np.full(leaf.dimensions, initial, leaf.type.dtype)
        made[tuple(map(slice, kept.shape))] = kept
        found.append(made)
    return tuple(found)


def radix_sort(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """Keys along the last dimension, and what goes with them, in rising or falling order; equal ones keep theirs. Workspace is zero.

    By the bits, as in XLA's total order, except that both zeros are equal (cub/block/radix_rank_sort_operations.cuh).
    """
    keys = np.asarray(values[0])
    even = np.where(keys == 0, np.zeros((), keys.dtype), keys)
    key = total_order_key(even, instruction.operands[0].shape.type)
    order = np.argsort(~key if is_true(instruction, "descending") else key, axis=-1, kind="stable")
    made = [np.take_along_axis(np.asarray(value), order, axis=-1) for value in values]
    leaves = list(instruction.shape.elements or (instruction.shape,))
    return (*made, *(zeros(leaf) for leaf in leaves[len(made) :]))
