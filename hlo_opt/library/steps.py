"""Scatter, complex functions, and chains of operations on a GPU. See `library.arrays` for the conventions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from hlo_opt.ir.values import Array
from hlo_opt.library.arrays import Described, flat, logical, narrowed, widened
from hlo_opt.library.products import convolution


def scatter_call(
    xp: ModuleType,
    buffers: Sequence[Array],
    shapes: Sequence[Described],
    dimensions: tuple[Sequence[tuple[int | None, int | None, int | None]], int],
    combine: str,
    dtype_name: str,
) -> list[Array]:
    """`scatter` of one operand on buffers.

    `dimensions` holds, per operand dimension, (component of the index vector, dimension of the index space, dimension
    of the updates), each None where there is none; then the index vector dimension. `combine` is `assign` or a ufunc of
    `xp`, applied in `dtype_name`. Windows that are partly out of bounds are skipped. The order of updates to one
    element is unspecified.
    """
    source, index_shape, update_shape, result = shapes
    by_dimension, vector_dim = dimensions
    values = xp.array(logical(widened(xp, buffers[0], source[0]), source[2], source[3]).astype(dtype_name), order="C")
    updates = logical(widened(xp, buffers[2], update_shape[0]), update_shape[2], update_shape[3]).astype(dtype_name)
    indices = logical(buffers[1], index_shape[2], index_shape[3])
    if indices.dtype.name == "uint64":
        indices = xp.minimum(indices, xp.uint64(2**63 - 1))
    indices = indices.astype(xp.int64)
    if vector_dim == indices.ndim:
        indices = indices.reshape((*indices.shape, 1))
    indices = xp.moveaxis(indices, vector_dim, -1)
    windows = [place for _, _, place in by_dimension if place is not None]
    batch = [d for d in range(updates.ndim) if d not in windows]
    updates = updates.transpose([*batch, *windows])
    space = indices.ndim - 1
    linear = xp.zeros((1,) * updates.ndim, xp.int64)
    inside = xp.ones((1,) * updates.ndim, xp.bool_)
    for d, (component, along, place) in enumerate(by_dimension):
        at = xp.zeros((1,) * updates.ndim, xp.int64)
        size = 1 if place is None else updates.shape[space + windows.index(place)]
        if component is not None:
            start = indices[..., component].reshape((*indices.shape[:-1], *(1,) * len(windows)))
            inside = inside & (start >= 0) & (start <= values.shape[d] - size)
            at = at + start
        if along is not None:
            counted = xp.arange(indices.shape[along])
            at = at + counted.reshape([-1 if k == along else 1 for k in range(updates.ndim)])
        if place is not None:
            axis = space + windows.index(place)
            at = at + xp.arange(size).reshape([-1 if k == axis else 1 for k in range(updates.ndim)])
        linear = linear * values.shape[d] + at
    inside = xp.broadcast_to(inside, updates.shape)
    where, moved = xp.broadcast_to(linear, updates.shape)[inside], updates[inside]
    values = values.reshape(-1)
    if combine == "assign":
        values[where] = moved
    else:
        getattr(xp, combine).at(values, where, moved)
    return [narrowed(xp, flat(xp, values.reshape(source[2]), result[3]), result[0], result[1])]


def complex_call(xp: ModuleType, buffers: Sequence[Array], shapes: Sequence[Described], function: str) -> list[Array]:
    """An elementwise operation on buffers, some of them complex. `pair` makes complex numbers of real and imaginary
    parts."""
    result = shapes[-1]
    values = [flat(xp, logical(b, s[2], s[3]), result[3]) for b, s in zip(buffers, shapes, strict=False)]
    if function == "pair":
        result_values = xp.empty(values[0].size, result[1])
        result_values.real, result_values.imag = values
    else:
        result_values = getattr(xp, function)(*values)
    return [xp.ascontiguousarray(result_values.astype(result[1], copy=False))]


CallStep = tuple[str, Sequence[Any], Sequence[int]]
"""(operation, arguments, numbers of its input values). Values are the inputs, then the results of all steps before."""


def computed(
    xp: ModuleType, steps: Sequence[CallStep], values: Sequence[Array], functions: Mapping[str, Callable[..., Array]]
) -> list[Array]:
    """The values followed by the results of all steps.

    bf16 is computed in float32 and rounded where a step says `narrow`. `functions` are further operations by name.
    """
    results = list(values)
    for operation, arguments, operands in steps:
        parts = [results[n] for n in operands]
        if operation == "constant":
            dtype_name, value = arguments
            result = xp.asarray(float(value) if isinstance(value, str) else value).astype(dtype_name)
        elif operation == "broadcast":
            spread = [1] * len(arguments[1])
            for place, d in enumerate(arguments[0]):
                spread[d] = parts[0].shape[place]
            result = xp.broadcast_to(parts[0].reshape(spread), arguments[1])
        elif operation == "clamp":
            result = xp.minimum(xp.maximum(parts[0], parts[1]), parts[2])
        elif operation == "logistic":
            result = 1 / (1 + xp.exp(-parts[0]))
        elif operation == "narrow":
            result = widened(xp, narrowed(xp, parts[0], "bf16", "uint16"), "bf16")
        elif operation == "view":
            result = xp.ascontiguousarray(parts[0]).view(*arguments).reshape(parts[0].shape)
        elif operation in ("astype", "reshape", "transpose"):
            result = getattr(parts[0], operation)(*arguments)
        elif operation in functions:
            result = functions[operation](xp, *parts, *arguments)
        else:
            result = getattr(xp, operation)(*parts)
        results.append(result)
    return results


def steps_call(
    xp: ModuleType,
    buffers: Sequence[Array],
    shapes: Sequence[Described],
    steps: Sequence[CallStep],
    results: Sequence[int],
    precision: str = "",
) -> list[Array]:
    """A library call computed step by step from its operands. `results` are the numbers of the values that it
    returns; `precision` as for `convolution_call`."""
    operands = [logical(widened(xp, b, s[0]), s[2], s[3]) for b, s in zip(buffers, shapes, strict=False)]
    values = computed(xp, steps, operands, {"convolution": convolution})
    outputs = [(values[n], shape) for n, shape in zip(results, shapes[len(buffers) :], strict=True)]
    return [narrowed(xp, flat(xp, value, s[3]), s[0], s[1]) for value, s in outputs]
