"""The row-reduction plan: a warp or a block folds each row of a reduce of minor-most dimensions.

Which reduces qualify: xla/service/gpu/reduction_utils.cc; sizes and launch:
xla/backends/gpu/codegen/emitters/reduction.cc.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

from hlo_opt.analysis.memory.forms import bits_of, round_up
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import add, divide, modulo, multiply, split_constant, variable, variables_of
from hlo_opt.ir.size import most
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.reduction.reducers import is_wide
from hlo_opt.plans.columns import MOST_THREADS, WARP
from hlo_opt.plans.element_reads import conditions_met
from hlo_opt.plans.folding import (
    KEPT,
    REDUCED,
    Folded,
    Levels,
    Space,
    ends_in_one_pass,
    operand_index,
    passes,
    root_index,
    stored_in,
)
from hlo_opt.plans.instructions import Work, of_value
from hlo_opt.plans.loop import WIDEST_ACCESS
from hlo_opt.plans.plan import Launch, Region, Segment, above
from hlo_opt.plans.reads import address_of
from hlo_opt.plans.short_rows import ALONE, WIDEST_COPIED, is_extremum
from hlo_opt.plans.walks import AHEAD, ITEM, ROUND, THREAD, Own, Walk, own_on

SHORT_ROW_BLOCK = 256
LANES_BLOCK = 64
"""Rows of a block of which each is for a lane of a host: what it keeps of them stays in the first cache."""
HALF_OF_THREADS = 512
"""Threads for a long row that fits into registers: a multiprocessor then has two such blocks, and one loads while the
other computes."""
OTHER_REGISTERS = 40
"""Registers of a thread beside its results: two vectors of 16 bytes as floats, their places, and what is computed of
them."""
ROW_PER_THREAD = 16
"""Elements of a row that one thread folds at least, before the row gets more threads."""
FEWEST = 3
"""Elements of the shortest row that threads share."""
MOST_STEPS = 8
"""Accesses of a thread of a short row: each finds the cache lines of all rows of the warp again, and an SM looks up one
line a cycle, where memory gives it some 15 bytes."""
LANES = 16
"""Lanes for a short row on a host: a vector of floats."""
WIDE = 4
"""Bytes of an element that lanes fold without making it wider."""
ROW_PART = 16 * 1024
"""The least number of elements of a long row that one block folds, before several blocks share the row."""

WORD = 8
"""Bytes of an element that `ROW_PART` counts once: two arrays of f32 are loaded at the same time."""
AS_LONG_AS_READING = 16
"""Instructions for an element that take a block as long as reading 4 bytes: an SM starts 128 of them a cycle, and a
block that is alone on it reads some 32 bytes a cycle."""

CLUSTERS_FROM = 90
"""The compute capability from which blocks of a launch form clusters (CUDA C++ Programming Guide, "Thread Block
Clusters")."""
CLUSTERS = (2, 4, 8)
"""Blocks of a cluster: up to what every such device runs."""

MOST_PIECES = 4
"""Limit of the pieces of a row that are computed in different ways: each has its own code."""
MOST_NEIGHBOURS = 8
"""Limit of elements that a thread reads at a time: 16 bytes of bf16. With bytes, 16 elements would need too many
registers."""


def space_of(reduce: Instruction, *, in_lanes: bool = False) -> Space | None:
    """The space of a reduce of minor-most dimensions; None for any other reduce. A row that a thread reads at once is
    folded where it is read, but for lanes of a host, which would fold it again for each of its elements."""
    shape = reduce.operands[0].shape
    gone = set(reduce.ints("dimensions"))
    minor = 1
    for d in shape.minor_to_major:
        if d not in gone and shape.dimensions[d] != 1:
            break
        minor *= shape.dimensions[d]
    columns = math.prod(shape.dimensions[d] for d in gone)
    if not shape.element_count or not may_be_reordered(reduce):
        return None
    at_once = FEWEST - 1 if in_lanes else max(FEWEST - 1, short_row_vector(reduce, minor))
    if minor < WARP and (minor != columns or minor <= at_once):
        return None
    runs = runs_of(reduce)
    is_adjacent = sum(is_gone for _, is_gone in runs) == 1
    return Space(shape.element_count // columns, columns, runs=() if is_adjacent else runs)


def runs_of(reduce: Instruction) -> tuple[tuple[int, bool], ...]:
    """The sizes of kept and reduced dimensions of a reduce's operand in turn, the most major first, each with whether
    it is reduced."""
    shape, gone = reduce.operands[0].shape, reduce.ints("dimensions")
    sides = [(shape.dimensions[d], d in gone) for d in reversed(shape.minor_to_major) if shape.dimensions[d] != 1]
    alike = itertools.groupby(sides, lambda side: side[1])
    return tuple((math.prod(size for size, _ in group), is_gone) for is_gone, group in alike)


def may_be_reordered(reduce: Instruction) -> bool:
    """Whether folding in another order stays close to the result in HLO's order.

    A reducer in a narrow float type rounds after every step: a running sum stops growing where a tree's does not. Such
    a fold keeps its order, in a loop, unless it never rounds.
    """
    return (
        is_extremum(reduce) or is_wide(reduce) or not any(leaf.type.is_narrow_float for leaf in reduce.shape.leaves())
    )


PAIRED_TYPES = {"bf16": 1 / 2, "f16": 2 / 3}
"""Types of which a register can keep two elements, and registers for one: f16 are converted to and fro, so that rows
which fill the registers of bf16 would spill."""


@dataclass(frozen=True)
class Rows:
    """Outputs (`roots` are positions) that the threads of rows write, and the reduces that these need, by level."""

    kind: ClassVar[str] = "row-reduction"
    space: Space
    levels: Levels
    roots: tuple[int, ...]
    element_bytes: int
    """Bytes of an element of the narrowest array that is read or written along a row."""
    target: DeviceTarget = field(repr=False)
    """The device. On one whose threads are the lanes of vectors, which read neighbouring elements at once, a short row
    gets as many lanes as it has elements, up to `LANES`, or one."""
    parts: int = 1
    is_flat: bool = False
    """Whether the rows are contiguous in memory."""
    words: float = 1.0
    """Registers that can keep an element of each array along a row: less than 1 where all are of `PAIRED_TYPES`."""
    is_read_once: bool = False
    """Whether rows are read in one pass, and there are enough to fill the device with fewer threads for each."""
    limit: int = MOST_THREADS
    """The most threads of a row."""
    in_cluster: bool = False
    """Whether the blocks that share a row form a cluster, which keeps the row in its registers."""
    joints: tuple[tuple[int, ...], ...] = ()
    """For each pass over a row, the columns at which it changes: an element before is computed in another way than one
    behind, as in a concatenate. They are multiples of the neighbours that a thread reads at a time, so that these are
    alike. Empty where no pass has any."""
    most_each: int = 0
    """The most elements of a thread where no array lies along a row, whose elements are folds themselves, such as
    distances: so many that the threads of all rows fill the device. 0 for other rows. Neighbours are of different
    threads then, which read side by side what they compute them from."""

    @property
    def hero(self) -> Instruction:
        """The first reduce."""
        return self.levels[0][0]

    @property
    def rows(self) -> int:
        return self.space.kept

    @property
    def columns(self) -> int:
        return self.space.reduced

    @property
    def teams(self) -> int:
        """Groups of threads that walk rows side by side."""
        return self.rows

    @cached_property
    def vector(self) -> int:
        """Neighbouring elements that a thread reads at a time: all of its own if several rows share a warp, else 16
        bytes of the narrowest array, or fewer if threads would have none."""
        if self.is_of_one_lane:
            return 1
        vector = self._widest
        if self.is_peeled:
            return vector
        while self.columns % vector or self.columns < vector * self.threads:
            vector //= 2
        return vector

    @property
    def together(self) -> int:
        """Elements that a thread has at a time, for folds that are quicker so. Lanes of a host have one each."""
        return 1 if self.target.in_lanes else self.vector

    @property
    def is_of_one_lane(self) -> bool:
        """Whether a lane of a host folds a row alone, one element after another: then lanes neither meet nor wait, what
        is done once for a row (the logarithm of a log softmax) is done by one of them, and rows are copied as columns.
        Elements of a warp's row that need not be made wider are folded as quickly by a vector of lanes."""
        longest = WARP if self.element_bytes < WIDE else WARP - 1 if self.element_bytes <= WIDEST_COPIED else ALONE - 1
        return self.target.in_lanes and self.columns <= longest

    @cached_property
    def _widest(self) -> int:
        return min(MOST_NEIGHBOURS, max(1, WIDEST_ACCESS // self.element_bytes))

    @cached_property
    def is_peeled(self) -> bool:
        """Whether rows are not aligned to the widest accesses, so that their ends are read element by element, and the
        middle in vectors."""
        across = self.threads * self.parts
        if not self.is_flat or not self.columns % self._widest or self.threads < WARP or self.vectors[0] < across:
            return False
        return not self._is_kept(-(-self.columns // across)) or self._is_kept(self._slots(across))

    @property
    def vectors(self) -> tuple[int, int]:
        """The least and the greatest number of vectors of a peeled row, which depends on its alignment."""
        return (self.columns + 1) // self._widest - 1, self.columns // self._widest

    @cached_property
    def threads(self) -> int:
        """Threads per row: whole warps, or a part of a warp for a short row, with one access per thread if that divides
        the row and its warp has other rows: threads without a row of their own would write the last one again, and then
        no output may lie in the memory of an input."""
        if self.in_cluster:
            return HALF_OF_THREADS
        if self.is_of_one_lane:
            return 1
        if self.target.in_lanes and ALONE <= self.columns <= WARP:
            return min(1 << self.columns.bit_length() - 1, LANES)
        lanes, rest = divmod(self.columns, self._widest)
        fill_warp = most(self.teams) * lanes >= WARP or self.columns < WARP
        if not rest and lanes in (2, 4, 8, 16) and fill_warp:
            return lanes
        if self.columns < WARP and not self.columns & (self.columns - 1):
            return self.columns // short_row_vector(self.levels[0][0], self.columns)
        lanes = WARP if self.most_each else self.few_lanes
        if lanes < WARP and (self.columns < WARP or most(self.teams) * lanes >= WARP):
            return lanes
        whole = self.columns // self._widest * self._widest if self.is_flat else self.columns  # threads share the ends
        warps = math.ceil(math.ceil(whole / self.per_thread) / WARP)
        if self.most_each:
            warps = min(warps, self.columns // WARP)
        if warps * WARP > MOST_THREADS and self._is_kept(self._slots(HALF_OF_THREADS)):
            return HALF_OF_THREADS
        return min(self._most_threads, warps * WARP)

    @property
    def _most_threads(self) -> int:
        """Threads for which a multiprocessor has registers: each has one for each result of a pass, beside those that
        it needs anyway. The squares of 50 arrays take more than the 64 of a thread of 1,024."""
        results = max(sum(1 for r in level for _ in r.shape.leaves()) for level in self.levels)
        threads, registers = self.limit, self.target.registers_per_block_limit
        while (
            not self.target.in_lanes and threads > SHORT_ROW_BLOCK and registers // threads < OTHER_REGISTERS + results
        ):
            threads //= 2
        return threads

    @property
    def few_lanes(self) -> int:
        """Threads for a row that is no power of two, so that several rows share a warp: the fewest, a power of two,
        with no more than `MOST_STEPS` accesses each."""
        vector = math.gcd(self.columns, self._widest)
        is_even = self.columns & (self.columns - 1) == 0
        for lanes in () if is_even or (self.target.in_lanes and self.columns >= WARP) else (2, 4, 8, 16):
            steps = -(-self.columns // (vector * lanes))
            if steps <= MOST_STEPS and steps * vector <= ROW_PER_THREAD:
                return lanes
        return WARP

    @property
    def per_thread(self) -> int:
        """Elements of a row that one thread folds, before the row gets more threads: where it is read once, several of
        the widest accesses, whose loads are in flight together."""
        if self.most_each:
            return self.most_each
        return max(ROW_PER_THREAD, AHEAD * self._widest) if self.is_read_once else ROW_PER_THREAD

    @cached_property
    def slots(self) -> int:
        """The largest number of columns of a thread."""
        across = self.threads * self.parts
        return self._slots(across) if self.is_peeled else -(-self.columns // (self.vector * across)) * self.vector

    def _slots(self, across: int) -> int:
        """The largest number of columns of a thread, with the widest accesses and one end of a row, or one by one."""
        vectors, ends = divmod(self.columns, self._widest)
        return max(-(-vectors // across) * self._widest + (ends > 0), -(-self.columns // across))

    @property
    def most_in_registers(self) -> int:
        """Limit of the columns of a thread that registers keep from pass to pass."""
        return int(MOST_KEPT / self.words)

    @property
    def paired(self) -> frozenset[str]:
        """The types of which a register may keep two elements."""
        return frozenset(PAIRED_TYPES) if self.words < 1 else frozenset({"bf16"})

    @property
    def is_large(self) -> bool:
        """Whether a block folds a row that registers of half as many threads do not hold."""
        return self.threads == self._most_threads and self.parts == 1 and self.slots > ROW_PER_THREAD

    def spread(self) -> Rows:
        """With a cluster of blocks for each row, whose registers keep it, where a block would read it again or would be
        alone on its multiprocessor: an H200 reads and writes 1,024 rows of 32,768 f32 in 71.0 us with a block for each,
        in 66.0 with two; 1,024 rows of 50,257 bf16 in 73.0 and 65.4 us, but in 85.3 with four. So the blocks are as few
        as keep a row, unless multiprocessors would have none, or only the registers of more have place for the ends of
        a row beside its vectors."""
        chosen = self
        if self.is_large and len(self.levels) > 1:
            for blocks in CLUSTERS:
                spread = replace(self, parts=blocks, in_cluster=True)
                is_wider = spread.vector > chosen.vector
                if self._is_kept(spread.slots) and (
                    chosen is self or is_wider or most(self.rows) * chosen.parts < self.target.core_count
                ):
                    chosen = spread
        return chosen

    def in_smaller_blocks(self, *, is_read_once: bool) -> Rows:
        """With at most half the threads where rows are read once, or again from memory: then more of them keep nothing,
        but fewer wait for each other, and one block loads while another ends its row."""
        is_busy = self.parts == 1 and most(self.rows) >= 2 * self.target.core_count
        is_kept = not is_read_once and self.slots <= self.most_in_registers
        if self.target.in_lanes or not is_busy or self.threads <= HALF_OF_THREADS or is_kept:
            return self
        return replace(self, limit=HALF_OF_THREADS)

    def _is_kept(self, slots: int) -> bool:
        """Whether registers keep that number of columns per thread for another pass."""
        return len(self.levels) > 1 and slots <= self.most_in_registers

    @property
    def block(self) -> int:
        """The number of threads per block that this part needs: short rows share a block."""
        if 2 * self.threads > SHORT_ROW_BLOCK:
            return self.threads
        block = LANES_BLOCK if self.is_of_one_lane else SHORT_ROW_BLOCK
        return round_up(self.threads * min(most(self.teams), block // self.threads), WARP)

    def rows_per_block(self, block: int) -> int:
        """Rows per block, such that their threads are whole warps."""
        return min(round_up(most(self.teams), max(1, WARP // self.threads)), block // self.threads)

    def segment(self, block: int) -> Segment[Rows]:
        blocks = math.ceil(self.teams / self.rows_per_block(block)) * self.parts
        folded = tuple(r for level in self.levels for r in level)
        resident = 2 if self.threads == block == HALF_OF_THREADS < self._most_threads else 0
        cluster = self.parts if self.in_cluster else 1
        return Segment(self, blocks, self.vector, folded=folded, resident=resident, cluster=cluster)

    def shared_bytes(self, block: int) -> int:
        """Bytes in which the warps of a row combine their results."""
        if self.threads <= WARP:
            return 0
        warps = self.rows_per_block(block) * self.threads // WARP
        results = sum(self.level_bytes(number, warps) for number in range(len(self.levels)))
        if self.in_cluster:  # with a count of the bytes that arrive for each level
            return results + 8 * len(self.levels)
        return results + 4 * (self.parts > 1)

    def level_bytes(self, level: int, warps: int) -> int:
        """Bytes of shared memory for the results of `warps` warps of a block. In a cluster each block has the results
        of all its blocks."""
        leaves = [leaf for r in self.levels[level] for leaf in r.shape.leaves()]
        return sum(max(4, leaf.type.bytes) for leaf in leaves) * warps * (self.parts if self.in_cluster else 1)


def of(region: Region, folded: Folded, target: DeviceTarget) -> Rows:
    """The part for some folds of rows."""
    rows, columns = folded.space.kept, folded.space.reduced
    is_read_once = ends_in_one_pass(region, folded)
    along = [leaf for shape in (*region.inputs, *region.outputs) for leaf in shape.leaves()]
    widths = [leaf.type.bytes for leaf in along if leaf.is_array and leaf.element_count == folded.space.elements]
    own = [leaf.type.bytes for leaf in folded.levels[0][0].shape.leaves()]
    paired = {"bf16": PAIRED_TYPES["bf16"]} if target.in_lanes else PAIRED_TYPES  # a processor widens f16 in steps
    words = [
        paired.get(leaf.type.name, 1.0)
        for leaf in along
        if leaf.is_array and leaf.element_count == folded.space.elements
    ]
    is_flat = _is_flat(folded) and all(leaf.type.per_byte == 1 for leaf in along if leaf.is_array)
    element_bytes = min(widths, default=max(own))
    fills = most(rows) * most(columns) >= target.resident_threads * AHEAD * MOST_NEIGHBOURS
    is_of_folds = not widths and not target.in_lanes and columns >= 2 * WARP and _is_of_folds(folded)
    most_each = max(1, min(ROW_PER_THREAD, most(rows) * most(columns) // target.resident_threads)) if is_of_folds else 0
    part = Rows(
        folded.space,
        folded.levels,
        folded.roots,
        WIDEST_ACCESS if is_of_folds else element_bytes,
        target,
        is_flat=is_flat,
        words=max(words, default=1.0),
        is_read_once=is_read_once and fills,
        most_each=most_each,
    )
    if is_read_once and part.threads >= WARP:  # the first warp of the last block combines the parts
        part = replace(part, parts=row_parts(region, part))
    if target.compute_capability >= CLUSTERS_FROM and not target.in_lanes:
        part = part.spread()
    part = part.in_smaller_blocks(is_read_once=is_read_once)
    if part.vector == 1 or part.is_peeled or target.in_lanes:
        return part
    joints = tuple(_joints(region, part, level) for level in range(len(part.levels) + 1))
    return replace(part, joints=joints) if any(joints) else part


def _is_of_folds(folded: Folded) -> bool:
    """Whether the elements of rows are computed from short folds, one for each."""
    needed = above([o for level in folded.levels for reduce in level for o in reduce.operands])
    folds = [i for i in needed if (spec := find(i.opcode)) is not None and spec.kind is OpKind.REDUCTION]
    return any(leaf.element_count == folded.space.elements for i in folds for leaf in i.shape.leaves())


def _joints(region: Region, part: Rows, level: int) -> tuple[int, ...]:
    """The columns at which rows change in a pass; none if there are too many, if a thread's neighbours lie on both
    sides of one, or if something else changes within a row."""
    row, column = variable(KEPT, part.rows), variable(REDUCED, part.columns)
    reduces = [reduce for of_level in part.levels for reduce in of_level]
    folds = part.levels[level] if level < len(part.levels) else ()
    starts = [(o, operand_index(r, row, column)) for r in folds for o in r.operands[: len(r.operands) // 2]]
    starts += [(root, root_index(part.space, reduces, root, row, column)) for root in stored_in(region, part, level)]
    joints = set[int]()
    for condition in conditions_met(starts, reduces):
        place, offset = split_constant(condition.expression)
        if place == column:
            joints |= {condition.low - offset, condition.high + 1 - offset}
        elif REDUCED in variables_of(place):
            return ()
    inside = tuple(sorted(joint for joint in joints if 0 < joint < part.columns))
    return inside if len(inside) < MOST_PIECES and not any(joint % part.vector for joint in inside) else ()


def beside(part: Rows) -> Rows:
    """The rows in a launch with other segments, whose blocks form no clusters."""
    return replace(part, parts=1, in_cluster=False) if part.in_cluster else part


def along_rows(region: Region, part: Rows) -> list[Instruction]:
    """The parameters with the layout of the rows: the next row of these is loaded while a row is computed."""
    shape = part.hero.operands[0].shape
    return [
        p
        for p in region.parameters
        if p.shape.is_array
        and p.shape.dimensions == shape.dimensions
        and p.shape.minor_to_major == shape.minor_to_major
        and p.shape.type.per_byte == 1
    ]


def _is_flat(folded: Folded) -> bool:
    """Whether the rows of the first reduce's operand are contiguous in memory."""
    space, reduce = folded.space, folded.levels[0][0]
    row, column = variable("row", space.kept), variable("column", space.reduced)
    place = address_of(reduce.operands[0].shape, operand_index(reduce, row, column))
    return place == add(multiply(row, space.reduced), column)


def row_parts(region: Region, part: Rows) -> int:
    """Blocks that fold a row together: as many as fill the device, if each has enough to do."""
    most_parts = 2 * part.target.core_count // part.rows
    if most_parts <= 1:
        return 1
    least = max(1, int(ROW_PART / _weight(region, part)))
    return max(1, min(most_parts, part.columns // least))


def _weight(region: Region, part: Rows) -> float:
    """How many times as long as reading a word an element of the rows takes, by what is computed, and by all that is
    read for it; at least 1."""
    own = above([*itertools.chain(*part.levels), *(region.roots[n] for n in part.roots)])
    work = sum(of_value(i).slots * most(i.shape.element_count) for i in own if i.shape.is_array)
    elements = most(part.rows) * most(part.columns)
    given = [i.shape for i in own if i.parameter_number is not None]
    read = sum(s.stored_bytes for s in given if s.is_array and most(s.element_count) == elements)
    return max(1.0, work / elements / AS_LONG_AS_READING, read / elements / WORD)


def short_row_vector(reduce: Instruction, columns: int) -> int:
    """Neighbouring elements that a thread of a short row folds: 8 bytes of the narrowest operand, at most 16 of the
    widest."""
    bits = [bits_of(o.shape) for o in reduce.operands]
    vector = min(columns, max(1, 64 // min(bits)))
    return min(vector, max(1, 128 // max(bits))) if max(bits) >= 32 else vector


PAIRING, PAIRED = Work(1), Work(1)
"""The work of packing a column with another in one register, and of unpacking it in a later pass."""
ENDS = Work(30)
"""The work of a thread that reads the ends of a peeled row: their position, and an element."""
CLUSTER_BARRIERS = 20
"""The barriers of a block that take as long as a barrier of a cluster, with what its blocks write to each other before
it."""
MOST_KEPT = 32
"""Limit of columns of a thread that registers keep from pass to pass (`MOST_REGISTERS` of
hlo_opt/codegen/registers.py)."""


def walks(region: Region, segment: Segment[Rows], launch: Launch) -> list[Walk]:
    """The walks over a row: one for each level of reduces, and one that writes the last outputs. Between them, the
    threads of a row combine their results."""
    part, vector = segment.part, segment.vector
    across, per_block = part.threads * part.parts, part.rows_per_block(launch.block)
    thread = variable(THREAD, segment.blocks * per_block * part.threads)
    row, start = divide(thread, part.threads), modulo(thread, part.threads)
    if part.parts > 1:
        row, number = divide(row, part.parts), modulo(row, part.parts)
        start = add(multiply(number, part.threads), start)
    rounds = math.ceil((part.vectors[1] if part.is_peeled else part.columns / vector) / across)
    step = add(multiply(variable(ROUND, rounds), across), start)
    column = add(multiply(step, vector), variable(ITEM, vector))
    if part.is_peeled:  # up to the first aligned element
        column = add(column, modulo(multiply(row, vector - part.columns % vector), vector))
    places = {KEPT: row, REDUCED: column}
    warps = part.threads > WARP
    kept = part.slots <= part.most_in_registers
    halves = kept and part.slots > MOST_KEPT
    walks = passes(
        region,
        segment,
        Walk(
            segment.blocks * per_block * part.threads,
            (),
            places=places,
            items=vector,
            rounds=rounds,
            filled=min(1.0, part.columns / (rounds * vector * across)),
            ahead=rounds if (kept and len(part.levels) > 1) or part.threads < WARP else Walk.ahead,
            barriers=CLUSTER_BARRIERS if part.in_cluster else int(warps),
            shuffles=(min(WARP, part.threads).bit_length() - 1) * (1 + warps),
            trips=part.parts > 1 and not part.in_cluster,
            keeps=kept,
            registers=-(-part.slots // 2) if halves else 0,
            limits={} if part.is_peeled else {REDUCED: part.columns},
        ),
        together=part.together,
    )
    walks = [
        replace(walk, in_pieces=True) if level < len(part.joints) and part.joints[level] else walk
        for level, walk in enumerate(walks)
    ]
    if part.is_peeled:
        ends = ENDS * (WARP / part.columns * part.parts)
        walks = [replace(walk, body=walk.body + ends) if walk.rounds == rounds else walk for walk in walks]
    if not halves:
        return walks
    paired = [PAIRING, *[PAIRING + PAIRED] * (len(part.levels) - 1), PAIRED]
    return [replace(walk, body=walk.body + more) for walk, more in zip(walks, paired, strict=False)]


def own(region: Region, segment: Segment[Rows], launch: Launch, walks: Sequence[Walk]) -> list[Own]:
    """Results of rows, which one thread writes; and whole rows, where each row has threads of its own: no block repeats
    the last row, or shares a row with other blocks. The ends of a row that is peeled have the same thread on every
    walk."""
    part = segment.part
    is_whole = part.parts == 1 and part.rows % part.rows_per_block(launch.block) == 0
    return own_on(region, segment, launch, walks, lambda walk: is_whole or REDUCED not in walk.places)
