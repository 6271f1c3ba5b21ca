"""Operations that move elements: each row moves as the value does. The commonest do it for all rows at once, without a copy where NumPy makes none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hlo_opt.evaluate.program import Evaluate
from hlo_opt.ir import Instruction
from hlo_opt.ops.movement import slice_dimensions
from hlo_opt.ops.spread_numpy import ROWS, Spread, by_rows, full, rows_of

Array = Any
Value = Any


def movement(instruction: Instruction, evaluate: Evaluate) -> Evaluate:
    """The face of an operation that moves elements, for values that may be spreads."""
    at_once = _AT_ONCE.get(instruction.opcode)

    def run(analyst: Any, instruction: Instruction, values: list[Value]) -> Value:
        spreads = [v for v in values if type(v) is Spread]
        if not spreads:
            return evaluate(analyst, instruction, values)
        if at_once is None:
            made = by_rows(lambda row: evaluate(analyst, instruction, row), values)
        else:
            made = Spread(at_once(instruction, [rows_of(v) for v in values]))
        if type(made) is Spread:
            made.depth = max(v.depth for v in spreads)
        return made

    return run


def _broadcast(instruction: Instruction, rows: list[Array]) -> Array:
    sizes, to = instruction.shape.dimensions, instruction.ints("dimensions")
    spread = [1] * len(sizes)
    order = sorted(range(len(to)), key=lambda k: to[k])
    moved = rows[0].transpose(0, *(1 + k for k in order)) if order != list(range(len(to))) else rows[0]
    source = [moved.shape[1 + place] for place in range(len(order))]
    for place, k in enumerate(sorted(to)):
        spread[k] = source[place]
    return np.broadcast_to(moved.reshape(ROWS, *spread), (ROWS, *sizes))


def _reshape(instruction: Instruction, rows: list[Array]) -> Array:
    return rows[0].reshape(ROWS, *instruction.shape.dimensions)


def _transpose(instruction: Instruction, rows: list[Array]) -> Array:
    return rows[0].transpose(0, *(1 + d for d in instruction.ints("dimensions")))


def _slice(instruction: Instruction, rows: list[Array]) -> Array:
    return rows[0][(slice(None), *(slice(p.start, p.limit, p.stride) for p in slice_dimensions(instruction)))]


def _reverse(instruction: Instruction, rows: list[Array]) -> Array:
    return np.flip(rows[0], tuple(1 + d for d in instruction.ints("dimensions")))


def _concatenate(instruction: Instruction, rows: list[Array]) -> Array:
    return np.concatenate([full(r) for r in rows], axis=1 + instruction.ints("dimensions")[0])


_AT_ONCE: dict[str, Callable[[Instruction, list[Array]], Array]] = {
    "broadcast": _broadcast,
    "concatenate": _concatenate,
    "reshape": _reshape,
    "reverse": _reverse,
    "slice": _slice,
    "transpose": _transpose,
}
