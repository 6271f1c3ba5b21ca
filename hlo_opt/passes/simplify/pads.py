"""Rules for pads."""

from __future__ import annotations

from hlo_opt.ir import Instruction, PaddingDimension, SliceDimension, array
from hlo_opt.ops.movement.table import padding_dimensions
from hlo_opt.passes.simplify.reading import is_a, uniform
from hlo_opt.passes.simplify.rule import rule
from hlo_opt.passes.simplify.site import Site


@rule("pad-nothing", "pad", "pad by nothing = its operand", "no element is added or taken away")
def pad_nothing(i: Instruction, site: Site) -> Instruction | None:
    parts = zip(padding_dimensions(i), i.operands[0].shape.dimensions, strict=True)
    if any(p.low or p.high or (p.interior and size > 1) for p, size in parts):
        return None
    return i.operands[0] if i.operands[0].shape.same_values(i.shape) else None


@rule("pad-of-empty", "pad", "pad of no elements = the padding value everywhere", "there is nothing else")
def pad_of_empty(i: Instruction, site: Site) -> Instruction | None:
    if i.operands[0].shape.element_count or not i.shape.element_count:
        return None
    return site.spread(i.operands[1], i.shape.dimensions)


@rule("pad-of-same", "pad", "pad of one number by the same number: the number everywhere", "all elements are the same")
def pad_of_same(i: Instruction, site: Site) -> Instruction | None:
    value, edge = map(uniform, i.operands)
    if value is None or edge is None or value.tobytes() != edge.tobytes():
        return None
    return site.spread(i.operands[1], i.shape.dimensions)


@rule("pad-to-slice", "pad", "pad that only takes away = slice", "the same elements stay")
def pad_to_slice(i: Instruction, site: Site) -> Instruction | None:
    parts = padding_dimensions(i)
    if any(p.low > 0 or p.high > 0 or p.interior for p in parts) or not i.shape.element_count:
        return None
    sizes = i.operands[0].shape.dimensions
    return site.slice(
        i.operands[0], [SliceDimension(-p.low, size + p.high) for p, size in zip(parts, sizes, strict=True)]
    )


@rule("pad-of-pad", "pad", "pad of a pad by the same number, at the edges: one", "the number comes from either")
def pad_of_pad(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "pad") or len(inner.users) > 1:
        return None
    outside, inside = uniform(i.operands[1]), uniform(inner.operands[1])
    same = i.operands[1] is inner.operands[1]
    if not same and (outside is None or inside is None or outside.tobytes() != inside.tobytes()):
        return None
    pairs = list(zip(padding_dimensions(i), padding_dimensions(inner), strict=True))
    if any(n < 0 for p in pairs for e in p for n in (e.low, e.high)) or any(p.interior for p, _ in pairs):
        return None
    if any(e.interior and (p.low or p.high) for p, e in pairs):
        return None
    parts = tuple(PaddingDimension(p.low + e.low, p.high + e.high, e.interior) for p, e in pairs)
    return site.again(i, inner.operands, padding=parts)


@rule(
    "pad-of-broadcast",
    "pad",
    "pad of a broadcast, in dimensions that the operand has = broadcast of a pad",
    "the same elements, once for each place",
)
def pad_of_broadcast(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "broadcast") or not inner.operands[0].shape.rank:
        return None
    edges, mapped = padding_dimensions(i), inner.ints("dimensions")
    if any((e.low or e.high or e.interior) and d not in mapped for d, e in enumerate(edges)):
        return None
    source = inner.operands[0]
    small = array(i.shape.type, *(i.shape.dimensions[d] for d in mapped))
    padded = site.emit("pad", small, source, i.operands[1], padding=tuple(edges[d] for d in mapped))
    return site.broadcast(padded, i.shape.dimensions, mapped)


@rule(
    "pad-of-transpose",
    "pad",
    "pad of a transpose that nobody else reads = transpose of a pad",
    "the same elements; tiles move what a transpose moves, and a pad is computed while they are filled",
    of="transpose",
)
def pad_of_transpose(i: Instruction, site: Site) -> Instruction | None:
    inner = i.operands[0]
    if not is_a(inner, "transpose") or len(inner.users) > 1:
        return None
    order, edges, source = inner.ints("dimensions"), padding_dimensions(i), inner.operands[0]
    moved = tuple(edges[order.index(d)] for d in range(len(order)))
    sizes = [i.shape.dimensions[order.index(d)] for d in range(len(order))]
    padded = site.emit("pad", array(i.shape.type, *sizes), source, i.operands[1], padding=moved)
    return site.transpose(padded, order)
