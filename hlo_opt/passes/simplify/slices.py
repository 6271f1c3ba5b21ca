"""Rules for slices and concatenates."""

from __future__ import annotations

from hlo_opt.ir import Instruction, SliceDimension
from hlo_opt.ops.movement.table import padding_dimensions, slice_dimensions
from hlo_opt.passes.simplify.reading import is_a, uniform
from hlo_opt.passes.simplify.rule import rule
from hlo_opt.passes.simplify.site import Site

_SAME = "the same elements are read"


@rule("slice-all", "slice", "slice of everything = its operand", _SAME)
def slice_all(i: Instruction, site: Site) -> Instruction | None:
    operand = i.operands[0]
    return operand if operand.shape.same_values(i.shape) and i.shape.element_count else None


@rule("slice-of-slice", "slice", "slice of a slice: one", _SAME, of="slice")
def slice_of_slice(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "slice") or not i.shape.element_count:
        return None
    parts = []
    for outer, first, size in zip(slice_dimensions(i), slice_dimensions(inner), i.shape.dimensions, strict=True):
        start, stride = first.start + outer.start * first.stride, first.stride * outer.stride
        parts.append(SliceDimension(start, start + (size - 1) * stride + 1, stride))
    return site.slice(inner.operands[0], parts)


@rule(
    "slice-of-concatenate",
    "slice",
    "slice of a concatenate that lies in one operand = slice of that",
    _SAME,
    of="concatenate",
)
def slice_of_concatenate(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "concatenate") or not i.shape.element_count:
        return None
    (along,) = inner.ints("dimensions")
    parts = list(slice_dimensions(i))
    part = parts[along]
    last = part.start + (i.shape.dimensions[along] - 1) * part.stride
    offset = 0
    for operand in inner.operands:
        size = operand.shape.dimensions[along]
        if offset <= part.start and last < offset + size:
            parts[along] = SliceDimension(part.start - offset, last - offset + 1, part.stride)
            if operand.shape.same_values(i.shape):
                return operand
            return site.slice(operand, parts)
        offset += size
    return None


@rule("slice-of-broadcast", "slice", "slice of a broadcast = broadcast of a slice, or of all", _SAME, of="broadcast")
def slice_of_broadcast(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "broadcast"):
        return None
    source, mapped, parts = inner.operands[0], inner.ints("dimensions"), slice_dimensions(i)
    wanted = tuple(i.shape.dimensions[d] for d in mapped)
    if wanted != source.shape.dimensions:
        if not source.shape.rank or len(inner.users) > 1:
            return None
        source = site.slice(source, [parts[d] for d in mapped])
    return site.broadcast(source, i.shape.dimensions, mapped)


@rule(
    "slice-of-pad",
    "slice",
    "slice of a pad that lies in what is padded = slice of that; in the padding: one number",
    _SAME,
    of="pad",
)
def slice_of_pad(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "pad") or not i.shape.element_count:
        return None
    source, value = inner.operands
    moved, inside = [], True
    for part, edge, size, own in zip(
        slice_dimensions(i), padding_dimensions(inner), source.shape.dimensions, i.shape.dimensions, strict=True
    ):
        if edge.interior:
            return None
        first, last = part.start - edge.low, part.start - edge.low + (own - 1) * part.stride
        if last < 0 or first >= size:
            return site.spread(value, i.shape.dimensions)
        inside &= first >= 0 and last < size
        moved.append(SliceDimension(first, last + 1, part.stride))
    if not inside:
        return None
    return source if source.shape.same_values(i.shape) else site.slice(source, moved)


@rule("slice-of-iota", "slice", "slice of an iota that starts at 0 = a smaller iota", "it counts from 0", of="iota")
def slice_of_iota(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "iota"):
        return None
    along = inner.attribute("iota_dimension", int)
    part = slice_dimensions(i)[along]
    return site.emit("iota", i.shape, iota_dimension=along) if part.start == 0 and part.stride == 1 else None


@rule(
    "slice-of-reverse", "slice", "slice of a reverse = reverse of the slice at the mirrored place", _SAME, of="reverse"
)
def slice_of_reverse(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "reverse") or len(inner.users) > 1 or not i.shape.element_count:
        return None
    turned, parts = inner.ints("dimensions"), []
    for d, (part, size) in enumerate(zip(slice_dimensions(i), inner.shape.dimensions, strict=True)):
        last = part.start + (i.shape.dimensions[d] - 1) * part.stride
        mirrored = SliceDimension(size - 1 - last, size - part.start, part.stride)
        parts.append(mirrored if d in turned else part)
    return site.again(inner, [site.slice(inner.operands[0], parts)], i.shape)


@rule(
    "slice-of-transpose",
    "slice",
    "slice of a transpose that nobody else reads = transpose of a slice",
    _SAME,
    of="transpose",
)
def slice_of_transpose(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "transpose") or len(inner.users) > 1:
        return None
    order, parts = inner.ints("dimensions"), slice_dimensions(i)
    moved = [parts[order.index(d)] for d in range(len(order))]
    return site.transpose(site.slice(inner.operands[0], moved), order)


@rule(
    "concatenate-of-one",
    "concatenate",
    "concatenate of one array = that, and arrays without elements are left out",
    _SAME,
)
def concatenate_of_one(i: Instruction, site: Site) -> Instruction | None:
    (along,) = i.ints("dimensions")
    kept = [o for o in i.operands if o.shape.dimensions[along]]
    if len(kept) == len(i.operands) > 1 or not kept:
        return None
    return kept[0] if len(kept) == 1 else site.again(i, kept)


@rule("concatenate-of-concatenate", "concatenate", "concatenate of a concatenate that nobody else reads: one", _SAME)
def concatenate_of_concatenate(i: Instruction, site: Site) -> Instruction | None:
    dimensions = i.ints("dimensions")

    def is_inner(o: Instruction) -> bool:
        return is_a(o, "concatenate") and o.ints("dimensions") == dimensions and len(o.users) == 1

    if not any(map(is_inner, i.operands)):
        return None
    return site.again(i, [part for o in i.operands for part in (o.operands if is_inner(o) else [o])])


@rule(
    "concatenate-of-slices",
    "concatenate",
    "concatenate of slices of one array that follow each other: one slice",
    _SAME,
)
def concatenate_of_slices(i: Instruction, site: Site) -> Instruction | None:
    (along,) = i.ints("dimensions")
    pieces: list[Instruction | tuple[Instruction, list[SliceDimension]]] = []
    joined = False
    for operand in i.operands:
        if not is_a(operand, "slice") or slice_dimensions(operand)[along].stride != 1:
            pieces.append(operand)
            continue
        parts, last = list(slice_dimensions(operand)), pieces[-1] if pieces else None
        if isinstance(last, tuple) and last[0] is operand.operands[0] and _follows(last[1], parts, along):
            last[1][along] = SliceDimension(last[1][along].start, parts[along].limit)
            joined = True
        else:
            pieces.append((operand.operands[0], parts))
    if not joined:
        return None
    values = []
    for each in pieces:
        if isinstance(each, tuple):
            whole = all(p == SliceDimension(0, n) for p, n in zip(each[1], each[0].shape.dimensions, strict=True))
            values.append(each[0] if whole else site.slice(*each))
        else:
            values.append(each)
    return values[0] if len(values) == 1 else site.again(i, values)


def _follows(first: list[SliceDimension], second: list[SliceDimension], along: int) -> bool:
    same = all(a == b for d, (a, b) in enumerate(zip(first, second, strict=True)) if d != along)
    return same and first[along].limit == second[along].start


@rule(
    "concatenate-of-same",
    "concatenate",
    "concatenate of one scalar, broadcast: a larger broadcast",
    "all elements are the same",
)
def concatenate_of_same(i: Instruction, site: Site) -> Instruction | None:
    first = i.operands[0]
    if not is_a(first, "broadcast") or first.operands[0].shape.rank:
        return None
    scalar = first.operands[0]
    number = uniform(scalar)
    for other in i.operands[1:]:
        if not is_a(other, "broadcast"):
            return None
        same = uniform(other) if number is not None else None
        if other.operands[0] is not scalar and (same is None or number is None or same.tobytes() != number.tobytes()):
            return None
    return site.spread(scalar, i.shape.dimensions)


@rule(
    "slice-between-parts",
    "slice",
    "slice of a concatenate that nobody else reads, from edge to edge of operands = concatenate of those",
    _SAME,
    of="concatenate",
)
def slice_between_parts(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "concatenate") or len(inner.users) > 1:
        return None
    (along,) = inner.ints("dimensions")
    parts = slice_dimensions(i)
    if any(
        p != SliceDimension(0, n)
        for d, (p, n) in enumerate(zip(parts, inner.shape.dimensions, strict=True))
        if d != along
    ):
        return None
    part, offset, kept = parts[along], 0, []
    edges = {0}
    for operand in inner.operands:
        if part.start <= offset and offset + operand.shape.dimensions[along] <= part.limit:
            kept.append(operand)
        offset += operand.shape.dimensions[along]
        edges.add(offset)
    if part.stride != 1 or part.start not in edges or part.limit not in edges or len(kept) < 2:
        return None
    return None if len(kept) == len(inner.operands) else site.again(inner, kept, i.shape)
