"""Arrays of CuPy, and of any DLPack producer, in and out of a run without copies."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from typing import Any, cast

from hlo_opt.codegen.emit import ALIGNMENT
from hlo_opt.diag import EvaluationError
from hlo_opt.evaluate.inputs import checked, checked_array
from hlo_opt.ir import Shape
from hlo_opt.ir.values import Array
from hlo_opt.library import arrays
from hlo_opt.library.arrays import raw_dtype
from hlo_opt.runtime.cupy.bound_entry import BoundEntry
from hlo_opt.runtime.cupy.device import CupyDevice
from hlo_opt.runtime.cupy.graphs import RunGraphs
from hlo_opt.runtime.numpy import WORD
from hlo_opt.runtime.schedule.executor import Executor
from hlo_opt.runtime.schedule.stretch import NOTHING, Memory, span_of

_CUDA = 2
"""The device number of CUDA in DLPack (dlpack.h, kDLCUDA)."""


class Exchange:
    """Runs an executable on arrays that lie on its GPU."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self._entries: dict[bool, BoundEntry | None] = {}

    def __call__(self, inputs: Sequence[object], *, donate: bool) -> list[Array]:
        """The entry's outputs as CuPy arrays.

        The caller's memory is overwritten only where the module's header donates an input and `donate` is set. No
        output shares memory with another output, an input that is kept, or a constant; small ones of one size may
        share an allocation.
        Raises EvaluationError (HLO401) for inputs that do not fit.
        """
        executor = self.executor
        device = executor.device
        assert isinstance(device, CupyDevice)
        if donate not in self._entries:
            self._entries[donate] = _bound_entry(executor, donate=donate)
        entry = self._entries[donate]
        if entry is None or len(inputs) != len(entry.inputs):
            return run_on_device(executor, inputs, donate=donate)
        arrays = cast("list[Array]", list(inputs))
        ndarray, places = device.cupy.ndarray, entry.places_of(inputs)
        for number, array in enumerate(arrays if places is None else ()):
            if not (isinstance(array, ndarray) and entry.is_as_wanted(number, array)):
                there = _on_device(device, array)
                if not (isinstance(there, ndarray) and entry.is_as_wanted(number, there)):
                    there = _input_buffer(device, number, there, entry.inputs[number].shape)
                arrays[number] = there
        try:
            outputs = entry(arrays, places)
        except Exception as error:
            device.fail(error, None, "starting a run")
        if outputs is None:
            return run_on_device(executor, inputs, donate=donate)
        for n in entry.packed:
            outputs[n] = _array(device, outputs[n], entry.outputs[n].shape)
        return outputs


def _bound_entry(executor: Executor, *, donate: bool) -> BoundEntry | None:
    """The entry as one stretch, if it is one."""
    if not isinstance(executor.graphs, RunGraphs):
        return None
    entry = executor.graphs.in_line(executor.schedule.entry if donate else executor.keeping)
    whole = executor.graphs.whole_stretch(entry)
    donated = [k for k, _ in entry.donated] if donate else []
    return None if whole is None else BoundEntry(executor, entry, whole, donated)


def run_on_device(executor: Executor, inputs: Sequence[object], *, donate: bool) -> list[Array]:
    """As `Exchange`, stretch by stretch and operation by operation."""
    device, entry = executor.device, executor.schedule.entry
    assert isinstance(device, CupyDevice)
    shared = device.cupy.may_share_memory
    wanted = [entry.shapes[b] for b in entry.inputs]
    arrays = [_on_device(device, array) for array in inputs]
    if len(arrays) != sum(shape.is_array for shape in wanted):
        checked(executor.schedule.module, inputs)  # raises, naming what is missing
    left = iter(enumerate(arrays))
    arguments = [_input_buffer(device, *next(left), shape) if shape.is_array else NOTHING for shape in wanted]
    donated = {k for k, _ in entry.donated} if donate else set()
    for k in donated:
        others = [m for n, m in enumerate(arguments) if n != k and m is not NOTHING]
        if arguments[k].nbytes % WORD or any(shared(arguments[k], m) for m in others):
            arguments[k] = device.copy(arguments[k])
    results = executor.run_resident(arguments, donate=donate)
    kept = [m for k, m in enumerate(arguments) if k not in donated and m is not NOTHING]
    in_use = _merged(span_of(m) for m in (*kept, *executor.constants()))
    outputs = []
    for memory, b in zip(results, entry.results, strict=True):
        shape = entry.shapes[b]
        if shape.is_array:
            own = device.copy(memory) if _meets(in_use, span_of(memory)) else memory
            bisect.insort(in_use, span_of(own))
            outputs.append(_array(device, own, shape))
    return outputs


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans in order, those that overlap as one."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if merged and first < merged[-1][1]:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return merged


def _meets(merged: Sequence[tuple[int, int]], span: tuple[int, int]) -> bool:
    """Whether a span overlaps one of these."""
    at = bisect.bisect(merged, span)
    return any(first < span[1] and span[0] < last for first, last in merged[max(at - 1, 0) : at + 1])


def _on_device(device: CupyDevice, array: Any) -> Any:
    """A CuPy array for an array on a GPU; other arrays unchanged."""
    cupy = device.cupy
    if isinstance(array, cupy.ndarray):
        return array
    where = getattr(array, "__dlpack_device__", None)
    return cupy.from_dlpack(array) if where is not None and where()[0] == _CUDA else array


def _input_buffer(device: CupyDevice, number: int, array: Any, shape: Shape) -> Memory:
    """The buffer of an input: the array's own memory if its layout is the shape's."""
    cupy = device.cupy
    if not isinstance(array, cupy.ndarray):
        return device.upload(checked_array(number, shape, array), shape)
    raw = raw_dtype(shape.type.dtype)
    if array.dtype not in (shape.type.dtype, raw) or array.shape != shape.dimensions:
        sizes, expected = (",".join(map(str, of)) for of in (array.shape, shape.dimensions))
        raise EvaluationError(
            f"in{number} is {array.dtype}[{sizes}], expected {shape.type}[{expected}] ({raw})", code="HLO401"
        )
    if shape.is_row_major and array.dtype == raw and array.flags.c_contiguous:
        flat: Any = array.reshape(-1)
    else:
        flat = arrays.flat(cupy, array.view(raw), shape.minor_to_major)
    if shape.type.per_byte > 1:
        return arrays.packed(cupy, flat, shape.type.bits)
    return flat if flat.data.ptr % ALIGNMENT == 0 else device.copy(flat)


def _array(device: CupyDevice, memory: Memory, shape: Shape) -> Array:
    values = memory
    if shape.type.per_byte > 1:
        values = arrays.unpacked(device.cupy, memory, shape.type.bits, shape.element_count)
    return arrays.logical(values, shape.dimensions, shape.minor_to_major)
