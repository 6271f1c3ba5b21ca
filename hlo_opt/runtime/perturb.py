"""Evaluate a module with its operations moved, at random, within the tolerances of the op table.

An elementwise operation moves by half to all of its tolerance in ULP of each result. A sum moves by half to all of `min(tolerance, sqrt(n))` units of rounding of the sum of its
terms' magnitudes, n being the number of terms: what another order of adding does (N. Higham, "Accuracy and Stability of Numerical Algorithms", 4.2: the
bound is n, random rounding errors give its square root). Bit-exact operations stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hlo_opt.evaluate import Interpreter, flatten, unflatten
from hlo_opt.evaluate.program import Evaluate, compile_computation
from hlo_opt.ir import Computation, Instruction, Module, Shape
from hlo_opt.ops import OpKind, find
from hlo_opt.runtime.memory import Array
from hlo_opt.runtime.ulp import is_floating, real_parts, ulp_of

_EXACT = frozenset(
    {
        *(
            "abs",
            "and",
            "clamp",
            "compare",
            "constant",
            "convert",
            "copy",
            "get-tuple-element",
            "maximum",
            "minimum",
            "negate",
        ),
        *("not", "or", "parameter", "select", "tuple", "xor"),
    }
)
"""What a reducer may consist of when the order of its calls does not matter for rounding."""


def moved_runs(module: Module, inputs: Sequence[Array], count: int, seed: int) -> list[list[Array]]:
    """The entry's outputs, tuples flattened, `count` times over; the same for the same seed."""
    arguments = unflatten([p.shape for p in module.entry.parameters], inputs)
    runs = []
    for number in range(count):
        interpreter = _MovingInterpreter(np.random.default_rng([seed, number]))
        with np.errstate(all="ignore"):
            runs.append([np.array(a) for a in flatten(interpreter.call(module.entry, arguments))])
    return runs


class _MovingInterpreter(Interpreter):
    """The interpreter with the faces of inexact operations wrapped."""

    def __init__(self, generator: np.random.Generator) -> None:
        super().__init__()
        self._generator = generator

    def call(self, computation: Computation, arguments: Sequence[Any]) -> Any:
        if computation not in self._programs:
            program = compile_computation(computation)
            for step in program.steps:
                step.evaluate = self._moving(step.instruction, step.evaluate)
            self._programs[computation] = program
        return super().call(computation, arguments)

    def _moving(self, instruction: Instruction, face: Evaluate) -> Evaluate:
        spec = find(instruction.opcode)
        tolerances = [_tolerance(instruction, leaf) for leaf in instruction.shape.leaves()]
        if spec is None or not any(tolerances):
            return face
        if spec.kind is OpKind.ELEMENTWISE:
            return lambda evaluator, i, values: self._moved(
                face(evaluator, i, values),
                [t * _unit(leaf) for t, leaf in zip(tolerances, i.shape.leaves(), strict=True)],
            )
        if all(_is_exact(c) for c in instruction.called()) and any(True for _ in instruction.called()):
            return face
        root_of_terms = math.sqrt(_terms(instruction))

        def summed(evaluator: Any, i: Instruction, values: list[Any]) -> Any:
            magnitudes = flatten(face(evaluator, i, [_magnitude(v) for v in values]))
            return self._moved(face(evaluator, i, values), [min(t, root_of_terms) for t in tolerances], magnitudes)

        return summed

    def _moved(self, value: Any, amounts: list[float], magnitudes: list[Array] | None = None) -> Any:
        """A value, an array or a tuple of arrays, with every floating-point leaf moved by up to so many ULP (of the magnitude, where one is given)."""
        leaves = list(value) if isinstance(value, tuple) else [value]
        moved = []
        for number, (leaf, amount) in enumerate(zip(leaves, amounts, strict=True)):
            array = np.asarray(leaf)
            if not amount or not is_floating(array.dtype):
                moved.append(array)
                continue
            parts = real_parts(array)
            unit = ulp_of(parts)
            if magnitudes is not None:
                unit = np.maximum(
                    _rounding(parts.dtype) * np.abs(real_parts(magnitudes[number]).astype(np.float64)),
                    unit / max(amount, 1.0),
                )
            far = self._generator.uniform(0.5, 1.0, parts.shape)
            shift = amount * unit * np.where(self._generator.random(parts.shape) < 0.5, -far, far)
            new = (parts.astype(np.float64) + shift).astype(parts.dtype)
            moved.append(new.view(array.dtype).reshape(array.shape) if array.dtype.kind == "c" else new)
        return tuple(moved) if isinstance(value, tuple) else moved[0]


def _tolerance(instruction: Instruction, leaf: Shape) -> float:
    spec = find(instruction.opcode)
    if spec is None or spec.tolerance is None or not leaf.is_array:
        return 0.0
    return spec.tolerance(leaf.type)


def _unit(leaf: Shape) -> float:
    return 1.0 if leaf.is_array else 0.0


def _rounding(dtype: np.dtype[Any]) -> float:
    """The relative size of a rounding in a sum: narrow floats are added up in f32."""
    return float(np.finfo(np.float64 if dtype == np.float64 else np.float32).eps)


def _magnitude(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        return np.abs(array).astype(array.dtype) if is_floating(array.dtype) else array
    return value


def _is_exact(computation: Computation) -> bool:
    return all(i.opcode in _EXACT for i in computation.instructions)


def _terms(instruction: Instruction) -> int:
    """How many terms each element of a result sums, at most."""
    operand = instruction.operands[0].shape
    if instruction.opcode == "dot":
        return max(1, math.prod(operand.dimensions[d] for d in instruction.ints("lhs_contracting_dims")))
    result = next(instruction.shape.leaves())
    return max(1, sum(o.shape.element_count for o in instruction.operands) // max(1, result.element_count))
