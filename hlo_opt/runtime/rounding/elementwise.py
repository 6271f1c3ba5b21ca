"""Elementwise operations on spreads: interval arithmetic, with the evaluator's own faces at the bounds.

Arithmetic, conversions and choices are correctly rounded on every backend (kernels are compiled without contraction to
fused multiply-adds), so that equal operands give equal results and no tolerance is added. So are division and square
root, except on a GPU without `precise`; for these the op table has tolerances. A function with a tolerance in the op
table moves each bound by that many ULP of f32 or f64, the types that every backend computes it in; the rounding to a
narrower type comes after, is monotonic, and makes most elements certain again. A comparison or a rounding whose bounds
lie on both sides of the decision has an uncertain outcome: a tie.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Protocol

import numpy as np

from hlo_opt.evaluate.program import face
from hlo_opt.ir import Instruction
from hlo_opt.ir.element_type import F32
from hlo_opt.ir.values import Array
from hlo_opt.ops import find
from hlo_opt.ops.faces import Spreading
from hlo_opt.ops.spec import Evaluator, OpSpec
from hlo_opt.ops.spread import aligned, certain, full, is_narrow, is_real, is_spread, ordered, settled
from hlo_opt.ops.values import HIGH, LOW, MOVED, VALUE, Spread, Value
from hlo_opt.runtime.differences import ulp_of

TIES = "ties"
"""On what such elements hang, mostly."""


class Analyst(Evaluator, Protocol):
    """What a rule may ask of the analysis.

    rewritten  whether the other module may round where the original does not, and the other way round
    precise    whether the other backend's division and square root follow IEEE 754
    loose      operations that may be so rounded in any case
    """

    rewritten: bool
    precise: bool
    loose: Set[Instruction]

    def noise(self, shape: tuple[int, ...]) -> Array:
        """Random numbers of magnitude between a half and one, of both signs."""

    def tie(self, instruction: Instruction, elements: int, on: str = TIES) -> None:
        """Record that `elements` elements of an operation may come out either way, and on what of it they hang."""


Face = Callable[[Analyst, Instruction, list[Value]], Value]
"""What an operation means where its operands may be spreads."""


def elementwise(instruction: Instruction, evaluate: Face) -> Face:
    """The face of an elementwise operation for values that may be spreads."""
    spec, element_type = find(instruction.opcode), instruction.shape.type
    assert spec is not None and spec.tolerance is not None
    exact, loose = spec.ulp(element_type), spec.ulp(element_type, precise=False)
    precise = _within(instruction, evaluate, spec, exact)
    if exact == loose:
        return precise
    imprecise = _within(instruction, evaluate, spec, loose)

    def run(analyst: Analyst, instruction: Instruction, values: list[Value]) -> Value:
        return (precise if analyst.precise else imprecise)(analyst, instruction, values)

    return run


def _within(instruction: Instruction, evaluate: Face, spec: OpSpec, tolerance: float) -> Face:
    """The face for backends with a given tolerance, in ULP of the type that they compute in."""
    element_type = instruction.shape.type
    narrow = element_type.is_narrow_float
    target = _in_f32(instruction) if narrow and tolerance else instruction
    wide = face(target) if target is not instruction else evaluate
    rule = _rule(instruction, spec.spread)
    decides = spec.spread.decides(instruction)
    rounds = element_type.is_float and (tolerance > 0 or spec.spread.rounds)

    def run(analyst: Analyst, instruction: Instruction, values: list[Value]) -> Value:
        loose = rounds and (analyst.rewritten or instruction in analyst.loose)
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
        if is_narrow(rows.dtype) or decides or not is_real(rows.dtype):
            open_ = ~certain(rows)
            number = int(np.count_nonzero(open_))
            if not number:
                return rows[VALUE]
            if rows.dtype.kind != "c":
                force(analyst, rows, open_)
            if decides:
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
    widened = Instruction(
        instruction.name, instruction.opcode, instruction.shape.with_type(F32), operands, instruction.attributes
    )
    widened.parent = instruction.parent
    return widened


def _stretch(analyst: Analyst, rows: Array, tolerance: float) -> None:
    """Move the bounds by the tolerance, and the simulated backends by a part of it. Zeros stay zero, and signs stay."""
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
    """Widen by one ULP of the result's own type: for a rounding that is left out, or done at another place."""
    unit = ulp_of(rows.astype(rows.dtype))
    unit = np.where(rows.astype(np.float64) == 0, 0.0, unit)
    wide = rows.astype(np.float64)
    wide[LOW] -= unit[LOW]
    wide[HIGH] += unit[HIGH]
    wide[MOVED:] += unit[MOVED:] * analyst.noise(unit[MOVED:].shape)
    rows[:] = wide.astype(rows.dtype)


def force(analyst: Analyst, rows: Array, open_: Array) -> None:
    """Let one simulated backend (chosen at random) take another value where all agree although few values are possible.

    Otherwise a single element that may round the other way would count as one that never does.
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


def _rule(instruction: Instruction, spread: Spreading) -> Callable[..., Array]:
    operands = [o.shape.type for o in instruction.operands]
    if any(t.is_complex for t in (*operands, instruction.shape.type)):
        return spread.complex
    return spread.integer if any(t.is_integer for t in operands) else spread.real


__all__ = ["Analyst", "elementwise", "force", "is_spread", "settled"]
