"""The NumPy evaluators of control flow, tuples and markers. A tuple is a Python tuple, a token ()."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlo_opt.ir import Instruction, Shape
from hlo_opt.ops.control.table import branches
from hlo_opt.ops.shapes import integer
from hlo_opt.ops.spec import Evaluator
from hlo_opt.ops.values import Value, parts


def parameter(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    raise ValueError("a parameter's value comes from the caller")


def constant(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    assert instruction.literal is not None
    value = instruction.literal.value
    return _unpacked(value) if isinstance(value, tuple) else value


def _unpacked(value: Any) -> Value:
    """Nested literals as nested tuples of arrays; the parser bounds the depth."""
    return tuple(_unpacked(e.value) if isinstance(e.value, tuple) else e.value for e in value)


def tuple_(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    return tuple(values)


def get_tuple_element(evaluator: Evaluator, instruction: Instruction, values: list[tuple[Value, ...]]) -> Value:
    return values[0][integer(instruction, "index")]


def while_(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    """Runs until the condition is false. An endless loop ends only by the evaluator's limit."""
    condition, body = instruction.called_by("condition"), instruction.called_by("body")
    state = values[0]
    with evaluator.loop(instruction) as loop:
        while evaluator.call(condition, [state]):
            loop.begin()
            state = evaluator.call(body, [state])
            loop.end()
    return state


def same_bits(left: Value, right: Value) -> bool:
    """Whether two values of one shape are equal bit for bit."""
    todo: list[tuple[Value, Value]] = [(left, right)]
    while todo:
        a, b = todo.pop()
        if isinstance(a, tuple) and isinstance(b, tuple):
            todo.extend(zip(a, b, strict=True))
        elif a is not b and _raw(a) != _raw(b):
            return False
    return True


def _raw(value: Value) -> memoryview:
    """The bytes of an array: a view where it is contiguous, else a copy."""
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8).data


def conditional(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    """True selects branch 0; an index out of range selects the last branch."""
    computations = [c for value in branches(instruction) for c in value.computations]
    selector = np.asarray(values[0])
    if selector.dtype == np.bool_:
        chosen = 0 if selector else 1
    else:
        chosen = int(selector)
        if not 0 <= chosen < len(computations):
            chosen = len(computations) - 1
    return evaluator.call(computations[chosen], [values[1 + chosen]])


def call(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    return evaluator.call(next(instruction.called()), values)


fusion = call


def after_all(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    return ()


def _first(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    return values[0]


add_dependency = opt_barrier = domain = async_update = _first


def async_start(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    """Runs synchronously; returns ((operands), outputs, contexts..)."""
    outputs = evaluator.call(next(instruction.called()), values)
    elements = instruction.shape.elements
    assert elements is not None
    return (tuple(values), outputs, *(zeros(shape) for shape in elements[2:]))


def async_done(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    return parts(values[0])[1]


def copy_start(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    elements = instruction.shape.elements
    assert elements is not None
    return (values[0], values[0], *(zeros(shape) for shape in elements[2:]))


def copy_done(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    return parts(values[0])[0]


def partition_id(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    return np.asarray(evaluator.device.partition, np.uint32)


def replica_id(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    return np.asarray(evaluator.device.replica, np.uint32)


def zeros(shape: Shape) -> Value:
    """A value of the shape, all zeros."""
    if shape.elements is not None:
        return (*(zeros(element) for element in shape.elements),)
    return np.zeros(shape.dimensions, shape.type.dtype) if shape.is_array else ()
