"""The plan of cumulative reductions (sums, products, maxima, ...): a `reduce-window` as JAX writes `cumsum`.

The window is as long as one dimension and covers all elements before an element there, or, padded at the other end, all
after it. Folding the window for each element would take n * n steps. Here each element is read once: threads fold
neighbouring elements, pass their results to the threads after them, and walk their elements again.

If the dimension is not minor-most, neighbouring threads walk neighbouring lines. XLA rewrites such a window to several
(xla/service/reduce_window_rewriter.cc).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from hlo_opt.analysis.memory.forms import round_up
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.attribute import WindowDimension
from hlo_opt.ir.index_map import Expression, add, constant, delinearize, divide, modulo, multiply, variable
from hlo_opt.ir.size import gcd, most
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
"""The least length of a window; shorter ones are folded for each element."""
ROW_THREADS = 256
"""Limit of threads per row if there are rows for all multiprocessors; a longer row is cut into tiles, one after
another."""
MOST_IN_TURN = 8
"""Limit of elements that one thread folds at a time, of a line that is not contiguous."""


@dataclass(frozen=True, order=True)
class Lines:
    """The lines of an array along which a cumulative window runs. `minor` lines are adjacent in memory. Reversed lines
    start at the end."""

    shape: Shape
    axis: int
    is_reversed: bool

    @property
    def length(self) -> int:
        """Elements of a line."""
        return self.shape.dimensions[self.axis]

    @property
    def count(self) -> int:
        """The number of lines."""
        return self.shape.element_count // self.length

    @property
    def minor(self) -> int:
        """The number of lines that are adjacent in memory."""
        order = self.shape.minor_to_major
        return math.prod(self.shape.dimensions[d] for d in order[: order.index(self.axis)])

    def index(self, line: Expression, step: Expression) -> Index:
        """The logical index of the element at a step of a line; neighbouring lines are neighbours in memory."""
        others = [d for d in self.shape.minor_to_major[::-1] if d != self.axis]
        digits = dict(zip(others, delinearize(line, [self.shape.dimensions[d] for d in others]), strict=True))
        digits[self.axis] = self._along(step)
        return tuple(digits[d] for d in range(self.shape.rank))

    def index_of(self, root: Instruction, line: Expression, step: Expression) -> Index:
        """The index of an output's element at a step of a line: the same, or, if the dimensions differ, the one at the
        same position in memory."""
        shape = next(root.shape.leaves())
        if shape.dimensions == self.shape.dimensions:
            return self.index(line, step)
        major = add(multiply(divide(line, self.minor), self.length), self._along(step))
        return physical_index(shape, add(multiply(major, self.minor), modulo(line, self.minor)))

    def _along(self, step: Expression) -> Expression:
        return add(constant(self.length - 1), multiply(step, -1)) if self.is_reversed else step


def only_axis(instruction: Instruction) -> tuple[int, WindowDimension] | None:
    """The only dimension along which a window covers several elements, and the window there; None for any other
    instruction, and without results."""
    if instruction.opcode != "reduce-window" or not next(instruction.shape.leaves()).element_count:
        return None
    parts = window(instruction, instruction.operands[0].shape.rank)
    axes = [(d, w) for d, w in enumerate(parts) if w != WindowDimension(1)]
    return axes[0] if len(axes) == 1 else None


def lines_of(instruction: Instruction) -> Lines | None:
    """The lines of a cumulative window; None for any other instruction."""
    along = only_axis(instruction)
    if along is None:
        return None
    shape, (axis, w) = next(instruction.shape.leaves()), along
    size = shape.dimensions[axis]
    if size < SHORTEST:
        return None
    if w == WindowDimension(size, pad_low=size - 1):
        return Lines(shape, axis, False)
    return Lines(shape, axis, True) if w == WindowDimension(size, pad_high=size - 1) else None


@dataclass(frozen=True)
class Prefixes:
    """Outputs (`roots` are positions) that threads write as they walk lines, and the windows that they fold, in stages:
    those of a stage read results of the stages before it, for which threads of a line have met. `cores` is the number
    of multiprocessors of the device; `aligns` says whether its accesses must be aligned to be wide."""

    kind: ClassVar[str] = "cumulative"
    stages: tuple[tuple[Instruction, ...], ...]
    roots: tuple[int, ...]
    lines: Lines
    cores: int
    aligns: bool = False

    @property
    def windows(self) -> tuple[Instruction, ...]:
        """The windows of all stages."""
        return tuple(window for stage in self.stages for window in stage)

    @property
    def hero(self) -> Instruction:
        """The first window."""
        return self.windows[0]

    @property
    def in_rows(self) -> bool:
        """Whether lines are contiguous in memory: then threads share a line."""
        return self.lines.minor == 1

    @property
    def abreast(self) -> int:
        """The number of lines that neighbouring threads walk side by side."""
        return 1 if self.in_rows else min(WARP, 1 << (self.lines.count - 1).bit_length())

    @property
    def vector(self) -> int:
        """Consecutive elements of a line that a thread reads at a time: 16 bytes if they are contiguous in memory."""
        if not self.in_rows:
            return max(d for d in range(1, MOST_IN_TURN + 1) if self.lines.length % d == 0)
        return self._widest if self.is_peeled else gcd(self.lines.length, self._widest)

    @cached_property
    def _widest(self) -> int:
        widest = max(leaf.type.bytes for window in self.windows for leaf in window.shape.leaves())
        return max(1, WIDEST_ACCESS // widest)

    @cached_property
    def is_peeled(self) -> bool:
        """Whether rows are not aligned to the widest accesses: then a thread has the elements between two aligned
        places, and at the ends of a row those that are in it."""
        length, shape = self.lines.length, self.lines.shape
        is_plain = self.in_rows and not self.lines.is_reversed and shape.type.per_byte == 1
        return self.aligns and is_plain and length % self._widest != 0 and length >= WARP * self._widest

    @property
    def steps(self) -> int:
        """The most accesses that have elements of one line."""
        if self.is_peeled:
            length, lines = self.lines.length, min(self.lines.count, self._widest)
            latest = max(line * length % self._widest for line in range(lines))  # of what comes before a line
            return -(-(latest + length) // self._widest)
        return self.lines.length // self.vector

    @property
    def threads(self) -> int:
        """Threads per line; for a row a part of a warp, or whole warps."""
        steps = self.steps
        if not self.in_rows:
            return min(WARP, steps)
        if steps <= WARP:
            return 1 << (steps - 1).bit_length()
        most_threads = ROW_THREADS if self.lines.count >= self.cores else MOST_THREADS
        if self.is_peeled and steps > most_threads:  # one more access of a row is no reason for another tile
            tiles = max(1, round(steps / most_threads), -(-steps // MOST_THREADS))
            return round_up(-(-steps // tiles), WARP)
        return min(most_threads, round_up(steps, WARP))

    @property
    def tiles(self) -> int:
        """The number of times that a thread reads elements of a line."""
        return -(-self.steps // self.threads)

    @property
    def block(self) -> int:
        """The number of threads per block that this part needs: short rows share a block."""
        return round_up(self.threads * self.lines_per_block(ROW_THREADS), WARP)

    def lines_per_block(self, block: int) -> int:
        """The number of lines per block, such that their threads are whole warps. A row in tiles has a block of its
        own."""
        if not self.in_rows or self.tiles > 1:
            return self.abreast
        return max(1, min(round_up(most(self.lines.count), max(1, WARP // self.threads)), block // self.threads))

    def segment(self, block: int) -> Segment[Prefixes]:
        """The segment in a launch of blocks of that size, which is at least `self.block`."""
        blocks = -(-self.lines.count // self.lines_per_block(block))
        return Segment(self, blocks, self.vector if self.in_rows else 1, folded=self.windows)

    def meeting_places(self, block: int) -> int:
        """The number of threads of a block that write partial results to shared memory, for each window; in a row, one
        per warp."""
        if self.threads == 1 or (self.in_rows and self.threads <= WARP):
            return 0
        threads = self.threads * self.lines_per_block(block)
        return threads // WARP if self.in_rows else threads

    def shared_bytes(self, block: int) -> int:
        """Bytes of the partial results."""
        kinds = [t for window in self.windows for t in running_types(window)]
        return sum(max(4, t.bytes) for t in kinds) * self.meeting_places(block)


def match(
    region: Region, roots: Sequence[int], target: DeviceTarget, room: int
) -> tuple[Sequence[Prefixes], list[int]]:
    """The outputs that have one element for each element of a cumulative window, and the positions of the others.
    Windows along the same lines are folded together, also if one reads another, and outputs of the same size that need
    no window are included."""
    spaces: dict[Lines, list[Instruction]] = {}
    for instruction in region.computation.instructions:
        lines = lines_of(instruction)
        if lines is not None:
            spaces.setdefault(lines, []).append(instruction)
    parts: list[Prefixes] = []
    rest = list(roots)
    for lines, windows in spaces.items():
        below = depending_on(region.computation.instructions, windows)
        stages = _stages(windows, lines, below)
        needs = {n: _all_read(windows_read(region.roots[n], windows, lines, below), stages) for n in rest}
        fitting = [n for n in rest if needs[n] is not None]
        needed = {w: stages[w][0] for w in windows if any(w in (needs[n] or ()) for n in fitting)}
        in_turn = tuple(tuple(w for w in needed if needed[w] == n) for n in sorted(set(needed.values())))
        part = Prefixes(in_turn, tuple(fitting), lines, target.core_count, not target.in_lanes)
        if needed and part.shared_bytes(part.block) <= room:
            room -= part.shared_bytes(part.block)
            parts.append(part)
            rest = [n for n in rest if n not in fitting]
    return parts, rest


def walks(region: Region, segment: Segment[Prefixes], launch: Launch) -> list[Walk]:
    """The walk in which a thread folds its elements, combines them with the result of the elements before them, and
    writes, tile by tile."""
    part, lines = segment.part, segment.part.lines
    per_block = part.lines_per_block(launch.block)
    across = part.threads * per_block
    thread = variable(THREAD, segment.blocks * across)
    own, lane = divide(modulo(thread, across), part.threads), modulo(thread, part.threads)
    if not part.in_rows:
        own, lane = modulo(thread, part.abreast), divide(modulo(thread, across), part.abreast)
    step = add(multiply(variable(ROUND, part.tiles), part.threads), lane)
    own_line = add(multiply(divide(thread, across), per_block), own)
    own_step = add(multiply(step, part.vector), variable(ITEM, part.vector))
    if part.is_peeled:  # up to the first aligned element
        own_step = add(own_step, modulo(multiply(own_line, part.vector - lines.length % part.vector), part.vector))
    places = {"line": own_line, "along": own_step}
    line, along = variable("line", lines.count), variable("along", lines.length)
    index = lines.index(line, along)
    operands = [(o, index) for window in part.windows for o in window.operands[: len(running_types(window))]]
    roots = [(region.roots[n], lines.index_of(region.roots[n], line, along)) for n in part.roots]
    alone, meets = part.threads == 1, part.meeting_places(launch.block) > 0
    groups = part.threads // WARP if part.in_rows else part.threads
    turns = len(part.stages)
    return [
        Walk(
            segment.blocks * across,
            [*operands, *roots],
            leaves_at(roots),
            places=places,
            items=part.vector,
            rounds=part.tiles,
            filled=lines.length / (part.tiles * part.threads * part.vector) if part.is_peeled else 1.0,
            known=frozenset(part.windows),
            body=sum((of_fold(w) * (1 + turns - n) for n, stage in enumerate(part.stages) for w in stage), NOTHING),
            steps=turns * (part.vector + groups * meets),
            ahead=1,
            barriers=2 * meets * part.tiles * turns,
            shuffles=0 if alone or not part.in_rows else min(WARP, part.threads).bit_length() * part.tiles * turns,
            shared=groups * meets / part.vector,
        )
    ]


def windows_read(
    root: Instruction, windows: Sequence[Instruction], lines: Lines, below: set[Instruction]
) -> list[Instruction] | None:
    """The windows that an output needs at the same step of the same line; None if it needs one at another index, or
    differs in size. `below` are all values that need a window."""
    leaves = list(root.shape.leaves())
    if any(leaf.element_count != lines.shape.element_count or leaf.type.per_byte > 1 for leaf in leaves):
        return None
    line, step = variable("line", lines.count), variable("step", lines.length)
    own: dict[Instruction, Index | None] = dict.fromkeys(windows, lines.index(line, step))
    return heroes_read([(root, lines.index_of(root, line, step))], below, own)


def _stages(
    windows: Sequence[Instruction], lines: Lines, below: set[Instruction]
) -> dict[Instruction, tuple[int, set[Instruction]]]:
    """The stage of each window (operands come first), and the windows that it needs at its own step of its own line,
    it among them. Without those that need one at another index."""
    line, step = variable("line", lines.count), variable("step", lines.length)
    index = lines.index(line, step)
    own: dict[Instruction, Index | None] = dict.fromkeys(windows, index)
    stages: dict[Instruction, tuple[int, set[Instruction]]] = {}
    for hero in windows:
        values = hero.operands[: len(running_types(hero))]
        needed = _all_read(heroes_read([(value, index) for value in values], below, own), stages)
        if needed is not None:
            stages[hero] = 1 + max((stages[w][0] for w in needed), default=-1), {*needed, hero}
    return stages


def _all_read(
    windows: Sequence[Instruction] | None, stages: Mapping[Instruction, tuple[int, set[Instruction]]]
) -> set[Instruction] | None:
    """The windows that some need, they among them; None if one has no stage."""
    if windows is None or any(window not in stages for window in windows):
        return None
    return {needed for window in windows for needed in stages[window][1]}
