"""Sums of exponentials below a maximum of the same rows: how a softmax is recognised."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from hlo_opt.ir import Instruction
from hlo_opt.ops.reduction.reducers import monoid, starts_with_identity
from hlo_opt.ops.sets import COPIES

MOVES = COPIES | {"broadcast"}
"""Operations that hand on the results of rows."""


@dataclass(frozen=True)
class Exponentials:
    """sum(exp(x - moved(highest))), `highest` being the maximum of x; `powers` are what is summed, `moved` the maximum as it is subtracted."""

    total: Instruction
    powers: Instruction
    x: Instruction
    moved: Instruction
    highest: Instruction


def folds(reduce: Instruction, opcode: str) -> bool:
    """Whether a reduce is of a reducer, and starts with its identity."""
    return starts_with_identity(reduce) and monoid(reduce.called_by("to_apply")) == opcode


def sums_of(instructions: Iterable[Instruction]) -> list[Exponentials]:
    """All that instructions hold, in their order."""
    totals = (i for i in instructions if i.opcode == "reduce" and folds(i, "add"))
    return [found for total in totals if (found := _sum(total)) is not None]


def _sum(total: Instruction) -> Exponentials | None:
    powers = total.operands[0]
    while powers.opcode == "convert":
        powers = powers.operands[0]
    if powers.opcode != "exponential" or powers.operands[0].opcode != "subtract":
        return None
    x, moved = powers.operands[0].operands
    low = source(moved, lambda value: value.opcode == "reduce")
    if low is None or low.operands[0] is not x or not folds(low, "maximum"):
        return None
    return Exponentials(total, powers, x, moved, low) if low.ints("dimensions") == total.ints("dimensions") else None


def source(value: Instruction, is_end: Callable[[Instruction], bool]) -> Instruction | None:
    """The end that a value is, moved, and at least the lowest number; None where there is none."""
    while not is_end(value):
        if value.opcode == "maximum" and any(map(_is_lowest, value.operands)):
            value = next((o for o in value.operands if not _is_lowest(o)), value.operands[0])
        elif value.opcode in MOVES:
            value = value.operands[0]
        else:
            return None
    return value


def _is_lowest(value: Instruction) -> bool:
    """Whether all elements are -inf."""
    while value.opcode in MOVES:
        value = value.operands[0]
    return value.literal is not None and not value.literal.is_elided and bool(np.all(np.asarray(value.literal.value) == -np.inf))  # fmt: skip


def divided(weights: Instruction, held: Exponentials) -> Instruction | None:
    """The sum by which exponentials are divided to give the weights, as it is handed on; None where these are something else. Rounded, and moved, they may be."""
    while weights.opcode in COPIES or weights.opcode in ("convert", "transpose"):
        weights = weights.operands[0]
    if weights.opcode != "divide" or weights.operands[0] is not held.powers:
        return None
    by = weights.operands[1]
    return by if source(by, lambda value: value is held.total) is not None else None
