"""An entry that is one stretch, from arrays of CuPy to arrays of CuPy, with as little Python per call as possible: all
that does not depend on the inputs is computed once; a call checks each input, allocates and starts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

import numpy as np

from hlo_opt.codegen.emit import ALIGNMENT
from hlo_opt.ir import Shape
from hlo_opt.ir.values import Array
from hlo_opt.library.arrays import raw_dtype
from hlo_opt.runtime.cupy.capture import address
from hlo_opt.runtime.cupy.device import CupyDevice
from hlo_opt.runtime.cupy.graphs import StretchGraphs
from hlo_opt.runtime.numpy import WORD
from hlo_opt.runtime.schedule.executor import Executor
from hlo_opt.runtime.schedule.lifetimes import buffer_bytes
from hlo_opt.runtime.schedule.ops import Routine
from hlo_opt.runtime.schedule.stretch import ALIGNMENT as PART
from hlo_opt.runtime.schedule.stretch import NOTHING

MOST_OUTPUTS = 16
"""The most outputs in one allocation, all of one size: a caller that keeps one of them holds at most 16 times its
memory."""
MOST_BYTES = 1 << 24
"""The most bytes of such an allocation; a larger output has its own."""


class MemoryPointer(Protocol):
    """An address and the memory that it is in, as CuPy has it."""

    ptr: int

    def __add__(self, offset: int) -> MemoryPointer: ...


@dataclass(frozen=True)
class ArrayForm:
    """The form of an array in memory: sizes, type, and strides in bytes. CuPy has no elements of less than a byte:
    their array is of bytes."""

    shape: Shape
    dimensions: tuple[int, ...]
    dtype: np.dtype[np.generic]
    strides: tuple[int, ...]

    @property
    def steps(self) -> tuple[int, ...] | None:
        """The strides for CuPy to make an array of; None where they are the usual ones, which takes it less time."""
        return None if self.shape.is_row_major or self.shape.type.per_byte > 1 else self.strides

    @classmethod
    def of(cls, shape: Shape) -> ArrayForm:
        """The form in which the module reads or writes an array of a shape."""
        if shape.type.per_byte > 1:
            return cls(shape, (shape.stored_bytes,), np.dtype("uint8"), (1,))
        dtype = np.dtype(raw_dtype(shape.type.dtype))
        strides, step = [0] * len(shape.dimensions), dtype.itemsize
        for d in shape.minor_to_major:
            strides[d] = step
            step *= shape.dimensions[d]
        return cls(shape, tuple(shape.dimensions), dtype, tuple(strides))


@dataclass
class _Allocation:
    """Outputs in one allocation: its bytes, and the number and offset of each output."""

    size: int = 0
    outputs: list[tuple[int, int]] = field(default_factory=list)


class BoundEntry:
    """The entry of a schedule as one stretch, whose donated inputs (by number) hold results.

    A call works on a list of addresses: of the inputs that are arrays, of constants, of what the stretch keeps, and of
    its block.
    """

    def __init__(self, executor: Executor, entry: Routine, whole: StretchGraphs, donated: Sequence[int]) -> None:
        device, stretch, shapes = executor.device, whole.stretch, entry.shapes
        assert isinstance(device, CupyDevice)
        self.executor, self.device, self.whole = executor, device, whole
        inputs = [b for b in entry.inputs if shapes[b].is_array]
        self.inputs = [ArrayForm.of(shapes[b]) for b in inputs]
        self.expected = [(form.dimensions, form.dtype, form.strides) for form in self.inputs]
        self.packed_inputs = frozenset(n for n, b in enumerate(inputs) if shapes[b].type.per_byte > 1)
        self.sizes = [buffer_bytes(shapes[b]) for b in inputs]
        self.donated = [inputs.index(entry.inputs[k]) for k in donated]
        self.constants = [  # which live as long as the executor
            (b, address(memory))
            for op in stretch.constants
            for b, memory in zip(op.outputs, executor.constant(op, shapes), strict=True)
            if shapes[b].is_array
        ]
        places = [*inputs, *(b for b, _ in self.constants), *stretch.kept]
        place = {b: n for n, b in enumerate(places)}
        self.order = [*(place[b] for b in (*stretch.existing, *stretch.kept)), len(places)]
        results = [b for b in entry.results if shapes[b].is_array]
        self.outputs = [ArrayForm.of(shapes[b]) for b in results]
        self.forms = [(form.dimensions, form.dtype, form.steps) for form in self.outputs]
        self.packed = [n for n, b in enumerate(results) if shapes[b].type.per_byte > 1]
        self.reused: list[tuple[int, int]] = []  # number of the output, and of the input whose memory it takes
        self.copied: list[tuple[int, int, int]] = []  # number of the output, of the address, and bytes
        kept: dict[int, int] = {}
        new = []
        for n, b in enumerate(results):
            root = stretch.root[b]
            is_donated = place.get(root) in self.donated
            if is_donated and place[root] not in [k for _, k in self.reused]:
                self.reused.append((n, place[root]))
                continue
            new.append(n)
            if root in stretch.kept and root not in kept:
                kept[root] = n
            else:
                self.copied.append((n, place[root], buffer_bytes(shapes[b])))
        self.kept = [kept[b] for b in stretch.kept]
        self.allocations = list(_allocations(new, [buffer_bytes(shapes[b]) for b in results]))

    def places_of(self, arrays: Sequence[object]) -> list[int] | None:
        """The addresses of arrays of CuPy that are all read where they lie; None where one of them is not."""
        if self.packed_inputs:
            return None
        ndarray, places = self.device.cupy.ndarray, []
        for value, (dimensions, dtype, strides) in zip(arrays, self.expected, strict=True):
            if type(value) is not ndarray:
                return None
            array = cast("Array", value)
            if array.shape != dimensions or array.strides != strides or array.dtype != dtype:
                return None
            places.append(cast("MemoryPointer", array.data).ptr)
        return None if any(place % ALIGNMENT for place in places) else places

    def __call__(self, arrays: list[Array], values: list[int] | None = None) -> list[Array] | None:
        """The outputs, for arrays that `is_as_wanted`, or flat memory in their place; `values` are their addresses,
        where they are known. None, with nothing started, where there is no memory for all at once."""
        device, executor, stretch = self.device, self.executor, self.whole.stretch
        cupy, executor.steps = device.cupy, 0
        if executor.graphs is not None:
            executor.graphs.begin()
        if values is None:
            values = [address(array) for array in arrays]
        outputs = [NOTHING] * len(self.outputs)
        addresses = [0] * len(self.outputs)
        alloc: Callable[[int], MemoryPointer] = cupy.cuda.alloc
        try:
            block = alloc(stretch.bytes) if stretch.bytes else None
            for k in self._shared(values) if self.donated else ():
                arrays[k] = cupy.empty(max(self.sizes[k], 1), "uint8")
                device.copy_bytes(values[k], address(arrays[k]), self.sizes[k])
                values[k] = address(arrays[k])
            for allocation in self.allocations:
                memory = alloc(allocation.size)
                first = memory.ptr
                for n, offset in allocation.outputs:
                    outputs[n] = self._array(n, memory + offset if offset else memory)
                    addresses[n] = first + offset
        except cupy.cuda.memory.OutOfMemoryError:
            return None
        values += [at for _, at in self.constants]
        values += [addresses[n] for n in self.kept]
        values.append(0 if block is None else block.ptr)
        self.whole.start([values[n] for n in self.order])
        executor.launches = stretch.launches
        for n, k in self.reused:
            outputs[n] = self._array(n, cast("MemoryPointer", arrays[k].data))
        for n, source, size in self.copied:
            device.copy_bytes(values[source], addresses[n], size)
        return outputs

    def _array(self, number: int, pointer: MemoryPointer) -> Array:
        """An output in memory."""
        dimensions, dtype, steps = self.forms[number]
        array: Array = self.device.cupy.ndarray(dimensions, dtype, pointer, steps)
        return array

    def is_as_wanted(self, number: int, array: Array) -> bool:
        """Whether an array of CuPy is read where it lies. Arrays of packed elements never are: CuPy's have a byte for
        each."""
        form = self.inputs[number]
        return bool(
            array.shape == form.dimensions
            and array.dtype == form.dtype
            and array.strides == form.strides
            and number not in self.packed_inputs
            and not address(array) % ALIGNMENT
        )

    def _shared(self, values: Sequence[int]) -> list[int]:
        """The donated inputs that cannot be written where they are: others share their memory, or (kernels write words)
        they do not end with one."""
        odd = [k for k in self.donated if self.sizes[k] % WORD]
        firsts = np.array(values, np.uint64)
        lasts = firsts + np.array(self.sizes, np.uint64)
        order = np.argsort(firsts)
        if not (firsts[order][1:] < np.maximum.accumulate(lasts[order])[:-1]).any():
            return odd
        meet = (firsts[:, None] < lasts) & (firsts < lasts[:, None]) & ~np.eye(len(values), dtype=bool)
        return sorted({*odd, *(k for k in self.donated if meet[k].any())})


def _allocations(outputs: Sequence[int], sizes: Sequence[int]) -> Iterator[_Allocation]:
    """Allocations for these outputs, given the bytes of each."""
    for size, group in itertools.groupby(sorted(outputs, key=lambda n: sizes[n]), key=lambda n: sizes[n]):
        numbers = list(group)
        step = -(-max(size, 1) // PART) * PART
        most = max(1, min(MOST_OUTPUTS, MOST_BYTES // step))
        for part in (numbers[at : at + most] for at in range(0, len(numbers), most)):
            yield _Allocation(step * len(part), [(n, step * at) for at, n in enumerate(part)])
