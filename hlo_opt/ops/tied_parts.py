"""What the parts of a dimension that changes are taken for, where the text of one size leaves that open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import groups
from hlo_opt.ops.movement.table import slice_dimensions
from hlo_opt.ops.tied import Extent, Place, size_of


def taken_for(i: Instruction, extents: Mapping[Place, Extent]) -> Iterator[str]:
    """What a slice inside a dimension that changes is taken for at size n, or a split that could follow otherwise."""
    if i.opcode == "slice":
        yield from _sliced(i, extents)
    elif i.opcode in ("reshape", "bitcast"):
        yield from _split(i, extents)


def _sliced(i: Instruction, extents: Mapping[Place, Extent]) -> Iterator[str]:
    for d, part in enumerate(slice_dimensions(i)):
        source = Place(i.operands[0], 0, d)
        whole = extents.get(source)
        own = extents.get(Place(i, 0, d), Extent(0, part.limit - part.start))
        if whole is None or part.stride != 1 or own == whole:
            continue
        if not own.a and 2 * part.start <= size_of(source):
            start, limit = Extent(0, part.start), Extent(0, part.limit)
        elif own.c > 1:
            start, limit = (
                own.times(part.start, part.limit - part.start),
                own.times(part.limit, part.limit - part.start),
            )
        elif not own.a:
            limit = whole.plus(Extent(0, part.limit - size_of(source)))
            start = limit.plus(own, -1)
        else:
            start, limit = Extent(0, part.start), own.plus(Extent(0, part.start))
        yield f"[{part.start}:{part.limit}] of {size_of(source)} is [{start}:{limit}] of {whole}"


def _split(i: Instruction, extents: Mapping[Place, Extent]) -> Iterator[str]:
    for d in range(i.shape.rank):
        extent = extents.get(Place(i, 0, d))
        if extent is not None and splits(i, d) > 1:
            sizes = list(map(str, i.shape.dimensions))
            sizes[d] = str(extent)
            yield f"[{','.join(map(str, i.shape.dimensions))}] is [{', '.join(sizes)}]"


def splits(i: Instruction, dimension: int) -> int:
    """How many dimensions of a reshape's result could as well follow as this one does: 1 where no other could."""
    for left, left_end, right, right_end in groups(i.operands[0].shape.dimensions, i.shape.dimensions):
        own = [d for d in range(right, right_end) if i.shape.dimensions[d] != 1]
        joined = [d for d in range(left, left_end) if i.operands[0].shape.dimensions[d] != 1]
        if dimension in own and len(joined) < len(own):
            equal = [d for d in own if i.shape.dimensions[d] == i.shape.dimensions[dimension]]
            return len(own) if len(joined) == 1 else len(equal)
    return 1
