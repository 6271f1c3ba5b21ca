"""Sorts of one element, of arrays whose order nobody reads, and arrays that are put into the order of a sort again."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.ir import Called, Computation, Instruction, Shape, edit
from hlo_opt.ops.indexing.gather_dimensions import Batching, IndexedWindows, gather_dimensions
from hlo_opt.ops.ordering.table import sorted_dimension
from hlo_opt.ops.sets import tuple_index
from hlo_opt.passes.simplify.reading import is_a
from hlo_opt.passes.simplify.rule import rule
from hlo_opt.passes.simplify.site import Site


@rule("sort-one", "sort", "sort along a dimension of at most one element = its operands", "there is one order")
def sort_one(i: Instruction, site: Site) -> Instruction | None:
    (along,) = i.ints("dimensions")
    if i.operands[0].shape.dimensions[along] > 1:
        return None
    if i.shape.is_array:
        return i.operands[0]
    return site.emit("tuple", Shape.tuple_of(*(o.shape for o in i.operands)), *i.operands)


@rule(
    "sort-unread",
    "sort",
    "sort of several arrays = sort of those that are compared or whose order is read",
    "the others decide nothing; HLO leaves open how equal elements are ordered, unless the sort is stable, and then "
    "their order stays",
)
def sort_unread(i: Instruction, site: Site) -> Instruction | None:
    if i.shape.is_array or i.is_root or any(tuple_index(user) is None for user in i.users):
        return None
    read = {tuple_index(user) for user in i.users}
    before = i.called_by("to_apply")
    kept = [
        k
        for k in range(len(i.operands))
        if k in read or any(p.users or p.is_root for p in before.parameters[2 * k : 2 * k + 2])
    ]
    if len(kept) == len(i.operands) or not kept:
        return None
    comparator = _of_those(before, kept)
    operands = [i.operands[k] for k in kept]
    shapes = [o.shape for o in operands]
    whole = Shape.tuple_of(*shapes) if len(kept) > 1 else shapes[0]
    short = site.again(i, operands, whole)
    edit.set_attribute(short, "to_apply", Called(comparator))
    parts = {kept[0]: short}
    if len(kept) > 1:
        parts = {k: site.emit("get-tuple-element", shapes[n], short, index=n) for n, k in enumerate(kept)}
    values = [parts.get(k, operand) for k, operand in enumerate(i.operands)]
    return site.emit("tuple", Shape.tuple_of(*(v.shape for v in values)), *values)


def _of_those(comparator: Computation, kept: Sequence[int]) -> Computation:
    """A comparator of the arrays of those numbers alone; it compares no others."""
    assert comparator.module is not None
    copy = edit.new_computation(comparator.module, comparator.name)
    numbers = {2 * k + side: 2 * place + side for place, k in enumerate(kept) for side in (0, 1)}
    copies: dict[Instruction, Instruction] = {}
    for inner in comparator.instructions:
        number = inner.parameter_number
        if number is not None and number not in numbers:
            continue
        copies[inner] = edit.clone_into(copy, inner, [copies[o] for o in inner.operands])
        if number is not None:
            copies[inner].parameter_number = numbers[number]
    edit.set_root(copy, copies[comparator.root])
    return copy


@rule(
    "gather-in-order-of-sort",
    "gather",
    "gather of an operand of a sort, at the places that the sort gives = the operand as the sort orders it",
    "a sort moves its operands together; the places are a permutation, and none lies outside",
    of="reshape",
)
def gather_in_order_of_sort(i: Instruction, site: Site) -> Instruction | None:
    value, places = i.operands[0], i.operands[1].operands
    number = tuple_index(places[0]) if places else None
    if number is None or not is_a(places[0].operands[0], "sort"):
        return None
    sort = places[0].operands[0]
    along, shape = sorted_dimension(sort), value.shape
    others = tuple(d for d in range(shape.rank) if d != along)
    same = IndexedWindows((), (along,), (along,), shape.rank, (1,) * shape.rank, Batching(others, others))
    if value not in sort.operands or not _counts(sort.operands[number], along) or gather_dimensions(i) != same:
        return None
    return site.emit("get-tuple-element", shape, sort, index=sort.operands.index(value))


def _counts(value: Instruction, along: int) -> bool:
    """Whether elements are their places in a dimension, of a type that holds all of them."""
    kind, size = value.shape.type, value.shape.dimensions[along]
    if is_a(value, "broadcast") and value.operands[0].shape.rank == 1 and value.ints("dimensions") == (along,):
        value, along = value.operands[0], 0
    is_count = is_a(value, "iota") and value.attribute("iota_dimension", int) == along
    return is_count and kind.is_integer and size - 1 <= kind.limits[1]
