"""The plan of cumulative reductions along few long lines: each element is read once and written once, by many blocks.

A line is cut into tiles, one for each block. A block folds its tile, publishes the result, looks back for what the
blocks of the tiles before it have published, and folds that in front. Tiles come in groups: the block of a group's last
tile publishes the fold of the whole group, too. So a block folds the groups before its own, and the tiles before its
own in its group, each in their order. No block waits for what another has found by looking back: there is no chain
along the line. What is folded in which order depends on the positions of tiles alone, so that every run gives the same
result, which the look-back of D. Merrill and M. Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back"
(NVIDIA, 2016), does not.

Blocks end in any case: a block takes the number of its tile from a counter when it starts, so the blocks of all tiles
before it run already, or have ended; and what it waits for, these publish without waiting for blocks after them. A
tile's result needs no other block, and a group's those of the group's tiles. Where a window reads another, the result
of a tile needs what its block has found for the other window, and the same holds window by window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir.index_map import add, divide, modulo, multiply, variable
from hlo_opt.ir.size import size_in
from hlo_opt.ops.reduction.reducers import running_types
from hlo_opt.plans import cumulative
from hlo_opt.plans.columns import WARP
from hlo_opt.plans.cumulative import Prefixes
from hlo_opt.plans.instructions import NOTHING, of_fold
from hlo_opt.plans.plan import Launch, Region, Segment
from hlo_opt.plans.walks import ITEM, ROUND, THREAD, Walk, leaves_at

THREADS = 256
"""Threads per block: several blocks of a multiprocessor hide each other's waiting."""
MOST_KEPT = 32
"""Limit of registers in which a thread keeps its partial results."""
RESIDENT = 3
"""Resident blocks of a multiprocessor for which registers must suffice. Left alone, the compiler may spill some of what
is kept to fit one more."""
MOST_ROUNDS = 8
"""Limit of vectors of a thread."""
MOST_LINES = 2
"""Limit of lines for each multiprocessor: more keep the device busy with a block for each line, which waits for no
other."""
BLOCKS_PER_CORE = 2
"""Blocks for each multiprocessor, as far as a line has elements for them: then threads have fewer elements."""


@dataclass(frozen=True)
class LookBack(Prefixes):
    """As `Prefixes`, with lines that are contiguous in memory, and a block for each tile of a line."""

    kind: ClassVar[str] = "look-back"

    @property
    def threads(self) -> int:
        """Threads per tile."""
        return THREADS

    @cached_property
    def rounds(self) -> int:
        """Vectors of a thread, `threads` vectors apart: a power of two."""
        words = sum(max(1, t.bytes // 4) for window in self.windows for t in running_types(window))
        rounds = max(1, min(MOST_ROUNDS, MOST_KEPT // (self.vector * words)))
        rounds = 1 << (rounds.bit_length() - 1)
        while rounds > 1 and self.lines.count * self._tiles(rounds) < BLOCKS_PER_CORE * self.cores:
            rounds //= 2
        return rounds

    def _tiles(self, rounds: int) -> int:
        return -(-self.steps // (self.threads * rounds))

    @property
    def tiles(self) -> int:
        """Tiles of a line."""
        return self._tiles(self.rounds)

    @property
    def group(self) -> int:
        """Tiles of a group: as many as a line has groups, in whole warps."""
        return WARP * max(1, round(math.sqrt(self.tiles) / WARP))

    @property
    def groups(self) -> int:
        """Groups of a line."""
        return -(-self.tiles // self.group)

    @property
    def block(self) -> int:
        """The number of threads per block that this part needs."""
        return self.threads

    def lines_per_block(self, block: int) -> int:
        """A block has a part of one line."""
        return 1

    def segment(self, block: int) -> Segment[LookBack]:
        """The segment in a launch of blocks of that size, which is at least `self.block`."""
        return Segment(self, self.lines.count * self.tiles, self.vector, folded=self.windows, resident=RESIDENT)

    def meeting_places(self, block: int) -> int:
        """The number of partial results in shared memory for each window: one for each warp and round."""
        return self.rounds * self.threads // WARP

    def shared_bytes(self, block: int) -> int:
        """Bytes of the partial results, and of the number of the block's tile."""
        return super().shared_bytes(block) + 4


def match(
    region: Region, roots: Sequence[int], target: DeviceTarget, room: int
) -> tuple[Sequence[LookBack], list[int]]:
    """The outputs along lines that are contiguous in memory and longer than what a block folds at a time. A processor
    whose threads are lanes walks them as they are."""
    if target.in_lanes:
        return [], list(roots)
    found, rest = list[LookBack](), list(roots)
    for part in cumulative.match(region, roots, target, room)[0]:
        is_few = part.lines.count < MOST_LINES * target.core_count
        if is_few and part.in_rows and part.tiles > 1 and not size_in(part.lines.shape):
            made = LookBack(part.stages, part.roots, part.lines, part.cores, part.aligns)
            if made.tiles > 1 and made.shared_bytes(made.block) <= room:
                room -= made.shared_bytes(made.block)
                found.append(made)
                rest = [n for n in rest if n not in made.roots]
    return found, rest


def walks(region: Region, segment: Segment[LookBack], launch: Launch) -> list[Walk]:
    """The walk in which a thread reads and folds all its elements, waits for what blocks before its own have published,
    for each stage, and writes."""
    part, lines = segment.part, segment.part.lines
    thread = variable(THREAD, segment.blocks * part.threads)
    block, lane = divide(thread, part.threads), modulo(thread, part.threads)
    own_line, tile = divide(block, part.tiles), modulo(block, part.tiles)
    first = multiply(add(multiply(tile, part.rounds), variable(ROUND, part.rounds)), part.threads)
    own_step = add(multiply(add(first, lane), part.vector), variable(ITEM, part.vector))
    if part.is_peeled:  # up to the first aligned element
        own_step = add(own_step, modulo(multiply(own_line, part.vector - lines.length % part.vector), part.vector))
    line, along = variable("line", lines.count), variable("along", lines.length)
    index = lines.index(line, along)
    operands = [(o, index) for window in part.windows for o in window.operands[: len(running_types(window))]]
    roots = [(region.roots[n], lines.index_of(region.roots[n], line, along)) for n in part.roots]
    turns, per_round = len(part.stages), WARP.bit_length()
    words = sum(max(1, t.bytes // 4) for window in part.windows for t in running_types(window))
    return [
        Walk(
            segment.blocks * part.threads,
            [*operands, *roots],
            leaves_at(roots),
            places={"line": own_line, "along": own_step},
            items=part.vector,
            rounds=part.rounds,
            filled=lines.length / (part.tiles * part.threads * part.rounds * part.vector),
            known=frozenset(part.windows),
            body=sum((of_fold(w) * (1 + turns - n) for n, stage in enumerate(part.stages) for w in stage), NOTHING),
            steps=turns * part.vector,
            ahead=part.rounds,
            barriers=2 * turns + 1,
            shuffles=turns * (part.rounds * per_round + 3 * per_round),  # and those of the first warp
            shared=turns * 2 / part.vector,
            trips=turns * (1 + (part.groups > 1)),  # the results of tiles, and those of groups
            looks=1,  # for the number of the tile
            keeps=True,
            registers=part.rounds * (part.vector * words + 2),
        )
    ]
