"""Bytes and flops of operations that do not simply read and write everything once, after XLA's cost analysis.

Source: xla/service/hlo_cost_analysis.cc and xla/service/gpu/model/gpu_hlo_cost_analysis.cc.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hlo_opt.ir import Computation, Instruction, WindowDimension
from hlo_opt.ops.shapes import flops_of


@dataclass(frozen=True, slots=True)
class Accesses:
    """The accesses of one execution: flops, bytes read per operand, bytes written. `utilization` is how often each
    operand's full size is used."""

    flops: float
    utilization: tuple[float, ...]
    read: tuple[float, ...]
    written: float

    @property
    def bytes(self) -> float:
        return sum(self.read) + self.written


FlopsOf = Callable[[Computation], float]
"""The flops of one run of a computation."""
AccessRule = Callable[[Instruction, FlopsOf], Accesses]

SPREADS = frozenset({"broadcast", "reshape"})
"""Operations that return the operand's elements in other dimensions, each once or more. These and `sets.SLICES` are
charged separately for each read of a fusion parameter (FusionParameterReadBytes)."""


def whole(instruction: Instruction, flops: float = 0.0) -> Accesses:
    """Accesses that read and write everything once."""
    return _partial(instruction, {}, None, flops)


def _partial(
    instruction: Instruction, used: dict[int, tuple[float, float]], written: float | None = None, flops: float = 0.0
) -> Accesses:
    """Like `whole`, with (bytes, utilization) overridden for some operands, by number."""
    parts = [used.get(n) or (float(o.shape.byte_size), 1.0) for n, o in enumerate(instruction.operands)]
    written = float(instruction.shape.byte_size) if written is None else written
    return Accesses(flops, tuple([share for _, share in parts]), tuple([size for size, _ in parts]), written)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _as_much_as_written(i: Instruction, called: FlopsOf) -> Accesses:
    """The first operand is read once per element of the result."""
    elements = _ratio(i.shape.element_count, i.operands[0].shape.element_count)
    return _partial(i, {0: (float(i.shape.byte_size), elements)})


def _dynamic_update_slice(i: Instruction, called: FlopsOf) -> Accesses:
    update, result = i.operands[1].shape, i.shape
    kept = _ratio(result.element_count - update.element_count, result.element_count)
    return _partial(i, {0: (0.0, kept)}, float(update.byte_size))


def _scatter(i: Instruction, called: FlopsOf) -> Accesses:
    updates = [o.shape for o in i.operands[len(i.operands) // 2 + 1 :]]
    sizes = [float(shape.byte_size) for shape in updates]
    flops = updates[0].element_count * called(i.called_by("to_apply"))
    return _partial(i, {n: (size, 1.0) for n, size in enumerate(sizes)}, sum(sizes), flops)


def _reduce(i: Instruction, called: FlopsOf) -> Accesses:
    count = len(i.operands) // 2
    results = next(i.shape.leaves()).element_count
    flops = called(i.called_by("to_apply")) * (i.operands[0].shape.element_count - results)
    inits = {n: (float(i.operands[n].shape.byte_size * results), float(results)) for n in range(count, 2 * count)}
    return _partial(i, inits, None, flops)


def _reduce_window(i: Instruction, called: FlopsOf) -> Accesses:
    results = next(i.shape.leaves()).element_count
    dimensions = getattr(i.value("window", ""), "dimensions", ())
    window = math.prod(d.size for d in dimensions)
    applied = (window - 1) * results
    spanned = _reduced_span(i, dimensions)
    if spanned is not None:
        window = spanned
        applied = results // window + window - 1
    operand = i.operands[0].shape
    used = {0: (float(results * window * operand.type.bytes), _ratio(results * window, operand.element_count))}
    return _partial(i, used, None, float(applied) * called(i.called_by("to_apply")))


def _reduced_span(i: Instruction, dimensions: Sequence[WindowDimension]) -> int | None:
    """The extent of the one dimension that a reduce-window sums over completely, keeping its size; None for other
    windows."""
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


def _convolution(i: Instruction, called: FlopsOf) -> Accesses:
    result, kernel = i.shape, i.operands[1].shape
    features = result.dimensions[-1] if result.dimensions else 1
    return whole(i, 2.0 * result.element_count * kernel.element_count / max(1, features))


def _concatenate(i: Instruction, called: FlopsOf) -> Accesses:
    dimension = i.ints("dimensions")[0]
    cost = 400 if dimension > 0 and i.operands[0].shape.dimensions[dimension] % 32 else 6
    return whole(i, float(cost * i.shape.element_count))


PARTIAL: dict[str, AccessRule] = {
    "slice": _as_much_as_written,
    "dynamic-slice": _as_much_as_written,
    "gather": _as_much_as_written,
    "dynamic-update-slice": _dynamic_update_slice,
    "scatter": _scatter,
}
"""Operations that access only a part of an operand or of their result."""

RULES: dict[str, AccessRule] = PARTIAL | {
    "broadcast": _as_much_as_written,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    **dict.fromkeys(("dot", "sort"), lambda i, called: whole(i, flops_of(i))),
    "convolution": _convolution,
    "concatenate": _concatenate,
    "map": lambda i, called: whole(i, i.shape.element_count * called(i.called_by("to_apply"))),
}
"""`PARTIAL`, and operations that a GPU reads repeatedly or whose flops their elements do not tell."""
