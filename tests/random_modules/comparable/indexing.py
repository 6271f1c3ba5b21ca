"""Recipes of gather and scatter in all generality."""

from __future__ import annotations

import math

import numpy as np

from hlo_opt.ir import Called, Instruction, Shape
from random_modules.comparable.known import Known, limits
from random_modules.comparable.movement import reads
from random_modules.comparable.reducers import reducer
from random_modules.comparable.writer import FLOATS, INTEGERS, MOVED, Writer, arr, family


class _Windows:
    """Drawn dimension numbers that a gather and a scatter have in common, for an operand of a given shape."""

    def __init__(self, w: Writer, sizes: tuple[int, ...], *, is_scatter: bool) -> None:
        rank = len(sizes)
        dims = list(range(rank))
        self.batching = [d for d in dims if not w.number(0, 4)]
        free = [d for d in dims if d not in self.batching]
        self.indexed = w.shuffled(w.some(free))
        self.windows = [1 if d in self.batching else w.number(min(1, sizes[d]), sizes[d]) for d in dims]
        self.removed = [d for d in free if self.windows[d] == 1 and w.flag()]
        kept = [d for d in dims if d not in self.removed and d not in self.batching]
        # the index space: batching sizes in their own order, and a few more
        space: list[tuple[int, int | None]] = [(sizes[d], d) for d in self.batching]
        room = 5000 // max(1, math.prod(self.windows) * math.prod(s for s, _ in space))
        # of updates that an empty index vector puts all in one place, XLA:CPU takes the last
        for _ in range(0 if is_scatter and not self.indexed else w.number(0, 2)):
            size = w.size()
            if size <= room:
                space.insert(w.number(0, len(space)), (size, None))
                room //= max(1, size)
        self.batch = [s for s, _ in space]
        self.vector = w.number(0, len(space))
        scalar_vector = len(self.indexed) == 1 and w.flag()
        self.index_sizes = list(self.batch)
        if scalar_vector:
            self.vector = len(self.index_sizes)
        else:
            self.index_sizes.insert(self.vector, len(self.indexed))
        places = [next(k for k, (_, x) in enumerate(space) if x == d) for d in self.batching]
        self.indices_batching = [p + (not scalar_vector and p >= self.vector) for p in places]
        total = len(self.batch) + len(kept)
        self.offsets = tuple(sorted(w.shuffled(range(total))[: len(kept)]))
        rest = iter(self.batch)
        inner = iter(self.windows[d] for d in kept)
        self.result = tuple(next(inner) if k in self.offsets else next(rest) for k in range(total))

    def indices(self, w: Writer, sizes: tuple[int, ...]) -> Instruction:
        """Of a type that holds all sizes: XLA:CPU holds the indices of a scatter against limits in their own type."""
        most = max([sizes[d] for d in self.indexed], default=1)
        return w.index(most, tuple(self.index_sizes), max(sizes))


@family("gather", "gather")
def _gather(w: Writer, opcode: str) -> None:
    source = w.take(w.array((*MOVED, "c64"), 1, 3, 1))
    g = _Windows(w, source.shape.dimensions, is_scatter=False)
    w.moved(
        w.emit(
            opcode, arr(source.shape.type, *g.result), [source, g.indices(w, source.shape.dimensions)],
            offset_dims=g.offsets, collapsed_slice_dims=tuple(g.removed), start_index_map=tuple(g.indexed),
            operand_batching_dims=tuple(g.batching) or None,
            start_indices_batching_dims=tuple(g.indices_batching) or None,
            index_vector_dim=g.vector, slice_sizes=tuple(g.windows),
        ),
        source,
    )  # fmt: skip


@family("scatter", "scatter")
def _scatter(w: Writer, opcode: str) -> None:
    """With collisions where the combiner does not mind the order, which HLO leaves open, beyond rounding."""
    shape = w.array((*FLOATS, *INTEGERS, "pred"), 1, 3, 1)
    element_type = shape.type
    if w.number(0, 3) == 0:
        _scatter_set(w, shape)
        return
    s = _Windows(w, shape.dimensions, is_scatter=True)
    combine = reducer(w, element_type)
    target, updates = w.take(shape, *combine.interval), w.take(arr(element_type, *s.result), *combine.interval)
    if reads(updates, target):
        updates = w.fresh(updates.shape, *combine.interval)
    count = math.prod(s.batch)
    made = w.emit(
        opcode, shape, [target, s.indices(w, shape.dimensions), updates],
        update_window_dims=s.offsets, inserted_window_dims=tuple(s.removed),
        scatter_dims_to_operand_dims=tuple(s.indexed),
        input_batching_dims=tuple(s.batching) or None, scatter_indices_batching_dims=tuple(s.indices_batching) or None,
        index_vector_dim=s.vector, to_apply=combine.computation,
    )  # fmt: skip
    w.keep(made, combine.after(w.known[target].union(w.known[updates]), count + 1))


def _scatter_set(w: Writer, shape: Shape) -> None:
    """Rows overwritten, at indices that occur once."""
    rows, rest = shape.dimensions[0], shape.dimensions[1:]
    count = w.number(0, min(rows, 8))
    order = np.random.default_rng(w.number(0, 99)).permutation(rows)[:count]
    indices = w.constant(arr("s32", count, 1), order.reshape(count, 1))
    target, updates = w.take(shape), w.take(arr(shape.type, count, *rest))
    if reads(updates, target):
        updates = w.fresh(updates.shape, *limits(shape.type))
    scalar = Shape(shape.type)
    with w.computation([scalar, scalar], [Known(0, 0, False)] * 2) as parameters:
        second: Called = w.finish(parameters[1])
    made = w.emit(
        "scatter", shape, [target, indices, updates],
        update_window_dims=tuple(range(1, shape.rank)), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,),
        index_vector_dim=1, unique_indices=True if w.flag() else None, to_apply=second,
    )  # fmt: skip
    w.moved(made, target, updates)
