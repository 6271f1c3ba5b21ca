"""Cumulative windows that another compiler has taken apart, as one window again: the opposite of `cumulative-splitter`.

XLA computes a cumulative sum in parts of 16 elements: a cumulative window within each part, one over the last
elements of the parts, taken apart in the same way, and the sum of both (xla/service/reduce_window_rewriter.cc,
TryOptimizeCumSumOrProd). A module that it has optimised shows these steps, which take four kernels or more and read the
array several times. Joined, they are one kernel, and `cumulative-splitter` takes apart what is long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from hlo_opt.ir import Attribute, Called, Computation, Instruction, Shape, edit
from hlo_opt.ir.attribute import PaddingDimension, SliceDimension, Window, WindowDimension
from hlo_opt.ops.reduction.reducers import MONOIDS, is_identity, monoid, starts_with_identity
from hlo_opt.ops.sets import is_view
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.expansion import BroadcastingWriter
from hlo_opt.plans.cumulative import lines_of, only_axis


@dataclass(frozen=True)
class CumulativeJoiner(RewritingPass):
    """Join the parts of cumulative windows. The values stay the same up to rounding; the graph does not."""

    name: ClassVar[str] = "cumulative-joiner"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"
    idempotent: ClassVar[bool] = True

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        if not any(i.opcode == "reduce-window" for i in computation.instructions):
            return
        for i in list(computation.instructions):
            joined = _parts(i) or _without_padding(i)
            if joined is not None and not i.control_predecessors:
                yield partial(_put, i, *joined)


@dataclass(frozen=True)
class _Fold:
    """A fold along lines of row-major arrays.

    window       a cumulative window that folds so
    is_reversed  whether lines start at their end
    after        elements between neighbours of a line in memory
    """

    window: Instruction
    is_reversed: bool
    after: int

    def is_by(self, window: Instruction) -> bool:
        """Whether a window folds by the same operation, from its identity."""
        own, other = (monoid(w.called_by("to_apply")) for w in (self.window, window))
        return own == other and window.shape.type == self.window.shape.type and starts_with_identity(window)

    def ends(self, first: int, last: int) -> tuple[int, int]:
        """The numbers at the low and the high end of lines, from those where they start and where they end."""
        return (last, first) if self.is_reversed else (first, last)

    def cut(self, i: Instruction) -> tuple[Instruction, int, int, int] | None:
        """The array of a slice along lines, the length of its lines, and the places where the slice starts and ends on
        them. None for any other instruction."""
        if i.opcode != "slice" or not _is_plain(i):
            return None
        sizes = i.operands[0].shape.dimensions
        axes = [d for d, size in enumerate(sizes) if i.shape.dimensions[d] != size]
        if len(axes) != 1 or math.prod(sizes[axes[0] + 1 :]) != self.after:
            return None
        part, length = i.attribute("slice", tuple)[axes[0]], sizes[axes[0]]
        if not isinstance(part, SliceDimension) or part.stride != 1:
            return None
        start, limit = (length - part.limit, length - part.start) if self.is_reversed else (part.start, part.limit)
        return i.operands[0], length, start, limit

    def padded(self, i: Instruction, first: int, last: int) -> tuple[Instruction, int] | None:
        """The array that a pad extends by this many identities where lines start and end, and the length of its lines.
        None for any other instruction."""
        if i.opcode != "pad" or not _is_plain(i) or i.operands[1].literal is None:
            return None
        opcode, value = monoid(self.window.called_by("to_apply")), i.operands[1].literal
        if opcode is None or value.is_elided or not is_identity(opcode, i.shape.type, value.value):
            return None
        padding = i.attribute("padding", tuple)
        axes = [d for d, p in enumerate(padding) if p != PaddingDimension(0, 0)]
        if len(axes) != 1 or padding[axes[0]] != PaddingDimension(*self.ends(first, last)):
            return None
        sizes = i.operands[0].shape.dimensions
        return (i.operands[0], sizes[axes[0]]) if math.prod(sizes[axes[0] + 1 :]) == self.after else None

    def folded(self, i: Instruction) -> tuple[Instruction, int] | None:
        """The array whose folds, of each element and those before it, a value is; and the length of its lines."""
        i = _bare(i)
        cut = self.cut(i)
        if cut is not None:
            whole, length, start, limit = cut
            known = self.folded(whole)
            if known is None or start or known[1] != length:
                return None
            return self.padded(_bare(known[0]), 0, length - limit)
        fold = _fold_of(i)
        if fold is None or (fold.is_reversed, fold.after) != (self.is_reversed, self.after) or not self.is_by(i):
            return None
        return i.operands[0], _length(i)

    def before(self, i: Instruction) -> tuple[Instruction, int] | None:
        """The array whose folds, of what lies before each element, a value is; and the length of its lines."""
        cut = self.cut(_bare(i))
        if cut is None or cut[2] or cut[1] != cut[3] + 1:
            return None
        whole, length = _bare(cut[0]), cut[3]
        padded = self.padded(whole, 1, 0)
        if padded is not None:
            known = self.folded(padded[0])
            return known if known is not None and known[1] == length else None
        along = only_axis(whole)
        if along is None or not _is_plain(whole) or not self.is_by(whole):
            return None
        low, high = self.ends(length, 0)
        sizes = whole.operands[0].shape.dimensions
        if along[1] != WindowDimension(length, pad_low=low, pad_high=high) or sizes[along[0]] != length:
            return None
        return (whole.operands[0], length) if math.prod(sizes[along[0] + 1 :]) == self.after else None


def _parts(i: Instruction) -> tuple[_Fold, Instruction, int] | None:
    """For the fold of the folds within parts and of what lies before them: the fold, the array, and the length of its
    whole lines. None for any other instruction."""
    if i.opcode not in MONOIDS or len(i.operands) != 2:
        return None
    for within, front in (i.operands, i.operands[::-1]):
        fold = _fold_of(within)
        if fold is None or monoid(within.called_by("to_apply")) != i.opcode or front.opcode != "broadcast":
            continue
        axis, size = _axis(within), _length(within)
        if front.attribute("dimensions", tuple) != tuple(d for d in range(i.shape.rank) if d != axis):
            continue
        parts = fold.before(front.operands[0])
        last = None if parts is None else fold.cut(_bare(parts[0]))
        if parts is not None and last is not None and _bare(last[0]) is within and last[1:] == (size, size - 1, size):
            return fold, within.operands[0], parts[1] * size
    return None


def _without_padding(i: Instruction) -> tuple[_Fold, Instruction, int] | None:
    """For the part of a cumulative window that does not fold padding: the fold, the array without it, and the length of
    its lines. None for any other instruction."""
    window = _bare(i.operands[0]) if i.opcode == "slice" else i
    fold = None if window is i else _fold_of(window)
    known = None if fold is None else fold.folded(i)
    return None if fold is None or known is None else (fold, *known)


def _put(i: Instruction, fold: _Fold, array: Instruction, length: int) -> None:
    """Replace a value by one cumulative window over lines of the array."""
    writer, element_type = BroadcastingWriter(i.computation), i.shape.type
    ahead = array.shape.element_count // (length * fold.after)
    sizes = [(ahead, 1), (length, length), (fold.after, 1)]
    shape = Shape(element_type, tuple(size for size, _ in sizes if size > 1))
    low, high = fold.ends(length - 1, 0)
    along = WindowDimension(length, pad_low=low, pad_high=high)
    window = Window(tuple(along if many > 1 else WindowDimension(1) for size, many in sizes if size > 1))
    attributes: dict[str, Attribute | Called] = {
        "window": Attribute.of(window),
        "to_apply": Called(fold.window.called_by("to_apply")),
    }
    operands = (writer.reshape(_bare(array), shape), fold.window.operands[1])
    joined = edit.create(i.computation, "cumulative", "reduce-window", shape, operands, attributes)
    edit.replace_all_uses(i, writer.reshape(joined, i.shape))
    edit.remove(i)


def _fold_of(i: Instruction) -> _Fold | None:
    """The fold of a cumulative window of one row-major array, from the identity of its operation."""
    lines = lines_of(i)
    if lines is None or i.shape.is_tuple or not _is_plain(i) or not starts_with_identity(i):
        return None
    return _Fold(i, lines.is_reversed, math.prod(i.shape.dimensions[lines.axis + 1 :]))


def _axis(window: Instruction) -> int:
    along = only_axis(window)
    assert along is not None
    return along[0]


def _length(window: Instruction) -> int:
    return window.shape.dimensions[_axis(window)]


def _is_plain(i: Instruction) -> bool:
    """Whether an instruction and its first operand are row-major arrays of known sizes."""
    return all(s.is_array and s.is_row_major and not any(s.dynamic) for s in (i.shape, i.operands[0].shape))


def _bare(i: Instruction) -> Instruction:
    """The array that a value is in other dimensions: its elements have the same order in memory."""
    while (is_view(i.opcode) or i.opcode == "reshape") and i.shape.type == i.operands[0].shape.type and _is_plain(i):
        i = i.operands[0]
    return i
