"""Long cumulative windows in parts, so that all multiprocessors have work where there are few lines.

Each line is divided into parts of a length near its square root. The parts are folded; a cumulative window over their
results gives the value before each part; a cumulative window within each part adds that value. Three kernels read the
array twice and write it once: the price of one kernel says where they are quicker. That is where lines are not
contiguous in memory: for others, one kernel looks back (see `plans/look_back.py`). The order of elements stays; the
order in which they are folded does not. XLA does the same to every such window
(xla/service/reduce_window_rewriter.cc, TryOptimizeCumSumOrProd).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar
from typing import Literal as OneOf

import numpy as np

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Attribute, Called, Computation, Instruction, Layout, Shape, edit
from hlo_opt.ir.attribute import PaddingDimension, SliceDimension, Window, WindowDimension
from hlo_opt.ops.reduction.reducers import is_wide, monoid, running_types, starts_with_identity, widened
from hlo_opt.ops.reduction.symmetry import commutes
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.expansion import BroadcastingWriter, scalar_reducer
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.plans.cumulative import Lines, Prefixes, lines_of
from hlo_opt.plans.price import price

WORTH = 1.15
"""How many times longer one kernel must take than three, as far as they are known: they hold up what runs beside."""


@dataclass(frozen=True)
class CumulativeSplitter(RewritingPass):
    """Split long cumulative windows over few lines. The values stay the same up to rounding; the graph does not."""

    name: ClassVar[str] = "cumulative-splitter"
    preserves: ClassVar[OneOf["graph", "meaning"]] = "meaning"

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        for window in [i for i in computation.instructions if i.opcode == "reduce-window"]:
            lines = worth_splitting(window, context.options.target)
            if lines is not None:
                yield _Split(window, lines).put


def worth_splitting(window: Instruction, target: DeviceTarget) -> Lines | None:
    """The lines, if folding in parts gives the same and takes less time. Else None."""
    lines, module = lines_of(window), window.computation.module
    if lines is None or module is None or window.shape.is_tuple or any(window.shape.dynamic):
        return None
    if not _starts_anywhere(window) or window.control_predecessors:
        return None
    if window.operands[0].shape.minor_to_major != window.shape.minor_to_major:
        return None
    part = Prefixes(((window,),), (), lines, target.core_count)
    if part.tiles == 1 or part.segment(part.block).blocks >= target.core_count:
        return None
    whole = plan(region_of(module, window), target)
    if not isinstance(whole, Plan):
        return None
    one = price(whole, target)
    # each waits for memory, and together they move half as many bytes again
    three = 3 * (one.launch + target.idle_load_us) + 1.5 * one.memory
    return lines if one.us > WORTH * three else None


def _starts_anywhere(window: Instruction) -> bool:
    """Whether parts may start with the init value, and be folded in any order: it is the identity of an operation, or
    that of another reducer that commutes, as HLO assumes."""
    reducer, init = window.called_by("to_apply"), window.operands[1].literal
    if init is None or init.is_elided:
        return False
    return starts_with_identity(window) if monoid(reducer) is not None else commutes(reducer)


def part_length(length: int) -> int:
    """The length of a part: a divisor of the line's length near its square root, a multiple of 4 if there is one; else
    a power of two, and the last part is padded."""
    root = math.isqrt(length)
    near = [d for d in range(root // 4 + 1, 4 * root) if length % d == 0]
    fours = [d for d in near if d % 4 == 0]
    return min(fours or near or [1 << (root.bit_length() - 1)], key=lambda d: abs(math.log(d / root)))


class _Split:
    """A window and its parts. Narrow floats are f32 from the first part to the result, which is rounded once."""

    def __init__(self, window: Instruction, lines: Lines) -> None:
        self.window, self.axis, self.is_reversed = window, lines.axis, lines.is_reversed
        self.writer = BroadcastingWriter(window.computation)
        (self.wide,) = running_types(window)
        self.size = part_length(lines.length)
        self.parts = -(-lines.length // self.size)
        self.missing = self.parts * self.size - lines.length
        self.reducer = self._reducer()
        literal: Any = window.operands[1].literal
        self.start = self.writer.scalar(self.wide, np.asarray(literal.value).reshape(-1)[0])

    def _reducer(self) -> Computation:
        """The reducer in the accumulator type."""
        module, own = self.window.computation.module, self.window.called_by("to_apply")
        opcode = monoid(own)
        assert module is not None
        if opcode is not None:
            return scalar_reducer(self.window.computation, opcode, Shape(self.wide))
        return edit.clone_into_module(module, widened(own)) if is_wide(self.window) else own

    def put(self) -> None:
        """Replace the window by the value."""
        edit.replace_all_uses(self.window, self.result())
        edit.remove(self.window)

    def result(self) -> Instruction:
        """The value of the window."""
        final = self.window.shape
        whole = replace(final, element_type=self.wide)
        x = self.window.operands[0]
        if x.shape.type != self.wide:
            x = self.writer.emit("convert", whole, x)
        padded = self._resized(whole, self.parts * self.size)
        if self.missing:
            x = self.writer.emit("pad", padded, x, self.start, padding=self._along(padded, self._ends(self.missing)))
        split = self._split(padded)
        x = self.writer.reshape(x, split)
        before = self._before(x)
        kept = tuple(d for d in range(split.rank) if d != self.axis + 1)
        front = self.writer.emit("broadcast", split, before, dimensions=kept)
        within = self._cumulative(x, self.axis + 1)
        x = self.writer.applied(self.reducer, *((within, front) if self.is_reversed else (front, within)))
        x = self.writer.reshape(x, padded)
        if self.missing:
            low = self.missing if self.is_reversed else 0
            limits = [SliceDimension(0, size) for size in padded.dimensions]
            limits[self.axis] = SliceDimension(low, low + final.dimensions[self.axis])
            x = self.writer.slice(whole, x, limits)
        return self.writer.emit("convert", final, x) if final.type != self.wide else x

    def _before(self, x: Instruction) -> Instruction:
        """The fold of all elements before each part."""
        order = [d - (d > self.axis + 1) for d in x.shape.minor_to_major if d != self.axis + 1]
        sizes = tuple(size for d, size in enumerate(x.shape.dimensions) if d != self.axis + 1)
        shape = Shape(self.wide, sizes, Layout(tuple(order)))
        attributes: dict[str, Attribute | Called] = {
            "dimensions": Attribute.of((self.axis + 1,)),
            "to_apply": Called(self.reducer),
        }
        totals = edit.create(self.window.computation, "totals", "reduce", shape, (x, self.start), attributes)
        sums = self._cumulative(totals, self.axis)
        one_on = self._along(shape, (-1, 1) if self.is_reversed else (1, -1))
        return self.writer.emit("pad", shape, sums, self.start, padding=one_on)

    def _cumulative(self, x: Instruction, axis: int) -> Instruction:
        size = x.shape.dimensions[axis]
        low, high = (0, size - 1) if self.is_reversed else (size - 1, 0)
        along = WindowDimension(size, pad_low=low, pad_high=high)
        window = Window(tuple(along if d == axis else WindowDimension(1) for d in range(x.shape.rank)))
        attributes: dict[str, Attribute | Called] = {"window": Attribute.of(window), "to_apply": Called(self.reducer)}
        return edit.create(self.window.computation, "cumulative", "reduce-window", x.shape, (x, self.start), attributes)

    def _ends(self, count: int) -> tuple[int, int]:
        """Padding of this many elements at the end of lines."""
        return (count, 0) if self.is_reversed else (0, count)

    def _along(self, shape: Shape, ends: tuple[int, int]) -> tuple[PaddingDimension, ...]:
        return tuple(PaddingDimension(*(ends if d == self.axis else (0, 0))) for d in range(shape.rank))

    def _resized(self, shape: Shape, size: int) -> Shape:
        sizes = list(shape.dimensions)
        sizes[self.axis] = size
        return replace(shape, dimensions=tuple(sizes))

    def _split(self, shape: Shape) -> Shape:
        """The shape with two dimensions for a line, parts and elements of a part, in the same order in memory."""
        axis, sizes = self.axis, shape.dimensions
        order: list[int] = []
        for d in shape.minor_to_major:
            order += [axis + 1, axis] if d == axis else [d + (d > axis)]
        return Shape(self.wide, (*sizes[:axis], self.parts, self.size, *sizes[axis + 1 :]), Layout(tuple(order)))
