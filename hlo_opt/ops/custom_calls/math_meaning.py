"""The NumPy meaning of CHLO's functions, and of the steps between static and dynamic sizes."""

from __future__ import annotations

import math

import numpy as np

from hlo_opt.ir import Instruction
from hlo_opt.ir.values import Array
from hlo_opt.ops.spec import Evaluator
from hlo_opt.ops.values import Dynamic, Value, whole

_NUMPY = {"acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atanh": "arctanh"}


def elementwise(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    """In f64 or c128, rounded once."""
    name = instruction.word("custom_call_target").removeprefix("mhlo.")
    value = np.asarray(values[0])
    wide = value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)
    with np.errstate(all="ignore"):
        if name == "erf":
            made = np.array([math.erf(x) for x in wide.reshape(-1)]).reshape(wide.shape)
        else:
            made = getattr(np, _NUMPY.get(name, name))(wide)
        return made.astype(instruction.shape.type.dtype)


def pad_to_static(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    """(the array at its bound with zeros where nothing is in use, its sizes)"""
    given = values[0] if isinstance(values[0], Dynamic) else whole(values[0])
    made = np.zeros(given.padded.shape, given.padded.dtype)
    made[tuple(map(slice, given.shape))] = given.used
    return (made, *(np.asarray(size, np.int32) for size in given.shape))


def slice_to_dynamic(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Dynamic:
    """The first elements of each dimension, as many as the sizes say. Raises ValueError for sizes that do not fit."""
    array, sizes = np.asarray(values[0]), tuple(int(size) for size in values[1:])
    if len(sizes) != array.ndim or any(not 0 <= size <= bound for size, bound in zip(sizes, array.shape, strict=True)):
        raise ValueError(f"sizes {sizes} do not fit {array.shape}")
    return Dynamic(array, sizes)
