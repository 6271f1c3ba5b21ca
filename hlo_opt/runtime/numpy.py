"""NumPy as backends use it: how the arrays of a module lie in memory, and the interpreter for whole modules, library
calls and fallbacks.

A buffer is a flat array whose elements are in the order of the shape's layout. Elements of less than a byte share bytes
there (`hlo_opt.library.arrays`), and the flat array is one of bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo_opt.diag import EvaluationError
from hlo_opt.evaluate import Interpreter, evaluate, flatten, unflatten
from hlo_opt.evaluate.program import FAULTS, face, located, placed
from hlo_opt.ir import Instruction, Module, Shape
from hlo_opt.ir.values import Array, DType
from hlo_opt.library import arrays
from hlo_opt.library.arrays import packed, unpacked
from hlo_opt.ops.spec import Device

WORD = 4
"""Bytes of the aligned word in which a kernel on a GPU changes a single element of less than a byte (CUDA C++
Programming Guide, atomicCAS)."""


def physical(array: Array, shape: Shape) -> Array:
    """The flat array that holds a logical array as the shape's layout says. Shares memory with the argument where it
    can."""
    flat: Array = arrays.flat(np, array, shape.minor_to_major)
    return flat


def logical(memory: Array, shape: Shape) -> Array:
    """The logical array in a flat buffer: a view, never a copy. The opposite of `physical`."""
    array: Array = arrays.logical(memory, shape.dimensions, shape.minor_to_major)
    return array


def to_memory(array: Array, shape: Shape) -> Array:
    """The buffer of a logical array. Shares memory with the argument where it can."""
    flat = physical(array, shape)
    if shape.type.per_byte > 1:
        bits: Array = packed(np, flat.astype(shape.type.dtype, copy=False), shape.type.bits)
        return bits
    return flat


def from_memory(memory: Array, shape: Shape) -> Array:
    """The logical array in a buffer: a view where elements have bytes of their own. The opposite of `to_memory`."""
    if shape.type.per_byte > 1:
        memory = unpacked(np, memory, shape.type.bits, shape.element_count).view(shape.type.dtype)
    return logical(memory, shape)


def held_dtype(shape: Shape) -> DType:
    """The NumPy type of a buffer's elements: bytes where several elements share one."""
    return np.dtype(np.uint8) if shape.type.per_byte > 1 else shape.type.dtype


def empty_memory(shape: Shape) -> Array:
    """An uninitialised buffer; its last word is whole, as that of a GPU's buffers is."""
    size = shape.stored_bytes
    return np.empty(-(-size // WORD) * WORD, np.uint8)[:size].view(held_dtype(shape))


class Reference:
    """Evaluates a module, or single instructions of it."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._interpreter = Interpreter()

    def play(self, device: Device) -> None:
        """From now on, collectives are those of this device of a run; before, of one that is alone."""
        self._interpreter.device = device

    def run(self, inputs: Sequence[Array], max_steps: int | None = None) -> list[Array]:
        """The entry's outputs, tuples flattened. `max_steps` as for `hlo_opt.evaluate`."""
        return evaluate(self._module, inputs, max_steps=max_steps)

    def leaves_of(self, instruction: Instruction, operands: Sequence[Array | None]) -> list[Array | None]:
        """The leaves of an instruction's value for the leaves of its operands; None stands for a token. Callers bound
        the libraries below NumPy (`bounded_libraries`), whole runs at once where they can: for a small product that
        takes as long as the product. Raises EvaluationError with the instruction's place."""
        arrays = [a for a in operands if a is not None]
        values = unflatten([o.shape for o in instruction.operands], arrays)
        with np.errstate(all="ignore"):
            try:
                leaves = iter(flatten(face(instruction)(self._interpreter, instruction, values)))
            except FAULTS as fault:
                raise located(instruction, fault) from fault
            except EvaluationError as fault:
                raise placed(fault, instruction) from None
        return [next(leaves) if leaf.is_array else None for leaf in instruction.shape.leaves()]
