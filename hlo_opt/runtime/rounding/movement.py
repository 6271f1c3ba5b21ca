"""Operations that move elements: each row moves as the value does. The commonest do it for all rows at once."""

from __future__ import annotations

from hlo_opt.ir import Instruction
from hlo_opt.ops import find
from hlo_opt.ops.spread import by_rows, rows_of
from hlo_opt.ops.values import Spread, Value
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
            made = by_rows(lambda row: evaluate(analyst, instruction, row), values)
        else:
            made = Spread(at_once(instruction, [rows_of(v) for v in values]))
        if type(made) is Spread:
            made.depth = max(v.depth for v in spreads)
        return made

    return run
