"""The plan of a sort whose lines are too long for shared memory, and whose comparator no library supports: a block
sorts the positions of a line in global memory.

The network is that of the sort plan. Only positions are exchanged: operands of any number and type stay in place, and
are written once at the end. XLA:GPU sorts such lines in global memory too, with a launch for each step of the network
(xla/backends/gpu/codegen/emitters/sort.cc, sort_thunk_emitter). Here one block does all steps of a line in one launch,
which is slower for a single line of millions of elements, but needs no buffer besides the positions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

from hlo_opt.analysis.memory.forms import round_up
from hlo_opt.ir import ELEMENT_TYPES, Shape
from hlo_opt.plans.columns import MOST_THREADS, WARP
from hlo_opt.plans.plan import Region, Segment
from hlo_opt.plans.sort import SortLines, along_of

MOST = 1 << 29
"""Limit of the length of a line: twice the network's size must fit into 32 bits."""


@dataclass(frozen=True)
class LongLines(SortLines):
    """A sort or topk that is a whole region, with one block per line."""

    kind: ClassVar[str] = "long-sort"

    @property
    def block(self) -> int:
        """Threads per block."""
        return round_up(max(1, min(MOST_THREADS, self.pairs)), WARP)

    @property
    def places(self) -> Shape:
        """The scratch array: the original position of each element of a line."""
        return Shape(ELEMENT_TYPES["s32"], (self.lines, self.length))

    def segment(self, block: int) -> Segment[Self]:
        """The segment, alone in its launch."""
        return Segment(self, self.lines, scratch=(self.places,))

    @property
    def key(self) -> None:
        """None: elements are ordered where they lie."""
        return None

    def shared_bytes(self, block: int) -> int:
        """Bytes of shared memory."""
        return 0


def match(region: Region) -> LongLines | None:
    """The region as a sort in global memory. None if it has other operations, or lines of less than two elements."""
    hero = region.roots[0]
    alone = len(region.roots) == 1 and hero.opcode in ("sort", "topk")
    if not alone or any(o.parameter_number is None for o in hero.operands) or not hero.operands[0].shape.rank:
        return None
    shape, along = hero.operands[0].shape, along_of(hero)
    length = shape.dimensions[along]
    lines = math.prod(size for d, size in enumerate(shape.dimensions) if d != along)
    return LongLines(hero, (0,), lines, length, 1) if lines and 1 < length <= MOST else None
