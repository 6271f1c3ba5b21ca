"""Index maps of reshapes: the same row-major position in other dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlo_opt.ir.index_map import Expression, constant, delinearize, linearize


def groups(left: Sequence[int], right: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """The finest common grouping of two lists of sizes with the same product: (left from, left to, right from, right to), dimensions of
    size 1 in the group to their left.

    Source of the idea: xla/util.cc, CommonFactors. The products must be equal and not 0.
    """
    found = []
    i = j = 0
    while i < len(left) or j < len(right):
        start_i, start_j = i, j
        product_left = product_right = 1
        if i < len(left):
            product_left, i = left[i], i + 1
        if j < len(right):
            product_right, j = right[j], j + 1
        while product_left != product_right:
            if product_left < product_right:
                product_left, i = product_left * left[i], i + 1
            else:
                product_right, j = product_right * right[j], j + 1
        found.append((start_i, i, start_j, j))
    return found


def regroup(index: Sequence[Expression], sizes: Sequence[int], others: Sequence[int]) -> tuple[Expression, ...]:
    """The index in an array of the sizes `others` that has the same row-major position as `index` in one of `sizes`.

    Dimensions that stay together are treated together, so that no division crosses from one group to the next.
    """
    if math.prod(sizes) == 0:
        return tuple(constant(0) for _ in others)
    kept = [(i, size) for i, size in zip(index, sizes, strict=True) if size != 1]
    wide = [size for size in others if size != 1]
    found: list[Expression] = []
    for from_, to, other_from, other_to in groups([size for _, size in kept], wide):
        part = kept[from_:to]
        position = linearize([i for i, _ in part], [size for _, size in part])
        found.extend(delinearize(position, wide[other_from:other_to]))
    remaining = iter(found)
    return tuple(constant(0) if size == 1 else next(remaining) for size in others)
