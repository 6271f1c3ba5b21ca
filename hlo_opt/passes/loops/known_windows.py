"""Windows at known places, as rounds of an unrolled loop read and write them: slices, and arrays that are a
concatenation of what the rounds wrote."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo_opt.ir import Instruction, SliceDimension, array
from hlo_opt.ops.sets import read_window, written_window
from hlo_opt.passes.expansion import BroadcastingWriter


class KnownWindows:
    """Writes `dynamic-slice` and `dynamic-update-slice` whose start indices are constants. The parts of an array are
    known, so that a chain of updates is one concatenation, and a slice of one part is that part."""

    def __init__(self, writer: BroadcastingWriter) -> None:
        self._writer = writer
        self._parts: dict[Instruction, tuple[int, tuple[Instruction, ...]]] = {}
        """The dimension and the operands of concatenations."""

    def written(self, i: Instruction, operands: Sequence[Instruction]) -> Instruction | None:
        """The window operation `i` of these operands; None for other operations, for start indices that are no known
        constants, and for an update that is narrower than its array in several dimensions."""
        made = self._written(i, operands)
        return made if made is not None and made.shape.same_bytes(i.shape) else None

    def _written(self, i: Instruction, operands: Sequence[Instruction]) -> Instruction | None:
        value = operands[0] if operands else i
        if read_window(i) is not None:
            places = _places(operands[1:], value.shape.dimensions, i.shape.dimensions)
            return None if places is None else self._cut(value, places, i.shape.dimensions)
        if written_window(i) is not None:
            update = operands[1]
            places = _places(operands[2:], value.shape.dimensions, update.shape.dimensions)
            return None if places is None else self._put(value, update, places)
        return None

    def _cut(self, value: Instruction, places: Sequence[int], sizes: Sequence[int]) -> Instruction:
        narrow = [d for d, (size, whole) in enumerate(zip(sizes, value.shape.dimensions, strict=True)) if size < whole]
        if not narrow:
            return value
        along, parts = self._parts.get(value, (-1, ()))
        if narrow == [along]:
            first = 0
            for part in parts:
                inside = places[along] - first
                size = part.shape.dimensions[along]
                if inside >= 0 and inside + sizes[along] <= size:
                    return self._cut(part, [inside if d == along else 0 for d in range(len(sizes))], sizes)
                first += size
        window = tuple(SliceDimension(p, p + n) for p, n in zip(places, sizes, strict=True))
        return self._writer.slice(array(value.shape.type, *sizes), value, window)

    def _put(self, value: Instruction, update: Instruction, places: Sequence[int]) -> Instruction | None:
        whole, sizes = value.shape.dimensions, update.shape.dimensions
        narrow = [d for d, (size, of) in enumerate(zip(sizes, whole, strict=True)) if size < of]
        if len(narrow) != 1:
            return None if narrow else update
        (along,) = narrow
        old_along, old = self._parts.get(value, (along, (value,)))
        if old_along != along:
            old = (value,)
        low, high = places[along], places[along] + sizes[along]
        parts: list[Instruction] = []
        behind: list[Instruction] = []
        first = 0
        for part in old:
            end = first + part.shape.dimensions[along]
            if first < low:
                parts.append(self._along(part, along, 0, min(end, low) - first))
            if end > high:
                behind.append(self._along(part, along, max(first, high) - first, end - first))
            first = end
        parts += [update, *behind]
        made = self._writer.concatenate(value.shape, parts, along)
        self._parts[made] = (along, tuple(parts))
        return made

    def _along(self, part: Instruction, along: int, low: int, high: int) -> Instruction:
        sizes = [high - low if d == along else size for d, size in enumerate(part.shape.dimensions)]
        return self._cut(part, [low if d == along else 0 for d in range(len(sizes))], sizes)


def _places(starts: Sequence[Instruction], whole: Sequence[int], window: Sequence[int]) -> list[int] | None:
    """The start of a window, clamped so that it is inside."""
    if len(starts) != len(whole):
        return None
    places = []
    for start, size, part in zip(starts, whole, window, strict=True):
        if size == part:
            places.append(0)
        elif start.literal is None or not start.literal.is_known:
            return None
        else:
            places.append(min(max(int(np.asarray(start.literal.value)), 0), size - part))
    return places
