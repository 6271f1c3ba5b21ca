"""Propagation of bounds through elementwise operations: interval arithmetic with the operations' own NumPy evaluators.

A rule gets `at`, which computes the operation on rows; the instruction; the rows of its operands
(`hlo_opt.ops.spread`); and whether all operands are the same value. Table entries name their rules
(`hlo_opt.ops.faces`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hlo_opt.ir import ElementType, Instruction
from hlo_opt.ir.element_type import F32
from hlo_opt.ir.values import Array
from hlo_opt.ops.spread import certain, full, is_real, limits, set_aside, swapped
from hlo_opt.ops.values import HIGH, LOW, MOVED, ROWS, VALUE

Run = Callable[..., Array]
IntervalRule = Callable[[Run, Instruction, Sequence[Array], bool], Array]


def falling(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    """A function that is non-increasing in every operand."""
    return swapped(full(at(*x)))


def rising(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    """A function that is non-decreasing in every operand (for complex numbers, in each part)."""
    return at(*x)


def subtract(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    if same and instruction.shape.type.is_float:
        return np.repeat(at(x[0][:1], x[0][:1]), ROWS, axis=0)
    return at(x[0], swapped(x[1]))


def _corners(at: Run, x: Sequence[Array]) -> Array:
    """A function that is monotonic in each of two operands: its bounds are at corners of theirs."""
    rows = full(np.array(at(*x)))
    corners = [rows[LOW], rows[HIGH]]
    if x[0].shape[0] == x[1].shape[0] == ROWS:
        crossed = at(x[0][LOW:MOVED], x[1][HIGH:VALUE:-1])
        corners += [crossed[0], crossed[1]]
    low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
    rows = np.array(rows)
    rows[LOW], rows[HIGH] = low, high
    return rows


def _spans(rows: Array, at: float = 0.0) -> Array:
    """Which elements have bounds on both sides of a number."""
    if rows.shape[0] == 1:
        return np.zeros(rows.shape[1:], np.bool_)
    return np.asarray((rows[LOW] < at) & (rows[HIGH] > at))


def multiply(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    rows = _corners(at, [x[0], x[0]] if same else x)
    if same and x[0].shape[0] == ROWS:
        squares = at(x[0], x[0])
        zero = np.zeros((), rows.dtype)
        rows[LOW] = np.where(_spans(x[0]), zero, np.minimum(squares[LOW], squares[HIGH]))
        rows[HIGH] = np.maximum(squares[LOW], squares[HIGH])
    return rows


def divide(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    rows = _corners(at, x)
    if x[1].shape[0] == ROWS:
        lost = (x[1][LOW] <= 0) & (x[1][HIGH] >= 0) & (x[1][LOW] < x[1][HIGH])
        set_aside(rows, np.broadcast_to(lost, rows.shape[1:]), _type_of(rows, instruction))
    return rows


def power(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    rows = _corners(at, x)
    if x[0].shape[0] == ROWS:
        over = np.broadcast_to(_spans(x[0]), rows.shape[1:])
        zero = np.zeros((), rows.dtype)
        rows[LOW] = np.where(over, np.minimum(rows[LOW], zero), rows[LOW])
        rows[HIGH] = np.where(over, np.maximum(rows[HIGH], zero), rows[HIGH])
        falls = x[1][LOW if x[1].shape[0] == ROWS else VALUE] < 0
        set_aside(rows, over & np.broadcast_to(falls, over.shape), _type_of(rows, instruction))
    return rows


def atan2(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    rows = _corners(at, x)
    y, c = full(x[0]), full(x[1])
    cut = (y[LOW] < 0) & (y[HIGH] >= 0) & (c[LOW] <= 0)
    rows[LOW] = np.where(cut, rows.dtype.type(-np.pi), rows[LOW])
    rows[HIGH] = np.where(cut, rows.dtype.type(np.pi), rows[HIGH])
    return rows


def remainder(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    rows = _corners(at, x)
    a, b = (full(v).astype(np.float64) for v in x)
    turns = [np.trunc(a[i] / b[j]) for i in (LOW, HIGH) for j in (LOW, HIGH)]
    jumps = ~((turns[0] == turns[1]) & (turns[1] == turns[2]) & (turns[2] == turns[3]))
    size = np.maximum(np.abs(b[LOW]), np.abs(b[HIGH]))
    rows[LOW] = np.where(jumps, np.where(a[LOW] >= 0, 0.0, -size), rows[LOW])
    rows[HIGH] = np.where(jumps, np.where(a[HIGH] <= 0, 0.0, size), rows[HIGH])
    return rows


def _even(least: float) -> IntervalRule:
    """An even function that is non-decreasing in the magnitude, with minimum `least`."""

    def rule(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
        computed = full(np.array(at(*x)))
        rows = np.array(computed)
        rows[LOW] = np.where(_spans(x[0]), computed.dtype.type(least), np.minimum(computed[LOW], computed[HIGH]))
        rows[HIGH] = np.maximum(computed[LOW], computed[HIGH])
        return rows

    return rule


def _wave(peak: float) -> IntervalRule:
    """A cosine with maxima at `peak` plus multiples of 2 pi."""

    def rule(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
        rows = np.array(full(at(*x)))
        low, high = np.minimum(rows[LOW], rows[HIGH]), np.maximum(rows[LOW], rows[HIGH])
        a = full(x[0]).astype(np.float64)
        top = np.floor((a[LOW] - peak) / (2 * np.pi)) != np.floor((a[HIGH] - peak) / (2 * np.pi))
        bottom = np.floor((a[LOW] - peak - np.pi) / (2 * np.pi)) != np.floor((a[HIGH] - peak - np.pi) / (2 * np.pi))
        rows[HIGH] = np.where(top, rows.dtype.type(1), high)
        rows[LOW] = np.where(bottom, rows.dtype.type(-1), low)
        return rows

    return rule


def tangent(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    rows = np.array(full(at(*x)))
    a = full(x[0]).astype(np.float64)
    jumps = np.floor(a[LOW] / np.pi + 0.5) != np.floor(a[HIGH] / np.pi + 0.5)
    set_aside(rows, jumps, _type_of(rows, instruction))
    return rows


def compare(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    rows = np.array(full(at(*x)))
    if same:
        return np.repeat(rows[:1], ROWS, axis=0)
    a, b = full(x[0]), full(x[1])
    if a.dtype.kind == "c":
        equal = (a[LOW] == a[HIGH]) & (b[LOW] == b[HIGH])
        rows[LOW], rows[HIGH] = np.where(equal, rows[VALUE], False), np.where(equal, rows[VALUE], True)
        return rows
    direction = instruction.word("direction")
    if direction in ("GT", "GE"):
        a, b, direction = b, a, {"GT": "LT", "GE": "LE"}[direction]
    if direction == "LT":
        low, high = a[HIGH] < b[LOW], a[LOW] < b[HIGH]
    elif direction == "LE":
        low, high = a[HIGH] <= b[LOW], a[LOW] <= b[HIGH]
    else:
        low, high = _one_source(a, b), (a[LOW] <= b[HIGH]) & (b[LOW] <= a[HIGH])
        if direction == "NE":
            low, high = ~high, ~low
    fixed = certain(a) & certain(b)
    rows[LOW], rows[HIGH] = np.where(fixed, rows[VALUE], low), np.where(fixed, rows[VALUE], high)
    return rows


def _one_source(a: Array, b: Array) -> Array:
    """Which elements are equal because they come from one value, such as a maximum and the element it selected.

    They moved together in every simulated backend.
    """
    a, b = np.broadcast_arrays(a, b)
    moved = (a[MOVED:] != a[VALUE]).any(axis=0)
    return np.asarray((a[VALUE] == b[VALUE]) & (a[MOVED:] == b[MOVED:]).all(axis=0) & moved)


def select(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    rows = np.array(full(at(*x)))
    if x[0].shape[0] == 1:
        return rows
    open_ = np.broadcast_to(x[0][LOW] != x[0][HIGH], rows.shape[1:])
    if not open_.any():
        return rows
    a, b = (np.broadcast_to(full(v), rows.shape) for v in x[1:])
    if rows.dtype.kind == "c":
        set_aside(rows, open_, instruction.shape.type)
        return rows
    rows[LOW] = np.where(open_, np.minimum(a[LOW], b[LOW]), rows[LOW])
    rows[HIGH] = np.where(open_, np.maximum(a[HIGH], b[HIGH]), rows[HIGH])
    return rows


def _is_not_zero(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    rows = np.array(full(at(*x)))
    fixed = certain(x[0])
    zero = (x[0][LOW] <= 0) & (x[0][HIGH] >= 0)
    rows[LOW] = np.where(fixed, rows[VALUE], ~zero)
    rows[HIGH] = np.where(fixed, rows[VALUE], True)
    return rows


def is_finite(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    rows = np.array(full(at(*x)))
    rows[LOW], rows[HIGH] = rows[:MOVED].all(axis=0), rows[:MOVED].any(axis=0)
    return rows


def pointwise(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    """A bitwise operation: certain where its operands are, else unbounded."""
    rows = np.array(full(at(*x)))
    fixed = np.broadcast_to(np.logical_and.reduce(np.broadcast_arrays(*(certain(v) for v in x))), rows.shape[1:])
    element_type = instruction.shape.type
    rows[LOW], rows[HIGH] = rows[VALUE], rows[VALUE]
    set_aside(rows, ~fixed, element_type)
    return rows


def reinterpreted(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    """A bit reinterpretation of equal width: monotonic for non-negative values, else unbounded."""
    if instruction.operands[0].shape.type.bits != instruction.shape.type.bits or x[0].dtype.kind == "c":
        rows = np.array(full(at(*x)))
        if certain(x[0]).all():
            return rows
        set_aside(rows, np.ones(rows.shape[1:], np.bool_), instruction.shape.type)
        return rows
    rows = np.array(full(at(*x)))
    fine = certain(x[0]) | (x[0][LOW] >= 0)
    rows[LOW] = np.where(fine, rows[LOW], rows[VALUE])
    rows[HIGH] = np.where(fine, rows[HIGH], rows[VALUE])
    set_aside(rows, ~fine, instruction.shape.type)
    return rows


def convert(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    """A conversion of a real number."""
    return (_is_not_zero if instruction.shape.type.kind == "pred" else rising)(at, instruction, x, same)


def convert_integer(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    """A conversion of an integer: to another integer type, the value where it fits, else unbounded."""
    element_type = instruction.shape.type
    if not element_type.is_integer:
        return convert(at, instruction, x, same)
    rows = np.array(full(at(*x)))
    low, high = (float(v) for v in limits(element_type))
    fine = (full(x[0])[LOW].astype(np.float64) >= low) & (full(x[0])[HIGH].astype(np.float64) <= high)
    rows[LOW], rows[HIGH] = np.where(fine, rows[LOW], rows[VALUE]), np.where(fine, rows[HIGH], rows[VALUE])
    set_aside(rows, ~fine & ~certain(x[0]), element_type)
    return rows


def _whole(function: np.ufunc) -> IntervalRule:
    """Integer arithmetic: corners of the bounds where these do not wrap, else certain or unbounded."""

    def rule(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
        rows = pointwise(at, instruction, x, same)
        open_ = ~certain(rows)
        a, b = (full(v)[LOW:MOVED].astype(np.float64) for v in x)
        corners = np.stack(np.broadcast_arrays(*(function(a[i], b[j]) for i in (0, 1) for j in (0, 1))))
        low, high = corners.min(axis=0), corners.max(axis=0)
        least, most = (float(v) for v in limits(instruction.shape.type))
        fine = open_ & (low >= least) & (high <= most) & (np.abs(low) < 2**52) & (np.abs(high) < 2**52)
        rows[LOW] = np.where(fine, np.where(fine, low, 0).astype(rows.dtype), rows[LOW])
        rows[HIGH] = np.where(fine, np.where(fine, high, 0).astype(rows.dtype), rows[HIGH])
        return rows

    return rule


add_integers, subtract_integers, multiply_integers = _whole(np.add), _whole(np.subtract), _whole(np.multiply)


def complex_multiply(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    rows = np.array(full(at(*x)))
    a, b = full(x[0]), full(x[1])
    low, high = [], []
    for part, sign in ((0, -1.0), (1, 1.0)):
        first = _products(a.real, b.real if part == 0 else b.imag)
        second = _products(a.imag, b.imag if part == 0 else b.real)
        low.append(first[0] + (second[0] if sign > 0 else -second[1]))
        high.append(first[1] + (second[1] if sign > 0 else -second[0]))
    rows.real[LOW], rows.imag[LOW] = low
    rows.real[HIGH], rows.imag[HIGH] = high
    return rows


def complex_magnitude(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    """The least modulus is that of the point nearest to 0, which is no corner where the bounds of a part span 0."""
    rows = sampled(at, instruction, x, same)
    a = full(x[0])
    nearest = [np.maximum(0, np.maximum(part[LOW], -part[HIGH])) for part in (a.real, a.imag)]
    least = np.hypot(*nearest)
    rows[LOW] = np.where(least < rows[LOW], least, rows[LOW])
    return rows


def complex_power(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    """exp(exponent * log base), whose rounding error is proportional to that product; unbounded where the angle is
    lost."""
    rows = sampled(at, instruction, x, same)
    base, exponent = full(x[0]), full(x[1])
    turned = np.abs(np.log(base)) * np.abs(exponent)
    error = np.where(np.isfinite(turned), turned * np.finfo(turned.dtype).eps, 0.0) * np.abs(rows)
    error[~np.isfinite(error)] = 0.0
    far = (turned > _TOO_FAR / np.finfo(turned.dtype).eps) & np.isfinite(base) & np.isfinite(exponent) & (base != 0)
    for part in (rows.real, rows.imag):
        part[LOW] -= error[LOW]
        part[HIGH] += error[HIGH]
        set_aside(part, far.any(axis=0), F32)
    return rows


def complex_atan2(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    """The logarithm of a number of modulus 1, computed in f64, has an absolute error. An angle near pi may come out as
    -pi."""
    rows = sampled(at, instruction, x, same)
    for part in (rows.real, rows.imag):
        part[LOW] -= _OF_UNIT
        part[HIGH] += _OF_UNIT
    angle = np.abs(rows.real[VALUE])
    half = np.abs(angle - np.pi) < _TOO_FAR
    rows.real[LOW] = np.where(half, -angle, rows.real[LOW])
    rows.real[HIGH] = np.where(half, angle, rows.real[HIGH])
    return rows


_OF_UNIT = 16 * 2.0**-52
_TOO_FAR = 2.0**-8
"""A phase error above this makes sine and cosine meaningless."""


def _products(a: Array, b: Array) -> tuple[Array, Array]:
    corners = [a[i] * b[j] for i in (LOW, HIGH) for j in (LOW, HIGH)]
    return np.minimum.reduce(corners), np.maximum.reduce(corners)


def sampled(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    """An arbitrary function: twice the distance to its values at all corners of the operands' bounds and at the moved
    values. Corners of a complex number without bounds say nothing: the moduli of all are infinite."""
    operands = [full(v) for v in x]
    rows = np.array(at(*operands))
    ends = [(o[LOW], o[HIGH]) for o in operands if o.dtype.kind == "c"]
    unbounded = [np.isneginf(low.real) & np.isposinf(high.real) for low, high in ends]
    results = [rows]
    shapes = [[o[:1], o[LOW:HIGH], o[HIGH:MOVED]] for o in operands]
    for o, choices in zip(operands, shapes, strict=True):
        if o.dtype.kind == "c":
            choices += [_joined(o.real[LOW:HIGH], o.imag[HIGH:MOVED]), _joined(o.real[HIGH:MOVED], o.imag[LOW:HIGH])]
    if len(operands) <= 2:
        first = shapes[0]
        second = shapes[1] if len(shapes) > 1 else [None]
        for a in first:
            for b in second:
                arguments = [a.astype(operands[0].dtype)]
                if b is not None:
                    arguments.append(b.astype(operands[1].dtype))
                results.append(at(*arguments))
    everything = np.concatenate(results)
    parts = (
        [(rows.real, everything.real), (rows.imag, everything.imag)] if rows.dtype.kind == "c" else [(rows, everything)]
    )
    for part, all_ in parts:
        value, low, high = part[VALUE], all_.min(axis=0), all_.max(axis=0)
        part[LOW] = np.where(value == low, value, value - 2 * (value - low))
        part[HIGH] = np.where(value == high, value, value + 2 * (high - value))
        for where in unbounded:
            set_aside(part, np.broadcast_to(where, value.shape), F32)
    return rows


def _joined(real: Array, imaginary: Array) -> Array:
    """Complex numbers from their parts. Not `re + 1j * im`: 1j times infinity contains a NaN."""
    joined = np.empty(real.shape, np.result_type(real.dtype, np.complex64))
    joined.real, joined.imag = real, imaginary
    return joined


def unknown(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    """An arbitrary real function."""
    rule = sampled if is_real(instruction.shape.type.dtype) else pointwise
    return rule(at, instruction, x, same)


def _type_of(rows: Array, instruction: Instruction) -> ElementType:
    """The element type that a rule computes in: f32 for functions of narrow floats."""
    return instruction.shape.type if rows.dtype == instruction.shape.type.dtype else F32


magnitude, cosh = _even(0.0), _even(1.0)
cosine, sine = _wave(0.0), _wave(np.pi / 2)
