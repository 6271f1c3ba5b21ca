"""Bytes and operations of one instruction: how much of each operand it reads, what it writes, what it computes.

Source: xla/service/hlo_cost_analysis.cc and xla/service/gpu/model/gpu_hlo_cost_analysis.cc.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hlo_opt.analysis.memory.flops import flops_per_element, result_type
from hlo_opt.analysis.memory.transposes import moves_data
from hlo_opt.ir import Computation, Instruction, Shape, WindowDimension
from hlo_opt.ops.sets import is_elementwise, is_free


@dataclass(frozen=True, slots=True)
class Accesses:
    """Of one execution. `utilization` is how often each operand's full size is used, by operand number; `read` the bytes read of each."""

    flops: float
    utilization: tuple[float, ...]
    read: tuple[float, ...]
    written: float

    @property
    def bytes(self) -> float:
        return sum(self.read) + self.written


def byte_size(shape: Shape) -> int:
    """Bytes of a shape; a tuple counts its leaves, as XLA's GPU cost analysis does not count pointers. A dimension without a bound counts nothing."""
    return max(0, shape.byte_size)


def ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def accesses(instruction: Instruction, capability: int) -> Accesses:
    """The accesses of an instruction that is no fusion and no control flow; nothing for one that launches no work."""
    opcode = instruction.opcode
    if is_free(opcode):
        return Accesses(
            0.0,
            (1.0,) * len(instruction.operands),
            (0.0,) * len(instruction.operands),
            0.0,
        )
    special = _SPECIAL.get(opcode)
    if special is not None:
        return special(instruction, capability)
    flops = 0.0
    if is_elementwise(instruction) and opcode != "copy":
        flops = instruction.shape.element_count * per_element(instruction, capability)
    return whole(instruction, flops)


def per_element(instruction: Instruction, capability: int) -> int:
    """Operations for one element of an elementwise result."""
    return flops_per_element(instruction.opcode, result_type(instruction), capability)


def whole(instruction: Instruction, flops: float = 0.0) -> Accesses:
    """Everything is read once and written once."""
    read = tuple(float(byte_size(o.shape)) for o in instruction.operands)
    return Accesses(flops, (1.0,) * len(read), read, float(byte_size(instruction.shape)))


def reducer_flops(computation: Computation, capability: int) -> float:
    """Operations of one call of a reducer."""
    return sum(
        accesses(i, capability).flops
        for i in computation.instructions
        if not is_free(i.opcode) and i.opcode != "fusion"
    )


def _partial(
    instruction: Instruction,
    used: dict[int, tuple[float, float]],
    written: float | None = None,
    flops: float = 0.0,
) -> Accesses:
    """Like `whole`, with other bytes and another utilization (in this order) for some operands, by number."""
    read, share = [], []
    for n, operand in enumerate(instruction.operands):
        size, utilization = used[n] if n in used else (float(byte_size(operand.shape)), 1.0)
        read.append(size)
        share.append(utilization)
    return Accesses(
        flops, tuple(share), tuple(read), float(byte_size(instruction.shape)) if written is None else written
    )


def _as_much_as_written(i: Instruction, capability: int) -> Accesses:
    """The first operand is read once for each element of the result."""
    elements = ratio(i.shape.element_count, i.operands[0].shape.element_count)
    return _partial(i, {0: (float(byte_size(i.shape)), elements)})


def _dynamic_update_slice(i: Instruction, capability: int) -> Accesses:
    update, result = i.operands[1].shape, i.shape
    kept = ratio(result.element_count - update.element_count, result.element_count)
    return _partial(i, {0: (0.0, kept)}, float(byte_size(update)))


def _scatter(i: Instruction, capability: int) -> Accesses:
    count = len(i.operands) // 2
    sizes = [float(byte_size(o.shape)) for o in i.operands[count + 1 :]]
    elements = i.operands[count + 1].shape.element_count
    flops = elements * reducer_flops(i.called_by("to_apply"), capability)
    return _partial(i, {n: (size, 1.0) for n, size in enumerate(sizes)}, sum(sizes), flops)


def _reduce(i: Instruction, capability: int) -> Accesses:
    count = len(i.operands) // 2
    results = next(i.shape.leaves()).element_count
    flops = reducer_flops(i.called_by("to_apply"), capability) * (i.operands[0].shape.element_count - results)
    inits = {n: (float(byte_size(i.operands[n].shape) * results), float(results)) for n in range(count, 2 * count)}
    return _partial(i, inits, None, flops)


def _transpose(i: Instruction, capability: int) -> Accesses:
    """A transpose that only renames dimensions is a bitcast: it touches no memory."""
    return whole(i) if moves_data(i) else Accesses(0.0, (1.0,), (0.0,), 0.0)


def _reduce_window(i: Instruction, capability: int) -> Accesses:
    results = next(i.shape.leaves()).element_count
    dimensions = getattr(i.value("window", ""), "dimensions", ())
    window = math.prod(d.size for d in dimensions)
    applied = (window - 1) * results
    spanned = _reduced_span(i, dimensions)
    if spanned is not None:
        window = spanned
        applied = results // window + window - 1
    operand = i.operands[0].shape
    used = {0: (float(results * window * operand.type.bytes), ratio(results * window, operand.element_count))}
    return _partial(i, used, None, float(applied) * reducer_flops(i.called_by("to_apply"), capability))


def _reduced_span(i: Instruction, dimensions: Sequence[WindowDimension]) -> int | None:
    """The extent of the one dimension that a reduce-window reduces in full and spreads back over itself; None for other windows."""
    windowed = [n for n, d in enumerate(dimensions) if d.size != 1]
    padded = [d for d in dimensions if d.pad_low or d.pad_high]
    if len(windowed) != 1 or len(padded) != 1 or not i.shape.is_array:
        return None
    number = windowed[0]
    d = dimensions[number]
    if d.pad_low == 0 or d.pad_low != d.pad_high or d.size != 2 * d.pad_low + 1:
        return None
    extent = i.shape.dimensions[number]
    return extent if d.pad_low == extent - 1 else None


def _dot(i: Instruction, capability: int) -> Accesses:
    left = i.operands[0].shape
    contracted = math.prod(left.dimensions[d] for d in i.ints("lhs_contracting_dims"))
    return whole(i, 2.0 * i.shape.element_count * contracted)


def _convolution(i: Instruction, capability: int) -> Accesses:
    kernel = i.operands[1].shape
    return whole(
        i,
        2.0
        * i.shape.element_count
        * kernel.element_count
        / max(1, i.shape.dimensions[-1] if i.shape.dimensions else 1),
    )


def _sort(i: Instruction, capability: int) -> Accesses:
    elements = i.operands[0].shape.element_count
    return whole(i, float(elements * (elements - 1).bit_length()) if elements > 1 else 0.0)


def _concatenate(i: Instruction, capability: int) -> Accesses:
    dimension = i.ints("dimensions")[0]
    cost = 400 if dimension > 0 and i.operands[0].shape.dimensions[dimension] % 32 else 6
    return whole(i, float(cost * i.shape.element_count))


def _map(i: Instruction, capability: int) -> Accesses:
    return whole(i, i.shape.element_count * reducer_flops(i.called_by("to_apply"), capability))


_SPECIAL: dict[str, Callable[[Instruction, int], Accesses]] = {
    "broadcast": _as_much_as_written,
    "slice": _as_much_as_written,
    "dynamic-slice": _as_much_as_written,
    "gather": _as_much_as_written,
    "dynamic-update-slice": _dynamic_update_slice,
    "scatter": _scatter,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "transpose": _transpose,
    "dot": _dot,
    "convolution": _convolution,
    "sort": _sort,
    "concatenate": _concatenate,
    "map": _map,
}
