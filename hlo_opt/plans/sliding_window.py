"""The plan of sliding windows: a `reduce-window` of many elements along one dimension that moves by one element, as in
moving sums, means and maxima.

Folding each window by itself takes as many steps as it has elements. Here a block keeps a stretch of its lines in
shared memory, and a thread computes a run of neighbouring results: windows of one run share all elements but a few at
both ends. It folds those that all share, folds on backwards to the start of each window and forwards to the end of
each, and combines both: some three steps for each result (M. van Herk, "A fast algorithm for local minimum and maximum
filters", 1992; J. Gil and M. Werman, "Computing 2-D min, median, and max filters", 1993). Nothing is subtracted, so
sums are as accurate as those of single windows. Of long windows, what a run shares is folded from folds of whole runs,
which threads exchange.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction
from hlo_opt.ir.attribute import WindowDimension
from hlo_opt.ir.index_map import add, constant, delinearize, divide, modulo, multiply, variable
from hlo_opt.ops.lowering import Index
from hlo_opt.ops.reduction.reducers import own_identity, running_types
from hlo_opt.plans.columns import WARP
from hlo_opt.plans.cumulative import Lines, lines_of, only_axis, windows_read
from hlo_opt.plans.element_reads import depending_on
from hlo_opt.plans.instructions import NOTHING, of_fold
from hlo_opt.plans.plan import Launch, Region, Segment
from hlo_opt.plans.row_reduction import may_be_reordered
from hlo_opt.plans.walks import ROUND, THREAD, Walk, leaves_at

BLOCK = 256
"""Threads per block: as many as read and write the stretch side by side."""
SHORTEST = 8
"""The least length of a window; shorter ones are folded for each element."""
LONGEST_RUN = 33
"""Limit of the results of a run. Runs are odd, so that neighbouring threads use different banks of shared memory."""
LONG = 4
"""Windows of this many runs or more are folded from folds of runs."""
COMFORTABLE = 24 * 1024
"""Bytes of shared memory with which a multiprocessor holds as many blocks as its threads allow."""
AGAIN = 1.25
"""The factor of elements read to elements written above which blocks take all shared memory that there is."""
ROW_START = 10
"""The cost of each row of a stretch besides its bytes, in bytes."""
IN_LANES = 256
"""The least length of a window on a CPU, whose vectors fold neighbouring windows side by side."""


Wanted = Sequence[tuple[Instruction, Index]]


@dataclass(frozen=True)
class Slide:
    """How a window moves along lines.

    length  elements of a line of the operand
    size    elements of a window
    low     elements by which the first window begins before its line
    """

    length: int
    size: int
    low: int


@dataclass(frozen=True)
class WindowRuns:
    """What a block keeps of the lines of results: `groups` runs of `run` results along each of `across` lines that are
    adjacent in memory, of `majors` such sets of lines."""

    lines: Lines
    run: int
    groups: int
    across: int
    majors: int

    @property
    def span(self) -> int:
        """Results along a line."""
        return self.run * self.groups

    @property
    def count(self) -> int:
        """The number of lines."""
        return self.across * self.majors

    @property
    def blocks(self) -> tuple[int, int, int]:
        """The number of blocks along sets of lines, along a line, and across adjacent lines."""
        sets = self.lines.count // self.lines.minor
        return -(-sets // self.majors), -(-self.lines.length // self.span), -(-self.lines.minor // self.across)

    def reach(self, slide: Slide) -> int:
        """Elements along a line that its results need."""
        return self.span + slide.size - 1

    def per_window(self, slide: Slide) -> int:
        """Whole runs of elements that fit into a window; 0 if these are not folded by themselves."""
        count = slide.size // self.run
        return count if count >= LONG else 0

    def whole_runs(self, slide: Slide) -> int:
        """Runs of elements of a line that are folded by themselves."""
        per_window = self.per_window(slide)
        return self.groups + per_window - 1 if per_window else 0

    def steps(self, slide: Slide) -> int:
        """Folds of a thread for the results of a run."""
        whole = self.per_window(slide)
        shared = whole + slide.size - whole * self.run + self.run if whole else slide.size - self.run + 1
        return shared + 3 * (self.run - 1)

    def shared_bytes(self, windows: Sequence[Instruction]) -> int:
        """Bytes of the elements, the results and the folds of runs of these windows."""
        total = 0
        for fold in windows:
            slide = slide_of(fold)
            wide = sum(max(4, t.bytes) for t in running_types(fold))
            elements = fold.operands[0].shape.type.bytes * self.reach(slide)
            total += self.count * (elements + wide * (self.span + self.whole_runs(slide)))
        return total

    def again(self, windows: Sequence[Instruction]) -> float:
        """Elements that are read for each result."""
        return max(self.reach(slide_of(fold)) for fold in windows) / self.span


@dataclass(frozen=True)
class Sliding:
    """Outputs (`roots` are positions) that are written from the results of windows."""

    kind: ClassVar[str] = "sliding-window"
    windows: tuple[Instruction, ...]
    roots: tuple[int, ...]
    stretch: WindowRuns

    @property
    def hero(self) -> Instruction:
        """The first window."""
        return self.windows[0]

    @property
    def block(self) -> int:
        return BLOCK

    def segment(self, block: int) -> Segment[Sliding]:
        return Segment(self, math.prod(self.stretch.blocks), folded=self.windows)

    def shared_bytes(self, block: int) -> int:
        """Bytes of the stretch."""
        return self.stretch.shared_bytes(self.windows)


def slides(instruction: Instruction) -> bool:
    """Whether an instruction is a sliding window whose elements may be folded in another order."""
    along = only_axis(instruction)
    if along is None or not instruction.shape.is_array or lines_of(instruction) is not None:
        return False
    (axis, w), operand = along, instruction.operands[0].shape
    if w.size < SHORTEST or w != WindowDimension(w.size, pad_low=w.pad_low, pad_high=w.pad_high):
        return False
    if (
        any(instruction.shape.dynamic)
        or any(operand.dynamic)
        or operand.type.per_byte > 1
        or not operand.dimensions[axis]
    ):
        return False
    return own_identity(instruction) is not None and may_be_reordered(instruction)


def slide_of(fold: Instruction) -> Slide:
    """How a sliding window moves."""
    axis, w = _along(fold)
    return Slide(fold.operands[0].shape.dimensions[axis], w.size, w.pad_low)


def _along(fold: Instruction) -> tuple[int, WindowDimension]:
    along = only_axis(fold)
    assert along is not None
    return along


def match(region: Region, roots: Sequence[int], target: DeviceTarget, room: int) -> tuple[Sequence[Sliding], list[int]]:
    """The outputs that have one element for each result of a sliding window, and the positions of the others. Windows
    along the same lines are folded together, and outputs of the same size that need no window are included."""
    spaces: dict[Lines, list[Instruction]] = {}
    for instruction in region.computation.instructions:
        if slides(instruction) and (not target.in_lanes or slide_of(instruction).size >= IN_LANES):
            spaces.setdefault(Lines(instruction.shape, _along(instruction)[0], False), []).append(instruction)
    parts: list[Sliding] = []
    rest = list(roots)
    for lines, windows in spaces.items():
        below = depending_on(region.computation.instructions, windows)
        needs = {n: windows_read(region.roots[n], windows, lines, below) for n in rest}
        fitting = [n for n in rest if needs[n] is not None]
        needed = [w for w in windows if any(w in (needs[n] or ()) for n in fitting)]
        stretch = _stretch(lines, needed, room, target.core_count) if needed else None
        if stretch is not None:
            parts.append(Sliding(tuple(needed), tuple(fitting), stretch))
            room -= stretch.shared_bytes(needed)
            rest = [n for n in rest if n not in fitting]
    return parts, rest


def _stretch(lines: Lines, windows: Sequence[Instruction], room: int, cores: int) -> WindowRuns | None:
    """The stretch that costs the fewest reads; None if none fits into shared memory."""
    widths = dict.fromkeys(-(-lines.minor // -(-lines.minor // most)) for most in (WARP, WARP // 2, WARP // 4))
    fitting = [s for s in (_of_width(lines, windows, across, room, cores) for across in widths) if s is not None]
    width = min(fold.operands[0].shape.type.bytes for fold in windows)
    return min(fitting, key=lambda s: s.again(windows) * (1 + ROW_START / (s.across * width)), default=None)


def _of_width(lines: Lines, windows: Sequence[Instruction], across: int, room: int, cores: int) -> WindowRuns | None:
    """The stretch of `across` adjacent lines: of as much memory as leaves room for other blocks, or of all where blocks
    would read too much again."""
    longest = None
    for size in (min(room, COMFORTABLE), room):
        longest = _longest(lines, windows, across, size, cores)
        if longest is not None and longest.again(windows) <= AGAIN:
            break
    return longest


def _longest(lines: Lines, windows: Sequence[Instruction], across: int, room: int, cores: int) -> WindowRuns | None:
    """The longest stretch that fits, of several sets of lines if these are short, and shorter where there would be too
    few blocks."""
    sizes = [slide_of(fold).size for fold in windows]
    run = min(LONGEST_RUN, *(size - 1 + size % 2 for size in (*sizes, lines.length)))
    groups = whole = -(-lines.length // run)
    while groups and WindowRuns(lines, run, groups, across, 1).shared_bytes(windows) > room:
        groups -= max(1, groups // 8)
    if not groups:
        return None
    groups = -(-whole // -(-whole // groups))  # as long as the others of the line
    stretch = WindowRuns(lines, run, groups, across, 1)
    blocks = math.prod(stretch.blocks)
    if groups == whole and blocks >= 2 * cores:
        fitting = room // stretch.shared_bytes(windows)
        return replace(stretch, majors=max(1, min(fitting, blocks // cores, stretch.blocks[0])))
    while stretch.groups > 1 and stretch.span > max(sizes) and math.prod(stretch.blocks) < cores:
        stretch = replace(stretch, groups=stretch.groups // 2)
    return stretch


def walks(region: Region, segment: Segment[Sliding], launch: Launch) -> list[Walk]:
    """The walks that fill a block's stretch, fold its runs, and write the results."""
    part, stretch, lines = segment.part, segment.part.stretch, segment.part.stretch.lines
    line, along = variable("line", lines.count), variable("along", lines.length)

    def by_cells(size: int, first: int, wanted: Wanted, known: frozenset[Instruction], tables: int) -> Walk:
        """The walk over `size` elements of each line, the first of the first block at `first`."""
        total = stretch.count * size
        threads = max(d for d in range(1, BLOCK + 1) if total % d == 0)  # all cells, each once, or else nearly all
        threads = threads if 2 * threads > min(BLOCK, total) else BLOCK
        rounds = total // threads
        thread = variable(THREAD, segment.blocks * threads)
        cell = add(multiply(variable(ROUND, rounds), threads), modulo(thread, threads))
        corner = delinearize(divide(thread, threads), stretch.blocks)
        major, step, beside = delinearize(cell, (stretch.majors, size, stretch.across))
        of_set = add(multiply(corner[0], stretch.majors), major)
        own = add(multiply(of_set, lines.minor), add(multiply(corner[2], stretch.across), beside))
        return Walk(
            segment.blocks * threads,
            wanted,
            leaves_at(wanted) if known else (),
            places={"line": own, "along": add(add(multiply(corner[1], stretch.span), step), constant(first))},
            rounds=rounds,
            filled=total / (rounds * threads),
            known=known,
            shared=tables,
        )

    fills = [
        by_cells(stretch.reach(slide), -slide.low, [(fold.operands[0], lines.index(line, along))], frozenset(), 1)
        for fold, slide in ((fold, slide_of(fold)) for fold in part.windows)
    ]
    steps = [stretch.steps(slide_of(fold)) for fold in part.windows]
    folds = Walk(
        segment.blocks * stretch.groups * stretch.count,
        [],
        items=stretch.run,
        body=sum((of_fold(f) * (n / stretch.run) for f, n in zip(part.windows, steps, strict=True)), NOTHING),
        steps=sum(steps),
        barriers=3 if any(stretch.whole_runs(slide_of(fold)) for fold in part.windows) else 2,
        shared=sum(n / stretch.run + 3 for n in steps),
    )
    roots = [(region.roots[n], lines.index_of(region.roots[n], line, along)) for n in part.roots]
    writes = by_cells(stretch.span, 0, roots, frozenset(part.windows), len(part.windows))
    return [*fills, folds, writes]
