"""Slices, gathers and updates at indices that are data: where an index is open, so is what is read there."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlo_opt.ir import Instruction
from hlo_opt.ops import find
from hlo_opt.ops.spread import by_rows, certain, full, is_real, ordered, picked, rows_of, set_aside, settled
from hlo_opt.ops.values import HIGH, LOW, VALUE, Spread, Value
from hlo_opt.runtime.rounding.elementwise import Analyst, Face


def indexed(instruction: Instruction, evaluate: Face) -> Face:
    """The face of an operation that reads or writes where indices say."""
    spec = find(instruction.opcode)
    assert spec is not None and spec.first_index is not None
    first = spec.first_index
    writes = instruction.opcode == "dynamic-update-slice"

    def run(analyst: Analyst, instruction: Instruction, values: list[Value]) -> Value:
        if not any(type(v) is Spread for v in values):
            return evaluate(analyst, instruction, values)
        if not any(type(v) is Spread for v in values[first:]):
            return _same_places(analyst, instruction, evaluate, values, writes)
        made = by_rows(lambda row: evaluate(analyst, instruction, row), values)
        rows = np.array(full(rows_of(made)))
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
    made = by_rows(lambda row: evaluate(analyst, instruction, row), values)
    if type(made) is Spread and not writes:
        made.depth = max(v.depth for v in values if type(v) is Spread)
    return made


def _open(
    analyst: Analyst, instruction: Instruction, evaluate: Face, values: list[Value], first: int, writes: bool
) -> Any:
    """Which elements of the result depend on an open index: those that take another place of the operand at one bound than at the other; of an update, all."""
    source = np.asarray(picked(values[0], VALUE))
    if writes:
        return np.full(source.shape, not all(certain(rows_of(v)).all() for v in values[first:]))
    places: Any = np.arange(source.size).reshape(source.shape)
    found = [
        np.asarray(evaluate(analyst, instruction, [places, *(picked(v, row) for v in values[first:])]))
        for row in (VALUE, LOW, HIGH)
    ]
    return (found[0] != found[1]) | (found[0] != found[2])
