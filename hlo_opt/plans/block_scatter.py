"""The block-scatter plan: a scatter of many updates into few elements, as in histograms and sums by segment.

Atomic operations on the same few lines of L2 go one after another. So each block first combines its share of the
updates in copies of the output in its shared memory, and then changes each element of the output once. Lanes of a warp
use different copies where these fit, so that equal indices seldom meet. Only for combiners whose order does not matter,
and with an identity to start with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import add, modulo, multiply, variable
from hlo_opt.ops.movement.memory import physical_index
from hlo_opt.ops.reduction.reducers import adds, identity, monoid
from hlo_opt.plans import scatter
from hlo_opt.plans.columns import SHARED_BYTES, WARP
from hlo_opt.plans.instructions import Work, of_body
from hlo_opt.plans.plan import Launch, Region, Segment
from hlo_opt.plans.scatter import ATOMIC, ScatterForm, Update, Updates
from hlo_opt.plans.walks import ROUND, THREAD, Walk

BLOCK = 512
"""Threads per block: four blocks, each with all the shared memory that it may have, fill a multiprocessor."""
_LEAST = 4
"""The least number of updates per element of the output."""
_CHUNK = 16
"""Bytes of indices or updates that a thread reads at a time."""
_SYSTEM = 1024
"""Bytes of shared memory of each block that the device keeps for itself."""
_PLACES = Work(6)
"""The instructions for the window and the element of an update."""
_TRIES, _MEETINGS = {Update.ATOMIC: 2.0, Update.SWAP: 6.0}, 3.0
"""Accesses to shared memory of an update: multiprocessors add integers there at once, other operations read, compare
and swap. Lanes without own copies take about three turns."""


@dataclass(frozen=True)
class SharedUpdates:
    """A scatter by blocks; `updates` is the part that it would be without shared memory.

    copies  of the output, in the shared memory of a block
    blocks  of the launch
    vector  neighbouring updates that a thread reads at a time
    """

    kind: ClassVar[str] = "block-scatter"
    updates: Updates
    copies: int
    blocks: int
    vector: int

    @property
    def hero(self) -> Instruction:
        """The scatter."""
        return self.updates.hero

    @property
    def roots(self) -> tuple[int, ...]:
        """Positions of the outputs that are its result."""
        return self.updates.roots

    @property
    def cells(self) -> int:
        """Elements of a copy."""
        return self.hero.shape.element_count

    @property
    def block(self) -> int:
        return BLOCK

    @property
    def shares(self) -> int:
        """The number of vectors of updates."""
        return math.prod(ScatterForm(self.hero).space) // self.vector

    def segment(self, block: int) -> Segment[SharedUpdates]:
        aliases, own = self.updates.aliases, self.updates.own
        return Segment(self, self.blocks, self.vector, aliases=aliases, own=own, meets=True)

    def shared_bytes(self, block: int) -> int:
        """Bytes of the copies."""
        return self.cells * self.copies * self.hero.shape.type.bytes


def start(hero: Instruction) -> float:
    """What the copies hold at first: the identity of the combiner. Adding 0 to -0 would change it, -0 does not."""
    combiner = ScatterForm(hero).combiner
    return -0.0 if adds(combiner) and hero.shape.type.is_float else identity(monoid(combiner) or "", hero.shape.type)


def match(
    region: Region, roots: Sequence[int], target: DeviceTarget, room: int
) -> tuple[list[SharedUpdates], list[int]]:
    """The scatters of many updates into few elements, and the positions of the other outputs."""
    if target.in_lanes:
        return [], list(roots)
    plain, rest = scatter.match(region, roots, target)
    parts = []
    for updates in plain:
        part = _shared(updates, target, room)
        if part is None:
            rest = sorted([*rest, *updates.roots])
        else:
            parts.append(part)
            room -= part.shared_bytes(BLOCK)
    return parts, rest


def _shared(updates: Updates, target: DeviceTarget, room: int) -> SharedUpdates | None:
    hero, form = updates.hero, ScatterForm(updates.hero)
    if updates.is_copied_inside or form.is_empty or form.results != 1 or not form.meets or form.in_turns:
        return None
    kind, cells = hero.shape.type, hero.shape.element_count
    if form.updates[0] not in _TRIES or monoid(form.combiner) not in ATOMIC:
        return None
    if kind.is_complex or kind.bits not in (32, 64) or cells * kind.bytes > min(room, SHARED_BYTES):
        return None
    count = math.prod(form.space)
    if count < _LEAST * cells:
        return None
    resident = max(1, target.threads_per_core_limit // BLOCK)
    most = min(room, SHARED_BYTES, target.shared_memory_per_core // resident - _SYSTEM)
    copies = WARP
    while copies > 1 and cells * copies * kind.bytes > most:
        copies //= 2
    narrowest = min(o.shape.type.bytes for o in hero.operands[1:])
    vector = max(1, _CHUNK // max(1, narrowest))
    while form.space[-1] % vector:
        vector //= 2
    blocks = min(target.core_count * resident, -(-count // (vector * BLOCK)))
    return SharedUpdates(updates, copies, max(1, blocks), vector)


def walks(region: Region, segment: Segment[SharedUpdates], launch: Launch) -> list[Walk]:
    """The walks in which blocks fill their copies, combine updates there, and change the output."""
    part, form = segment.part, ScatterForm(segment.hero)
    threads = segment.blocks * BLOCK
    (updates,) = scatter.walks(region, part.updates.segment(BLOCK), launch)
    rounds = -(-part.shares // threads)
    share = add(multiply(variable(ROUND, rounds), threads), variable(THREAD, threads))
    are_apart = part.copies == WARP or form.parallel[-1] in form.dimensions.offset_dims
    tries = _TRIES[form.updates[0]] * (1.0 if are_apart else _MEETINGS)
    combining = Walk(
        threads,
        updates.wanted,
        places={"place": add(multiply(share, part.vector), variable("item", part.vector))},
        items=part.vector,
        rounds=rounds,
        filled=part.shares / (rounds * threads),
        body=of_body(form.combiner) + _PLACES,
        barriers=2,
        shared=tries,
        ahead=1,
    )
    count = part.cells * segment.blocks
    cells = min(BLOCK, part.cells)
    turns = -(-part.cells // cells)
    thread = variable(THREAD, segment.blocks * cells)
    cell = modulo(add(multiply(variable(ROUND, turns), cells), modulo(thread, cells)), part.cells)
    index = physical_index(segment.hero.shape, variable("cell", part.cells))
    changing = Walk(
        segment.blocks * cells,
        [],
        changed=[(segment.hero.shape, index, 1.0)],
        places={"cell": cell},
        rounds=turns,
        filled=count / (segment.blocks * cells * turns),
        shared=2.0 * part.copies,
    )
    return [combining, changing]
