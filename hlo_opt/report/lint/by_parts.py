"""The rewrites that the rule about concatenates advises: what reads the joined array works on its parts instead. The
results are joined, or added where they are products over the joined dimension."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hlo_opt.ir import Instruction, SliceDimension, edit
from hlo_opt.ir.index_map import variables_of
from hlo_opt.ops import find
from hlo_opt.ops.shapes import compatible
from hlo_opt.ops.spec import ShapeError
from hlo_opt.passes.simplify.site import Site

JoinedParts = tuple[list[Instruction], int]
"""The parts of an array, and the dimension along which they are joined."""


def work_on_parts(concatenate: Instruction) -> bool:
    """Rewrite what reads a concatenate, as far as it can be done part by part: each part of a result reads the elements
    that it read before. False where no reader can, and nothing is changed."""
    computation = concatenate.computation
    (along,) = concatenate.ints("dimensions")
    known: dict[Instruction, JoinedParts] = {concatenate: (list(concatenate.operands), along)}
    for reader in list(computation.instructions):
        if any(o in known for o in reader.operands) and (cut := _parts_of(reader, known)) is not None:
            known[reader] = cut
    if len(known) == 1:
        return False
    for value, (parts, along) in reversed(known.items()):
        if value is concatenate:
            continue
        if value is computation.root or any(user not in known for user in value.users):
            edit.replace_all_uses(value, Site(value).concatenate(parts, along))
    return True


def multiply_parts(concatenate: Instruction) -> bool:
    """Rewrite the products that sum over the joined dimension as sums of products, each of a part and its elements of
    the other operand. False where nothing reads it so, and nothing is changed. Results differ by roundings."""
    (along,) = concatenate.ints("dimensions")
    products = [user for user in concatenate.users if _sums_over(user, concatenate, along) is not None]
    for product in products:
        site, start, total = Site(product), 0, None
        number = product.operands.index(concatenate)
        other, place = product.operands[1 - number], _sums_over(product, concatenate, along)
        assert place is not None
        for part in concatenate.operands:
            size = part.shape.dimensions[along]
            rest = _slice(site, other, place, start, size)
            one = site.again(product, [part, rest] if number == 0 else [rest, part])
            total = one if total is None else site.elementwise("add", total, one)
            start += size
        assert total is not None
        edit.replace_all_uses(product, total)
    return bool(products)


def _sums_over(product: Instruction, concatenate: Instruction, along: int) -> int | None:
    """The dimension of a product's other operand that is multiplied with the joined one, and summed over; None where
    there is none."""
    if product.opcode != "dot" or product.operands.count(concatenate) != 1:
        return None
    summed = product.ints("lhs_contracting_dims"), product.ints("rhs_contracting_dims")
    number = product.operands.index(concatenate)
    if along not in summed[number]:
        return None
    return summed[1 - number][summed[number].index(along)]


def _parts_of(reader: Instruction, known: Mapping[Instruction, JoinedParts]) -> JoinedParts | None:
    """The parts of what reads parts; None where an element of it may read several of them."""
    spec = find(reader.opcode)
    if spec is None or spec.index is None or spec.infer is None or not reader.shape.is_array:
        return None
    for along, size in enumerate(reader.shape.dimensions):
        if size == 1:
            continue
        places = [_place(reader, number, along) for number in range(len(reader.operands))]
        joined = [(*known[o], place) for o, place in zip(reader.operands, places, strict=True) if o in known]
        sizes = {tuple(part.shape.dimensions[own] for part in parts) for parts, own, _ in joined}
        if _OTHERWISE in places or len(sizes) != 1 or any(own != place for _, own, place in joined):
            continue
        if (parts := _cut(reader, along, next(iter(sizes)), known, places)) is not None:
            return parts, along
    return None


_ALIKE, _OTHERWISE = -1, -2
"""An operand is read alike for all places along a dimension of the result; in a way that parts cannot follow."""


def _place(reader: Instruction, number: int, along: int) -> int:
    """The dimension of an operand that is read at the place along a dimension of the result."""
    spec = find(reader.opcode)
    reads = None if spec is None or spec.index is None else spec.index(reader, number)
    if reads is None or reads.runtime:
        return _OTHERWISE
    name = f"d{along}"
    following = [n for n, result in enumerate(reads.results) if name in variables_of(result)]
    if any(name in variables_of(condition.expression) for condition in reads.conditions) or len(following) > 1:
        return _OTHERWISE
    if not following:
        return _ALIKE
    (at,) = following
    is_whole = reader.operands[number].shape.dimensions[at] == reader.shape.dimensions[along]
    return at if is_whole and str(reads.results[at]) == name else _OTHERWISE


def _cut(
    reader: Instruction,
    along: int,
    sizes: Sequence[int],
    known: Mapping[Instruction, JoinedParts],
    places: Sequence[int],
) -> list[Instruction] | None:
    """A copy of an instruction for each part; None where its attributes do not fit a part."""
    spec = find(reader.opcode)
    assert spec is not None and spec.infer is not None
    site = Site(reader)
    parts: list[Instruction] = []
    start = 0
    for number, size in enumerate(sizes):
        operands = [
            known[o][0][number] if o in known else o if place == _ALIKE else _slice(site, o, place, start, size)
            for o, place in zip(reader.operands, places, strict=True)
        ]
        lengths = [size if d == along else n for d, n in enumerate(reader.shape.dimensions)]
        part = site.again(reader, operands, replace(reader.shape, dimensions=tuple(lengths)))
        try:
            fits = compatible(spec.infer(part), part.shape)
        except ShapeError:
            fits = False
        if not fits:
            site.undo()
            return None
        parts.append(part)
        start += size
    return parts


def _slice(site: Site, value: Instruction, along: int, start: int, size: int) -> Instruction:
    whole = [SliceDimension(0, n) for n in value.shape.dimensions]
    whole[along] = SliceDimension(start, start + size)
    return site.slice(value, whole)
