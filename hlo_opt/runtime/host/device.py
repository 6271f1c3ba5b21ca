"""Buffers and kernels on the host: NumPy arrays, and the emitted CUDA text built with the C++ compiler."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.evaluate.threads import bounded_libraries
from hlo_opt.ir import Shape
from hlo_opt.runtime.host.library import HostLibrary
from hlo_opt.runtime.memory import WORD, Array, empty_memory, from_memory, held_dtype, to_memory
from hlo_opt.runtime.reference import Reference
from hlo_opt.runtime.schedule.device import NOTHING, Memory
from hlo_opt.runtime.schedule.ops import Call


class HostDevice:
    """Memory is a flat NumPy array, each buffer in one of its own. Library calls are evaluated in NumPy, by the op table.

    Runs under the sanitizers use it; `HostProgram` is for all others.
    """

    def __init__(self, library: HostLibrary, reference: Reference) -> None:
        self._library = library
        self._reference = reference

    def upload(self, array: Array, shape: Shape) -> Array:
        return to_memory(array, shape)

    def download(self, memory: Array, shape: Shape) -> Array:
        return np.array(from_memory(memory, shape), order="C")

    def allocate(self, shape: Shape) -> Array:
        return empty_memory(shape)

    def copy(self, memory: Array) -> Array:
        made = np.empty(-(-memory.nbytes // WORD) * WORD, np.uint8)[: memory.nbytes].view(memory.dtype)
        made[:] = memory
        return made

    def view(self, memory: Array, shape: Shape) -> Array:
        return memory.view(held_dtype(shape))

    def relayout(self, memory: Array, shape: Shape, target: Shape) -> Array:
        return to_memory(from_memory(memory, shape), target)

    def launch(self, kernel: Kernel, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        self._library.launch(kernel, inputs, outputs)

    def call(self, op: Call, inputs: Sequence[Array], shapes: Sequence[Shape]) -> list[Memory]:
        arrays = [from_memory(m, s) if s.is_array else None for m, s in zip(inputs, shapes, strict=True)]
        with bounded_libraries():
            results = self._reference.leaves_of(op.instruction, arrays)
        leaves = op.instruction.shape.leaves()
        return [NOTHING if a is None else to_memory(a, s) for a, s in zip(results, leaves, strict=True)]
