"""Scans that fold by one operation, as cumulative windows.

JAX 0.11 writes `cumsum` for GPUs as a scan. Its kernel has one thread for a line; that of a cumulative window shares a
line among threads, and long lines are split (`cumulative-splitter`). Sums and products of floats are only rewritten
where the scan is declared associative: then their order is open. XLA does the same
(xla/hlo/transforms/simplifiers/reduce_window_rewriter.cc, TryOptimizeAssociativeScan).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

from hlo_opt.ir import Attribute, Called, Computation, Instruction, Shape, edit
from hlo_opt.ir.attribute import PaddingDimension, SliceDimension, Window, WindowDimension
from hlo_opt.ops.reduction.cumulative import CumulativeScan, cumulative_scan
from hlo_opt.ops.reduction.reducers import identity, is_identity
from hlo_opt.ops.reduction.table import is_reversed
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.expansion import BroadcastingWriter, scalar_reducer


@dataclass(frozen=True)
class ScanToWindow(RewritingPass):
    """Replace scans that fold by one operation by cumulative windows. The values stay the same up to rounding; the
    graph does not."""

    name: ClassVar[str] = "scan-to-window"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"
    idempotent: ClassVar[bool] = True

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        for scan in [i for i in computation.instructions if i.opcode == "scan"]:
            fold = cumulative_scan(scan)
            if fold is not None and not scan.control_predecessors and _is_plain(next(scan.shape.leaves())):
                yield partial(_put, scan, fold)


def _is_plain(whole: Shape) -> bool:
    """Whether a kernel of cumulative windows writes the array: it has elements, sizes that are known, and a type that
    threads pass on whole."""
    return bool(whole.element_count) and not (any(whole.dynamic) or whole.type.is_complex or whole.type.per_byte > 1)


def _put(scan: Instruction, fold: CumulativeScan) -> None:
    """Replace a scan by a tuple of its results, and what reads an element of it by that element."""
    writer = _Lines(scan, fold)
    results = writer.results()
    scan.computation.index_users()
    for user in [u for u in scan.users if u.opcode == "get-tuple-element"]:
        edit.replace_all_uses(user, results[user.attribute("index", int)])
        edit.remove(user)
    edit.replace_all_uses(scan, edit.create_tuple(scan.computation, results))
    edit.remove(scan)


class _Lines:
    """A scan, and the operations that compute its results."""

    def __init__(self, scan: Instruction, fold: CumulativeScan) -> None:
        self.scan, self.fold, self.writer = scan, fold, BroadcastingWriter(scan.computation)
        self.axis, self.is_reversed = scan.ints("dimensions")[0], is_reversed(scan)
        self.whole, self.last = scan.shape.leaves()
        self.neutral = self.writer.scalar(self.whole.type, identity(fold.opcode, self.whole.type))

    def results(self) -> list[Instruction]:
        """The folds at each element, and those of whole lines."""
        sums = self._window()
        through = self._from_start(sums)
        if not self.fold.is_exclusive:
            return [through, self._end(through)]
        one_on = PaddingDimension(-1, 1) if self.is_reversed else PaddingDimension(1, -1)
        padding = tuple(one_on if d == self.axis else PaddingDimension(0, 0) for d in range(self.whole.rank))
        before = self.writer.emit("pad", self.whole, sums, self.neutral, padding=padding)
        return [self._from_start(before), self._end(through)]

    def _window(self) -> Instruction:
        """The fold of all elements up to each, that included."""
        size, computation = self.whole.dimensions[self.axis], self.scan.computation
        low, high = (0, size - 1) if self.is_reversed else (size - 1, 0)
        along = WindowDimension(size, pad_low=low, pad_high=high)
        window = Window(tuple(along if d == self.axis else WindowDimension(1) for d in range(self.whole.rank)))
        reducer = scalar_reducer(computation, self.fold.opcode, Shape(self.whole.type))
        attributes: dict[str, Attribute | Called] = {"window": Attribute.of(window), "to_apply": Called(reducer)}
        operands = (self.scan.operands[0], self.neutral)
        return edit.create(computation, "cumulative", "reduce-window", self.whole, operands, attributes)

    def _from_start(self, sums: Instruction) -> Instruction:
        """The folds, begun with the values that lines start with."""
        start = self.scan.operands[1]
        scalar = start.operands[0] if start.opcode == "broadcast" else start
        literal = None if scalar.shape.rank else scalar.literal
        is_known = literal is not None and not literal.is_elided
        if literal is not None and is_known and is_identity(self.fold.opcode, scalar.shape.type, literal.value):
            return sums
        kept = tuple(d for d in range(self.whole.rank) if d != self.axis)
        starts = self.writer.emit("broadcast", self.whole, start, dimensions=kept)
        return self.writer.emit(self.fold.opcode, self.whole, starts, sums)

    def _end(self, through: Instruction) -> Instruction:
        """The last of the folds of each line."""
        sizes = self.whole.dimensions
        at = 0 if self.is_reversed else sizes[self.axis] - 1
        limits = tuple(
            SliceDimension(at, at + 1) if d == self.axis else SliceDimension(0, n) for d, n in enumerate(sizes)
        )
        thin = replace(self.whole, dimensions=tuple(1 if d == self.axis else n for d, n in enumerate(sizes)))
        return self.writer.reshape(self.writer.emit("slice", thin, through, slice=limits), self.last)
