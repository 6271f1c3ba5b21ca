"""The rewrite that the rule about concatenates advises: what reads the joined array works on its parts instead, and the
results are joined."""

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
