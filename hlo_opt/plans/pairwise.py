"""The pairwise plan: a fold over what is computed of pairs of rows, such as distances between all points of two sets.

An element of the result is the fold of f(x[i, k], y[j, k]) over k. A thread has a few rows i and a few columns j: it
reads an element of x once for all of its columns, and one of y for all of its rows, and folds each pair by itself. It
is a product's tile in registers for any function and any reducer. A loop, or a row reduction, reads both elements for
each pair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import (
    Expression,
    add,
    constant,
    delinearize,
    divide,
    modulo,
    multiply,
    variable,
    variables_of,
)
from hlo_opt.ops.lowering import Element
from hlo_opt.ops.reduction.reducers import FOLDS
from hlo_opt.plans.element_reads import ends_needed
from hlo_opt.plans.folding import REDUCED, Folded, Space, ends_in_one_pass, operand_index, root_index
from hlo_opt.plans.folding import match as match_folds
from hlo_opt.plans.plan import Launch, Region, Segment, Unshared, above
from hlo_opt.plans.samples import LINE, SECTOR
from hlo_opt.plans.walks import ITEM, ROUND, THREAD, Walk, leaves_at

LANES, WARPS = 32, 4
"""Threads of a block that have neighbouring columns, and those that share these columns and have other rows: a block
reads a tile's operands from L2 once. Where each column lies in a cache line of its own, fewer threads may have
neighbouring columns: a warp of 8 columns and 4 rows looks up 12 lines where one of 32 columns looks up 33."""
WIDTH, MOST_ROWS, MOST_PAIRS = 4, 8, 16
"""Columns of a thread, which are as far apart as a warp is wide; limits of its rows, and of its pairs: a pair has a
register for each result of a fold."""
FEW = 4
"""Threads have fewer rows where they would be fewer than those that are resident by more than this factor."""
CHUNK = 4
"""Elements of a fold that lie beside each other and are read together, where they do."""
BATCH, ROW, COLUMN = "batch", "row", "column"
"""Variables of walks: the number of a batch of pairs, and a position of each of its sides."""


@dataclass(frozen=True)
class Pairs(Unshared):
    """Outputs (`roots` are positions) with an element for each pair, and the reduces that these need.

    batches        independent sets of pairs, each with as many rows and columns
    rows, columns  positions on each side, in the order of memory: columns are neighbours there
    reduced        elements that a pair folds
    height, width  rows and columns of a thread
    lanes          threads that have neighbouring columns
    of_rows, of_columns  what is read for a row, and for a column
    """

    kind: ClassVar[str] = "pairwise"
    reduces: tuple[Instruction, ...]
    roots: tuple[int, ...]
    batches: int
    rows: int
    columns: int
    reduced: int
    height: int
    width: int
    lanes: int
    of_rows: tuple[Element, ...]
    of_columns: tuple[Element, ...]

    @property
    def hero(self) -> Instruction:
        """The first reduce."""
        return self.reduces[0]

    @property
    def space(self) -> Space:
        """The space of pairs and what they fold."""
        return Space(self.batches * self.rows * self.columns, self.reduced)

    @property
    def tiling(self) -> tuple[int, int, int, int]:
        """Tiles of a block along rows and columns, and threads of a tile along both."""
        down = -(-self.batches * self.rows // self.height)
        warps = math.gcd(down, LANES * WARPS // self.lanes if self.lanes < self.columns else WARPS)
        return down // warps, -(-self.columns // (self.width * self.lanes)), warps, self.lanes

    @property
    def chunk(self) -> int:
        """Steps of a fold that a thread takes together."""
        return math.gcd(self.reduced, CHUNK)

    @property
    def threads(self) -> int:
        """The number of threads."""
        return math.prod(self.tiling)

    @property
    def block(self) -> int:
        return min(LANES * WARPS, self.threads)

    def segment(self, block: int) -> Segment[Pairs]:
        return Segment(self, -(-self.threads // block), in_rows=True, folded=self.reduces)

    def first(self, thread: Expression) -> tuple[Expression, Expression]:
        """The first row and column of a thread. Its last ones may lie beyond the end."""
        _, _, warps, lanes = self.tiling
        down, along, warp, lane = delinearize(thread, self.tiling)
        row = multiply(add(multiply(down, warps), warp), self.height)
        return row, add(multiply(along, self.width * lanes), lane)


def _space_of(reduce: Instruction) -> Space | None:
    elements = reduce.operands[0].shape.element_count
    kept = next(reduce.shape.leaves()).element_count
    return Space(kept, elements // kept) if kept and elements // kept > 1 else None


def match(region: Region, roots: Sequence[int], target: DeviceTarget) -> tuple[list[Pairs], list[int]]:
    """The folds of pairs among outputs of a region, and the positions of the other outputs."""
    if target.in_lanes or not _may_be(region):
        return [], list(roots)
    parts: list[Pairs] = []
    matched, rest = match_folds(region, roots, _space_of)
    for folded in matched:
        part = _part(region, folded, target)
        if part is None:
            rest = sorted([*rest, *folded.roots])
        else:
            parts.append(part)
    return parts, rest


def _may_be(region: Region) -> bool:
    """Whether something is folded that has more elements than each array of which it is computed."""
    for i in region.computation.instructions:
        if i.opcode in FOLDS and i.operands[0].operands:
            elements = i.operands[0].shape.element_count
            arrays = [a for a in above(i.operands) if a.parameter_number is not None and a.shape.is_array]
            if arrays and all(a.shape.element_count < elements for a in arrays):
                return True
    return False


def _part(region: Region, folded: Folded, target: DeviceTarget) -> Pairs | None:
    space = folded.space
    if not ends_in_one_pass(region, folded):
        return None
    if any(next(region.roots[n].shape.leaves()).element_count != space.kept for n in folded.roots):
        return None
    (reduces,) = folded.levels
    shape = next(reduces[0].shape.leaves())
    if shape.rank < 2:
        return None
    columns, rows = (shape.dimensions[d] for d in shape.minor_to_major[:2])
    batches = space.kept // (rows * columns)
    sides = _sides(reduces, (batches, rows, columns), space.reduced)
    if sides is None:
        return None
    width = min(WIDTH, -(-columns // LANES))
    results = max(1, sum(leaf.type.bytes for r in reduces for leaf in r.shape.leaves()) // 4)
    height = max(1, min(MOST_ROWS, MOST_PAIRS // (width * results)))
    while height > 1 and (
        height > rows or (batches > 1 and rows % height) or FEW * space.kept < height * width * target.resident_threads
    ):
        height //= 2
    if height * width < WIDTH:
        return None
    written = [leaf.type.bytes for n in folded.roots for leaf in region.roots[n].shape.leaves()]
    tiles, chunk = -(-batches * rows // height), math.gcd(space.reduced, CHUNK)

    def looked_up(lanes: int) -> int:
        """Cache lines for a thread of a warp that has so many neighbouring columns."""
        groups = LANES // lanes
        reads = sum(width * _lines(column, COLUMN, lanes, 1, chunk) for column in sides[1])
        reads += sum(height * _lines(row, ROW, groups, height, chunk) for row in sides[0])
        return space.reduced // chunk * reads + height * width * groups * len(written)

    lanes = min(LANES, columns)
    if lanes == LANES:
        fewer = (LANES // 2, LANES // 4)
        can = [n for n in fewer if n * min(written) >= SECTOR and tiles % (LANES * WARPS // n) == 0]
        lanes = min((LANES, *can), key=looked_up)
    return Pairs(reduces, folded.roots, batches, rows, columns, space.reduced, height, width, lanes, *sides)


def _lines(read: Element, place: str, lanes: int, apart: int, chunk: int) -> int:
    """Cache lines that a warp looks up to read a chunk of a fold, for `lanes` rows or columns which are `apart`."""
    value, index = read
    neighbour, along = value.shape.type.bytes, variables_of(index[value.shape.minor_to_major[0]])
    for d in value.shape.minor_to_major:
        if place in variables_of(index[d]):
            return min(lanes, -(-lanes * apart * neighbour // LINE)) * (1 if REDUCED in along else chunk)
        neighbour *= value.shape.dimensions[d]
    return 1


def _sides(
    reduces: Sequence[Instruction], sizes: tuple[int, int, int], reduced: int
) -> tuple[tuple[Element, ...], tuple[Element, ...]] | None:
    """The elements that are folded for a row, and for a column. None if some are for pairs, as in a sum over an array,
    or if there are none for one of them."""
    kept, step = _kept(*sizes), variable(REDUCED, reduced)
    sides: dict[str, dict[Element, None]] = {ROW: {}, COLUMN: {}}
    for reduce in reduces:
        at = operand_index(reduce, kept, step)
        folded = reduce.operands[: len(reduce.operands) // 2]
        for end in ends_needed([(o, at) for o in folded], above(folded), lambda i, index: not i.operands):
            if end is None:
                return None
            names = set[str]().union(*map(variables_of, end[1]))
            if end[0].parameter_number is None:  # a constant, or a position
                continue
            if names >= {ROW, COLUMN}:
                return None
            if REDUCED in names:
                sides[COLUMN if COLUMN in names else ROW][end] = None
    return (tuple(sides[ROW]), tuple(sides[COLUMN])) if sides[ROW] and sides[COLUMN] else None


def _kept(batches: int, rows: int, columns: int) -> Expression:
    """The position of a pair."""
    row = add(multiply(variable(BATCH, batches), rows), variable(ROW, rows))
    return add(multiply(row, columns), variable(COLUMN, columns))


def walks(region: Region, segment: Segment[Pairs], launch: Launch) -> list[Walk]:
    """The walks that read what is folded of the rows of a thread, and of its columns, and the one over its pairs."""
    part = segment.part
    first, column = part.first(variable(THREAD, part.threads))
    batch, row = (divide(first, part.rows), modulo(first, part.rows)) if part.batches > 1 else (constant(0), first)
    lanes = part.tiling[-1]
    items, chunks = part.chunk, part.reduced // part.chunk
    limits = {ROW: part.rows, COLUMN: part.columns}
    walks = []
    for elements, count in ((part.of_rows, part.height), (part.of_columns, part.width)):
        number = variable(ROUND, count * chunks)
        turn, chunk = divide(number, chunks), modulo(number, chunks)
        places = {
            BATCH: batch,
            ROW: add(row, turn) if elements is part.of_rows else row,
            COLUMN: add(column, multiply(turn, lanes)) if elements is part.of_columns else column,
            REDUCED: add(multiply(chunk, items), variable(ITEM, items)),
        }
        walks.append(Walk(part.threads, elements, places=places, items=items, rounds=count * chunks, limits=limits))
    kept = _kept(part.batches, part.rows, part.columns)
    roots = [region.roots[n] for n in part.roots]
    wanted = [(root, root_index(part.space, part.reduces, root, kept, None)) for root in roots]
    places = {
        BATCH: batch,
        ROW: add(row, variable(ROUND, part.height)),
        COLUMN: add(column, multiply(variable(ITEM, part.width), lanes)),
    }
    filled = part.space.kept / (part.threads * part.height * part.width)
    known = frozenset(parameter for parameter, _ in (*part.of_rows, *part.of_columns))
    walks.append(
        Walk(
            part.threads,
            wanted,
            leaves_at(wanted),
            places=places,
            items=part.width,
            rounds=part.height,
            filled=filled,
            known=known,
            limits=limits,
        )
    )
    return walks
