"""Rules that exchange an operation with moves or conversions of its operands, where that leaves fewer of them and no
more bytes."""

from __future__ import annotations

from hlo_opt.ir import Attribute, Called, Instruction, array
from hlo_opt.ops import OpKind, find
from hlo_opt.passes.simplify.reading import is_a, uniform
from hlo_opt.passes.simplify.rule import ANY, rule
from hlo_opt.passes.simplify.site import Site


def _is_elementwise(i: Instruction) -> bool:
    spec = find(i.opcode)
    plain = spec is not None and spec.kind is OpKind.ELEMENTWISE and not spec.side_effects
    return plain and i.shape.is_array and bool(i.operands) and next(i.called(), None) is None


@rule(
    "operation-on-reshapes",
    ANY,
    "op(reshape x, reshape y) = reshape op(x, y), of arrays of the same dimensions and known numbers, where nobody "
    "else reads the reshapes",
    "elements keep their row-major order",
    of="reshape",
)
def operation_on_reshapes(i: Instruction, site: Site) -> Instruction | None:
    moved = list(dict.fromkeys([o for o in i.operands if is_a(o, "reshape")]))
    if len(moved) < 2 or not _is_elementwise(i) or not i.shape.element_count:
        return None
    sizes = moved[0].operands[0].shape.dimensions
    for value in moved:
        inner = value.operands[0]
        if inner.shape.dimensions != sizes or len(value.users) > 1 or not inner.shape.is_row_major or not sizes:
            return None
    if any(o not in moved and uniform(o) is None for o in i.operands):
        return None
    if not all(o.shape.is_row_major for o in (i, *moved)):
        return None
    operands = []
    for o in i.operands:
        number = uniform(o)
        operands.append(
            o.operands[0] if o in moved or number is None else site.full(array(o.shape.type, *sizes), number)
        )
    return site.reshape(site.again(i, operands, array(i.shape.type, *sizes)), i.shape.dimensions)


@rule(
    "concatenate-of-converts",
    "concatenate",
    "concatenate of converts from one type that is no wider = convert of a concatenate, where nobody else reads them",
    "each element is converted in both",
)
def concatenate_of_converts(i: Instruction, site: Site) -> Instruction | None:
    first = i.operands[0]
    if not is_a(first, "convert", "bitcast-convert") or len(set(i.operands)) < 2:
        return None
    kind = first.operands[0].shape.type
    for operand in i.operands:
        same = operand.opcode == first.opcode and operand.operands[0].shape.type == kind and len(operand.users) == 1
        if not same or operand.operands[0].shape.dimensions != operand.shape.dimensions:
            return None
    if kind.bits > i.shape.type.bits or kind.bits < 8:
        return None
    joined = site.again(i, [o.operands[0] for o in i.operands], array(kind, *i.shape.dimensions))
    return site.emit(first.opcode, i.shape, joined)


@rule(
    "select-of-operations",
    "select",
    "select(p, op(x, r), op(y, r)) = op(select(p, x, y), r), where nobody else reads the operations",
    "the same operation on the element that is taken",
)
def select_of_operations(i: Instruction, site: Site) -> Instruction | None:
    where, yes, no = i.operands
    alike = yes.opcode == no.opcode and _attributes(yes) == _attributes(no) and len(yes.operands) == len(no.operands)
    if yes is no or not alike or len(yes.users) > 1 or len(no.users) > 1 or not _is_elementwise(yes):
        return None
    differing = [n for n, pair in enumerate(zip(yes.operands, no.operands, strict=True)) if pair[0] is not pair[1]]
    if len(differing) != 1:
        return None
    x, y = (operation.operands[differing[0]] for operation in (yes, no))
    if x.shape != y.shape or x.shape.dimensions != i.shape.dimensions or uniform(x) is not None:
        return None
    taken = site.again(i, [where, x, y], array(x.shape.type, *x.shape.dimensions))
    return site.again(yes, [taken if n == differing[0] else o for n, o in enumerate(yes.operands)], i.shape)


@rule(
    "select-of-reverse",
    "select",
    "select(p, reverse(op(x, c)), op(x, c)) = op(select(p, reverse x, x), c) and so for the other choice, where nobody "
    "else reads op(x, c), and c is one number everywhere",
    "the same operation on the element that is taken",
)
def select_of_reverse(i: Instruction, site: Site) -> Instruction | None:
    where, *choices = i.operands
    turned = next((c for c in choices if is_a(c, "reverse") and c.operands[0] in choices), None)
    plain = None if turned is None else turned.operands[0]
    if turned is None or plain is None or len(turned.users) > 1 or len(plain.users) > 2 or not _is_elementwise(plain):
        return None
    moving = [o for o in dict.fromkeys(plain.operands) if uniform(o) is None]
    if len(moving) != 1 or moving[0].shape.dimensions != i.shape.dimensions:
        return None
    x = moving[0]
    other = site.again(turned, [x], array(x.shape.type, *x.shape.dimensions))
    taken = site.again(i, [where, *(other if c is turned else x for c in choices)], other.shape)
    return site.again(plain, [taken if o is x else o for o in plain.operands], i.shape)


@rule(
    "operation-on-slices",
    ANY,
    "op(slice x, slice y), op(other slice x, other slice y) = slices of op(x, y), where they take in all of it",
    "the same operation on the same elements",
    of="slice",
)
def operation_on_slices(i: Instruction, site: Site) -> Instruction | None:
    sources = _sliced(i)
    if sources is None or len(sources[0].users) > _MOST_READERS:
        return None
    whole = next((u for u in sources[0].users if u.opcode == i.opcode and _is_like(u, i, sources)), None)
    if whole is None:
        alike = [u for s in sources[0].users for u in s.users if u.opcode == i.opcode and _sliced(u) == sources]
        alike = [u for u in dict.fromkeys(alike) if u.shape.type == i.shape.type]
        peers = [u for u in alike if _attributes(u) == _attributes(i)]
        if len(peers) < 2 or sum(u.shape.element_count for u in peers) < sources[0].shape.element_count:
            return None
        whole = site.again(i, sources, array(i.shape.type, *sources[0].shape.dimensions))
    return site.again(i.operands[0], [whole], i.shape)


_MOST_READERS = 64
"""The most readers of an array that are compared with each other."""


def _sliced(i: Instruction) -> list[Instruction] | None:
    """The arrays of which the operands of an operation are slices at the same place."""
    first = next(iter(i.operands), None)
    if first is None or not is_a(first, "slice") or not _is_elementwise(i):
        return None
    if not all(is_a(o, "slice") for o in i.operands):
        return None
    if first.shape.dimensions != i.shape.dimensions:
        return None
    sources = [o.operands[0] for o in i.operands]
    if any(o.attributes["slice"].text != first.attributes["slice"].text for o in i.operands[1:]):
        return None
    if any(s.shape.dimensions != sources[0].shape.dimensions for s in sources):
        return None
    return sources if all(len(o.users) == 1 for o in set(i.operands)) else None


def _is_like(whole: Instruction, i: Instruction, sources: list[Instruction]) -> bool:
    if whole.control_predecessors:  # it may wait for what reads `i`
        return False
    same = whole.shape.is_array and whole.shape.type == i.shape.type and _attributes(whole) == _attributes(i)
    return same and list(whole.operands) == sources and _is_elementwise(whole)


def _attributes(i: Instruction) -> dict[str, str]:
    """The attributes of an operation, as text, without its metadata."""
    kept = {n: a for n, a in i.attributes.items() if n != "metadata"}
    return {n: a.text for n, a in kept.items() if isinstance(a, Attribute)} | {
        n: "" for n, a in kept.items() if isinstance(a, Called)
    }
