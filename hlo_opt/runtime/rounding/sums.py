"""Sums on spreads: products, convolutions, reductions, windows; scatters are in `scatters`.

The order of a sum is open, and so is whether products are fused with it. Each of n roundings is at most `u` times a
partial sum. With partial sums of at most P, the worst error is n u P; random roundings add up to a part of
sqrt(n) u P, and exceed 2 sqrt(n) u P with negligible probability (N. Higham and T. Mary, "A New Approach to
Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41, 2019; the factor there is called lambda). Both sides
have such an error: the bounds move by twice min(n, 2 sqrt(n)) u P. Where all terms are nearly equal, all roundings go
the same way, and n replaces 2 sqrt(n). P is the largest partial sum at a few places (`_PIECES`), plus what the terms in
between add up to, whatever their signs: twice the root of the sum of their squares. For windows and scatters, whose
sums are short, P is the sum of the magnitudes. Narrow floats are summed in f32 and rounded once. Sums of whole numbers
that fit are exact.

The operands' own bounds contribute their sum if operands are only added, and in a product |A| rB + rA (|B| + rB), with
radii rA and rB.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hlo_opt.evaluate.program import face
from hlo_opt.ir import ElementType, Instruction, Shape
from hlo_opt.ir.element_type import ELEMENT_TYPES, F32, F64
from hlo_opt.ir.values import Array, DType
from hlo_opt.ops.calls.products import multiplies_tf32
from hlo_opt.ops.reduction.folding import combine, ufunc_of
from hlo_opt.ops.reduction.reducers import adds, is_wide, monoid
from hlo_opt.ops.reduction.table import reduced
from hlo_opt.ops.sets import EXTREMES
from hlo_opt.ops.spread import (
    aside,
    by_rows,
    certain,
    full,
    is_narrow,
    is_real,
    ordered,
    picked,
    rows_of,
    set_aside,
    settled,
)
from hlo_opt.ops.values import HIGH, LOW, MOVED, ROWS, VALUE, Spread, Value
from hlo_opt.runtime.rounding.calibration import calibrated
from hlo_opt.runtime.rounding.elementwise import Analyst, Face, force

_PIECES = 4
"""Pieces of a long sum after which its partial sum is taken."""
_ALIKE = 1.2
"""Terms count as nearly equal up to this ratio of their mean square to their squared mean."""

_OF_COMPLEX = math.sqrt(5.0)
"""Roundings of a product of two complex numbers, in units of its magnitude (Brent, Percival and Zimmermann, 2007)."""

_WHOLE = {"f32": 2.0**24, "f64": 2.0**53}
"""The largest number up to which a type represents all whole numbers."""


TF32_UNIT = 2.0**-10
"""By how much, relatively, an operand may change that a tensor core takes as TF32, rounded or cut off. Cut off, all
products shrink alike."""


def unit(element_type: ElementType) -> float:
    """The unit roundoff of the type that sums of this type are computed in."""
    return 2.0**-53 if element_type.name in ("f64", "c128") else 2.0**-24


def open_order(terms: int, element_type: ElementType, total: Array, squares: Array, partial: Array) -> Array:
    """By how much two sums of `terms` terms may differ, given the sums, the sums of squares and the largest partial
    sums."""
    if terms < 2:
        return np.zeros_like(partial)
    steps = np.where(terms * squares <= _ALIKE * total * total, terms, min(terms, 2 * math.sqrt(terms)))
    return 2 * unit(element_type) * steps * (np.maximum(partial, np.abs(total)) + 2 * np.sqrt(squares))


def rounded(analyst: Analyst, rows: Array, own: Array, element_type: ElementType) -> Value:
    """The value of a sum, given its rows in a wide type and the error `own` of the summation itself; inf: any."""
    rows, dtype = np.array(rows), element_type.dtype
    with np.errstate(all="ignore"):
        has = own > 0
        if dtype.kind == "c":
            rows[LOW] -= own * (1 + 1j)
            rows[HIGH] += own * (1 + 1j)
            rows[MOVED:] += own * 0.25 * analyst.noise(rows[MOVED:].shape)
        elif is_real(dtype):
            ordered(rows, F64)
            own = np.where(aside(rows), np.inf, own)  # that of what is not finite is NaN
            rows = calibrated(rows, dtype)
            slack = own
            if not is_narrow(dtype):  # the final rounding on either side
                slack = own + np.where(
                    has | (rows[LOW] < rows[HIGH]),
                    np.spacing(np.abs(rows[VALUE]).astype(dtype)).astype(np.float64),
                    0.0,
                )
            rows[LOW] -= slack
            rows[HIGH] += slack
            rows[MOVED:] += own * 0.25 * analyst.noise(rows[MOVED:].shape)
            if analyst.rewritten and is_narrow(dtype):
                step = np.abs(rows[VALUE]) * float(2.0 ** -_mantissa(dtype))
                rows[LOW] -= step
                rows[HIGH] += step
                rows[MOVED:] += step * analyst.noise(rows[MOVED:].shape)
        else:
            rows[LOW], rows[HIGH] = np.floor(rows[LOW]), np.ceil(rows[HIGH])
        rows = rows.astype(dtype)
    ordered(rows, element_type)
    set_aside(rows, np.broadcast_to(np.isinf(own), rows.shape[1:]), element_type)
    open_ = ~certain(rows)
    if not open_.any():
        return rows[VALUE]
    if is_narrow(dtype):
        force(analyst, rows, open_)
    return Spread(rows)


_PIECE = 1 << 20
"""Elements of a large sum whose rows are computed at once."""


def around(
    analyst: Analyst, value: Array, far: Array, moved: Sequence[Array], own: Array, element_type: ElementType
) -> Value:
    """As `rounded`, given values in a wide type, their operands' contribution `far` to the bounds, and moved values; in
    pieces if large."""
    if value.size <= _PIECE:
        centre = value.astype(np.float64)
        rows = np.stack([centre, centre - far, centre + far, *(m.astype(np.float64) for m in moved)])
        return rounded(analyst, rows, own, element_type)
    sums = np.empty((ROWS, value.size), element_type.dtype)
    flat = [a.reshape(-1) for a in (value, far, own, *moved)]
    for start in range(0, value.size, _PIECE):
        part, wide, error, *others = (a[start : start + _PIECE] for a in flat)
        sums[:, start : start + _PIECE] = full(rows_of(around(analyst, part, wide, others, error, element_type)))
    return settled(sums.reshape(ROWS, *value.shape))


def _mantissa(dtype: DType) -> int:
    import ml_dtypes

    return int(ml_dtypes.finfo(dtype).nmant)


def retyped(instruction: Instruction, element_type: ElementType) -> Instruction:
    """The same operation with another type for floats and complex numbers in its operands and its result."""

    def changed(shape: Shape) -> Shape:
        if shape.elements is not None:
            return Shape.tuple_of(*(changed(e) for e in shape.elements))
        plain = not shape.is_array or not (shape.type.is_float or shape.type.is_complex)
        return shape if plain else shape.with_type(element_type)

    operands = [Instruction(o.name, "parameter", changed(o.shape)) for o in instruction.operands]
    changed_instruction = Instruction(
        instruction.name, instruction.opcode, changed(instruction.shape), operands, dict(instruction.attributes)
    )
    changed_instruction.parent = instruction.parent
    return changed_instruction


def _eps(element_type: ElementType) -> float:
    import ml_dtypes

    return float(ml_dtypes.finfo(element_type.dtype).eps)


def sized(rows: Array, dtype: Any) -> Array:
    """The largest magnitude that an element may have."""
    if rows.shape[0] == 1:
        return np.abs(rows[VALUE].astype(dtype) if is_real(rows.dtype) else rows[VALUE]).astype(dtype)
    return np.maximum(np.abs(rows[LOW].astype(dtype)), np.abs(rows[HIGH].astype(dtype)))


def radius(rows: Array, dtype: Any) -> Array:
    """The largest distance from the value to a bound; zero for certain values."""
    if rows.shape[0] == 1:
        return np.zeros(rows.shape[1:], dtype)
    value = rows[VALUE].astype(dtype)
    distance = np.maximum(rows[HIGH].astype(dtype) - value, value - rows[LOW].astype(dtype))
    return np.where(certain(rows), dtype(0), distance)


def _reach(rows: Array) -> Array:
    """The largest distance from the value to a bound, of complex numbers as well."""
    if rows.dtype.kind != "c":
        return radius(rows, np.float64)
    return radius(rows.real, np.float64) + radius(rows.imag, np.float64)


def on_the_way(a: Array, b: Array, product: Callable[[Array, Array], Array], along: tuple[int, int] | None) -> Array:
    """The largest magnitude among the partial sums of products at a few places; without dimensions to cut, the sum of
    magnitudes."""
    if along is None:
        return product(np.abs(a), np.abs(b))
    size = a.shape[along[0]]
    pieces = min(_PIECES, size)
    most, total = None, None
    for piece in range(pieces):
        where = slice(piece * size // pieces, (piece + 1) * size // pieces)
        part, other = (x[(*(slice(None),) * d, where)] for x, d in zip((a, b), along, strict=True))
        products = product(part, other)
        total = products if total is None else total + products
        most = np.abs(total) if most is None else np.maximum(most, np.abs(total))
    assert most is not None
    return most


def _squares(a: Array, b: Array, product: Callable[[Array, Array], Array]) -> Array:
    """The sums of the squares of products, scaled so that f32 does not overflow."""
    most = [float(x.max(initial=0.0)) for x in (a, b)]
    if not all(0 < m < np.inf for m in most):
        return product(a * a, b * b)
    small = [x / x.dtype.type(m) for x, m in zip((a, b), most, strict=True)]
    return product(small[0] * small[0], small[1] * small[1]).astype(np.float64) * (most[0] * most[1]) ** 2


def bilinear(terms: int, along: tuple[int, int] | None) -> Callable[[Instruction, Face], Face]:
    """The face of an operation that sums `terms` products; `along` is the first summed dimension of each operand."""

    def make(instruction: Instruction, evaluate: Face) -> Face:
        element_type = instruction.shape.type
        wide = F64 if element_type.bits == 64 or not element_type.is_float else F32
        target = _wide_result(instruction) if element_type.is_narrow_float else instruction
        run_wide = evaluate if target is instruction else face(target)
        sizes = retyped(instruction, wide)
        run_sizes = face(sizes)
        dtype = wide.dtype.type

        def run(analyst: Analyst, instruction: Instruction, values: list[Value]) -> Value:
            spread = [type(v) is Spread for v in values[:2]]
            if not element_type.is_float and not any(spread):
                return evaluate(analyst, instruction, values)
            rest = values[2:]
            value = np.asarray(run_wide(analyst, target, [picked(v, VALUE) for v in values]))
            moved = [value] * (ROWS - MOVED)
            if any(spread):
                moved = [
                    np.asarray(run_wide(analyst, target, [picked(v, k) for v in values])) for k in range(MOVED, ROWS)
                ]

            def product(a: Array, b: Array) -> Array:
                return np.asarray(run_sizes(analyst, sizes, [a, b, *rest]))

            a, b = (rows_of(v) for v in values[:2])
            size_a, size_b = (np.abs(r[VALUE].astype(dtype)) for r in (a, b))
            with np.errstate(all="ignore"):
                own = np.zeros(value.shape, dtype)
                if element_type.is_float and terms > 1:
                    squares = _squares(size_a, size_b, product)
                    partial = on_the_way(a[VALUE].astype(dtype), b[VALUE].astype(dtype), product, along)
                    own = open_order(terms, element_type, value.astype(np.float64), squares, partial)
                if not analyst.precise and multiplies_tf32(instruction):
                    squares = _squares(size_a, size_b, product)
                    own = own + 2 * TF32_UNIT * (np.abs(value.astype(np.float64)) + 2 * np.sqrt(squares))
                far = np.zeros(value.shape, dtype)
                if spread[1]:
                    far = far + product(size_a, radius(b, dtype))
                if spread[0]:
                    far = far + product(radius(a, dtype), sized(b, dtype))
                far *= 1 + 4 * terms * unit(wide)
                if element_type.is_float and not (finite := np.isfinite(value)).all():
                    met = _meets_lost(a[VALUE], b[VALUE], product)
                    own = np.where(finite | met, own if any(spread) else np.where(met, 0.0, own), np.inf)
            return around(analyst, value, far, moved, own, element_type)

        return run

    return make


def _meets_lost(a: Array, b: Array, product: Callable[[Array, Array], Array]) -> Array:
    """Where a sum of products has an operand that is not finite. Others overflow in some orders: to inf, -inf, NaN."""
    lost, all_ = [(~np.isfinite(x)).astype(np.float32) for x in (a, b)], [np.ones(x.shape, np.float32) for x in (a, b)]
    return np.asarray(product(lost[0], all_[1]) + product(all_[0], lost[1]) > 0)


def _wide_result(instruction: Instruction) -> Instruction:
    total = Instruction(
        instruction.name,
        instruction.opcode,
        instruction.shape.with_type(F32),
        [Instruction(o.name, "parameter", o.shape) for o in instruction.operands],
        dict(instruction.attributes),
    )
    total.parent = instruction.parent
    return total


def by_parts(instruction: Instruction, make: Callable[[Instruction, Face], Face | None]) -> Face | None:
    """The face of an operation that adds complex numbers: separate sums of the real and the imaginary parts."""
    target = retyped(instruction, F32 if next(instruction.shape.leaves()).type.bits == 64 else F64)
    add = make(target, face(target))
    if add is None:
        return None

    def run(analyst: Analyst, instruction: Instruction, values: list[Value]) -> Value:
        real, imaginary = (rows_of(add(analyst, target, [_part(v, name) for v in values])) for name in ("real", "imag"))
        rows = np.empty((max(real.shape[0], imaginary.shape[0]), *real.shape[1:]), instruction.shape.type.dtype)
        rows.real, rows.imag = real, imaginary
        return settled(full(rows))

    return run


def _part(value: Value, name: str) -> Value:
    """The real or the imaginary part of a complex value; other values unchanged."""
    rows = rows_of(value)
    if rows.dtype.kind != "c":
        return value
    part = np.ascontiguousarray(getattr(rows, name))
    return Spread(part) if type(value) is Spread else part[VALUE]


def added(
    instruction: Instruction, evaluate: Face, terms: Callable[[Sequence[Array]], Any], fixed: Sequence[int] = ()
) -> Face:
    """The face of an operation that adds up elements of its operands; their bounds add up, too.

    terms  the number of elements in each result, or an array of such numbers
    fixed  operands that are indices or masks, not terms
    """
    element_type = next(instruction.shape.leaves()).type
    # a fold that is not wide rounds to its narrow type in every step
    own_type = element_type.is_narrow_float and not is_wide(instruction)
    step = 0.5 * _eps(element_type) if own_type else unit(element_type)
    target = retyped(instruction, F64) if element_type.is_float else instruction
    run_sizes = face(target) if element_type.is_float else evaluate
    run_wide = evaluate if own_type else run_sizes

    def run(analyst: Analyst, instruction: Instruction, values: list[Value]) -> Value:
        arrays = [rows_of(v) for v in values]
        if not element_type.is_float and not any(a.shape[0] > 1 for a in arrays):
            return evaluate(analyst, instruction, values)
        unrounded = arrays
        arrays = [a.astype(np.float64) if is_real(a.dtype) and n not in fixed else a for n, a in enumerate(arrays)]

        def at(row: int) -> Array:
            picks = [a[row if a.shape[0] > 1 else VALUE] for a in (unrounded if own_type else arrays)]
            return np.asarray(run_wide(analyst, instruction if own_type else target, picks)).astype(
                np.float64 if element_type.is_float else None
            )

        count = ROWS if any(a.shape[0] > 1 for a in arrays) else 1
        rows = full(np.stack([at(k) for k in range(count)]))
        if not element_type.is_float:
            return _whole(rows, element_type)
        floats = [(is_real(a.dtype) or a.dtype.kind == "c") and n not in fixed for n, a in enumerate(arrays)]
        sizes = [sized(a, np.float64) if f else a[VALUE] for a, f in zip(arrays, floats, strict=True)]
        magnitude = np.asarray(run_sizes(analyst, target, sizes))
        number = terms(arrays)
        own = 2 * step * np.minimum(number, 2 * np.sqrt(number)) * magnitude
        own = np.where(np.asarray(number) > 1, own, 0.0)
        if not own_type and _are_whole(arrays, magnitude, element_type, fixed):
            own = np.zeros_like(own)
        if not own_type:
            own = _overflowing(own, magnitude, element_type)
        return rounded(analyst, rows, own, element_type)

    return run


def _overflowing(own: Array, magnitude: Array, element_type: ElementType) -> Array:
    """The error of a sum: any, where finite terms overflow on the way in some orders."""
    most = float(np.finfo(np.float64 if element_type.bits == 64 else np.float32).max)
    return np.where(np.isfinite(magnitude) & (magnitude > most), np.inf, own)


def _are_whole(arrays: Sequence[Array], magnitude: Array, element_type: ElementType, fixed: Sequence[int]) -> bool:
    """Whether every partial sum in any order is a whole number that the type of the sum represents."""
    most = _WHOLE["f64" if element_type.name == "f64" else "f32"]
    if not magnitude.size or not magnitude.max() <= most:
        return False
    return all((a == np.rint(a)).all() for n, a in enumerate(arrays) if is_real(a.dtype) and n not in fixed)


def _whole(rows: Array, element_type: ElementType) -> Value:
    if element_type.kind == "pred" or element_type.is_integer:
        ordered(rows, element_type)
    return settled(rows)


def reduction(instruction: Instruction, evaluate: Face) -> Face | None:
    """The face of a reduce with a plain reducer; None for others."""
    leaf = next(instruction.shape.leaves())
    reducer = instruction.called_by("to_apply")
    name = monoid(reducer)
    if name is None or instruction.shape.is_tuple:
        return None
    axes = reduced(instruction)
    terms = math.prod(instruction.operands[0].shape.dimensions[d] for d in axes)
    if name == "multiply" and (leaf.type.is_float or leaf.type.is_complex):
        return product_of(instruction, evaluate, lambda arrays: float(terms))
    if leaf.type.is_complex:
        return by_parts(instruction, reduction) if adds(reducer) else None
    if adds(reducer) and leaf.type.kind != "pred":
        return _sum_of(instruction, evaluate, axes, terms)
    ufunc = ufunc_of(reducer, leaf.type)
    rising = name in EXTREMES or (leaf.type.kind == "pred" and name != "xor")

    def run(analyst: Analyst, instruction: Instruction, values: list[Value]) -> Value:
        if not any(type(v) is Spread for v in values):
            return evaluate(analyst, instruction, values)
        if not rising or ufunc is None:
            result = by_rows(lambda row: evaluate(analyst, instruction, row), values)
            rows = np.array(rows_of(result))
            lost = ~np.logical_and.reduce([certain(rows_of(v)).all() for v in values])
            if lost and rows.shape[0] == ROWS:
                set_aside(rows, np.ones(rows.shape[1:], np.bool_), leaf.type)
            return settled(rows)
        rows, init = rows_of(values[0]), rows_of(values[1])
        total = np.asarray(ufunc.reduce(rows, axis=tuple(1 + d for d in axes))) if axes else rows
        spread = init.reshape(init.shape[0], *(1,) * (total.ndim - 1))
        return settled(full(np.asarray(combine(ufunc, total, spread), leaf.type.dtype)))

    return run


def _sum_of(instruction: Instruction, evaluate: Face, axes: tuple[int, ...], terms: int) -> Face:
    leaf = next(instruction.shape.leaves())
    is_float = leaf.type.is_float
    along = tuple(1 + d for d in axes)

    def run(analyst: Analyst, instruction: Instruction, values: list[Value]) -> Value:
        spreads = any(type(v) is Spread for v in values)
        if not spreads and not is_float:
            return evaluate(analyst, instruction, values)
        rows, init = rows_of(values[0]), rows_of(values[1])
        if not is_float:
            result = by_rows(lambda row: evaluate(analyst, instruction, row), values)
            return _whole(np.array(rows_of(result)), leaf.type) if type(result) is Spread else result
        wide, first = rows.astype(np.float64), init.astype(np.float64)
        first = first.reshape(first.shape[0], *(1,) * leaf.rank)
        total = wide.sum(axis=along) + first
        magnitude = sized(wide, np.float64).sum(axis=axes) + np.abs(first).max()
        if _are_whole([rows, init], magnitude, leaf.type, ()):
            own = np.zeros_like(magnitude)
        else:
            squares = (wide[VALUE] * wide[VALUE]).sum(axis=axes)
            own = open_order(terms, leaf.type, total[VALUE], squares, _before(wide[VALUE], axes, first))
        own = _overflowing(own, magnitude, leaf.type)
        if not spreads:  # what is not finite itself gives the same in any order
            own = np.where(np.isfinite(magnitude), own, 0.0)
        return rounded(analyst, full(total), own, leaf.type)

    return run


def _before(value: Array, axes: tuple[int, ...], first: Array) -> Array:
    """The largest magnitude among the partial sums at a few places."""
    kept = [d for d in range(value.ndim) if d not in axes]
    count, sizes = math.prod(value.shape[d] for d in axes), [value.shape[d] for d in kept]
    front = value.transpose([*axes, *kept]).reshape(count, *sizes)
    cuts = np.unique(np.arange(_PIECES) * front.shape[0] // _PIECES)
    if not front.shape[0]:
        return np.zeros(front.shape[1:])
    sums = np.cumsum(np.add.reduceat(front, cuts, axis=0), axis=0)
    return np.asarray(np.abs(sums + first[VALUE].reshape((1,) * sums.ndim)).max(axis=0))


def multiplies(instruction: Instruction) -> bool:
    """Whether an operation folds by multiplying."""
    return monoid(instruction.called_by("to_apply")) == "multiply"


def product_of(
    instruction: Instruction,
    evaluate: Face,
    terms: Callable[[Sequence[Array]], Array | float],
    fixed: Sequence[int] = (),
) -> Face:
    """The face of an operation that multiplies elements of its operands; `terms` and `fixed` as for `added`. Each part
    of a complex product is off by a share of the whole product's magnitude."""
    leaf = next(instruction.shape.leaves())
    is_complex = leaf.type.is_complex
    target, sizes = retyped(instruction, ELEMENT_TYPES["c128"] if is_complex else F64), retyped(instruction, F64)
    run_wide, run_sizes = face(target), face(sizes)
    step = 0.5 * _eps(leaf.type) if leaf.type.is_narrow_float and not is_wide(instruction) else unit(leaf.type)

    def run(analyst: Analyst, instruction: Instruction, values: list[Value]) -> Value:
        wide = target.shape.type.dtype
        arrays = [a if n in fixed else a.astype(wide) for n, a in enumerate(map(rows_of, values))]

        def at(operands: Sequence[Array]) -> Array:
            return np.asarray(run_wide(analyst, target, list(operands)))

        def size_at(operands: Sequence[Array]) -> Array:
            return np.asarray(run_sizes(analyst, sizes, list(operands)))

        def row(k: int) -> Array:
            return at([a[k if a.shape[0] > 1 else VALUE] for a in arrays])

        value = row(VALUE)
        moved = (
            [row(k) for k in range(MOVED, ROWS)] if any(a.shape[0] > 1 for a in arrays) else [value] * (ROWS - MOVED)
        )
        reach = [a[VALUE] if n in fixed else np.abs(a[VALUE]) + _reach(a) for n, a in enumerate(arrays)]
        far = size_at(reach) - np.abs(value)
        far = np.where(far > 1e-13 * np.abs(value), far, 0.0)
        both = 1 + 1j if is_complex else 1.0
        rows = np.stack([value, value - far * both, value + far * both, *moved])
        number = np.asarray(terms(arrays))
        own = 2 * step * (_OF_COMPLEX if is_complex else 1.0) * number * np.abs(value)
        own = np.where(number > 1, own, 0.0)
        if any(a.shape[0] > 1 for a in arrays):  # what is set aside may be NaN: the value then says nothing of others
            known = [a[VALUE] if n in fixed else 1.0 - _is_aside(a) for n, a in enumerate(arrays)]
            own = np.where(size_at(known) == 0, np.inf, own)
        return rounded(analyst, rows, own, leaf.type)

    return run


def _is_aside(rows: Array) -> Array:
    return aside(rows) if rows.shape[0] > 1 else np.zeros(rows.shape[1:], np.bool_)


def windows(instruction: Instruction, evaluate: Face) -> Face | None:
    """The face of a reduce-window with a plain reducer; None for others."""
    from hlo_opt.ops.shapes import window

    leaf = next(instruction.shape.leaves())
    reducer = instruction.called_by("to_apply")
    name = monoid(reducer)
    if name is None or instruction.shape.is_tuple:
        return None
    if leaf.type.is_complex:
        return by_parts(instruction, windows) if adds(reducer) else None
    if adds(reducer) and leaf.type.kind != "pred":
        terms = math.prod(w.size for w in window(instruction, leaf.rank))
        return added(instruction, evaluate, lambda arrays: float(terms))
    if name in EXTREMES or leaf.type.kind == "pred":
        return rising(instruction, evaluate)
    return None


def selected(instruction: Instruction, evaluate: Face) -> Face | None:
    """The face of a select-and-scatter that adds, for certain selections; None for others."""
    from hlo_opt.ops.shapes import window
    from hlo_opt.runtime.rounding.analysis import opaque

    if not adds(instruction.called_by("scatter")) or not instruction.shape.type.is_float:
        return None
    parts = window(instruction, instruction.shape.rank)
    most = math.prod(-(-w.size // w.stride) for w in parts)
    certainly = added(instruction, evaluate, lambda arrays: float(most), fixed=(0,))
    else_ = opaque(instruction, evaluate)

    def run(analyst: Analyst, instruction: Instruction, values: list[Value]) -> Value:
        return (else_ if type(values[0]) is Spread else certainly)(analyst, instruction, values)

    return run


def rising(instruction: Instruction, evaluate: Face) -> Face:
    """The face of an exact operation that is monotonic in every operand."""

    def run(analyst: Analyst, instruction: Instruction, values: list[Value]) -> Value:
        if not any(type(v) is Spread for v in values):
            return evaluate(analyst, instruction, values)
        return by_rows(lambda row: evaluate(analyst, instruction, row), values)

    return run
