"""The plan of cumulative sums, products, maxima and whatever else a reducer makes of all elements up to each one: a
reduce-window as JAX writes `cumsum`.

Its window is as long as one dimension and reaches over all that lies before an element there, or, padded at the other
end, behind it. A fold of the window for each element would take n * n steps. Here each element is taken once: threads
fold neighbouring elements, hand what they have on to the threads behind them, and go over their elements again.

Where the dimension is not the fastest varying one, neighbouring threads go along neighbouring lines, side by side.
XLA makes such a window into several (xla/service/reduce_window_rewriter.cc).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hlo_opt.analysis.memory.forms import round_up
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.attribute import WindowDimension
from hlo_opt.ir.index_map import Expression, add, constant, delinearize, divide, modulo, multiply, variable
from hlo_opt.ops.lowering import Index
from hlo_opt.ops.movement.memory import physical_index
from hlo_opt.ops.reduction.reducers import running_types
from hlo_opt.ops.shapes import window
from hlo_opt.plans.columns import MOST_THREADS, WARP
from hlo_opt.plans.element_reads import depending_on, heroes_read
from hlo_opt.plans.instructions import NOTHING, of_fold
from hlo_opt.plans.loop import WIDEST_ACCESS
from hlo_opt.plans.plan import Launch, Region, Segment
from hlo_opt.plans.walks import ITEM, ROUND, THREAD, Walk, leaves_at

SHORTEST = 4
"""Shorter windows are folded for each element."""
ROW_THREADS = 256
"""Threads that a row has where there are rows for all multiprocessors; a longer row is taken in tiles, one after
another."""
MOST_IN_TURN = 8
"""Elements of a line across memory that one thread folds at a time."""


@dataclass(frozen=True, order=True)
class Lines:
    """How a cumulative window goes over an array: along lines of some `length`, as many as `count`. `minor` lines lie
    side by side in memory. Reversed ones start at the end."""

    shape: Shape
    axis: int
    is_reversed: bool

    @property
    def length(self) -> int:
        """Elements of a line."""
        return self.shape.dimensions[self.axis]

    @property
    def count(self) -> int:
        """How many lines there are."""
        return self.shape.element_count // self.length

    @property
    def minor(self) -> int:
        """How many lie next to each other in memory."""
        order = self.shape.minor_to_major
        return math.prod(self.shape.dimensions[d] for d in order[: order.index(self.axis)])

    def index(self, line: Expression, step: Expression) -> Index:
        """The logical index of an element; neighbouring lines are neighbours in memory."""
        others = [d for d in self.shape.minor_to_major[::-1] if d != self.axis]
        found = dict(zip(others, delinearize(line, [self.shape.dimensions[d] for d in others]), strict=True))
        found[self.axis] = self._along(step)
        return tuple(found[d] for d in range(self.shape.rank))

    def index_of(self, root: Instruction, line: Expression, step: Expression) -> Index:
        """That of an output: the same, or, in other dimensions, the one at the same place in memory."""
        shape = next(root.shape.leaves())
        if shape.dimensions == self.shape.dimensions:
            return self.index(line, step)
        major = add(multiply(divide(line, self.minor), self.length), self._along(step))
        return physical_index(shape, add(multiply(major, self.minor), modulo(line, self.minor)))

    def _along(self, step: Expression) -> Expression:
        return add(constant(self.length - 1), multiply(step, -1)) if self.is_reversed else step


def lines_of(instruction: Instruction) -> Lines | None:
    """The lines of a cumulative window; None for any other instruction."""
    if instruction.opcode != "reduce-window":
        return None
    shape = next(instruction.shape.leaves())
    parts = window(instruction, shape.rank)
    axes = [d for d, w in enumerate(parts) if w != WindowDimension(1)]
    if len(axes) != 1 or not shape.element_count or any(leaf.type.is_complex for leaf in instruction.shape.leaves()):
        return None  # no shuffle moves a pair of numbers
    (axis,) = axes
    size, w = shape.dimensions[axis], parts[axis]
    if size < SHORTEST:
        return None
    if w == WindowDimension(size, pad_low=size - 1):
        return Lines(shape, axis, False)
    return Lines(shape, axis, True) if w == WindowDimension(size, pad_high=size - 1) else None


@dataclass(frozen=True)
class Prefixes:
    """Outputs (`roots` are positions) that threads write element by element as they go along lines, and the windows
    that they fold on the way; `cores` are the device's multiprocessors."""

    kind: ClassVar[str] = "cumulative"
    windows: tuple[Instruction, ...]
    roots: tuple[int, ...]
    lines: Lines
    cores: int

    @property
    def hero(self) -> Instruction:
        """The first window."""
        return self.windows[0]

    @property
    def in_rows(self) -> bool:
        """Whether lines lie in memory as they are gone along: then threads share them."""
        return self.lines.minor == 1

    @property
    def abreast(self) -> int:
        """Lines that neighbouring threads go along side by side."""
        return 1 if self.in_rows else min(WARP, 1 << (self.lines.count - 1).bit_length())

    @property
    def vector(self) -> int:
        """Elements of a line, one after another, that a thread takes at a time: in memory they are 16 bytes, where they
        are neighbours there."""
        if not self.in_rows:
            return max(d for d in range(1, MOST_IN_TURN + 1) if self.lines.length % d == 0)
        widest = max(leaf.type.bytes for window in self.windows for leaf in window.shape.leaves())
        return math.gcd(self.lines.length, max(1, WIDEST_ACCESS // widest))

    @property
    def threads(self) -> int:
        """Threads per line; per row a part of a warp, or whole warps."""
        steps = self.lines.length // self.vector
        if not self.in_rows:
            return min(WARP, steps)
        if steps <= WARP:
            return 1 << (steps - 1).bit_length()
        return min(ROW_THREADS if self.lines.count >= self.cores else MOST_THREADS, round_up(steps, WARP))

    @property
    def tiles(self) -> int:
        """How often a thread takes elements of a line."""
        return -(-self.lines.length // (self.vector * self.threads))

    @property
    def block(self) -> int:
        """Threads per block when nothing else asks for more: short rows share one."""
        return round_up(self.threads * self.lines_per_block(ROW_THREADS), WARP)

    def lines_per_block(self, block: int) -> int:
        """The number of rows per block, such that their threads are whole warps. A row in tiles has a block by
        itself."""
        if not self.in_rows or self.tiles > 1:
            return self.abreast
        return max(1, min(round_up(self.lines.count, max(1, WARP // self.threads)), block // self.threads))

    def segment(self, block: int) -> Segment[Prefixes]:
        """The segment in a launch of blocks of that size, which is at least `self.block`."""
        blocks = -(-self.lines.count // self.lines_per_block(block))
        return Segment(self, blocks, self.vector if self.in_rows else 1, folded=self.windows)

    def meeting_places(self, block: int) -> int:
        """How many threads of a block leave what they have in shared memory, for each window: of a row the last one of
        each warp."""
        if self.threads == 1 or (self.in_rows and self.threads <= WARP):
            return 0
        threads = self.threads * self.lines_per_block(block)
        return threads // WARP if self.in_rows else threads

    def shared_bytes(self, block: int) -> int:
        """Bytes in which threads meet."""
        kinds = [t for window in self.windows for t in running_types(window)]
        return sum(max(4, t.bytes) for t in kinds) * self.meeting_places(block)


def match(
    region: Region, roots: Sequence[int], target: DeviceTarget, room: int
) -> tuple[Sequence[Prefixes], list[int]]:
    """The outputs that have one element for each of a cumulative window's, at the same place, and the positions of the
    others. Windows that go along the same lines are folded together, and outputs that need none go along where they
    have their size."""
    spaces: dict[Lines, list[Instruction]] = {}
    for instruction in region.computation.instructions:
        lines = lines_of(instruction)
        if lines is not None:
            spaces.setdefault(lines, []).append(instruction)
    found: list[Prefixes] = []
    rest = list(roots)
    for lines, windows in spaces.items():
        below = depending_on(region.computation.instructions, windows)
        needs = {n: _windows_read(region.roots[n], windows, lines, below) for n in rest}
        taken = [n for n in rest if needs[n] is not None]
        needed = [w for w in windows if any(w in (needs[n] or ()) for n in taken)]
        part = Prefixes(tuple(needed), tuple(taken), lines, target.core_count)
        if needed and part.shared_bytes(part.block) <= room:
            room -= part.shared_bytes(part.block)
            found.append(part)
            rest = [n for n in rest if n not in taken]
    return found, rest


def walks(region: Region, segment: Segment[Prefixes], launch: Launch) -> list[Walk]:
    """Each thread folds its elements; once it has the result of the elements before them, it folds that in and writes;
    so tile by tile."""
    part, lines = segment.part, segment.part.lines
    per_block = part.lines_per_block(launch.block)
    across = part.threads * per_block
    thread = variable(THREAD, segment.blocks * across)
    own, lane = divide(modulo(thread, across), part.threads), modulo(thread, part.threads)
    if not part.in_rows:
        own, lane = modulo(thread, part.abreast), divide(modulo(thread, across), part.abreast)
    step = add(multiply(variable(ROUND, part.tiles), part.threads), lane)
    places = {
        "line": add(multiply(divide(thread, across), per_block), own),
        "along": add(multiply(step, part.vector), variable(ITEM, part.vector)),
    }
    line, along = variable("line", lines.count), variable("along", lines.length)
    index = lines.index(line, along)
    taken = [(o, index) for window in part.windows for o in window.operands[: len(running_types(window))]]
    roots = [(region.roots[n], lines.index_of(region.roots[n], line, along)) for n in part.roots]
    alone, meets = part.threads == 1, part.meeting_places(launch.block) > 0
    groups = part.threads // WARP if part.in_rows else part.threads
    return [
        Walk(
            segment.blocks * across,
            [*taken, *roots],
            leaves_at(roots),
            places=places,
            items=part.vector,
            rounds=part.tiles,
            known=frozenset(part.windows),
            body=sum((of_fold(window) * 2 for window in part.windows), NOTHING),
            steps=part.vector + groups * meets,
            ahead=1,
            barriers=2 * meets * part.tiles,
            shuffles=0 if alone or not part.in_rows else min(WARP, part.threads).bit_length() * part.tiles,
            shared=groups * meets / part.vector,
        )
    ]


def _windows_read(
    root: Instruction, windows: Sequence[Instruction], lines: Lines, below: set[Instruction]
) -> list[Instruction] | None:
    """The windows whose results an output needs at the threads' own place; None where it needs one at another, or has
    no element for each of theirs. `below` are all values that need one."""
    leaves = list(root.shape.leaves())
    if any(leaf.element_count != lines.shape.element_count or leaf.type.per_byte > 1 for leaf in leaves):
        return None
    line, step = variable("line", lines.count), variable("step", lines.length)
    own: dict[Instruction, Index | None] = dict.fromkeys(windows, lines.index(line, step))
    return heroes_read([(root, lines.index_of(root, line, step))], below, own)
