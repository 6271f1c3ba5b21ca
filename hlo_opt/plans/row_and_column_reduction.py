"""The plan of row reductions with sums of columns of the same array: threads walk one row after another and keep the
sums of their own columns in registers.

The gradient of a layer norm then reads its operands once: for sums of rows, for their users, and for the sums of
columns over each stretch of rows. A small kernel adds up the stretches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import add, divide, modulo, multiply, variable, variables_of
from hlo_opt.ops.lowering import Index
from hlo_opt.ops.movement.memory import physical_index
from hlo_opt.ops.reduction.reducers import running_types, starts_with_identity
from hlo_opt.ops.sets import is_elementwise
from hlo_opt.plans import row_reduction
from hlo_opt.plans.columns import SHARED_BYTES, WARP
from hlo_opt.plans.element_reads import read_at
from hlo_opt.plans.folding import KEPT, REDUCED, Space, across, operand_index, passes
from hlo_opt.plans.instructions import ACCESS
from hlo_opt.plans.plan import Launch, Region, Segment
from hlo_opt.plans.row_reduction import Rows
from hlo_opt.plans.walks import ITEM, ROUND, THREAD, Walk

OTHER_REGISTERS = 8
"""Registers of a thread besides its columns: for results of rows and intermediate values. The compiler needs 16 more
for addresses."""


@dataclass(frozen=True)
class RowsAndColumns(Rows):
    """Rows in stretches, each walked by threads of its own, and the reduces of columns over a stretch."""

    kind: ClassVar[str] = "row-and-column-reduction"
    sums: tuple[Instruction, ...] = ()
    stretch: int = 1
    """The number of rows of a stretch."""
    in_halves: bool = False
    """Whether two teams of threads of a block walk one half of a stretch each, and add up their sums at the end."""
    ahead: bool = False
    """Whether threads load their columns of the next row into registers while they compute a row."""
    shared: tuple[tuple[Instruction, Index], ...] = ()
    """Parameters that all rows share, of which threads keep their columns in registers: each with its index at a
    column, `REDUCED`."""

    @property
    def per_thread(self) -> int:
        """Elements of a row that one thread folds; a longer row gets more threads. In a short row they are so few that
        the thread's registers can also hold the next row. Registers hold twice as many elements of bf16, so fewer
        threads have results to combine (a gradient of 8,192 rows of 4,096: 88 us instead of 100)."""
        few = row_reduction.ROW_PER_THREAD // 2
        is_short = self.columns <= few * THREADS and self.words == 1
        return few if is_short else row_reduction.ROW_PER_THREAD

    @property
    def few_lanes(self) -> int:
        """Threads of a row whose length is no power of two: whole warps."""
        return WARP if self.columns >= WARP else super().few_lanes

    @property
    def abreast(self) -> int:
        """The number of teams of a stretch."""
        return 1 + self.in_halves

    @property
    def teams(self) -> int:
        """Groups of threads that walk rows side by side."""
        return self.rows // self.stretch * self.abreast

    @property
    def block(self) -> int:
        return self.threads * max(self.abreast, SMALLEST // self.threads)

    def rows_per_block(self, block: int) -> int:
        """Teams per block; those of a stretch share a block."""
        rows = super().rows_per_block(block)
        return rows // self.abreast * self.abreast

    def shared_bytes(self, block: int) -> int:
        """Bytes in which the warps of a row, and the teams of a stretch, combine their results."""
        kinds = {t for r in self.sums for t in running_types(r)}
        halves = sum(max(4, t.bytes) for t in kinds) * self.columns * self.rows_per_block(block)
        return super().shared_bytes(block) + halves * self.in_halves

    @property
    def columns_per_thread(self) -> int:
        """The largest number of columns of a thread."""
        return math.ceil(self.columns / (self.vector * self.threads)) * self.vector

    @property
    def registers(self) -> int:
        """Registers of a thread: for its columns of each sum, for what it keeps of a row, and others."""
        words = sum(max(1, t.bytes // 4) for r in self.sums for t in running_types(r))
        kept = min(row_reduction.MOST_KEPT, 2 * self.columns_per_thread)
        return self.columns_per_thread * words + kept + OTHER_REGISTERS

    def segment(self, block: int) -> Segment[RowsAndColumns]:
        folded = (*(r for level in self.levels for r in level), *self.sums)
        return Segment(self, math.ceil(self.teams / self.rows_per_block(block)), self.vector, folded=folded)


WHILE_LOADING, WHILE_KEEPING = 32, 16
"""Further registers of a thread: those for addresses and intermediate values while the next row is loaded; and those
without which the compiler would spill what a thread keeps for all rows."""
SHORTEST = 16
"""The least number of rows of a stretch: partial sums are then at most 1/16 of the elements read."""
THREADS = 512
"""The wanted number of threads per multiprocessor: two blocks for rows of 4,096."""
_MEETING = 1024
"""Limit of bytes of shared memory in which the warps of a row combine their results."""
SMALLEST = 128
"""The least number of threads per block: short rows share one."""


def stretch_of(rows: Rows, target: DeviceTarget) -> int:
    """The number of rows per stretch that makes as many threads as wanted, or a few less; all rows if no such number
    divides them."""
    rows = _walked(rows, target)
    most = min(target.core_count * THREADS // rows.threads, rows.rows // SHORTEST)
    halves = max((d for d in range(1, most // 2 + 1) if rows.rows % (2 * d) == 0), default=1)
    if _may_share(rows, halves, target, SHARED_BYTES):
        return rows.rows // halves
    stretches = max((d for d in range(1, most + 1) if rows.rows % d == 0), default=1)
    return rows.rows // stretches


def _walked(rows: Rows, target: DeviceTarget) -> RowsAndColumns:
    """The rows as a stretch of one row, without sums."""
    is_bf16 = rows.words == row_reduction.PAIRED_TYPES["bf16"] and not target.in_lanes
    words = rows.words if is_bf16 else 1.0
    return RowsAndColumns(rows.space, rows.levels, rows.roots, rows.element_bytes, rows.target, words=words)


def _may_share(rows: Rows, stretches: int, target: DeviceTarget, room: int) -> bool:
    """Whether two teams and a row of their sums fit into a block and its `room` bytes of shared memory, and `stretches`
    blocks keep the device busy."""
    fits_in = SMALLEST <= rows.threads <= THREADS // 2 and 2 * 4 * rows.columns + _MEETING <= room
    return fits_in and 4 * stretches >= 3 * target.core_count


def match(
    region: Region, roots: Sequence[int], target: DeviceTarget, room: int
) -> tuple[Sequence[RowsAndColumns], list[int]]:
    """One part for all outputs of a region: sums of rows and of columns of the same arrays, and what is computed from
    them. No part where an output is anything else. `room` is the shared memory left, in bytes."""
    splits = {n: split for n in roots if (split := rows_beside(region.roots[n])) is not None}
    if len(set(splits.values())) != 1:
        return [], list(roots)
    space, stretch = next(iter(splits.values()))
    sums = tuple(region.roots[n] for n in splits)
    folded = across(region, [n for n in roots if n not in splits], sums, space, row_reduction.space_of)
    if folded is None:
        return [], list(roots)
    rows = row_reduction.of(region, folded, target)
    part = replace(_walked(rows, target), roots=tuple(roots), sums=sums, stretch=stretch)
    halves = replace(part, in_halves=True)
    few = part.teams * 2 * part.threads <= target.core_count * THREADS and stretch % 2 == 0
    if few and _may_share(part, part.teams, target, room) and halves.shared_bytes(halves.block) <= room:
        part = halves
    part = replace(part, ahead=_holds_next(region, part, target))
    part = replace(part, shared=_shared(region, part, target))
    return ([part], []) if fits(part, target) else ([], list(roots))


def _holds_next(region: Region, part: RowsAndColumns, target: DeviceTarget) -> bool:
    """Whether the wanted number of threads has registers for the next row of each parameter."""
    needed = part.registers + _registers_of(part, row_reduction.along_rows(region, part))
    is_read = needed > part.registers and part.stretch > part.abreast
    return is_read and needed + WHILE_LOADING <= _most_registers(part, target)


def _shared(region: Region, part: RowsAndColumns, target: DeviceTarget) -> tuple[tuple[Instruction, Index], ...]:
    """The parameters that all rows share, if the wanted number of threads has registers for them: in each pass over
    each row, they would be read from L1 (the gradient of 8,192 rows of 4,096 bf16, by a scale in f32: 67 us instead of
    86)."""
    space = part.hero.operands[0].shape.dimensions
    at = operand_index(part.hero, variable(KEPT, part.rows), variable(REDUCED, part.columns))
    shared: dict[Instruction, Index] = {}
    for i in region.computation.instructions:
        if i.shape.is_array and i.shape.dimensions == space and len(i.operands) == 1:
            index, source = read_at(i, 0, at), i.operands[0]
            while source.operands and is_elementwise(source, 0):
                source = source.operands[0]
            read = frozenset[str]().union(*map(variables_of, index or ()))
            if index and read == {REDUCED} and source.parameter_number is not None and source.shape.type.per_byte == 1:
                shared[source] = index
    early = row_reduction.along_rows(region, part) if part.ahead else []
    needed = part.registers + _registers_of(part, [*early, *shared]) + WHILE_KEEPING
    return tuple(shared.items()) if part.stretch > part.abreast and needed <= _most_registers(part, target) else ()


def _registers_of(part: RowsAndColumns, parameters: Iterable[Instruction]) -> float:
    """Registers for a thread's columns of parameters."""
    return part.columns_per_thread * sum(map(_words, parameters))


def _most_registers(part: RowsAndColumns, target: DeviceTarget) -> int:
    """Registers of each of the wanted number of threads."""
    return target.registers_per_block_limit // max(part.block, THREADS)


def _words(parameter: Instruction) -> float:
    """Registers for an element of a row: two of bf16 share one."""
    return 0.5 if parameter.shape.type.name == "bf16" else max(1, parameter.shape.type.bytes // 4)


def rows_beside(reduce: Instruction) -> tuple[Space, int] | None:
    """The space of the rows that a reduce of columns reads, and the number of rows that it folds."""
    if reduce.opcode != "reduce" or reduce.shape.is_tuple or not starts_with_identity(reduce):
        return None
    if not row_reduction.may_be_reordered(reduce):
        return None
    runs = row_reduction.runs_of(reduce)
    if [is_gone for _, is_gone in runs] != [False, True, False]:
        return None
    (teams, _), (stretch, _), (columns, _) = runs
    return Space(teams * stretch, columns), stretch


def fits(part: RowsAndColumns, target: DeviceTarget) -> bool:
    """Whether the part keeps the device busy, and a thread's columns fit into registers."""
    if part.threads < WARP or 2 * part.segment(part.block).blocks < target.core_count:
        return False
    return part.registers + 16 <= min(255, target.registers_per_block_limit // part.block)


def walks(region: Region, segment: Segment[RowsAndColumns], launch: Launch) -> list[Walk]:
    """The walks over the rows of a stretch, and one that writes the sums."""
    part, vector = segment.part, segment.vector
    threads = segment.blocks * part.rows_per_block(launch.block) * part.threads
    thread = variable(THREAD, threads)
    rounds, own = part.columns_per_thread // vector, part.stretch // part.abreast
    turn = variable(ROUND, rounds * own)
    row = add(multiply(divide(thread, part.threads), own), divide(turn, rounds))
    step = add(multiply(modulo(turn, rounds), part.threads), modulo(thread, part.threads))
    places = {KEPT: row, REDUCED: add(multiply(step, vector), variable(ITEM, vector))}
    warps = part.threads > WARP
    keeps = part.columns_per_thread <= row_reduction.MOST_KEPT
    walks = passes(
        region,
        segment,
        Walk(
            threads,
            (),
            places=places,
            items=vector,
            rounds=rounds * own,
            ahead=rounds if keeps else Walk.ahead,
            barriers=warps * own,
            shuffles=(min(WARP, part.threads).bit_length() - 1) * (1 + warps) * own,
            keeps=keeps,
            registers=part.registers,
        ),
        part.sums,
        part.together,
    )
    early = row_reduction.along_rows(region, part)
    if early and own > 1:
        walks[0] = replace(walks[0], body=walks[0].body + ACCESS * (len(early) / vector), early=True)
    stretches = part.teams // part.abreast
    team, column = variable("team", stretches), variable("column", part.columns)
    written = [(r.shape, physical_index(r.shape, add(multiply(team, part.columns), column))) for r in part.sums]
    writing = threads // part.abreast
    thread = variable(THREAD, writing)
    step = add(multiply(variable(ROUND, rounds), part.threads), modulo(thread, part.threads))
    places = {
        "team": divide(thread, part.threads),
        "column": add(multiply(step, vector), variable(ITEM, vector)),
    }
    shared, barriers = 2.0 * len(part.sums) * part.in_halves, 2 * len(part.sums) * part.in_halves
    return [
        *walks,
        Walk(writing, (), written, places=places, items=vector, rounds=rounds, shared=shared, barriers=barriers),
    ]
