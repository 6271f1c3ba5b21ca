"""Reads and writes at a computed place of a short dimension, as choices among all its places: each element then depends
on elements at known indices."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.ir import Instruction, SliceDimension, array
from hlo_opt.ir.element_type import PRED
from hlo_opt.ops.counts import counted_along
from hlo_opt.ops.indexing.gather_dimensions import IndexedWindows, gather_dimensions, scatter_dimensions
from hlo_opt.ops.reduction.reducers import monoid, picks
from hlo_opt.ops.sets import combines_updates, read_window, written_window
from hlo_opt.ops.terms import Terms

MOST_PLACES = 16
"""Limit of places of a dimension among which a choice is made: a select for each."""


def may_be_choice(instruction: Instruction) -> bool:
    """Whether an operation may be written as a choice among places, wherever its operands come from."""
    return _is_by_indices(instruction) or bool(_short_dimensions(instruction))


def _is_by_indices(instruction: Instruction) -> bool:
    return combines_updates(instruction) or instruction.opcode == "gather"


def _short_dimensions(instruction: Instruction) -> list[int]:
    """The short dimension along which an operation reads or writes a window of one place; empty for others."""
    update = written_window(instruction)
    if update is None and read_window(instruction) is None:
        return []
    whole, window = instruction.operands[0].shape, instruction.shape if update is None else update.shape
    sizes = zip(whole.dimensions, window.dimensions, strict=True)
    moved = [d for d, (size, part) in enumerate(sizes) if size != part]
    is_short = len(moved) == 1 and window.dimensions[moved[0]] == 1 and whole.dimensions[moved[0]] <= MOST_PLACES
    return moved if is_short else []


class Choices(Terms):
    """Writes a `dynamic-slice` and a `dynamic-update-slice` of a short dimension as selects."""

    def chosen(self, instruction: Instruction, operands: Sequence[Instruction]) -> Instruction | None:
        """A window of one place of a short dimension as a choice among all places. None for another operation, and for
        an array from outside the round, which is read at any index."""
        whole, update = operands[0] if operands else None, written_window(instruction)
        if whole is None or whole.parent is not self.computation or whole.literal is not None:
            return None
        moved = _short_dimensions(instruction)
        if not moved:
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
        """The part of an array at a place of a dimension; a place outside is the next one inside. Instead of one place
        `start` may have one for each index of the first dimensions."""
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
                here = self.spread(self.constant(start.shape.type, place), start.shape.dimensions)
                test = self._compared(start, here, "GE")
                chosen = self.emit("select", shape, self._first(test, shape.dimensions), part, chosen)
        assert chosen is not None
        return chosen

    def _first(self, value: Instruction, sizes: tuple[int, ...]) -> Instruction:
        """A value of the first dimensions, the same along all others."""
        if not value.shape.rank:
            return self.spread(value, sizes)
        places = tuple(range(value.shape.rank))
        return self.emit("broadcast", array(value.shape.type, *sizes), value, dimensions=places)

    def chosen_apart(self, instruction: Instruction, operands: Sequence[Instruction]) -> Instruction | None:
        """A gather or scatter of one window for each index of dimensions that come first, as choices among all places;
        None for other operations. `jax.vmap` makes them of a `dynamic_slice` and of `x.at[i]`, with batching
        dimensions; `x[jnp.arange(n), i]` names the same places by indices that count."""
        if not _is_by_indices(instruction) or len(operands) > 3:
            return None
        whole, indices = operands[:2]
        by = (scatter_dimensions if combines_updates(instruction) else gather_dimensions)(instruction)
        count, sizes = indices.shape.rank - 1, whole.shape.dimensions
        batch = tuple(range(count))
        if not count or by.index_vector_dim != count or indices.shape.type.bits < 8:
            return None
        is_counted = not by.batching.operand_dims and _count(by, indices, sizes)
        if not is_counted and not by.batching.operand_dims == by.batching.indices_dims == batch:
            return None
        if by.offset_dims != tuple(range(count, count + len(by.offset_dims))) or whole.literal is not None:
            return None
        starts = {
            d: self._at(indices, {count: n}, indices.shape.type)
            for n, d in enumerate(by.start_index_map)
            if not is_counted or d >= count
        }
        if combines_updates(instruction):
            return self._updated(instruction, operands, starts, count)
        named = [d for d in starts if by.slice_sizes[d] != sizes[d]]
        is_short = all(by.slice_sizes[d] == 1 and sizes[d] <= MOST_PLACES for d in named)
        if not is_short or any(by.slice_sizes[d] != sizes[d] for d in range(count, len(sizes)) if d not in starts):
            return None
        for d in named:
            whole = self._read_of(whole, d, starts[d])
        return self.reshape(whole, *instruction.shape.dimensions)

    def _updated(
        self, scatter: Instruction, operands: Sequence[Instruction], starts: dict[int, Instruction], count: int
    ) -> Instruction | None:
        """The array with one window for each index of the first `count` dimensions combined with what is there."""
        whole, _, updates = operands
        by, sizes = scatter_dimensions(scatter), whole.shape.dimensions
        windows, body = by.update_windows(whole.shape, updates.shape), scatter.called_by("to_apply")
        step = monoid(body)
        if (step is None and picks(body) != 1) or any(windows[d] != 1 or sizes[d] > MOST_PLACES for d in starts):
            return None
        kept = [d for d in range(len(sizes)) if d not in starts]
        if any(windows[d] != sizes[d] for d in kept if d >= count):
            return None
        thin = self.reshape(updates, *(sizes[d] for d in kept))
        new = self.emit("broadcast", array(thin.shape.type, *sizes), thin, dimensions=tuple(kept))
        is_here: Instruction | None = None
        for d, start in starts.items():
            numbers = self.emit("iota", array(start.shape.type, *sizes), iota_dimension=d)
            same = self._compared(numbers, self._first(start, sizes), "EQ")
            is_here = same if is_here is None else self.binary("and", is_here, same)
        if is_here is None:
            return None
        combined = new if step is None else self.emit(step, new.shape, whole, new)
        return self.emit("select", new.shape, is_here, combined, whole)

    def _compared(self, left: Instruction, right: Instruction, direction: str) -> Instruction:
        return self.emit("compare", array(PRED, *left.shape.dimensions), left, right, direction=direction)


def _count(by: IndexedWindows, indices: Instruction, sizes: tuple[int, ...]) -> bool:
    """Whether the first dimensions of the array are those of the indices, each named by an index that counts."""
    if indices.opcode != "concatenate" or indices.ints("dimensions") != (by.index_vector_dim,):
        return False
    columns = indices.operands
    if len(columns) != len(by.start_index_map) or len(columns) < by.index_vector_dim:
        return False
    named = dict(zip(by.start_index_map, columns, strict=True))
    return all(
        d in named and d in by.collapsed and sizes[d] == n and counted_along(named[d]) == d
        for d, n in enumerate(indices.shape.dimensions[: by.index_vector_dim])
    )
