"""Elementwise operations on spreads: interval arithmetic, run by the evaluator's own faces at the bounds.

Arithmetic, conversions and choices are rounded correctly on every backend (kernels are compiled without contraction to fused multiply-adds, division and
square root are IEEE's), so equal operands give equal results and they add nothing of their own. A function that the op table gives a tolerance moves each bound by so many ULP
of f32 or f64, in which every backend computes it; the rounding to a narrower type comes after, is monotone, and makes most elements certain again.
Where a comparison, a rounding to integers or a type decides by bounds that lie on both sides, the outcome is open: a tie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from hlo_opt.evaluate.program import Evaluate, face
from hlo_opt.ir import ElementType, Instruction
from hlo_opt.ir.element_type import F32
from hlo_opt.ops import find
from hlo_opt.runtime.rounding.spread import (
    HIGH,
    LOW,
    MOVED,
    ROWS,
    VALUE,
    Spread,
    aligned,
    certain,
    full,
    is_narrow,
    is_real,
    is_spread,
    limits,
    ordered,
    set_aside,
    settled,
    swapped,
)
from hlo_opt.runtime.ulp import ulp_of

Array = Any
Value = Any
Run = Callable[..., Array]


class Analyst(Protocol):
    """What a rule may ask of the analysis.

    rewritten  whether the other module may round where the original does not, and the other way round
    """

    rewritten: bool

    def noise(self, shape: tuple[int, ...]) -> Array:
        """Random numbers of a size between a half and one, of both signs."""
        ...

    def tie(self, instruction: Instruction, elements: int) -> None:
        """So many elements of an operation may come out either way."""
        ...


_RISING = frozenset(
    {
        *("acosh", "add", "asin", "asinh", "atanh", "cbrt", "ceil", "clamp", "complex", "copy", "convert", "erf"),
        *(
            "exponential",
            "exponential-minus-one",
            "floor",
            "imag",
            "log",
            "log-plus-one",
            "logistic",
            "maximum",
            "minimum",
        ),
        *("real", "reduce-precision", "round-nearest-afz", "round-nearest-even", "sign", "sinh", "sqrt", "tanh"),
    }
)
"""Functions that rise in every operand, part by part for complex numbers where they take these."""

_FALLING = frozenset({"acos", "negate", "rsqrt", "not"})
_DISCRETE = frozenset({"ceil", "floor", "round-nearest-afz", "round-nearest-even", "sign", "compare", "is-finite"})
_PARTS = frozenset({"add", "complex", "copy", "imag", "negate", "real", "subtract"})
"""Operations that take the parts of complex numbers one by one."""
ROUNDING = frozenset({"add", "convert", "divide", "multiply", "reduce-precision", "remainder", "subtract"})
"""Exact operations with a result that is rounded."""


def elementwise(instruction: Instruction, evaluate: Evaluate) -> Evaluate:
    """The face of an elementwise operation for values that may be spreads."""
    spec, element_type = find(instruction.opcode), instruction.shape.type
    assert spec is not None and spec.tolerance is not None
    narrow = element_type.is_narrow_float
    tolerance = spec.tolerance(F32 if narrow else element_type)
    target = _in_f32(instruction) if narrow and tolerance else instruction
    wide = face(target) if target is not instruction else evaluate
    rule = _rule(instruction)
    rounds = element_type.is_float and (tolerance > 0 or instruction.opcode in ROUNDING)

    def run(analyst: Any, instruction: Instruction, values: list[Value]) -> Value:
        loose = analyst.rewritten and rounds
        if not tolerance and not loose and not any(type(v) is Spread for v in values):
            return evaluate(analyst, instruction, values)

        def at(*arrays: Array) -> Array:
            if target is not instruction:
                arrays = tuple(a.astype(np.float32) if is_real(a.dtype) else a for a in arrays)
            return np.asarray(wide(analyst, target, list(arrays)))

        operands = aligned(values)
        same = len(values) > 1 and all(v is values[0] for v in values)
        rows = np.array(full(rule(at, instruction, operands, same)))
        ordered(rows, target.shape.type)
        if tolerance:
            _stretch(analyst, rows, tolerance)
            if rows.dtype != element_type.dtype:
                rows = rows.astype(element_type.dtype)
        if loose:
            _loosen(analyst, rows)
        if is_narrow(rows.dtype) or instruction.opcode in _DISCRETE or not is_real(rows.dtype):
            open_ = ~certain(rows)
            number = int(np.count_nonzero(open_))
            if not number:
                return rows[VALUE]
            if rows.dtype.kind != "c":
                force(analyst, rows, open_)
            if instruction.opcode in _DISCRETE or (instruction.opcode == "convert" and not is_real(rows.dtype)):
                analyst.tie(instruction, number)
        depth = 1 + max((v.depth for v in values if type(v) is Spread), default=0)
        return Spread(rows, depth)

    return run


def _in_f32(instruction: Instruction) -> Instruction:
    """The same operation with f32 for narrow floats in its operands and its result."""
    operands = [
        Instruction(o.name, "parameter", o.shape.with_type(F32) if o.shape.type.is_narrow_float else o.shape)
        for o in instruction.operands
    ]
    made = Instruction(
        instruction.name, instruction.opcode, instruction.shape.with_type(F32), operands, instruction.attributes
    )
    made.parent = instruction.parent
    return made


def _stretch(analyst: Analyst, rows: Array, tolerance: float) -> None:
    """Move the bounds by the tolerance, and the imagined backends by some of it. What is zero is zero everywhere, and nothing changes its sign."""
    with np.errstate(all="ignore"):
        size = np.abs(rows)
        if rows.dtype.kind == "c":
            unit = np.where(np.isfinite(size), np.spacing(size), 0) * tolerance
            rows[LOW] -= unit[LOW] * (1 + 1j)
            rows[HIGH] += unit[HIGH] * (1 + 1j)
            rows[MOVED:] += unit[MOVED:] * (0.25 * analyst.noise(unit[MOVED:].shape)).astype(size.dtype)
            return
        unit = np.where((size > 0) & np.isfinite(size), np.spacing(size), size.dtype.type(0)) * size.dtype.type(
            tolerance
        )
        low, high = rows[LOW] - unit[LOW], rows[HIGH] + unit[HIGH]
        rows[LOW] = np.where((rows[LOW] >= 0) & (low < 0), 0, low)
        rows[HIGH] = np.where((rows[HIGH] <= 0) & (high > 0), 0, high)
        rows[MOVED:] += unit[MOVED:] * (0.25 * analyst.noise(unit[MOVED:].shape)).astype(rows.dtype)


def _loosen(analyst: Analyst, rows: Array) -> None:
    """One ULP of the result's own type more: a rounding that is left out, or made at another place."""
    unit = ulp_of(rows.astype(rows.dtype))
    unit = np.where(rows.astype(np.float64) == 0, 0.0, unit)
    wide = rows.astype(np.float64)
    wide[LOW] -= unit[LOW]
    wide[HIGH] += unit[HIGH]
    wide[MOVED:] += unit[MOVED:] * analyst.noise(unit[MOVED:].shape)
    rows[:] = wide.astype(rows.dtype)


def force(analyst: Analyst, rows: Array, open_: Array) -> None:
    """Where a value has few possibilities and no imagined backend took another one than the reference, let one of them: which, chance decides.

    A single element that may round the other way would else be taken for one that never does.
    """
    value, moved = rows[VALUE], rows[MOVED:]
    alone = open_ & (moved == value).all(axis=0)
    if not alone.any():
        return
    low, high = rows[LOW], rows[HIGH]
    up = value == low
    if is_real(rows.dtype):
        step = np.where(up, np.nextafter(value, high), np.nextafter(value, low))
        step = np.where(np.isfinite(step), step, value)
    elif rows.dtype.kind == "b":
        step = ~value
    else:
        one = np.ones((), rows.dtype)[()]
        step = np.where(up, value + one, value - one).astype(rows.dtype)
    first = analyst.noise(value.shape) > 0
    np.copyto(moved[0, ...], step, where=alone & first)
    np.copyto(moved[1, ...], step, where=alone & ~first)


Rule = Callable[[Run, Instruction, Sequence[Array], bool], Array]


def _rule(instruction: Instruction) -> Rule:
    opcode, operands = instruction.opcode, [o.shape.type for o in instruction.operands]
    types = [*operands, instruction.shape.type]
    if any(t.is_complex for t in types):
        if opcode not in _PARTS:
            return _COMPLEX_RULES.get(opcode, _sampled)
    elif opcode == "bitcast-convert":
        return _reinterpreted
    elif opcode == "convert" and instruction.shape.type.kind == "pred":
        return _is_not_zero
    elif opcode != "compare" and opcode != "select" and any(t.is_integer for t in operands):
        return _integers
    if opcode in _RISING or (opcode in ("and", "or") and types[-1].kind == "pred"):
        return _rising
    if opcode in _FALLING:
        return lambda at, i, x, same: _exchanged(at(*x))
    found = _RULES.get(opcode)
    if found is not None:
        return found
    return _sampled if is_real(instruction.shape.type.dtype) else _pointwise


def _exchanged(rows: Array) -> Array:
    return swapped(full(rows))


def _rising(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    return at(*x)


def _subtract(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    if same and instruction.shape.type.is_float:
        return np.repeat(at(x[0][:1], x[0][:1]), ROWS, axis=0)
    return at(x[0], swapped(x[1]))


def _corners(at: Run, x: Sequence[Array]) -> Array:
    """A function that rises or falls in each of two operands alone: its bounds lie where both are at a bound."""
    rows = full(np.array(at(*x)))
    found = [rows[LOW], rows[HIGH]]
    if x[0].shape[0] == x[1].shape[0] == ROWS:
        crossed = at(x[0][LOW:MOVED], x[1][HIGH:VALUE:-1])
        found += [crossed[0], crossed[1]]
    low, high = np.minimum.reduce(found), np.maximum.reduce(found)
    rows = np.array(rows)
    rows[LOW], rows[HIGH] = low, high
    return rows


def _spans(rows: Array, at: float = 0.0) -> Array:
    """Which elements may lie on both sides of a number."""
    if rows.shape[0] == 1:
        return np.zeros(rows.shape[1:], np.bool_)
    return np.asarray((rows[LOW] < at) & (rows[HIGH] > at))


def _multiply(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    rows = _corners(at, [x[0], x[0]] if same else x)
    if same and x[0].shape[0] == ROWS:
        squares = at(x[0], x[0])
        zero = np.zeros((), rows.dtype)
        rows[LOW] = np.where(_spans(x[0]), zero, np.minimum(squares[LOW], squares[HIGH]))
        rows[HIGH] = np.maximum(squares[LOW], squares[HIGH])
    return rows


def _divide(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    rows = _corners(at, x)
    if x[1].shape[0] == ROWS:
        lost = (x[1][LOW] <= 0) & (x[1][HIGH] >= 0) & (x[1][LOW] < x[1][HIGH])
        set_aside(rows, np.broadcast_to(lost, rows.shape[1:]), _type_of(rows, instruction))
    return rows


def _power(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    rows = _corners(at, x)
    if x[0].shape[0] == ROWS:
        over = np.broadcast_to(_spans(x[0]), rows.shape[1:])
        zero = np.zeros((), rows.dtype)
        rows[LOW] = np.where(over, np.minimum(rows[LOW], zero), rows[LOW])
        rows[HIGH] = np.where(over, np.maximum(rows[HIGH], zero), rows[HIGH])
        falls = x[1][LOW if x[1].shape[0] == ROWS else VALUE] < 0
        set_aside(rows, over & np.broadcast_to(falls, over.shape), _type_of(rows, instruction))
    return rows


def _atan2(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    rows = _corners(at, x)
    y, c = full(x[0]), full(x[1])
    cut = (y[LOW] < 0) & (y[HIGH] >= 0) & (c[LOW] <= 0)
    rows[LOW] = np.where(cut, rows.dtype.type(-np.pi), rows[LOW])
    rows[HIGH] = np.where(cut, rows.dtype.type(np.pi), rows[HIGH])
    return rows


def _remainder(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    rows = _corners(at, x)
    a, b = (full(v).astype(np.float64) for v in x)
    turns = [np.trunc(a[i] / b[j]) for i in (LOW, HIGH) for j in (LOW, HIGH)]
    jumps = ~((turns[0] == turns[1]) & (turns[1] == turns[2]) & (turns[2] == turns[3]))
    size = np.maximum(np.abs(b[LOW]), np.abs(b[HIGH]))
    rows[LOW] = np.where(jumps, np.where(a[LOW] >= 0, 0.0, -size), rows[LOW])
    rows[HIGH] = np.where(jumps, np.where(a[HIGH] <= 0, 0.0, size), rows[HIGH])
    return rows


def _even(least: float) -> Rule:
    """Functions of the size that rise with it."""

    def rule(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
        made = full(np.array(at(*x)))
        rows = np.array(made)
        rows[LOW] = np.where(_spans(x[0]), made.dtype.type(least), np.minimum(made[LOW], made[HIGH]))
        rows[HIGH] = np.maximum(made[LOW], made[HIGH])
        return rows

    return rule


def _wave(peak: float) -> Rule:
    """A cosine whose maxima lie at `peak` and whole turns from it."""

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


def _tangent(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    rows = np.array(full(at(*x)))
    a = full(x[0]).astype(np.float64)
    jumps = np.floor(a[LOW] / np.pi + 0.5) != np.floor(a[HIGH] / np.pi + 0.5)
    set_aside(rows, jumps, _type_of(rows, instruction))
    return rows


def _compare(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    rows = np.array(full(at(*x)))
    if same:
        return np.repeat(rows[:1], ROWS, axis=0)
    a, b = full(x[0]), full(x[1])
    if a.dtype.kind == "c":
        equal = (a[LOW] == a[HIGH]) & (b[LOW] == b[HIGH])
        return _hull_where(rows, equal)
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
    """Which elements are equal because they are one value, such as the largest one of those that a maximum was taken of: equal in every imagined backend, although
    they moved."""
    a, b = np.broadcast_arrays(a, b)
    moved = (a[MOVED:] != a[VALUE]).any(axis=0)
    return np.asarray((a[VALUE] == b[VALUE]) & (a[MOVED:] == b[MOVED:]).all(axis=0) & moved)


def _hull_where(rows: Array, fixed: Array) -> Array:
    rows[LOW] = np.where(fixed, rows[VALUE], False)
    rows[HIGH] = np.where(fixed, rows[VALUE], True)
    return rows


def _select(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
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


def _is_finite(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    rows = np.array(full(at(*x)))
    rows[LOW], rows[HIGH] = rows[:MOVED].all(axis=0), rows[:MOVED].any(axis=0)
    return rows


def _pointwise(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    """An operation on bits: certain where its operands are, else anything."""
    rows = np.array(full(at(*x)))
    fixed = np.broadcast_to(np.logical_and.reduce(np.broadcast_arrays(*(certain(v) for v in x))), rows.shape[1:])
    element_type = instruction.shape.type
    rows[LOW], rows[HIGH] = rows[VALUE], rows[VALUE]
    set_aside(rows, ~fixed, element_type)
    return rows


def _reinterpreted(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    """Bits of one type as another of its width: in the order of the values where no sign is set, else open."""
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


_WHOLE = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}
_MONOTONE = frozenset({"maximum", "minimum", "clamp", "copy"})


def _integers(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    """Integers: sums and products by their bounds where these do not wrap, order as it is, the rest certain or anything."""
    opcode, element_type = instruction.opcode, instruction.shape.type
    rising = opcode in _MONOTONE or (opcode == "convert" and not element_type.is_integer)
    if rising or (opcode in ("and", "or") and element_type.kind == "pred"):
        return at(*x)
    if opcode == "convert":
        rows = np.array(full(at(*x)))
        low, high = (float(v) for v in limits(element_type))
        fine = (full(x[0])[LOW].astype(np.float64) >= low) & (full(x[0])[HIGH].astype(np.float64) <= high)
        rows[LOW], rows[HIGH] = np.where(fine, rows[LOW], rows[VALUE]), np.where(fine, rows[HIGH], rows[VALUE])
        set_aside(rows, ~fine & ~certain(x[0]), element_type)
        return rows
    rows = _pointwise(at, instruction, x, same)
    function = _WHOLE.get(opcode)
    if function is None:
        return rows
    open_ = ~certain(rows)
    a, b = (full(v)[LOW:MOVED].astype(np.float64) for v in x)
    found = np.stack(np.broadcast_arrays(*(function(a[i], b[j]) for i in (0, 1) for j in (0, 1))))
    low, high = found.min(axis=0), found.max(axis=0)
    least, most = (float(v) for v in limits(element_type))
    fine = open_ & (low >= least) & (high <= most) & (np.abs(low) < 2**52) & (np.abs(high) < 2**52)
    rows[LOW] = np.where(fine, np.where(fine, low, 0).astype(rows.dtype), rows[LOW])
    rows[HIGH] = np.where(fine, np.where(fine, high, 0).astype(rows.dtype), rows[HIGH])
    return rows


def _complex_product(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
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


def _complex_power(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    """The exponential of exponent times logarithm, whose rounding error is as large as that product. Where it has turned too far, nothing is known."""
    rows = _sampled(at, instruction, x, same)
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


def _complex_atan2(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    """The logarithm of a number of modulus 1, made in f64, rounds absolutely. An angle of half a turn may be one the other way: a rounding decides."""
    rows = _sampled(at, instruction, x, same)
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
"""An angle whose error is larger than this says little about its sine."""


def _products(a: Array, b: Array) -> tuple[Array, Array]:
    found = [a[i] * b[j] for i in (LOW, HIGH) for j in (LOW, HIGH)]
    return np.minimum.reduce(found), np.maximum.reduce(found)


def _sampled(at: Run, instruction: Instruction, x: Sequence[Array], same: bool) -> Array:
    """A function that nothing is known of: twice as far as its values at all corners of the operands' bounds and in the moved values."""
    operands = [full(v) for v in x]
    rows = np.array(at(*operands))
    found = [rows]
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
                found.append(at(*arguments))
    everything = np.concatenate(found)
    parts = (
        [(rows.real, everything.real), (rows.imag, everything.imag)] if rows.dtype.kind == "c" else [(rows, everything)]
    )
    for part, all_ in parts:
        value, low, high = part[VALUE], all_.min(axis=0), all_.max(axis=0)
        part[LOW] = np.where(value == low, value, value - 2 * (value - low))
        part[HIGH] = np.where(value == high, value, value + 2 * (high - value))
    return rows


def _joined(real: Array, imaginary: Array) -> Array:
    """Complex numbers from their parts; 1j times infinity has a NaN in it."""
    made = np.empty(real.shape, np.result_type(real.dtype, np.complex64))
    made.real, made.imag = real, imaginary
    return made


def _type_of(rows: Array, instruction: Instruction) -> ElementType:
    """The element type that a rule computes in: f32 for narrow floats where it is a function."""
    return instruction.shape.type if rows.dtype == instruction.shape.type.dtype else F32


_COMPLEX_RULES: dict[str, Rule] = {
    "atan2": _complex_atan2,
    "compare": _compare,
    "multiply": _complex_product,
    "power": _complex_power,
    "select": _select,
}
_RULES: dict[str, Rule] = {
    "abs": _even(0.0),
    "atan2": _atan2,
    "compare": _compare,
    "cosh": _even(1.0),
    "cosine": _wave(0.0),
    "divide": _divide,
    "is-finite": _is_finite,
    "multiply": _multiply,
    "power": _power,
    "remainder": _remainder,
    "select": _select,
    "sine": _wave(np.pi / 2),
    "subtract": _subtract,
    "tan": _tangent,
}


__all__ = ["Analyst", "elementwise", "force", "is_spread", "settled"]
