"""The NumPy evaluators of reduce, reduce-window and scan."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from hlo_opt.ir import Computation, ElementType, Instruction
from hlo_opt.ir.attribute import WindowDimension
from hlo_opt.ir.values import Array
from hlo_opt.ops.reduction.cumulative import CumulativeScan, cumulative_scan
from hlo_opt.ops.reduction.folding import (
    combine,
    fold,
    fold_axes,
    fold_long,
    identity_of,
    is_long,
    ufunc_named,
    ufunc_of,
    wide_dtype,
)
from hlo_opt.ops.reduction.reducers import is_wide, monoid, running_type, running_types
from hlo_opt.ops.reduction.table import is_reversed, reduced
from hlo_opt.ops.shapes import integer, window
from hlo_opt.ops.spec import Evaluator
from hlo_opt.ops.values import Value, packed


def _narrowed(value: Array, element_type: ElementType) -> Array:
    return value if value.dtype == element_type.dtype else value.astype(element_type.dtype)


def _widened(instruction: Instruction, inputs: Sequence[Array]) -> list[Array]:
    """The inputs in the accumulator types of a wide fold."""
    types = [running_type(o.shape.type) for o in instruction.operands[: len(inputs)]]
    return [i.astype(t.dtype, copy=False) for i, t in zip(inputs, types, strict=True)]


def reduce(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """A single-operation reducer runs as a NumPy function; others fold one reduced element at a time, for all results
    at once.

    HLO leaves open how often the init value is combined, since it must be an identity; here it is once per result.
    """
    half = len(values) // 2
    inputs, inits = [np.asarray(v) for v in values[:half]], values[half:]
    reducer = instruction.called_by("to_apply")
    leaf = next(instruction.shape.leaves())
    ufunc = ufunc_of(reducer, leaf.type)
    axes = reduced(instruction)
    if ufunc is not None:
        dtype = wide_dtype(leaf.type, monoid(reducer))
        init = np.asarray(inits[0]).astype(dtype)
        if not inputs[0].size:
            return packed(instruction, [np.broadcast_to(_narrowed(init, leaf.type), leaf.dimensions)])
        widens_itself = ufunc is np.add and dtype.kind == "f"
        source = inputs[0] if inputs[0].dtype == dtype or widens_itself else inputs[0].astype(dtype)
        total = fold_axes(ufunc, source, axes, dtype) if axes else source
        return packed(instruction, [_narrowed(np.asarray(combine(ufunc, init, total)), leaf.type)])
    kept = [d for d in range(inputs[0].ndim) if d not in axes]
    wide = is_wide(instruction)
    moved = []
    for value in _widened(instruction, inputs) if wide else inputs:
        front = value.transpose([*axes, *kept])
        moved.append(front.reshape(int(np.prod(front.shape[: len(axes)])), *front.shape[len(axes) :]))
    starts = [
        np.broadcast_to(np.asarray(init).astype(t.dtype), moved[0].shape[1:])
        for init, t in zip(inits, running_types(instruction), strict=True)
    ]
    totals = fold(evaluator, reducer, starts, moved, wide=wide)
    return packed(instruction, [_narrowed(m, o.type) for m, o in zip(totals, instruction.shape.leaves(), strict=True)])


def _reach(w: WindowDimension, at: int, size: int, out: int) -> tuple[Array, Array]:
    """(result indices, operand indices) of the results that read the operand at window position `at`."""
    results = np.arange(out)
    dilated = results * w.stride + at * w.rhs_dilate - w.pad_low
    valid = (dilated >= 0) & (dilated <= (size - 1) * w.lhs_dilate) & (dilated % w.lhs_dilate == 0)
    return results[valid], dilated[valid] // w.lhs_dilate


def reduce_window(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """Fold window positions in row-major order, each for all results that reach it. Long windows: `fold_long`."""
    half = len(values) // 2
    inputs, inits = [np.asarray(v) for v in values[:half]], values[half:]
    reducer = instruction.called_by("to_apply")
    leaves = list(instruction.shape.leaves())
    ufunc = ufunc_of(reducer, leaves[0].type)
    types, wide = [t.dtype for t in running_types(instruction)], is_wide(instruction)
    if ufunc is not None:
        types = [wide_dtype(leaves[0].type, monoid(reducer))]
        inputs = [inputs[0].astype(types[0])]
    elif wide:
        inputs = _widened(instruction, inputs)
    folded = [
        np.full(leaf.dimensions, np.asarray(init).astype(t), dtype=t)
        for leaf, init, t in zip(leaves, inits, types, strict=True)
    ]
    parts = window(instruction, inputs[0].ndim)
    if is_long(parts):
        if ufunc is None:  # the init value is assumed to be an identity
            identities = [np.asarray(init).astype(t) for init, t in zip(inits, types, strict=True)]
        else:
            identities = [identity_of(ufunc, types[0])]

        def both(left: list[Array], right: list[Array]) -> list[Array]:
            return (
                evaluator.map_elements(reducer, [*left, *right], wide=wide)
                if ufunc is None
                else [combine(ufunc, left[0], right[0])]
            )

        folded = both(folded, fold_long(inputs, identities, parts, both, ufunc))
    else:
        folded = _fold_windows(evaluator, reducer, folded, inputs, parts, ufunc, wide)
    return packed(instruction, [_narrowed(m, leaf.type) for m, leaf in zip(folded, leaves, strict=True)])


def _fold_windows(
    evaluator: Evaluator,
    reducer: Computation,
    folded: list[Array],
    inputs: list[Array],
    parts: Sequence[WindowDimension],
    ufunc: np.ufunc | None,
    wide: bool,
) -> list[Array]:
    """The accumulators after all window positions; they change in place."""
    reach = [
        [_reach(w, at, size, out) for at in range(w.size)]
        for w, size, out in zip(parts, inputs[0].shape, folded[0].shape, strict=True)
    ]
    for position in itertools.product(*(range(w.size) for w in parts)):
        spans = [reach[k][at] for k, at in enumerate(position)]
        if any(not len(to) for to, _ in spans):
            continue
        to = tuple(_as_slice(r) for r, _ in spans)
        source = tuple(_as_slice(s) for _, s in spans)
        if ufunc is not None:
            folded[0][to] = combine(ufunc, folded[0][to], inputs[0][source])
            continue
        new = evaluator.map_elements(reducer, [*(m[to] for m in folded), *(i[source] for i in inputs)], wide=wide)
        for target, value in zip(folded, new, strict=True):
            target[to] = value
    return folded


def _as_slice(indices: Array) -> slice:
    """Evenly spaced indices as a slice; those of a window position are evenly spaced."""
    step = int(indices[1] - indices[0]) if len(indices) > 1 else 1
    return slice(int(indices[0]), int(indices[-1]) + 1, step)


def scan(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """Run the body along one dimension: (slices of the inputs.., carries..) -> (slices of the outputs.., carries..).

    A cumulative scan is one NumPy function, in the accumulator type of a reduce: its order is open, and what it carries
    from element to element is not seen.
    """
    fold = cumulative_scan(instruction)
    if fold is not None and values[0].size:
        return packed(instruction, _accumulated(instruction, fold, *values))
    carries = integer(instruction, "num_carries")
    inputs, state = values[: len(values) - carries], list(values[len(values) - carries :])
    body = instruction.called_by("to_apply")
    axis = instruction.ints("dimensions")[0]
    leaves = list(instruction.shape.leaves())
    outputs = [np.empty(leaf.dimensions, leaf.type.dtype) for leaf in leaves[: len(leaves) - carries]]
    length = (inputs[0].shape if inputs else outputs[0].shape)[axis]
    for step in range(length):
        at = length - 1 - step if is_reversed(instruction) else step
        returned = evaluator.call(body, [*(np.take(i, at, axis=axis) for i in inputs), *state])
        results = [np.asarray(value) for value in (returned if isinstance(returned, tuple) else (returned,))]
        for output, value in zip(outputs, results, strict=False):
            output[(slice(None),) * axis + (at,)] = value
        state = results[len(outputs) :]
    return packed(instruction, [*outputs, *state])


def _accumulated(instruction: Instruction, fold: CumulativeScan, elements: Array, start: Array) -> list[Array]:
    """The results of a cumulative scan: at each element, and of all."""
    types = [leaf.type for leaf in instruction.shape.leaves()]
    ufunc, dtype = ufunc_named(fold.opcode, types[0]), wide_dtype(types[0], fold.opcode)
    lines = np.moveaxis(np.asarray(elements).astype(dtype, copy=False), instruction.ints("dimensions")[0], -1)
    if is_reversed(instruction):
        lines = lines[..., ::-1]
    first = np.asarray(start).astype(dtype)[..., None]
    folds = ufunc.accumulate(np.concatenate([first, lines], axis=-1), axis=-1, dtype=dtype)
    along = folds[..., :-1] if fold.is_exclusive else folds[..., 1:]
    if is_reversed(instruction):
        along = along[..., ::-1]
    results = [np.moveaxis(along, -1, instruction.ints("dimensions")[0]), folds[..., -1]]
    return [_narrowed(value, t) for value, t in zip(results, types, strict=True)]
