"""Scatters on spreads: sums, products and choices of updates (see `sums`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from hlo_opt.evaluate.interpreter import Interpreter
from hlo_opt.evaluate.program import face
from hlo_opt.ir import Instruction
from hlo_opt.ir.element_type import F64
from hlo_opt.ir.values import Array
from hlo_opt.ops.reduction.reducers import adds, monoid, picks
from hlo_opt.ops.sets import EXTREMES
from hlo_opt.ops.spread import by_rows, ordered, settled
from hlo_opt.ops.values import HIGH, LOW, VALUE, Spread, Value
from hlo_opt.runtime.rounding.elementwise import Analyst, Face
from hlo_opt.runtime.rounding.sums import added, by_parts, multiplies, product_of, retyped, rising

_COUNTER = 1 + 2.0**-10
"""The factor by whose powers the factors of a product are counted: up to half a million before f64 ends."""


def scatter(instruction: Instruction, evaluate: Face) -> Face | None:
    """The face of a scatter that adds, multiplies floats or overwrites, for certain indices; None for other
    reducers."""
    combiner, element_type = instruction.called_by("to_apply"), instruction.shape.element_type
    if len(instruction.operands) != 3 or element_type is None:
        return None
    if picks(combiner) is not None or monoid(combiner) in EXTREMES:
        chosen = rising(instruction, evaluate)
    elif adds(combiner) and element_type.is_complex:
        return by_parts(instruction, scatter)
    elif adds(combiner) and element_type.kind != "pred":
        chosen = added(instruction, evaluate, _updates_of(instruction), fixed=(1,))
    elif multiplies(instruction) and element_type.is_float:
        chosen = product_of(instruction, evaluate, _updates_of(instruction), fixed=(1,))
    else:
        return None

    def run(analyst: Analyst, instruction: Instruction, values: list[Value]) -> Value:
        if type(values[1]) is Spread:
            return _open_places(analyst, instruction, evaluate, values)
        return chosen(analyst, instruction, values)

    return run


def _updates_of(instruction: Instruction) -> Callable[[Sequence[Array]], Array]:
    """The number of updates of each element of a scatter that adds or multiplies, plus the element itself unless it
    changes nothing."""
    counted = retyped(instruction, F64) if instruction.shape.type.is_float else instruction
    count, is_product = face(counted), multiplies(instruction)

    def run(arrays: Sequence[Array]) -> Array:
        base, indices, updates = arrays
        takes_part = (base[VALUE] != is_product).astype(np.float64)
        ones = np.ones(updates.shape[1:])
        terms = (
            [_COUNTER**takes_part, indices[VALUE], ones * _COUNTER]
            if is_product
            else [takes_part, indices[VALUE], ones]
        )
        found = np.asarray(count(Interpreter(), counted, terms))
        return np.rint(np.log(found) / math.log(_COUNTER)) if is_product else found

    return run


def _open_places(analyst: Analyst, instruction: Instruction, evaluate: Face, values: list[Value]) -> Value:
    """A scatter with uncertain indices: the hull of all rows, for every element on which they differ."""
    result = by_rows(lambda row: evaluate(analyst, instruction, row), values)
    if type(result) is not Spread:
        return result
    rows = np.array(result.rows)
    differs = (rows != rows[VALUE]).any(axis=0)
    low, high = np.minimum.reduce(list(rows)), np.maximum.reduce(list(rows))
    rows[LOW], rows[HIGH] = np.where(differs, low, rows[LOW]), np.where(differs, high, rows[HIGH])
    ordered(rows, instruction.shape.type)
    return settled(rows)
