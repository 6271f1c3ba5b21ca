"""What CuPy computes an instruction with: the `call` faces of the table as calls of the functions of `hlo_opt.library`. What has none cannot run there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hlo_opt.ir import ELEMENT_TYPES, ElementType, Instruction, Shape
from hlo_opt.ir.values import Array
from hlo_opt.library import arrays
from hlo_opt.library.arrays import Described, raw_dtype
from hlo_opt.library.functions import FUNCTIONS
from hlo_opt.ops.spec import Evaluator, LibraryCall, ShapeError, find
from hlo_opt.ops.values import Value, packed


@dataclass(frozen=True)
class DeviceCall:
    """A call of a function of `hlo_opt.library`: `function(xp, buffers, shapes, *arguments)` gives the output buffers.

    shapes     those of the operands, then of the results
    arguments  plain values that `repr` writes
    does       the CuPy function that does the work, for reports
    """

    function: str
    shapes: tuple[Described, ...]
    arguments: tuple[Any, ...]
    does: str

    def run(self, xp: Any, buffers: Sequence[Any]) -> list[Any]:
        """The output buffers."""
        given = list(buffers)
        for number, (bits, count) in self.packed.items():
            if number < len(given):
                given[number] = arrays.unpacked(xp, given[number], bits, count)
        made: list[Any] = FUNCTIONS[self.function](xp, given, self.shapes, *self.arguments)
        for number, (bits, _) in self.packed.items():
            if number >= len(given):
                made[number - len(given)] = arrays.packed(xp, made[number - len(given)], bits)
        return made

    @property
    def packed(self) -> dict[int, tuple[int, int]]:
        """Bits of an element and elements of each shape of which several elements share a byte, by its number among the shapes."""
        found = {}
        for number, (name, _, dimensions, _) in enumerate(self.shapes):
            if ELEMENT_TYPES[name].per_byte > 1:
                found[number] = ELEMENT_TYPES[name].bits, math.prod(dimensions)
        return found


def call_of(instruction: Instruction) -> DeviceCall | None:
    """How CuPy computes an instruction, or None where it cannot. A malformed one has none: the verifier tells what is wrong with it."""
    try:
        return _asked(instruction)
    except (IndexError, KeyError, ShapeError, ValueError):
        return None


def _asked(instruction: Instruction) -> DeviceCall | None:
    spec = find(instruction.opcode)
    made = None if spec is None or spec.call is None else spec.call(instruction)
    return None if made is None else as_call(instruction, made)


def as_call(instruction: Instruction, made: LibraryCall) -> DeviceCall:
    """What a face says, with the shapes of the instruction."""
    function, arguments, does = made
    shapes = [*given_leaves(instruction), *instruction.shape.leaves()]
    return DeviceCall(function, tuple(map(described, shapes)), arguments, does)


def over_numpy(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """An `evaluate` face: what the call computes, over NumPy. Raises ValueError for an instruction that has none."""
    import numpy as np

    call = _asked(instruction)
    if call is None:
        raise ValueError("shapes, types or the configuration are not those of the routine")
    rows = [(name, stored, sizes, tuple(reversed(range(len(sizes))))) for name, stored, sizes, _ in call.shapes]
    buffers = [np.ascontiguousarray(v).reshape(-1).view(s[1]) for v, s in zip(values, rows, strict=False)]
    made = FUNCTIONS[call.function](np, buffers, rows, *call.arguments)
    leaves = instruction.shape.leaves()
    arrays = [m.view(leaf.type.dtype).reshape(leaf.dimensions) for m, leaf in zip(made, leaves, strict=True)]
    return packed(instruction, arrays)


def given_leaves(instruction: Instruction) -> list[Shape]:
    """The array leaves of the operands."""
    return [leaf for o in instruction.operands for leaf in o.shape.leaves()]


def described(shape: Shape) -> Described:
    """What a function of `hlo_opt.library` is told of a buffer."""
    return shape.type.name, raw_dtype(shape.type.dtype).name, shape.dimensions, shape.minor_to_major


def plain(shape: Shape) -> bool:
    """Whether CuPy holds the type, bf16 as raw bits."""
    return shape.is_array and (shape.type.is_complex or is_ordered(shape.type))


def is_ordered(t: ElementType) -> bool:
    """Whether CuPy holds and sorts the type, bf16 as raw bits."""
    return t.kind == "pred" or (t.is_integer and t.bits >= 8) or (t.is_float and t.bits >= 16)
