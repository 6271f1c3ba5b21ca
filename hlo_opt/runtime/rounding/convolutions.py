"""Convolutions whose weights are no numbers, on spreads.

A place of a window in the padding, or between elements that a dilation moves apart, may be left out, or count as a zero
that the weight there is multiplied by: HLO leaves that open, and zero times infinity or NaN is NaN.
"""

from __future__ import annotations

import numpy as np

from hlo_opt.evaluate.interpreter import Interpreter
from hlo_opt.evaluate.program import face
from hlo_opt.ir import Instruction
from hlo_opt.ir.element_type import F32
from hlo_opt.ops.contraction.table import convolution_dimensions
from hlo_opt.ops.spread import full, rows_of, set_aside
from hlo_opt.ops.values import VALUE, Spread, Value
from hlo_opt.runtime.rounding import sums
from hlo_opt.runtime.rounding.elementwise import Analyst, Face

PADDED = "weights at the padding, infinite or NaN,"
"""On what such elements hang."""


def open_at_padding(instruction: Instruction, rule: Face) -> Face:
    """The rule of a convolution, with those elements set aside whose window has a weight in the padding that is no
    number."""
    dimensions = convolution_dimensions(instruction)
    if all(w.pad_low <= 0 and w.pad_high <= 0 and w.lhs_dilate == 1 for w in dimensions.window):
        return rule
    count = sums.retyped(instruction, F32)
    run_count = face(count)
    data = np.ones(instruction.operands[0].shape.dimensions, np.float32)
    others = tuple(d for d in range(data.ndim) if d != dimensions.rhs[0])
    along = [1] * data.ndim
    along[dimensions.output[1]] = -1

    def run(analyst: Analyst, instruction: Instruction, values: list[Value]) -> Value:
        result = rule(analyst, instruction, values)
        weights = rows_of(values[1])[VALUE]
        with np.errstate(all="ignore"):
            lost = ~np.isfinite(weights if weights.dtype.kind == "c" else weights.astype(np.float64))
        if not lost.any():
            return result
        met = np.asarray(run_count(Interpreter(), count, [data, lost.astype(np.float32)]))
        open_ = met != lost.sum(axis=others, dtype=np.float32).reshape(along)
        if not open_.any():
            return result
        analyst.tie(instruction, int(np.count_nonzero(open_)), PADDED)
        rows = np.array(full(rows_of(result)))
        set_aside(rows, open_, instruction.shape.type)
        return Spread(rows)

    return run
