"""The NumPy evaluators of operations with run-time indices."""

from __future__ import annotations

import numpy as np

from hlo_opt.ir import Instruction
from hlo_opt.ir.values import Array
from hlo_opt.ops.dynamic import reshaped, size_of, with_size
from hlo_opt.ops.indexing.gather_dimensions import IndexedWindows, gather_dimensions, scatter_dimensions
from hlo_opt.ops.reduction.folding import combine_at, ufunc_of, wide_dtype
from hlo_opt.ops.reduction.reducers import monoid, picks
from hlo_opt.ops.spec import Evaluator
from hlo_opt.ops.values import Value


def _clamped(starts: list[Array], sizes: tuple[int, ...], room: tuple[int, ...]) -> list[int]:
    """Start indices as Python integers, clamped so that the slice fits."""
    if len(starts) == 1 and np.ndim(starts[0]) == 1:
        starts = list(starts[0])
    return [max(0, min(int(s), r - size)) for s, size, r in zip(starts, sizes, room, strict=True)]


def dynamic_slice(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    value, sizes = np.asarray(values[0]), instruction.ints("dynamic_slice_sizes")
    starts = _clamped(values[1:], sizes, value.shape)
    return value[tuple(slice(s, s + size) for s, size in zip(starts, sizes, strict=True))]


def dynamic_update_slice(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    update = np.asarray(values[1])
    result = np.array(values[0])
    starts = _clamped(values[2:], update.shape, result.shape)
    result[tuple(slice(s, s + size) for s, size in zip(starts, update.shape, strict=True))] = update
    return result


def _components(w: IndexedWindows, indices: Array) -> list[Array]:
    """Each component of the index vectors over the index space, as s64 (u64 values beyond that are clamped)."""
    if indices.dtype == np.uint64:
        indices = np.minimum(indices, np.uint64(np.iinfo(np.int64).max))
    indices = indices.astype(np.int64)
    if w.index_vector_dim == indices.ndim:
        return [indices]
    return [np.take(indices, k, axis=w.index_vector_dim) for k in range(indices.shape[w.index_vector_dim])]


def _positions(w: IndexedWindows, starts: list[Array], sizes: dict[int, int], batch: tuple[int, ...]) -> list[Array]:
    """Operand indices by dimension, over (index space.., window dimensions..), in broadcastable shapes."""
    kept = [d for d in sizes if d not in w.removed]
    positions: list[Array] = []
    component = {d: k for k, d in enumerate(w.start_index_map)}
    for d, size in sizes.items():
        at: Array = np.zeros((1,) * (len(batch) + len(kept)), dtype=np.int64)
        if d in component:
            at = at + starts[component[d]].reshape(batch + (1,) * len(kept))
        elif d in w.batching.operand_dims:
            indices_dim = w.batching.indices_dims[w.batching.operand_dims.index(d)]
            along = indices_dim - (indices_dim > w.index_vector_dim)
            counted = np.arange(batch[along])
            at = at + counted.reshape([-1 if k == along else 1 for k in range(len(batch) + len(kept))])
        if d in kept:
            place = len(batch) + kept.index(d)
            at = at + np.arange(size).reshape([-1 if k == place else 1 for k in range(len(batch) + len(kept))])
        positions.append(at)
    return positions


def gather(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    """Start indices are clamped so that the whole window is in bounds."""
    value, indices = np.asarray(values[0]), np.asarray(values[1])
    numbers = gather_dimensions(instruction)
    batch = numbers.batch_sizes(instruction.operands[1].shape)
    starts = [
        np.clip(c, 0, max(value.shape[d] - numbers.slice_sizes[d], 0))
        for c, d in zip(_components(numbers, indices), numbers.start_index_map, strict=True)
    ]
    sizes = dict(enumerate(numbers.slice_sizes))
    kept = [size for d, size in sizes.items() if d not in numbers.removed]
    shape = (*batch, *kept)
    if value.size == 0 or 0 in shape:
        gathered = np.zeros(shape, dtype=value.dtype)
    else:
        gathered = np.broadcast_to(
            value[tuple(_positions(numbers, starts, sizes, batch))] if value.ndim else value, shape
        )
    return np.moveaxis(gathered, range(len(batch), len(shape)), numbers.offset_dims)


def scatter(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """Updates apply in row-major order of the index space; windows that are partly out of bounds are skipped."""
    half = len(values) // 2
    targets = [np.array(v) for v in values[:half]]
    indices, updates = np.asarray(values[half]), [np.asarray(v) for v in values[half + 1 :]]
    s = scatter_dimensions(instruction)
    combiner = instruction.called_by("to_apply")
    source, update = instruction.operands[0].shape, instruction.operands[half + 1].shape
    batch = s.batch_sizes(instruction.operands[half].shape)
    windows = s.update_windows(source, update)
    starts = _components(s, indices)
    inside = np.ones(batch, dtype=bool)
    for component, d in zip(starts, s.start_index_map, strict=True):
        inside &= (component >= 0) & (component <= targets[0].shape[d] - windows[d])
    if targets[0].size and updates[0].size and inside.any():
        kept = [size for d, size in windows.items() if d not in s.removed]
        shape = (*batch, *kept)
        linear: Array = np.zeros(shape, dtype=np.int64)
        for at, size in zip(_positions(s, starts, windows, batch), targets[0].shape, strict=True):
            linear = linear * size + at
        windows_first = [np.moveaxis(u, s.offset_dims, range(len(batch), len(shape))) for u in updates]
        if inside.all():
            where, moved = linear.reshape(-1), [u.reshape(-1) for u in windows_first]
        else:
            chosen = np.broadcast_to(inside.reshape(batch + (1,) * len(kept)), shape)
            where, moved = linear[chosen], [u[chosen] for u in windows_first]
        flat = [t.reshape(-1) for t in targets]
        _combine(evaluator, instruction, flat, where, moved)
        targets = [f.reshape(t.shape) for f, t in zip(flat, targets, strict=True)]
    if combiner.root.shape.is_tuple or instruction.shape.is_tuple:
        return tuple(targets)
    return targets[0]


_DENSE = 8
"""Targets with at most this many elements per update are summed densely, without sorting the indices."""


def _combine(
    evaluator: Evaluator, instruction: Instruction, flat: list[Array], where: Array, moved: list[Array]
) -> None:
    combiner = instruction.called_by("to_apply")
    element_type = instruction.operands[0].shape.type
    rounds = element_type.is_narrow_float and monoid(combiner) in ("add", "multiply")  # rounds after each update
    ufunc = None if rounds else ufunc_of(combiner, element_type)
    if picks(combiner) == 1 and len(flat) == 1:
        flat[0][where] = moved[0]  # as in HLO's row-major order, NumPy keeps the last of equal indices
    elif ufunc is not None:
        wide = wide_dtype(element_type, monoid(combiner))
        if wide == flat[0].dtype:
            ufunc.at(flat[0], where, moved[0])
            return
        if ufunc is np.add and wide == np.float64 and flat[0].size <= _DENSE * where.size:
            touched = np.zeros(flat[0].size, np.bool_)
            touched[where[(moved[0] != 0) | ~np.signbit(moved[0])]] = True  # -0 changes nothing; bincount begins at 0
            sums = np.bincount(where, moved[0], flat[0].size)
            np.copyto(flat[0], (flat[0] + sums).astype(flat[0].dtype), where=touched)
            return
        touched, inverse = np.unique(where, return_inverse=True)
        sums = flat[0][touched].astype(wide)
        ufunc.at(sums, inverse, moved[0].astype(wide))
        flat[0][touched] = sums.astype(flat[0].dtype)
    else:
        combine_at(evaluator, combiner, flat, where, moved, wide=False)


def set_dimension_size(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """Sets the size in use, clamped to 0 and the bound."""
    return with_size(values[0], instruction.ints("dimensions")[0], int(values[1]))


def get_dimension_size(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Array:
    return np.asarray(size_of(values[0], instruction.ints("dimensions")[0]), dtype=np.int32)


def dynamic_reshape(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    return reshaped(values[0], instruction.shape, [int(np.asarray(size)) for size in values[1:]])
