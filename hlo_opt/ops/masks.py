"""Masks by position: of which elements along one dimension nothing is left, seen from index maps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import Expression, Variable, add, constant, split_constant, variables_of
from hlo_opt.ops.lowering import Index
from hlo_opt.ops.sets import COPIES, keeps_values
from hlo_opt.ops.spec import find

_STRICT = {"GE": 0, "GT": 1}
"""By direction, what a position may be less than another at the least."""
_MIRRORED = {"LE": "GE", "LT": "GT"}


@dataclass(frozen=True)
class Mask:
    """Elements behind position `last` along a dimension are all `other`."""

    last: Expression
    other: float


def mask_of(value: Instruction, index: Index, along: str) -> Mask | None:
    """The mask of a value: a selection by a comparison of the position `along`, a variable of the index, with another
    position. None where there is none, or it says nothing of the last elements."""
    if value.opcode != "select":
        return None
    predicate, _, other = value.operands
    number = _number(other)
    if number is None:
        return None
    for asked, at in _conjuncts(predicate, index):
        last = _last(asked, at, along)
        if last is not None:
            return Mask(last, number)
    return None


def _number(value: Instruction) -> float | None:
    while value.opcode == "broadcast" or keeps_values(value, COPIES):
        value = value.operands[0]
    literal = value.literal
    if literal is None or not literal.is_known or value.shape.element_count != 1:
        return None
    return float(np.asarray(literal.value).reshape(-1)[0])


def _conjuncts(predicate: Instruction, index: Index) -> list[tuple[Instruction, Index]]:
    """Comparisons of which all hold where a predicate does, each with its index."""
    found, stack = [], [(predicate, index)]
    while stack:
        value, at = stack.pop()
        if value.opcode == "compare":
            found.append((value, at))
        elif value.opcode == "and":
            stack += [(operand, at) for operand in value.operands]
        elif value.opcode == "broadcast" or keeps_values(value, COPIES):
            read = _read(value, at)
            if read is not None:
                stack.append((value.operands[0], read))
    return found


def _read(value: Instruction, at: Index) -> Index | None:
    spec = find(value.opcode)
    read = None if spec is None or spec.index is None else spec.index(value, 0)
    return None if read is None or read.symbols or read.runtime or read.conditions else read.apply(at)


def _last(compare: Instruction, index: Index, along: str) -> Expression | None:
    """The last position for which a comparison holds."""
    direction, (left, right) = compare.word("direction") or "", compare.operands
    if direction in _MIRRORED:
        direction, left, right = _MIRRORED[direction], right, left
    if direction not in _STRICT:
        return None
    limit, own = _position(left, index), _position(right, index)
    if limit is None or own is None or along in variables_of(limit):
        return None
    base, offset = split_constant(own)
    if not isinstance(base, Variable) or base.name != along:
        return None
    return add(limit, constant(-offset - _STRICT[direction]))


def _position(value: Instruction, index: Index) -> Expression | None:
    """An element of an array of positions, as an expression: of an iota, perhaps with a number added."""
    at: Index | None = index
    shift = 0
    while at is not None:
        if value.opcode == "iota":
            along = value.value("iota_dimension", 0)
            if not isinstance(along, int) or not value.shape.type.is_integer:
                return None
            low, high = value.shape.type.limits
            there = add(at[along], constant(shift))
            return there if low <= there.low and there.high <= high else None
        if value.opcode in ("add", "subtract") and (number := _number(value.operands[1])) is not None:
            shift += int(number) if value.opcode == "add" else -int(number)
            value = value.operands[0]
        elif value.opcode == "broadcast" or keeps_values(value, COPIES):
            at, value = _read(value, at), value.operands[0]
        else:
            return None
    return None
