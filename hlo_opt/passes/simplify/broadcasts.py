"""Rules for broadcasts: of broadcasts, of reshaped and transposed values, and after operations instead of before
them."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.ir import Instruction, array
from hlo_opt.ops import OpKind, find
from hlo_opt.passes.simplify.reading import is_a
from hlo_opt.passes.simplify.rule import ANY, rule
from hlo_opt.passes.simplify.shapes import groups, is_rising, without_ones
from hlo_opt.passes.simplify.site import Site

_SAME = "each element of the result is the same element of the operand"


@rule("broadcast-to-itself", "broadcast", "broadcast of x to its own dimensions = x, or a transpose of it", _SAME)
def broadcast_to_itself(i: Instruction, site: Site) -> Instruction | None:
    operand, mapped = i.operands[0], i.ints("dimensions")
    if operand.shape.rank != i.shape.rank:
        return None
    if is_rising(mapped):
        return operand
    order = [mapped.index(d) for d in range(len(mapped))]
    return site.transpose(operand, order)


@rule("broadcast-of-broadcast", "broadcast", "broadcast of a broadcast: one", _SAME, of="broadcast")
def broadcast_of_broadcast(i: Instruction, site: Site) -> Instruction | None:
    inner, mapped = i.operands[0], i.ints("dimensions")
    if not is_a(inner, "broadcast"):
        return None
    return site.broadcast(inner.operands[0], i.shape.dimensions, [mapped[d] for d in inner.ints("dimensions")])


def _inserted(source: Sequence[int], target: Sequence[int]) -> list[int] | None:
    """For each dimension of the source the dimension of the target that it becomes, if the target only has dimensions
    of size 1 besides."""
    places: list[int] = []
    for d, size in enumerate(target):
        if len(places) < len(source) and source[len(places)] == size:
            places.append(d)
        elif size != 1:
            return None
    return places if len(places) == len(source) else None


@rule(
    "broadcast-of-reshape",
    "broadcast",
    "broadcast of x with dimensions of size 1 added = broadcast of x, those dropped = broadcast of a smaller reshape",
    _SAME,
    of="reshape",
)
def broadcast_of_reshape(i: Instruction, site: Site) -> Instruction | None:
    inner, mapped = i.operands[0], i.ints("dimensions")
    if not is_a(inner, "reshape"):
        return None
    source = inner.operands[0]
    places = _inserted(source.shape.dimensions, inner.shape.dimensions)
    if places is None:
        return None
    return site.broadcast(source, i.shape.dimensions, [mapped[d] for d in places])


@rule(
    "broadcast-of-ones",
    "broadcast",
    "broadcast of x[.., 1, ..] = broadcast of x without the dimensions of size 1",
    _SAME,
)
def broadcast_of_ones(i: Instruction, site: Site) -> Instruction | None:
    operand, mapped = i.operands[0], i.ints("dimensions")
    if is_a(operand, "parameter", "reshape", "broadcast", "constant") or operand.shape.element_count == 0:
        return None
    sizes = operand.shape.dimensions
    if 1 not in sizes or operand.shape.element_count == i.shape.element_count:
        return None
    kept = without_ones(sizes)
    small = site.reshape(operand, [sizes[d] for d in kept])
    return site.broadcast(small, i.shape.dimensions, [mapped[d] for d in kept])


@rule(
    "reshape-of-broadcast",
    "reshape",
    "reshape of a broadcast that leaves the operand's dimensions whole = broadcast",
    _SAME,
    of="broadcast",
)
def reshape_of_broadcast(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "broadcast") or i.shape.element_count == 0:
        return None
    source, mapped = inner.operands[0], inner.ints("dimensions")
    if not source.shape.rank:
        return site.spread(source, i.shape.dimensions)
    sizes, wanted = inner.shape.dimensions, i.shape.dimensions
    if not is_rising(mapped):
        return None
    places: dict[int, int] = {}
    for ours, theirs in groups(sizes, wanted):
        moved = [d for d in ours if d in mapped and sizes[d] != 1]
        if not moved:
            continue
        large, into = [d for d in ours if sizes[d] != 1], [d for d in theirs if wanted[d] != 1]
        if len(large) != 1 or len(into) != 1:
            return None
        places[moved[0]] = into[0]
    kept = [k for k, d in enumerate(mapped) if d in places]
    small = site.reshape(source, [source.shape.dimensions[k] for k in kept])
    if not kept:
        return site.spread(small, wanted)
    if small.shape.rank == len(wanted) and small.shape.dimensions == tuple(wanted):
        return small
    return site.broadcast(small, wanted, [places[mapped[k]] for k in kept])


@rule(
    "transpose-of-broadcast",
    "transpose",
    "transpose of a broadcast = broadcast into the moved dimensions, where they stay in order",
    _SAME,
    of="broadcast",
)
def transpose_of_broadcast(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "broadcast"):
        return None
    order = i.ints("dimensions")
    mapped = [order.index(d) for d in inner.ints("dimensions")]
    return site.broadcast(inner.operands[0], i.shape.dimensions, mapped) if is_rising(mapped) else None


@rule(
    "transpose-of-operation",
    "transpose",
    "transpose of op(broadcast x, broadcast y) that nobody else reads, as of an outer product = op(broadcast x, "
    "broadcast y) into the moved dimensions, where those of each operand stay in order",
    _SAME,
)
def transpose_of_operation(i: Instruction, site: Site) -> Instruction | None:
    inner, order = i.operands[0], i.ints("dimensions")
    if not _is_elementwise(inner) or len(inner.users) > 1 or inner.is_root:
        return None
    sources = [_spread(o) if o.shape.dimensions == inner.shape.dimensions else None for o in inner.operands]
    moved = [(v, [order.index(d) for d in mapped]) for v, mapped in (s for s in sources if s is not None)]
    if len(moved) < len(sources) or not all(is_rising(mapped) for _, mapped in moved):
        return None
    operands = [site.broadcast(value, i.shape.dimensions, mapped) for value, mapped in moved]
    return site.again(inner, operands, array(i.shape.type, *i.shape.dimensions))


def _is_elementwise(i: Instruction) -> bool:
    """Whether it works on arrays element by element, and calls nothing."""
    spec = find(i.opcode)
    plain = spec is not None and spec.kind is OpKind.ELEMENTWISE and not spec.side_effects
    return plain and i.shape.is_array and bool(i.operands) and next(i.called(), None) is None


def _spread(value: Instruction) -> tuple[Instruction, tuple[int, ...]] | None:
    """The operand of a broadcast and its dimensions in the result."""
    if is_a(value, "broadcast"):
        return value.operands[0], value.ints("dimensions")
    return None


@rule(
    "operation-on-broadcasts",
    ANY,
    "op(broadcast x, broadcast y) = broadcast op(x, y), of values in the same dimensions and scalars",
    "the same operation on the same numbers, once for each of them",
    of="broadcast",
)
def operation_on_broadcasts(i: Instruction, site: Site) -> Instruction | None:
    if not _is_elementwise(i) or not is_a(i.operands[0], "broadcast"):
        return None
    dimensions = i.shape.dimensions
    spreads = [_spread(o) if o.shape.dimensions == dimensions else None for o in i.operands]
    if any(f is None for f in spreads) or not dimensions:
        return None
    sources = [f for f in spreads if f is not None]
    arrays = [f for f in sources if f[0].shape.rank]
    mapped: tuple[int, ...] = arrays[0][1] if arrays else ()
    sizes = arrays[0][0].shape.dimensions if arrays else ()
    if any(m != mapped or v.shape.dimensions != sizes for v, m in arrays):
        return None
    if arrays and arrays[0][0].shape.element_count * 2 > i.shape.element_count:
        return None
    operands = [v if v.shape.rank or not sizes else site.spread(v, sizes) for v, _ in sources]
    small = site.again(i, operands, array(i.shape.type, *sizes))
    return site.broadcast(small, dimensions, mapped)
