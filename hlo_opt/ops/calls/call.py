"""Library calls: the `call` faces of the table as calls of `hlo_opt.library`. An instruction without one cannot run as
a library call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hlo_opt.ir import ELEMENT_TYPES, ElementType, Instruction, Shape
from hlo_opt.ir.values import Array
from hlo_opt.library import arrays
from hlo_opt.library.arrays import Described, raw_dtype
from hlo_opt.library.functions import FUNCTIONS
from hlo_opt.ops.spec import Evaluator, LibraryCall, ShapeError, find
from hlo_opt.ops.values import Value, packed

TF32 = "tf32"
"""An argument of a product or convolution whose operands of f32 may be rounded to TF32: 10 bits of mantissa."""


@dataclass(frozen=True)
class DeviceCall:
    """A call `function(xp, buffers, shapes, *arguments)` of `hlo_opt.library`, which returns the output buffers.

    shapes     of the operands, then of the results
    arguments  plain values, written by `repr` into drivers
    does       the CuPy function that does the work, for reports
    """

    function: str
    shapes: tuple[Described, ...]
    arguments: tuple[Any, ...]
    does: str

    def run(self, xp: Any, buffers: Sequence[Any]) -> list[Any]:
        """Run the call; returns the output buffers."""
        inputs = list(buffers)
        for number, (bits, count) in self.packed.items():
            if number < len(inputs):
                inputs[number] = arrays.unpacked(xp, inputs[number], bits, count)
        outputs: list[Any] = FUNCTIONS[self.function](xp, inputs, self.shapes, *self.arguments)
        for number, (bits, _) in self.packed.items():
            if number >= len(inputs):
                outputs[number - len(inputs)] = arrays.packed(xp, outputs[number - len(inputs)], bits)
        return outputs

    @property
    def precise(self) -> DeviceCall:
        """The same call without operands that are rounded to TF32."""
        return replace(self, arguments=tuple("" if a == TF32 else a for a in self.arguments))

    @property
    def packed(self) -> dict[int, tuple[int, int]]:
        """(bits, element count) of each packed sub-byte shape, by its number among the shapes."""
        by_number = {}
        for number, (name, _, dimensions, _) in enumerate(self.shapes):
            if ELEMENT_TYPES[name].per_byte > 1:
                by_number[number] = ELEMENT_TYPES[name].bits, math.prod(dimensions)
        return by_number


def call_of(instruction: Instruction) -> DeviceCall | None:
    """The library call for an instruction; None where there is none, or the instruction is malformed (the verifier
    reports that)."""
    try:
        return _asked(instruction)
    except (IndexError, KeyError, ShapeError, ValueError):
        return None


def _asked(instruction: Instruction) -> DeviceCall | None:
    spec = find(instruction.opcode)
    call = None if spec is None or spec.call is None else spec.call(instruction)
    return None if call is None else as_call(instruction, call)


def as_call(instruction: Instruction, call: LibraryCall) -> DeviceCall:
    """The result of a `call` face as a DeviceCall, with the instruction's shapes."""
    function, arguments, does = call
    shapes = [*operand_leaves(instruction), *instruction.shape.leaves()]
    return DeviceCall(function, tuple(map(described, shapes)), arguments, does)


def over_numpy(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """An `evaluate` face that runs the library call over NumPy. Raises ValueError for an instruction without one."""
    import numpy as np

    call = _asked(instruction)
    if call is None:
        raise ValueError("shapes, types or the configuration are not those of the routine")
    rows = [(name, stored, sizes, tuple(reversed(range(len(sizes))))) for name, stored, sizes, _ in call.shapes]
    buffers = [np.ascontiguousarray(v).reshape(-1).view(s[1]) for v, s in zip(values, rows, strict=False)]
    results = FUNCTIONS[call.function](np, buffers, rows, *call.arguments)
    leaves = instruction.shape.leaves()
    arrays = [m.view(leaf.type.dtype).reshape(leaf.dimensions) for m, leaf in zip(results, leaves, strict=True)]
    return packed(instruction, arrays)


def operand_leaves(instruction: Instruction) -> list[Shape]:
    """The array leaves of the operands."""
    return [leaf for o in instruction.operands for leaf in o.shape.leaves()]


def described(shape: Shape) -> Described:
    """A buffer as `hlo_opt.library` describes it."""
    return shape.type.name, raw_dtype(shape.type.dtype).name, shape.dimensions, shape.minor_to_major


def plain(shape: Shape) -> bool:
    """Whether CuPy has the type (bf16 as raw bits)."""
    return shape.is_array and (shape.type.is_complex or is_ordered(shape.type))


def is_ordered(t: ElementType) -> bool:
    """Whether CuPy has and sorts the type (bf16 as raw bits)."""
    return t.kind == "pred" or (t.is_integer and t.bits >= 8) or (t.is_float and t.bits >= 16)
