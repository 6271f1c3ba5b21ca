"""The column-reduction plan: the threads of a block fold neighbouring columns. Several threads share a column and
combine their results in shared memory.

Which reduces qualify: xla/service/gpu/reduction_utils.cc; how columns are divided: hlo_opt/plans/columns.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from hlo_opt.analysis.memory.forms import ReductionForm, fast_form, reduction_form, smallest_bits
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import add, divide, modulo, multiply, variable
from hlo_opt.ir.walk import needed_first
from hlo_opt.ops.reduction.online import together as steps_together
from hlo_opt.plans.columns import (
    FEW,
    MOST_THREADS,
    SHARED_BYTES,
    WARP,
    WORD,
    ColumnTile,
    abreast_tile,
    column_parts,
    column_tile,
    keeping_tile,
    lanes_parts,
    lanes_tile,
    row_tile,
    wide_tile,
)
from hlo_opt.plans.folding import KEPT, REDUCED, Folded, Levels, Space, ends_in_one_pass, passes
from hlo_opt.plans.instructions import NOTHING, of_value
from hlo_opt.plans.plan import Launch, Region, Segment, above
from hlo_opt.plans.row_reduction import MOST_KEPT, may_be_reordered
from hlo_opt.plans.walks import AHEAD, ITEM, ROUND, THREAD, Own, Walk, own_on

MOST_HELD = 16
"""Registers for elements and results of a row, with which 32 of a thread are enough."""
MOST_TOGETHER, KEPT_TOGETHER = 8, 16
"""Limits of the rows of a thread that are folded at once, and of their elements."""
MOST_ABREAST = 8
"""Neighbouring columns that one thread may fold, all of a row."""
SHORTEST, WAITING = 8, 16
"""Several threads share short columns from so many rows on, and for each row up to so many columns per multiprocessor:
beyond that, loads of other columns hide the time that a thread waits."""


def space_of(reduce: Instruction) -> Space | None:
    """The space of a reduce of adjacent dimensions with kept dimensions on the minor side. None for any other reduce,
    and for short columns."""
    return _space(reduce, fast_form(reduce))


def space_of_any(reduce: Instruction) -> Space | None:
    """As `space_of`, for short columns too."""
    return _space(reduce, reduction_form(reduce) if reduce.operands[0].shape.element_count else None)


def _space(reduce: Instruction, form: ReductionForm | None) -> Space | None:
    if form is None or form.is_row or not may_be_reordered(reduce):
        return None
    major, reduced, minor = form.sizes
    return Space(major * minor, reduced, minor)


@dataclass(frozen=True)
class Columns:
    """Outputs (`roots` are positions) that the threads of columns write, and the reduces that these need, by level.

    parts    blocks that share columns
    in_runs  whether each of them has neighbouring rows; else they take turns
    keeps    whether registers of a thread keep its elements from pass to pass
    ahead    rows of a thread whose elements are loaded together
    together rows of a thread whose elements are folded at once
    threads  threads of blocks that share columns, for which a multiprocessor shall have registers
    """

    kind: ClassVar[str] = "column-reduction"
    space: Space
    tile: ColumnTile
    levels: Levels
    roots: tuple[int, ...]
    parts: int = 1
    in_runs: bool = False
    keeps: bool = False
    ahead: int = AHEAD
    together: int = 1
    threads: int = 2 * MOST_THREADS

    @property
    def hero(self) -> Instruction:
        """The first reduce."""
        return self.levels[0][0]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The sizes of the dimensions on the major side of the reduced ones, of these, and on the minor side."""
        return self.space.kept // self.space.minor, self.space.reduced, self.space.minor

    @property
    def block(self) -> int:
        return self.tile.threads

    def segment(self, block: int) -> Segment[Columns]:
        folded = tuple(r for level in self.levels for r in level)
        # as many as fill the device at once, if registers suffice: several sums per column would spill
        fills = self.parts > 1 and _accumulator_bytes(self.levels) <= 4
        resident = self.threads // self.tile.threads if fills else 0
        if self.keeps:  # left alone, the compiler may spill what is kept to fit more
            resident = max(1, MOST_THREADS // self.tile.threads)
        return Segment(self, self.tile.blocks * self.parts, self.tile.vector, folded=folded, resident=resident)

    def shared_bytes(self, block: int) -> int:
        """Bytes in which the threads of a column combine their results."""
        seen = 4 * (self.parts > 1)
        if self.tile.ways == 1:
            return seen
        return self.tile.threads * self.tile.vector * _accumulator_bytes(self.levels) + seen


def _is_quick(folded: Folded) -> bool:
    """Whether vector code of a host sums a column again for each of its elements sooner than lanes meet at its end: the
    sums are of no function, and of no sums."""
    summed = (needed_first([reduce], lambda i: i.operands) for level in folded.levels for reduce in level)
    return len(folded.levels) == 1 and not any(of_value(i).slow for needed in summed for i in needed)


def _is_for_one_thread(folded: Folded, target: DeviceTarget, *, walked_once: bool) -> bool:
    """Whether a thread folds a short column alone, as a loop does. Of columns that are walked once, where there are too
    few to fill the device, as of the forces of a particle's neighbours, several threads take less time: the more, the
    longer a thread alone waits for one element after another."""
    space = folded.space
    if target.in_lanes:
        return walked_once or space.minor < WARP or _is_quick(folded)
    return walked_once and (space.reduced < SHORTEST or space.kept > target.core_count * space.reduced * WAITING)


def _is_of_rows(folded: Folded) -> bool:
    """Whether what is folded is computed from values that neighbouring columns share, such as the directions of a force
    its size: a thread of all of them computes these once."""
    needed = above([o for level in folded.levels for reduce in level for o in reduce.operands])
    rows = folded.space.elements // folded.space.minor
    return any(i.shape.is_array and i.shape.element_count == rows and of_value(i) is not NOTHING for i in needed)


def of(region: Region, folded: Folded, target: DeviceTarget, shared_bytes: int = SHARED_BYTES) -> Columns | None:
    """The part for some folds of columns; None if it needs more than `shared_bytes`, or if a thread folds a column
    alone as a loop does."""
    space = folded.space
    bits = smallest_bits(p.shape for p in region.parameters) or 32
    sizes = (space.kept // space.minor, space.reduced, space.minor)
    of_thread, cores = _accumulator_bytes(folded.levels), target.core_count
    may_share = ends_in_one_pass(region, folded)
    is_short = any(fast_form(reduce) is None for level in folded.levels for reduce in level)
    if is_short and _is_for_one_thread(folded, target, walked_once=may_share):
        return None
    if target.in_lanes:
        lanes = lanes_tile(sizes, of_thread, may_share=may_share, shared_bytes=shared_bytes)
        parts = lanes_parts(lanes, space.reduced) if may_share else 1
        even = next(n for n in range(parts, 0, -1) if space.reduced % n == 0)  # a processor reads ahead within a page
        in_runs = parts > 1 and 2 * even > parts
        return Columns(space, lanes, folded.levels, folded.roots, even if in_runs else parts, in_runs)
    of_row = row_tile(sizes, of_thread, shared_bytes) if may_share and space.minor <= MOST_ABREAST else None
    if of_row is not None and _is_of_rows(folded):
        threads = _threads(region, folded, of_row.vector)
        parts = column_parts(of_row, space.reduced, cores, threads)
        return _shared(Columns(space, of_row, folded.levels, folded.roots, parts, threads=threads))
    wide = wide_tile(sizes, bits, of_thread, shared_bytes) if may_share else None
    if wide is not None:
        threads = _threads(region, folded, wide.vector)
        parts = column_parts(wide, space.reduced, cores, threads)
        if FEW * wide.blocks * parts >= (FEW - 1) * cores:
            ahead = _ahead(wide, bits)
            return _shared(Columns(space, wide, folded.levels, folded.roots, parts, ahead=ahead, threads=threads))
    tile = column_tile(sizes, bits, of_thread, cores, shared_bytes)
    if tile is None:
        return None
    if may_share:
        threads = _threads(region, folded, tile.vector)
        parts, ahead = column_parts(tile, space.reduced, cores, threads), _ahead(tile, bits)
        return _shared(Columns(space, tile, folded.levels, folded.roots, parts, ahead=ahead, threads=threads))
    words = max(1, max(leaf.type.bytes for r in folded.levels[0] for leaf in r.shape.leaves()) // 4)
    found = (
        keeping_tile(like, sizes, of_thread, MOST_KEPT // words, cores, shared_bytes)
        for like in (abreast_tile(tile, sizes, bits), tile)
    )
    keeping = next(filter(None, found), None)
    part = Columns(space, keeping or tile, folded.levels, folded.roots, keeps=keeping is not None)
    return part if part.keeps else _shared(part)


def _threads(region: Region, folded: Folded, vector: int) -> int:
    """Threads for which a multiprocessor has registers: of 32 each, or of 64 where a thread has many elements in a row.
    With 32, kernels that read two arrays of f32 and two scales of columns, four columns at a time, spill."""
    shapes = [p.shape for p in region.needed_by(folded.roots) if p.parameter_number is not None and p.shape.is_array]
    own = [s.type.bytes for s in shapes if s.element_count >= folded.space.minor]
    held = vector * (_accumulator_bytes(folded.levels) + sum(own)) / 4
    return MOST_THREADS if held > MOST_HELD else 2 * MOST_THREADS


def beside(part: Columns) -> Columns:
    """The columns in a launch with other segments, which may need more than 32 registers: blocks are smaller, so that
    three of them have 42."""
    if part.parts == 1 or part.tile.threads < MOST_THREADS or part.tile.ways == 1:
        return part
    return replace(
        part, tile=replace(part.tile, ways=part.tile.ways // 2), threads=min(part.threads, 3 * MOST_THREADS // 2)
    )


def _shared(part: Columns) -> Columns:
    """With the rows of a thread that are folded at once: as many as registers hold, all its columns together."""
    if not any(steps_together(reduce) for level in part.levels for reduce in level):
        return part
    rows = max(2, min(MOST_TOGETHER, KEPT_TOGETHER // part.tile.vector))
    return replace(part, ahead=max(rows, part.ahead), together=rows)


def _ahead(tile: ColumnTile, bits: int) -> int:
    """Rows of a thread whose elements are loaded together: as many bytes as with words."""
    return AHEAD * max(1, WORD // (tile.vector * bits))


def _accumulator_bytes(levels: Levels) -> int:
    """Bytes of the partial results of one column in one thread; narrow types take a whole register."""
    return sum(max(4, leaf.type.bytes) for level in levels for r in level for leaf in r.shape.leaves())


def walks(region: Region, segment: Segment[Columns], launch: Launch) -> list[Walk]:
    """The walks over columns: one for each level of reduces, and one that writes the last outputs. The threads of a
    column combine their results in a tree."""
    part, tile = segment.part, segment.part.tile
    _, reduced, minor = part.sizes
    threads = segment.blocks * tile.threads
    thread = variable(THREAD, threads)
    block, inside = divide(thread, tile.threads), modulo(thread, tile.threads)
    lane, way, number = modulo(inside, tile.lanes), divide(inside, tile.lanes), modulo(block, part.parts)
    block = divide(block, part.parts)
    tiles = -(-minor // (tile.vector * tile.lanes))
    first = add(multiply(modulo(block, tiles), tile.lanes), lane)
    column = add(multiply(first, tile.vector), variable(ITEM, tile.vector))
    stride = tile.ways * part.parts
    rounds = -(-reduced // stride)
    of_round, of_part = (tile.ways, reduced // part.parts) if part.in_runs else (stride, tile.ways)
    step = add(add(multiply(variable(ROUND, rounds), of_round), multiply(number, of_part)), way)
    places = {KEPT: add(multiply(divide(block, tiles), minor), column), REDUCED: step}
    meetings = tile.ways.bit_length() - 1
    return passes(
        region,
        segment,
        Walk(
            threads,
            (),
            places=places,
            items=tile.vector,
            rounds=rounds,
            ahead=rounds if part.keeps else part.ahead,
            barriers=meetings + 1,
            trips=part.parts > 1,
            keeps=part.keeps,
        ),
        together=part.together,
    )


def own(region: Region, segment: Segment[Columns], launch: Launch, walks: Sequence[Walk]) -> list[Own]:
    """Results of columns, which one thread writes; and whole columns, where tiles are full and blocks share none: else
    surplus threads repeat the last columns."""
    part = segment.part
    is_whole = part.parts == 1 and part.space.minor % (part.tile.lanes * part.tile.vector) == 0
    return own_on(region, segment, launch, walks, lambda walk: is_whole or REDUCED not in walk.places)
