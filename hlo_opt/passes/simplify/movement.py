"""Reshapes, transposes and reversals."""

from __future__ import annotations

import math

from hlo_opt.ir import Instruction
from hlo_opt.passes.simplify.reading import is_a, uniform
from hlo_opt.passes.simplify.rule import rule
from hlo_opt.passes.simplify.shapes import groups, is_rising, only_ones_differ, without_ones
from hlo_opt.passes.simplify.site import Site

_ORDER = "elements keep their row-major order"


@rule("reshape-to-itself", "reshape", "reshape of x to its own dimensions = x", _ORDER)
def reshape_to_itself(i: Instruction, site: Site) -> Instruction | None:
    operand = i.operands[0]
    return operand if operand.shape.same_values(i.shape) else None


@rule("reshape-of-reshape", "reshape", "reshape of a reshape: one", _ORDER, of="reshape")
def reshape_of_reshape(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "reshape"):
        return None
    source = inner.operands[0]
    return source if source.shape.same_values(i.shape) else site.reshape(source, i.shape.dimensions)


@rule("transpose-nothing", "transpose", "transpose that leaves dimensions in order = its operand", "nothing moves")
def transpose_nothing(i: Instruction, site: Site) -> Instruction | None:
    return i.operands[0] if is_rising(i.ints("dimensions")) else None


@rule(
    "transpose-of-transpose", "transpose", "transpose of a transpose: one", "permutations are composed", of="transpose"
)
def transpose_of_transpose(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "transpose"):
        return None
    first = inner.ints("dimensions")
    return site.transpose(inner.operands[0], [first[d] for d in i.ints("dimensions")])


@rule(
    "transpose-of-ones",
    "transpose",
    "transpose that moves dimensions of size 1 only = reshape",
    "the others keep their row-major order",
)
def transpose_of_ones(i: Instruction, site: Site) -> Instruction | None:
    order = i.ints("dimensions")
    if is_rising(order) or not is_rising([order[d] for d in without_ones(i.shape.dimensions)]):
        return None
    return site.reshape(i.operands[0], i.shape.dimensions)


@rule(
    "transpose-of-same",
    "transpose reverse",
    "transpose or reverse of one number everywhere: the number in other dimensions",
    "all elements are the same",
)
def transpose_of_same(i: Instruction, site: Site) -> Instruction | None:
    operand = i.operands[0]
    if is_a(operand, "broadcast") and not operand.operands[0].shape.rank:
        return site.spread(operand.operands[0], i.shape.dimensions)
    number = uniform(operand) if operand.literal is not None else None
    return None if number is None else site.full(i.shape, number)


@rule(
    "reverse-nothing", "reverse", "reverse of dimensions of size 1 = its operand", "one element is its own mirror image"
)
def reverse_nothing(i: Instruction, site: Site) -> Instruction | None:
    dimensions = i.ints("dimensions")
    kept = tuple(d for d in dimensions if i.shape.dimensions[d] > 1)
    if kept == dimensions:
        return None
    return site.again(i, i.operands, dimensions=kept) if kept else i.operands[0]


@rule(
    "reverse-of-reverse",
    "reverse",
    "reverse of a reverse: of the dimensions that only one of them turns",
    "twice is not at all",
)
def reverse_of_reverse(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "reverse"):
        return None
    left = tuple(sorted(set(i.ints("dimensions")) ^ set(inner.ints("dimensions"))))
    return site.again(i, inner.operands, dimensions=left) if left else inner.operands[0]


@rule("iota-of-one", "iota", "iota along a dimension of size 1 = 0 everywhere", "it counts from 0")
def iota_of_one(i: Instruction, site: Site) -> Instruction | None:
    along = i.attribute("iota_dimension", int)
    return site.full(i.shape, 0) if i.shape.dimensions[along] == 1 else None


@rule(
    "reshape-iota",
    "reshape",
    "reshape that adds or drops dimensions of size 1 of an iota = iota",
    "it counts along the same dimension",
    of="iota",
)
def reshape_iota(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "iota"):
        return None
    source, target = inner.shape.dimensions, i.shape.dimensions
    if [n for n in source if n != 1] != [n for n in target if n != 1]:
        return None
    along = inner.attribute("iota_dimension", int)
    if source[along] == 1:
        return None
    moved = without_ones(target)[without_ones(source).index(along)]
    return site.emit("iota", i.shape, iota_dimension=moved)


@rule(
    "transpose-of-iota",
    "transpose",
    "transpose of an iota = iota along the dimension where it went",
    "it counts along it",
)
def transpose_of_iota(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "iota"):
        return None
    return site.emit("iota", i.shape, iota_dimension=i.ints("dimensions").index(inner.attribute("iota_dimension", int)))


@rule(
    "transpose-past-ones",
    "transpose",
    "transpose of a transpose with dimensions of size 1 added or dropped between = one transpose",
    "permutations are composed, and dimensions of size 1 hold no order",
)
def transpose_past_ones(i: Instruction, site: Site) -> Instruction | None:
    between = i.operands[0]
    if not is_a(between, "reshape") or not is_a(between.operands[0], "transpose"):
        return None
    first = between.operands[0]
    source, sizes = first.operands[0], between.shape.dimensions
    if not only_ones_differ(first.shape.dimensions, sizes) or not i.shape.element_count:
        return None
    inner = [first.ints("dimensions")[d] for d in without_ones(first.shape.dimensions)]
    large = without_ones(sizes)
    order = [inner[large.index(d)] for d in i.ints("dimensions") if d in large]
    ranks = sorted(order)
    small = site.reshape(source, [source.shape.dimensions[d] for d in ranks])
    return site.reshape(site.transpose(small, [ranks.index(d) for d in order]), i.shape.dimensions)


@rule(
    "reshape-of-transpose",
    "reshape",
    "reshape of a transpose of a reshape, which joins what stays together = a transpose of fewer dimensions",
    "elements keep their order within what stays together",
    of="transpose",
)
def reshape_of_transpose(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "transpose") or not is_a(inner.operands[0], "reshape") or not i.shape.element_count:
        return None
    if len(inner.users) > 1 or len(inner.operands[0].users) > 1:
        return None
    order, value = inner.ints("dimensions"), inner.operands[0]
    parts: list[list[int]] = []
    for ours, theirs in groups(inner.shape.dimensions, i.shape.dimensions):
        moved = [order[d] for d in ours]
        if len(theirs) != 1 or not moved or moved != list(range(moved[0], moved[0] + len(moved))):
            return None
        parts.append(moved)
    if len(parts) == inner.shape.rank:
        return None
    lying = sorted(parts)
    joined = site.reshape(value, [math.prod(value.shape.dimensions[d] for d in part) for part in lying])
    return site.transpose(joined, [lying.index(part) for part in parts])
