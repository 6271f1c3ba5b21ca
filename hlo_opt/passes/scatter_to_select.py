"""Scatters with at most one update for each element of a broadcast scalar, as comparisons of places with the index.

The gradient of `x[i, label[i]]` (a cross-entropy) is such a scatter: one element of each row of zeros changes. All rows
are written anyway, and a comparison is computed where the result is read, in the kernel of the softmax. A scatter is a
kernel by itself, after one that writes the zeros. An index outside of the array equals no place, so its update is left
out, as in a scatter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import ClassVar, Literal

from hlo_opt.ir import Computation, ElementType, Instruction, Shape, SliceDimension, edit
from hlo_opt.ops.indexing.gather_dimensions import IndexedWindows, scatter_dimensions
from hlo_opt.ops.reduction.reducers import monoid, picks
from hlo_opt.ops.sets import combines_updates
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.expansion import BroadcastingWriter


@dataclass(frozen=True)
class ScatterToSelect(RewritingPass):
    """Replace scatters into a broadcast scalar by selects, where each element of the batching dimensions has one
    window."""

    name: ClassVar[str] = "scatter-to-select"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"
    simplifies: ClassVar[bool] = True
    idempotent: ClassVar[bool] = True

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        for i in [i for i in computation.instructions if combines_updates(i)]:
            places = _places(i)
            if places is not None:
                yield partial(_put, i, places)


@dataclass(frozen=True)
class _Places:
    """The operand dimensions of what is left of the indices, and of the updates, without dimensions of size 1 that no
    operand dimension stands for. Both ascend."""

    dimensions: IndexedWindows
    of_index: tuple[int, ...]
    of_update: tuple[int, ...]


def _places(scatter: Instruction) -> _Places | None:
    """Where index and updates of a scatter lie in its operand; None for a scatter that this pass leaves."""
    if len(scatter.operands) != 3 or scatter.control_predecessors or any(scatter.shape.dynamic):
        return None
    into, indices, updates = scatter.operands
    if into.opcode != "broadcast" or into.operands[0].shape.rank or not _is_row_major(scatter.shape):
        return None
    combiner = scatter.called_by("to_apply")
    if monoid(combiner) is None and picks(combiner) != 1:
        return None
    dimensions, sizes = scatter_dimensions(scatter), into.shape.dimensions
    windows = dimensions.update_windows(into.shape, updates.shape)
    batching = dict(zip(dimensions.batching.indices_dims, dimensions.batching.operand_dims, strict=True))
    indexed = set(dimensions.start_index_map)
    whole = all(windows[d] == (1 if d in indexed else sizes[d]) for d in windows if d not in batching.values())
    if not indexed or not whole or not all(_counts_to(indices.shape.type, sizes[d]) for d in indexed):
        return None
    of_batch = [batching.get(d) for d in range(indices.shape.rank) if d != dimensions.index_vector_dim]
    if any(d is None and size != 1 for d, size in zip(of_batch, dimensions.batch_sizes(indices.shape), strict=True)):
        return None
    window = iter([d for d in windows if d not in dimensions.removed])
    batch = iter(of_batch)
    of_update = [next(window) if d in dimensions.offset_dims else next(batch) for d in range(updates.shape.rank)]
    of_index = [d for d in of_batch if d is not None]
    kept = [d for d in of_update if d is not None and d not in indexed]
    if of_index != sorted(of_index) or kept != sorted(kept):
        return None
    return _Places(dimensions, tuple(of_index), tuple(kept))


def _is_row_major(shape: Shape) -> bool:
    return shape.minor_to_major == tuple(reversed(range(shape.rank)))


def _counts_to(element_type: ElementType, size: int) -> bool:
    """Whether an integer type has all places of a dimension."""
    return size <= 1 << (element_type.bits - (element_type.kind == "signed"))


def _put(scatter: Instruction, places: _Places) -> None:
    into, indices, updates = scatter.operands
    writer, sizes, dimensions = BroadcastingWriter(scatter.computation), into.shape.dimensions, places.dimensions

    def spread(value: Instruction, along: Sequence[int]) -> Instruction:
        kept = writer.reshape(value, Shape(value.shape.element_type, tuple(sizes[d] for d in along)))
        return writer.emit("broadcast", Shape(value.shape.element_type, sizes), kept, dimensions=tuple(along))

    equal = []
    for number, along in enumerate(dimensions.start_index_map):
        part = _component(writer, indices, dimensions.index_vector_dim, number)
        place = writer.emit("iota", Shape(part.shape.element_type, sizes), iota_dimension=along)
        equal.append(writer.compare("EQ", place, spread(part, places.of_index)))
    here = reduce(partial(writer.binary, "and"), equal)
    update, name = spread(updates, places.of_update), monoid(scatter.called_by("to_apply"))
    value = update if name is None else writer.binary(name, into, update)
    result = writer.emit("select", scatter.shape, here, value, into)
    edit.inherit(result, scatter)
    edit.replace_all_uses(scatter, result)
    edit.remove(scatter)


def _component(writer: BroadcastingWriter, indices: Instruction, vector: int, number: int) -> Instruction:
    """A component of the index vectors. Their dimension stays, with size 1."""
    sizes = indices.shape.dimensions
    if vector == len(sizes) or sizes[vector] == 1:
        return indices
    parts = [(number, number + 1) if d == vector else (0, n) for d, n in enumerate(sizes)]
    shape = Shape(indices.shape.element_type, (*sizes[:vector], 1, *sizes[vector + 1 :]))
    return writer.emit("slice", shape, indices, slice=tuple(SliceDimension(*part) for part in parts))
