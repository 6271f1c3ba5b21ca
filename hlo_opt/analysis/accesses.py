"""Bytes and operations of one instruction: how much of each operand it reads, what it writes, what it computes.

Source: xla/service/hlo_cost_analysis.cc and xla/service/gpu/model/gpu_hlo_cost_analysis.cc.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hlo_opt.analysis.facts import FREE, is_elementwise
from hlo_opt.analysis.flops import flops_per_element, result_type
from hlo_opt.ir import Computation, Instruction, Shape


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
    """Bytes of a shape; a tuple counts its leaves, as XLA's GPU cost analysis does not count pointers."""
    return shape.byte_size


def ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def accesses(instruction: Instruction, capability: int) -> Accesses:
    """The accesses of an instruction that is no fusion and no control flow; nothing for one that launches no work."""
    opcode = instruction.opcode
    if opcode in FREE:
        return Accesses(
            0.0,
            tuple(0.0 if opcode == "constant" else 1.0 for _ in instruction.operands),
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
        accesses(i, capability).flops for i in computation.instructions if i.opcode not in FREE and i.opcode != "fusion"
    )


def _partial(
    instruction: Instruction, used: dict[int, float], written: float | None = None, flops: float = 0.0
) -> Accesses:
    """Like `whole`, with other numbers of bytes for some operands."""
    read, share = [], []
    for n, operand in enumerate(instruction.operands):
        size = float(byte_size(operand.shape))
        read.append(used.get(n, size))
        share.append(ratio(read[-1], size) if n in used else 1.0)
    return Accesses(
        flops, tuple(share), tuple(read), float(byte_size(instruction.shape)) if written is None else written
    )


def _broadcast(i: Instruction, capability: int) -> Accesses:
    return _partial(i, {0: float(byte_size(i.shape))})


def _window_of_first(i: Instruction, capability: int) -> Accesses:
    return _partial(i, {0: float(byte_size(i.shape))})


def _gather(i: Instruction, capability: int) -> Accesses:
    return _partial(i, {0: float(byte_size(i.shape))})


def _dynamic_update_slice(i: Instruction, capability: int) -> Accesses:
    update = float(byte_size(i.operands[1].shape))
    base = _partial(i, {0: 0.0}, update)
    whole_size = float(byte_size(i.shape))
    return Accesses(0.0, (ratio(whole_size - update, whole_size), *base.utilization[1:]), base.read, update)


def _scatter(i: Instruction, capability: int) -> Accesses:
    count = len(i.operands) // 2
    updates = sum(float(byte_size(o.shape)) for o in i.operands[count + 1 :])
    elements = sum(o.shape.element_count for o in i.operands[count + 1 :])
    flops = elements * reducer_flops(i.called_by("to_apply"), capability)
    return _partial(i, {n: updates / max(1, count) for n in range(count)}, updates, flops)


def _reduce(i: Instruction, capability: int) -> Accesses:
    count = len(i.operands) // 2
    results = next(i.shape.leaves()).element_count
    flops = reducer_flops(i.called_by("to_apply"), capability) * (i.operands[0].shape.element_count - results)
    inits = {n: float(byte_size(i.operands[n].shape)) * results for n in range(count, 2 * count)}
    return _partial(i, inits, None, flops)


def _window_sizes(i: Instruction) -> list[int]:
    return [d.size for d in getattr(i.value("window", ""), "dimensions", ())]


def _reduce_window(i: Instruction, capability: int) -> Accesses:
    count = len(i.operands) // 2
    results = next(i.shape.leaves()).element_count
    window = math.prod(_window_sizes(i))
    flops = max(0, window - 1) * results * reducer_flops(i.called_by("to_apply"), capability)
    used = {n: float(window * results * i.operands[n].shape.type.bytes) for n in range(count)}
    used.update({n: float(byte_size(i.operands[n].shape)) * results for n in range(count, 2 * count)})
    return _partial(i, used, None, flops)


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
    return whole(i, elements * math.log2(elements) if elements > 1 else 0.0)


def _concatenate(i: Instruction, capability: int) -> Accesses:
    dimension = i.ints("dimensions")[0]
    cost = 400 if dimension > 0 and i.operands[0].shape.dimensions[dimension] % 32 else 6
    return whole(i, float(cost * i.shape.element_count))


def _map(i: Instruction, capability: int) -> Accesses:
    return whole(i, i.shape.element_count * reducer_flops(i.called_by("to_apply"), capability))


_SPECIAL: dict[str, Callable[[Instruction, int], Accesses]] = {
    "broadcast": _broadcast,
    "slice": _window_of_first,
    "dynamic-slice": _window_of_first,
    "gather": _gather,
    "dynamic-update-slice": _dynamic_update_slice,
    "scatter": _scatter,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "dot": _dot,
    "convolution": _convolution,
    "sort": _sort,
    "concatenate": _concatenate,
    "map": _map,
}
