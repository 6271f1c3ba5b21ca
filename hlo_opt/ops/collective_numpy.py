"""What collectives mean on the only device: nothing moves, and what would come from another device is zero."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from hlo_opt.ir import Instruction, Shape
from hlo_opt.ops.control_numpy import zeros
from hlo_opt.ops.spec import Evaluator

Value = Any


def _same(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    """The only participant's own values."""
    return tuple(values) if instruction.shape.is_tuple else values[0]


all_reduce = all_to_all = collective_broadcast = _same


def all_reduce_start(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    """The results; in an older form (operand, result)."""
    elements = instruction.shape.elements
    if elements is not None and len(elements) == 2 * len(values):
        return (*values, *values)
    return _same(evaluator, instruction, values)


def _gathered(value: Value, shape: Shape) -> Value:
    """The device's own value comes first."""
    if np.shape(value) == shape.dimensions:
        return value
    made = np.zeros(shape.dimensions, shape.type.dtype)
    made[tuple(map(slice, np.shape(value)))] = value
    return made


def all_gather(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    leaves = list(instruction.shape.leaves())
    made = tuple(_gathered(value, leaf) for value, leaf in zip(values, leaves, strict=True))
    return made if instruction.shape.is_tuple else made[0]


def reduce_scatter(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    """The first device's share."""
    leaves = list(instruction.shape.leaves())
    made = tuple(v[tuple(map(slice, leaf.dimensions))] for v, leaf in zip(values, leaves, strict=True))
    return made if instruction.shape.is_tuple else made[0]


def all_reduce_done(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    return values[0] if instruction.shape.is_tuple or not isinstance(values[0], tuple) else values[0][-1]


def all_gather_start(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    elements = instruction.shape.elements
    assert elements is not None
    given = tuple(values) if elements[0].is_tuple else values[0]
    gathered = tuple(_gathered(v, leaf) for v, leaf in zip(values, elements[1].leaves(), strict=True))
    made = gathered if elements[1].is_tuple else gathered[0]
    return given, made, *(zeros(shape) for shape in elements[2:])


def _second(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    return values[0][1] if isinstance(values[0], tuple) else values[0]


all_gather_done = collective_permute_done = _second


def _permuted(instruction: Instruction, value: Value) -> Value:
    """Device 0 keeps its value when it sends to itself; otherwise nobody sends to it and it gets zeros."""
    pairs = re.findall(r"\{\s*(\d+)\s*,\s*(\d+)\s*\}", instruction.attributes["source_target_pairs"].text)
    if ("0", "0") in pairs:
        return value
    return tuple(map(np.zeros_like, value)) if isinstance(value, tuple) else np.zeros_like(value)


def collective_permute(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    if len(values) not in (1, len(list(instruction.shape.leaves()))):
        raise ValueError("a permute into given buffers takes more than one device")
    made = tuple(_permuted(instruction, v) for v in values)
    return made if instruction.shape.is_tuple else made[0]


def collective_permute_start(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    elements = instruction.shape.elements
    if elements is None:
        return _permuted(instruction, values[0])
    given = tuple(values) if elements[0].is_tuple else values[0]
    return given, _permuted(instruction, given), *(zeros(shape) for shape in elements[2:])


def ragged_all_to_all(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    """(operand, output, input offsets, send sizes, output offsets, receive sizes): rows of the operand are written into the output."""
    operand, made = np.asarray(values[0]), np.array(values[1])
    for start, size, to in zip(*(np.asarray(v).reshape(-1).astype(np.int64) for v in values[2:5]), strict=True):
        made[to : to + size] = operand[start : start + size]
    return made
