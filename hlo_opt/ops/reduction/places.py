"""Reducers of values with their places, as argmax has: folded in the order of the places, fewer comparisons are left.

A thread that walks a row from left to right knows that the place it has lies before the next one. A comparison of the
two is then a constant, and of three comparisons of values the compiler makes two.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from hlo_opt.ir import Computation, Instruction, Literal, edit
from hlo_opt.ir.index_map import Expression

_BEFORE = {"LT": True, "LE": True, "NE": True, "GT": False, "GE": False, "EQ": False}
"""What a comparison says whose left side is less than its right side."""
_MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}


def place_of(value: Instruction, index: Sequence[Expression]) -> Expression | None:
    """The index expression that an element of a value is: of an iota, or of one that is broadcast. None for others, and
    where a count wraps around."""
    while value.opcode == "broadcast":
        index = [index[d] for d in value.ints("dimensions")]
        value = value.operands[0]
    if value.opcode != "iota" or not value.shape.type.is_integer:
        return None
    along = value.value("iota_dimension", 0)
    if not isinstance(along, int) or value.shape.dimensions[along] - 1 > value.shape.type.limits[1]:
        return None
    return index[along]


def in_order(reducer: Computation, numbers: Collection[int]) -> Computation | None:
    """A copy outside any module of the reducer, for calls of which the arguments with these numbers on the left are
    less than those on the right. None where nothing is simpler, or where the reducer does not return one of the two,
    so that a total may be of another place."""
    root, count = reducer.root, len(reducer.parameters) // 2
    pairs = {(reducer.parameters[n], reducer.parameters[n + count]) for n in numbers}
    if not root.shape.elements or not all(_picks(root, n, count) for n in numbers):
        return None
    copy, copies, is_simpler = Computation(reducer.name, offset=reducer.offset), dict[Instruction, Instruction](), False
    for i in reducer.instructions:
        answer = _answer(i, pairs)
        if answer is None:
            copies[i] = edit.append(copy, edit.copied(i, i.name, [copies[o] for o in i.operands], dict(i.attributes)))
        else:
            constant = Instruction(i.name, "constant", i.shape, literal=Literal(i.shape, value=np.asarray(answer)))
            copies[i], is_simpler = edit.append(copy, constant), True
    edit.set_root(copy, copies[root])
    return copy if is_simpler else None


def _picks(root: Instruction, number: int, count: int) -> bool:
    """Whether that result of the root, a tuple, is one of the two arguments with its number, by selections."""
    if root.opcode != "tuple":
        return False
    todo = [root.operands[number]]
    while todo:
        i = todo.pop()
        if i.opcode == "select":
            todo += i.operands[1:]
        elif i.parameter_number not in (number, number + count):
            return False
    return True


def _answer(i: Instruction, pairs: Collection[tuple[Instruction, Instruction]]) -> bool | None:
    """What a comparison says, if it compares two arguments of a pair."""
    if i.opcode != "compare":
        return None
    direction, (left, right) = i.word("direction") or "", i.operands
    if (left, right) in pairs:
        return _BEFORE[direction]
    return _BEFORE[_MIRRORED.get(direction, direction)] if (right, left) in pairs else None
