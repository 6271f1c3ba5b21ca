"""Recipes of products, convolutions, transforms and factorizations."""

from __future__ import annotations

import math

from hlo_opt.ir import ELEMENT_TYPES, Instruction, Raw, Window, WindowDimension
from random_modules.comparable.known import Known, largest, limits
from random_modules.comparable.writer import COMPLEX, FLOATS, Writer, arr, family

PRODUCTS = (*FLOATS, *FLOATS, "s32", "s8", "u8", "s64", *COMPLEX)


def _product(w: Writer, made: Instruction, left: Instruction, right: Instruction, count: int) -> None:
    """Offer the sums of so many products."""
    if made.shape.type.is_integer:
        w.keep(made, Known(*limits(made.shape.type), True))
        return
    bound = 2.0 * largest(w.known[left]) * largest(w.known[right]) * max(count, 1)
    w.keep(made, Known(-bound, bound, False))


def _result(w: Writer, name: str) -> str:
    """Products of short types may come out wider."""
    wider = {"s8": ("s8", "s32"), "u8": ("u8", "u32"), "bf16": ("bf16", "f32"), "f16": ("f16", "f32")}
    return w.pick(wider.get(name, (name,)))


@family("dot", "dot")
def _dot(w: Writer, opcode: str) -> None:
    """Any number of batch, free and contracting dimensions, in any order."""
    name = w.pick(PRODUCTS)
    large = (33, 64, 129) if w.tile_edges and w.flag() else ()
    sizes = {label: w.pick(large or (1, 2, 3, 4, 5, 7, 16, 0)) for label in "mn"}
    sizes |= {label: w.pick((1, 2, 3, 4, 5, 7, 16, 0)) for label in "bcl"}
    sizes["k"] = w.pick(large or (1, 2, 3, 8, 17, 0))
    batch = w.some("bc")[: w.number(0, 2)]
    contracting = w.some("kl") if w.number(0, 5) == 0 else w.pick((("k",), ("k",), ("k", "l")))
    left = w.shuffled((*batch, *contracting, *(("m",) if w.number(0, 3) else ())))
    right = w.shuffled((*batch, *contracting, *(("n",) if w.number(0, 3) else ())))
    lhs = w.take(arr(name, *(sizes[d] for d in left)), *_factor(name))
    rhs = w.take(arr(name, *(sizes[d] for d in right)), *_factor(name))
    out = [sizes[d] for d in (*batch, *(d for d in left if d == "m"), *(d for d in right if d == "n"))]
    made = w.emit(
        opcode, arr(_result(w, name), *out), [lhs, rhs],
        lhs_batch_dims=tuple(left.index(d) for d in batch) or None,
        rhs_batch_dims=tuple(right.index(d) for d in batch) or None,
        lhs_contracting_dims=tuple(left.index(d) for d in contracting),
        rhs_contracting_dims=tuple(right.index(d) for d in contracting),
        operand_precision=Raw("{highest,highest}") if w.flag() else None,
    )  # fmt: skip
    _product(w, made, lhs, rhs, math.prod(sizes[d] for d in contracting))


def _factor(name: str) -> tuple[float | None, float | None]:
    return (None, None) if ELEMENT_TYPES[name].is_integer else (-4.0, 4.0)


@family("dot", "ragged-dot", "scaled-dot")
def _special_dot(w: Writer, opcode: str) -> None:
    m, k, n = w.number(1, 6), w.number(1, 8), w.number(1, 5)
    if opcode == "scaled-dot":
        lhs, rhs = w.take(arr("f8e4m3fn", m, k), exact=True), w.take(arr("f8e4m3fn", k, n), exact=True)
        scales = [w.take(arr("bf16", *s), 0.5, 2.0, exact=True) for s in ((m, k), (k, n))]
        made = w.emit(
            opcode, arr("f32", m, n), [lhs, rhs, *scales], lhs_contracting_dims=(1,), rhs_contracting_dims=(0,)
        )
        w.keep(made, Known(-64.0 * k, 64.0 * k, False))
        return
    sizes = [w.number(0, 3) for _ in range(w.number(1, 3))]
    m = max(sum(sizes), 1)
    lhs, rhs = w.take(arr("f32", m, k), -4.0, 4.0), w.take(arr("f32", len(sizes), k, n), -4.0, 4.0)
    groups = w.constant(arr("s32", len(sizes)), sizes)
    made = w.emit(
        opcode, arr("f32", m, n), [lhs, rhs, groups],
        lhs_contracting_dims=(1,), rhs_contracting_dims=(1,), lhs_ragged_dims=(0,), rhs_group_dims=(0,),
    )  # fmt: skip
    _product(w, made, lhs, rhs, k)


@family("convolution", "convolution")
def _convolution(w: Writer, opcode: str) -> None:
    """One or two spatial dimensions, any order of the dimensions, strides, padding, dilations, reversal, groups."""
    name = w.pick(("f32", "f32", "f64", "f16", "bf16", "s32", "s8", "c64"))
    spatial = w.number(1, 2)
    feature_groups, batch_groups = w.pick(((1, 1), (1, 1), (2, 1), (3, 1), (1, 2)))
    inputs, outputs = w.number(1, 3), w.number(1, 3) * feature_groups * batch_groups
    batch = w.number(1, 3) * batch_groups
    parts, left, right, out = [], [], [], []
    for _ in range(spatial):
        size, span = w.number(1, 8), w.number(1, 3)
        stride, base, step = w.number(1, 2), w.number(1, 2), w.number(1, 2)
        low, high = w.number(-1, 3), w.number(-1, 3)
        full, reach = (size - 1) * base + 1 + low + high, (span - 1) * step + 1
        if full < reach:
            high += reach - full
            full = reach
        part = {"stride": stride, "pad_low": low, "pad_high": high, "lhs_dilate": base, "rhs_dilate": step}
        parts.append(WindowDimension(span, **part, rhs_reversal=w.flag()))
        left.append(size)
        right.append(span)
        out.append((full - reach) // stride + 1)
    labels, shapes = [], []
    for kinds, sizes, inner in (
        ("bf", (batch, inputs * feature_groups), left),
        ("io", (inputs, outputs), right),
        ("bf", (batch // batch_groups, outputs), out),
    ):
        letters = w.shuffled((*kinds, *(str(k) for k in range(spatial))))
        by_letter = {**dict(zip(kinds, sizes, strict=True)), **{str(k): s for k, s in enumerate(inner)}}
        labels.append("".join(letters))
        shapes.append(tuple(by_letter[x] for x in letters))
    # sums beyond the type are left out: XLA's evaluator, which folds constants, saturates them, and what it compiles
    # wraps
    bounds = (-2, 2) if name == "s8" else (-100, 100) if name == "s32" else _factor(name)
    lhs, rhs = w.take(arr(name, *shapes[0]), *bounds), w.take(arr(name, *shapes[1]), *bounds)
    made = w.emit(
        opcode, arr(name, *shapes[2]), [lhs, rhs], window=Window(tuple(parts)),
        dim_labels=f"{labels[0]}_{labels[1]}->{labels[2]}",
        feature_group_count=feature_groups if feature_groups > 1 else None,
        batch_group_count=batch_groups if batch_groups > 1 else None,
    )  # fmt: skip
    _product(w, made, lhs, rhs, inputs * math.prod(right))


@family("fft", "fft")
def _fft(w: Writer, opcode: str) -> None:
    sizes = w.dimensions(0, 1, 1)
    n = w.number(1, 12)
    kind = w.pick(("FFT", "IFFT", "RFFT", "IRFFT"))
    if kind in ("FFT", "IFFT"):
        operand = result = arr(w.pick(COMPLEX), *sizes, n)
    elif kind == "RFFT":
        operand, result = arr("f32", *sizes, n), arr("c64", *sizes, n // 2 + 1)
    else:
        operand, result = arr("c64", *sizes, n // 2 + 1), arr("f32", *sizes, n)
    source = w.take(operand, -4.0, 4.0)
    made = w.emit(opcode, result, [source], fft_type=kind, fft_length=(n,))
    w.keep(made, Known(-10.0 * n, 10.0 * n, False))


@family("linear algebra", "cholesky", "triangular-solve")
def _linear_algebra(w: Writer, opcode: str) -> None:
    """Of well-conditioned matrices: small numbers around a large diagonal."""
    n, name = w.number(1, 6), w.pick(("f32", "f64"))
    batch = w.dimensions(0, 1, 1)
    shape = arr(name, *batch, n, n)
    noise = w.take(shape, -1.0, 1.0)
    index = arr("s32", n, n)
    rows, columns = (w.emit("iota", index, [], iota_dimension=d) for d in range(2))
    diagonal = w.emit("compare", arr("pred", n, n), [rows, columns], direction="EQ")
    number = w.emit("convert", arr(name, n, n), [diagonal])
    scale = w.emit("broadcast", arr(name, n, n), [w.constant(arr(name), 2.0 * n + 2)], dimensions=())
    shift = w.emit("multiply", arr(name, n, n), [number, scale])
    lead = len(batch)
    matrix = w.emit("add", shape, [noise, w.emit("broadcast", shape, [shift], dimensions=(lead, lead + 1))])
    if opcode == "cholesky":
        order = (*range(lead), lead + 1, lead)
        whole = w.emit("add", shape, [matrix, w.emit("transpose", shape, [matrix], dimensions=order)])
        w.keep(w.emit(opcode, shape, [whole], lower=w.flag()), Known(-10.0, 10.0, False))
        return
    left, m = w.flag(), w.number(1, 4)
    other = w.take(arr(name, *batch, *((n, m) if left else (m, n))), -4.0, 4.0)
    made = w.emit(
        opcode, other.shape, [matrix, other],
        left_side=left, lower=w.flag(), unit_diagonal=False, transpose_a=w.pick(("NO_TRANSPOSE", "TRANSPOSE")),
    )  # fmt: skip
    w.keep(made, Known(-8.0, 8.0, False))
