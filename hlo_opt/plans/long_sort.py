"""The plan of a sort whose lines are too long for a block's memory, and whose comparator no library knows: a block
orders the places of a line in global memory.

The network is that of the sort plan. Only places change theirs, so operands of any number and type are read where they
are, and written once at the end. XLA:GPU sorts such lines in global memory too, with a launch for each step of the
network (xla/backends/gpu/codegen/emitters/sort.cc, sort_thunk_emitter); here one block does all steps of a line in one
launch, which is slower for a single line of millions of elements and needs no buffer but the places.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

from hlo_opt.analysis.memory.forms import round_up
from hlo_opt.ir import ELEMENT_TYPES, Shape
from hlo_opt.plans.columns import MOST_THREADS, WARP
from hlo_opt.plans.plan import Region, Segment
from hlo_opt.plans.sort import Lines, along_of

MOST = 1 << 29
"""Elements of a line: twice the network's size is counted in 32 bits."""


@dataclass(frozen=True)
class LongLines(Lines):
    """A sort or topk alone in its region, a block for each of its lines."""

    kind: ClassVar[str] = "long-sort"

    @property
    def block(self) -> int:
        """Threads per block."""
        return round_up(max(1, min(MOST_THREADS, self.pairs)), WARP)

    @property
    def places(self) -> Shape:
        """Memory that the launch needs besides operands and results: where each element of a line comes from."""
        return Shape(ELEMENT_TYPES["s32"], (self.lines, self.length))

    def segment(self, block: int) -> Segment[Self]:
        """The segment, alone in its launch."""
        return Segment(self, self.lines, scratch=(self.places,))

    def shared_bytes(self, block: int) -> int:
        """None."""
        return 0


def match(region: Region) -> LongLines | None:
    """The region as such a sort, or None where there is more in it than the sort, or nothing to sort."""
    hero = region.roots[0]
    alone = len(region.roots) == 1 and hero.opcode in ("sort", "topk")
    if not alone or any(o.parameter_number is None for o in hero.operands) or not hero.operands[0].shape.rank:
        return None
    shape, along = hero.operands[0].shape, along_of(hero)
    length = shape.dimensions[along]
    lines = math.prod(size for d, size in enumerate(shape.dimensions) if d != along)
    return LongLines(hero, (0,), lines, length, 1) if lines and 1 < length <= MOST else None
