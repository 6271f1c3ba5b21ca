"""Reads and writes at a computed place of a short dimension, as choices among all its places: each element then depends
on elements at known indices."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.ir import Instruction, SliceDimension, array
from hlo_opt.ir.element_type import PRED
from hlo_opt.ops.sets import read_window, written_window
from hlo_opt.ops.terms import Terms

MOST_PLACES = 16
"""Limit of places of a dimension among which a choice is made: a select for each."""


class Choices(Terms):
    """Writes a `dynamic-slice` and a `dynamic-update-slice` of a short dimension as selects."""

    def chosen(self, instruction: Instruction, operands: Sequence[Instruction]) -> Instruction | None:
        """A window of one place of a short dimension as a choice among all places. None for another operation, and for
        an array from outside the round, which is read at any index."""
        whole, update = operands[0] if operands else None, written_window(instruction)
        if whole is None or whole.parent is not self.computation or whole.literal is not None:
            return None
        if update is None and read_window(instruction) is None:
            return None
        window = instruction.shape if update is None else update.shape
        sizes = zip(whole.shape.dimensions, window.dimensions, strict=True)
        moved = [d for d, (size, part) in enumerate(sizes) if size != part]
        if len(moved) != 1 or window.dimensions[moved[0]] != 1 or whole.shape.dimensions[moved[0]] > MOST_PLACES:
            return None
        starts, size = operands[1 if update is None else 2 :], whole.shape.dimensions[moved[0]]
        start = starts[moved[0]] if len(starts) == whole.shape.rank else None  # not all in one array
        if start is None or start.shape.rank or start.shape.type.bits < 8:
            return None
        if update is None:
            return self._read_of(whole, moved[0], start)
        low, high = (self.constant(start.shape.type, n) for n in (0, size - 1))
        place = self.emit("clamp", start.shape, low, start, high)
        shape = array(start.shape.type, *whole.shape.dimensions)
        numbers = self.emit("iota", shape, iota_dimension=moved[0])
        is_here = self._compared(numbers, self.spread(place, shape.dimensions), "EQ")
        kept = [d for d in range(whole.shape.rank) if d != moved[0]]
        thin = self.reshape(operands[1], *(whole.shape.dimensions[d] for d in kept))
        wide = self.emit("broadcast", array(thin.shape.type, *whole.shape.dimensions), thin, dimensions=tuple(kept))
        return self.emit("select", wide.shape, is_here, wide, whole)

    def _read_of(self, whole: Instruction, dimension: int, start: Instruction) -> Instruction:
        """The part of an array at a place of a dimension; a place outside is the next one inside."""
        sizes = whole.shape.dimensions
        shape = array(whole.shape.type, *(1 if d == dimension else n for d, n in enumerate(sizes)))
        chosen = None
        for place in range(sizes[dimension]):
            cut = [
                SliceDimension(place, place + 1) if d == dimension else SliceDimension(0, n)
                for d, n in enumerate(sizes)
            ]
            part = self.emit("slice", shape, whole, slice=tuple(cut))
            if chosen is None:
                chosen = part
            else:
                test = self._compared(start, self.constant(start.shape.type, place), "GE")
                chosen = self.emit("select", shape, self.spread(test, shape.dimensions), part, chosen)
        assert chosen is not None
        return chosen

    def _compared(self, left: Instruction, right: Instruction, direction: str) -> Instruction:
        return self.emit("compare", array(PRED, *left.shape.dimensions), left, right, direction=direction)
