"""Library calls on a GPU, over an array module `xp` that is CuPy (or looks like it).

The text of these functions is also what an emitted driver contains, so they use nothing but their arguments. Buffers are flat and hold raw bits where
CuPy lacks the type: bf16 is `uint16`.
"""

from __future__ import annotations

from typing import Any


def widened(xp: Any, memory: Any, type_name: str) -> Any:
    """The values of a buffer in a type that CuPy computes with: bf16 becomes float32, exactly."""
    if type_name == "bf16":
        return (memory.astype(xp.uint32) << xp.uint32(16)).view(xp.float32)
    return memory


def narrowed(xp: Any, values: Any, type_name: str, dtype_name: str) -> Any:
    """Values rounded to the type of a buffer: to nearest, ties to even; a NaN stays one."""
    if type_name == "bf16":
        bits = xp.ascontiguousarray(values.astype(xp.float32)).view(xp.uint32)
        rounded = (bits + xp.uint32(0x7FFF) + ((bits >> xp.uint32(16)) & xp.uint32(1))) >> xp.uint32(16)
        quiet = (bits >> xp.uint32(16)) | xp.uint32(0x40)
        return xp.where((bits & xp.uint32(0x7FFFFFFF)) > xp.uint32(0x7F800000), quiet, rounded).astype(xp.uint16)
    if type_name == "pred":
        return values != 0
    return values.astype(dtype_name)


def logical(memory: Any, dimensions: Any, minor_to_major: Any) -> Any:
    """The array in a flat buffer whose fastest dimension comes first in `minor_to_major`."""
    order = tuple(reversed(minor_to_major))
    dense = memory.reshape([dimensions[d] for d in order])
    return dense.transpose([order.index(d) for d in range(len(order))]) if order else dense


def flat(xp: Any, array: Any, minor_to_major: Any) -> Any:
    """The flat buffer of an array, laid out as `minor_to_major` says."""
    order = tuple(reversed(minor_to_major))
    return xp.ascontiguousarray(array.transpose(order) if order else array).reshape(-1)


def dot(xp: Any, lhs: Any, rhs: Any, batch: Any, contracting: Any, dtype_name: str) -> Any:
    """HLO's dot: batch dimensions, then the others of the left, then of the right. Operands are converted to `dtype_name`, which accumulates."""
    (lhs_batch, rhs_batch), (lhs_sum, rhs_sum) = batch, contracting
    lhs_free = [d for d in range(lhs.ndim) if d not in lhs_batch and d not in lhs_sum]
    rhs_free = [d for d in range(rhs.ndim) if d not in rhs_batch and d not in rhs_sum]
    batch_sizes = [lhs.shape[d] for d in lhs_batch]
    rows, columns = [lhs.shape[d] for d in lhs_free], [rhs.shape[d] for d in rhs_free]
    terms = 1
    for d in lhs_sum:
        terms *= lhs.shape[d]
    if terms == 0:
        return xp.zeros((*batch_sizes, *rows, *columns), dtype_name)
    matrices = 1
    for size in batch_sizes:
        matrices *= size
    left = lhs.transpose([*lhs_batch, *lhs_free, *lhs_sum]).reshape(matrices, -1, terms)
    right = rhs.transpose([*rhs_batch, *rhs_sum, *rhs_free]).reshape(matrices, terms, -1)
    product = xp.matmul(left.astype(dtype_name, copy=False), right.astype(dtype_name, copy=False))
    return product.reshape((*batch_sizes, *rows, *columns))


def dot_call(xp: Any, buffers: Any, shapes: Any, batch: Any, contracting: Any, dtype_name: str) -> Any:
    """`dot` on buffers."""
    left, right, result = shapes
    product = dot(
        xp,
        logical(widened(xp, buffers[0], left[0]), left[2], left[3]),
        logical(widened(xp, buffers[1], right[0]), right[2], right[3]),
        batch,
        contracting,
        dtype_name,
    )
    return [narrowed(xp, flat(xp, product, result[3]), result[0], result[1])]


def scatter_call(xp: Any, buffers: Any, shapes: Any, dimensions: Any, combine: str, dtype_name: str) -> Any:
    """`scatter` on buffers, of one operand. `dimensions` are, by operand dimension, (component of the index vector, dimension of the index space,
    dimension of the updates), each None where there is none; then the vector's dimension in the indices. `combine` is `assign` or a ufunc of `xp`;
    it works in `dtype_name`. Windows that are not wholly inside change nothing; where several updates meet, the order is any."""
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


def complex_call(xp: Any, buffers: Any, shapes: Any, function: str) -> Any:
    """An elementwise operation on buffers, some of them complex; `pair` makes complex numbers of real and imaginary parts."""
    result = shapes[-1]
    values = [flat(xp, logical(b, s[2], s[3]), result[3]) for b, s in zip(buffers, shapes, strict=False)]
    if function == "pair":
        made = xp.empty(values[0].size, result[1])
        made.real, made.imag = values
    else:
        made = getattr(xp, function)(*values)
    return [xp.ascontiguousarray(made.astype(result[1], copy=False))]
