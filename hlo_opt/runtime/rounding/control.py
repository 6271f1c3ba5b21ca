"""Control flow, moves and indexed reads and writes on spreads.

A loop's state is calibrated against the moved values after every few iterations, so that bounds do not grow with the
trip count as such. Where it is uncertain whether a loop ends, its state so far joins the bounds, and the loop
continues for a few iterations. Operations that move elements move each row alike; where an index is uncertain, so is
the element that it selects.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hlo_opt.ir import Instruction, Shape
from hlo_opt.ops import find
from hlo_opt.ops.control.table import branches
from hlo_opt.ops.sets import UPDATES, tuple_elements, tuple_index
from hlo_opt.ops.spread import by_rows, certain, full, is_real, ordered, picked, rows_of, set_aside, settled
from hlo_opt.ops.values import HIGH, LOW, VALUE, Spread, Value, parts
from hlo_opt.runtime.rounding.calibration import calibrated
from hlo_opt.runtime.rounding.elementwise import Analyst, Face


def movement(instruction: Instruction, evaluate: Face) -> Face:
    """The face of an operation that moves elements, for values that may be spreads."""
    spec = find(instruction.opcode)
    at_once = None if spec is None else spec.rows

    def run(analyst: Analyst, instruction: Instruction, values: list[Value]) -> Value:
        spreads = [v for v in values if type(v) is Spread]
        if not spreads:
            return evaluate(analyst, instruction, values)
        if at_once is None:
            moved = by_rows(lambda row: evaluate(analyst, instruction, row), values)
        else:
            moved = Spread(at_once(instruction, [rows_of(v) for v in values]))
        if type(moved) is Spread:
            moved.depth = max(v.depth for v in spreads)
        return moved

    return run


def indexed(instruction: Instruction, evaluate: Face) -> Face:
    """The face of an operation that reads or writes at indices."""
    spec = find(instruction.opcode)
    assert spec is not None and spec.first_index is not None
    first = spec.first_index
    writes = instruction.opcode == "dynamic-update-slice"

    def run(analyst: Analyst, instruction: Instruction, values: list[Value]) -> Value:
        if not any(type(v) is Spread for v in values):
            return evaluate(analyst, instruction, values)
        if not any(type(v) is Spread for v in values[first:]):
            return _same_places(analyst, instruction, evaluate, values, writes)
        picked_rows = by_rows(lambda row: evaluate(analyst, instruction, row), values)
        rows = np.array(full(rows_of(picked_rows)))
        open_ = _open(analyst, instruction, evaluate, values, first, writes)
        if not open_.any():
            return settled(rows)
        data = [full(rows_of(v)) for v in values[:first]]
        if rows.dtype.kind == "c":
            set_aside(rows, open_, instruction.shape.type)
            return settled(rows)
        low = np.minimum.reduce([d[LOW].min() for d in data])
        high = np.maximum.reduce([d[HIGH].max() for d in data])
        rows[LOW], rows[HIGH] = np.where(open_, low, rows[LOW]), np.where(open_, high, rows[HIGH])
        if is_real(rows.dtype):
            ordered(rows, instruction.shape.type)
        return settled(rows)

    return run


def _same_places(
    analyst: Analyst, instruction: Instruction, evaluate: Face, values: list[Value], writes: bool
) -> Value:
    result = by_rows(lambda row: evaluate(analyst, instruction, row), values)
    if type(result) is Spread and not writes:
        result.depth = max(v.depth for v in values if type(v) is Spread)
    return result


def _open(
    analyst: Analyst, instruction: Instruction, evaluate: Face, values: list[Value], first: int, writes: bool
) -> Any:
    """Which elements of the result depend on an uncertain index: those from different places at different bounds; for
    updates, all."""
    source = np.asarray(picked(values[0], VALUE))
    if writes:
        return np.full(source.shape, not all(certain(rows_of(v)).all() for v in values[first:]))
    places: Any = np.arange(source.size).reshape(source.shape)
    places_at = [
        np.asarray(evaluate(analyst, instruction, [places, *(picked(v, row) for v in values[first:])]))
        for row in (VALUE, LOW, HIGH)
    ]
    return (places_at[0] != places_at[1]) | (places_at[0] != places_at[2])


_EVERY = 3
"""Iterations after which a loop's state is calibrated."""
_MORE = 8
"""Iterations beyond the reference's last one to follow an uncertain condition; then the loop's results are set
aside."""


def while_(instruction: Instruction, evaluate: Face) -> Face:
    condition, body = instruction.called_by("condition"), instruction.called_by("body")
    kept = _written(instruction)

    def run(analyst: Analyst, instruction: Instruction, values: list[Value]) -> Value:
        state = values[0]
        shape = instruction.shape
        ends: list[Value] = []
        done = 0
        with analyst.loop(instruction) as loop:
            while True:
                goes_on = analyst.call(condition, [state])
                if type(goes_on) is Spread:
                    analyst.tie(instruction, 1)
                    ends.append(state)
                    if not goes_on.rows[VALUE]:
                        state = _calibrated_state(state, (), kept)
                        return _late(analyst, instruction, condition, body, state, ends)
                elif not goes_on:
                    break
                loop.begin()
                results = analyst.call(body, [state])
                loop.end()
                done += 1
                state = _calibrated_state(results, state, kept) if done % _EVERY == 0 else results
        state = _calibrated_state(state, (), kept)
        return state if not ends else hull([state, *ends], shape)

    return run


def _late(
    analyst: Analyst, instruction: Instruction, condition: Any, body: Any, state: Value, ends: list[Value]
) -> Value:
    """The loop's value where other backends may iterate further; `state` is where the reference ends."""
    later = state
    for _ in range(_MORE):
        later = analyst.call(body, [later])
        ends.append(later)
        goes_on = analyst.call(condition, [later])
        if type(goes_on) is not Spread and not goes_on:
            return hull([state, *ends], instruction.shape)
    return anything(hull([state, *ends], instruction.shape), instruction.shape)


def _written(instruction: Instruction) -> frozenset[int]:
    """The state elements of which the body updates only parts, which have been calibrated already."""
    root = instruction.called_by("body").root
    if tuple_elements(root) is None:
        return frozenset()
    return frozenset(n for n, o in enumerate(root.operands) if o.opcode in UPDATES or tuple_index(o) is not None)


def _calibrated_state(result: Value, before: Value, kept: frozenset[int]) -> Value:
    if not isinstance(result, tuple):
        return _calibrated(result)
    return tuple(
        m if n in kept or (before and m is parts(before)[n]) else _calibrated_state(m, (), frozenset())
        for n, m in enumerate(result)
    )


def _calibrated(value: Value) -> Value:
    if type(value) is not Spread or value.sizes is not None or not is_real(value.rows.dtype):
        return value
    return Spread(calibrated(value.rows), loss=value.loss)


def conditional(instruction: Instruction, evaluate: Face) -> Face:
    computations = [c for value in branches(instruction) for c in value.computations]

    def run(analyst: Analyst, instruction: Instruction, values: list[Value]) -> Value:
        if type(values[0]) is not Spread:
            return evaluate(analyst, instruction, values)
        rows, last = values[0].rows, len(computations) - 1
        analyst.tie(instruction, 1)
        if rows.dtype == np.bool_:
            chosen, others = int(not rows[VALUE]), [0, 1]
        else:
            least, most, branch = (int(rows[k]) for k in (LOW, HIGH, VALUE))
            chosen = branch if 0 <= branch <= last else last
            others = [k for k in range(last + 1) if least <= k <= most or (k == last and (least < 0 or most > last))]
        outcomes = [
            analyst.call(computations[k], [values[1 + k]]) for k in [chosen, *(k for k in others if k != chosen)]
        ]
        return hull(outcomes, instruction.shape)

    return run


def hull(values: list[Value], shape: Shape) -> Value:
    """The enclosure of several possible values; the first is the reference's."""
    if shape.elements is not None:
        return tuple(hull([parts(v)[k] for v in values], e) for k, e in enumerate(shape.elements))
    if not shape.is_array or all(v is values[0] for v in values):
        return values[0]
    if any(type(v) is Spread and v.sizes is not None for v in values):
        return values[0]
    rows = [full(rows_of(v)) for v in values]
    enclosure = np.array(rows[0])
    if enclosure.dtype.kind == "c":
        set_aside(enclosure, (np.stack(rows) != rows[0]).any(axis=(0, 1)), shape.type)
        return settled(enclosure)
    enclosure[LOW] = np.minimum.reduce([r[LOW] for r in rows])
    enclosure[HIGH] = np.maximum.reduce([r[HIGH] for r in rows])
    enclosure[-1] = rows[-1][VALUE]  # one simulated backend takes the other way
    ordered(enclosure, shape.type)
    return settled(enclosure)


def anything(value: Value, shape: Shape) -> Value:
    """The value with all uncertain elements set aside."""
    if shape.elements is not None:
        return tuple(anything(v, e) for v, e in zip(parts(value), shape.elements, strict=True))
    if type(value) is not Spread or value.sizes is not None:
        return value
    rows = np.array(value.rows)
    set_aside(rows, np.ones(rows.shape[1:], np.bool_), shape.type)
    return Spread(rows)
