"""What the threads of a segment do, for its price: which values they compute at which indices, in how many rounds, and
where they wait for each other. Each kind describes its own parts, with the expressions that its emitter writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.index_map import Expression, add, multiply, variable
from hlo_opt.ops.lowering import Index
from hlo_opt.plans.instructions import NOTHING, Work
from hlo_opt.plans.loop import root_index
from hlo_opt.plans.plan import Launch, Part, Region, Segment

THREAD, ROUND, ITEM = "thread", "round", "item"
"""Variables: the number of a thread among all of a segment, of its round, and of one of the neighbours that it takes at
a time."""

AHEAD = 4
"""Rounds of a loop whose loads are in flight together: NVRTC unrolls a loop of unknown length by this factor."""


@dataclass(frozen=True)
class Walk:
    """What each of `threads` threads does for `items` neighbours at a time, `rounds` times one after another.

    wanted    values that are computed, each at an index
    written   arrays that are written, each at an index
    changed   arrays of which elements are changed by atomic operations: the index, and how many such operations an
              element takes
    filled    how much of what all rounds of all threads have room for there is: the last rounds may have nothing
    places    what the variables of the indices are, made of THREAD, ROUND and ITEM
    known     values that are computed already: folded before, or in shared memory
    body      what is computed for each item besides: reducers, comparators, products
    steps     of each round that need the results of the round before
    ahead     rounds whose loads are under way together
    barriers  how often the threads of a block wait for each other
    shuffles  how often those of a warp hand on a register
    trips     how often blocks meet in memory
    shared    accesses to shared memory for each item
    keeps     whether registers hold what the segment's walks before have read and computed
    early     whether what is read comes from L2, where it was asked for a turn before
    held      registers of a thread for that and for what it folds; 0: as many as it has items in all rounds
    times     how often they go on the walk; after the first time, what it reads is in L2, if that holds it
    near      parameters that stand for what the launch has written before
    handed    arrays that are written for other threads of the launch, at an index: L2 keeps them, if it holds them
    origins   operations of the module that others stand for: what one takes is asked of these
    meetings  how often, each time, all blocks of the launch wait for each other
    """

    threads: int
    wanted: Sequence[tuple[Instruction, Index]]
    written: Sequence[tuple[Shape, Index]] = ()
    changed: Sequence[tuple[Shape, Index, float]] = ()
    places: Mapping[str, Expression] = field(default_factory=dict)
    items: int = 1
    rounds: int = 1
    filled: float = 1.0
    known: frozenset[Instruction] = frozenset()
    body: Work = NOTHING
    steps: int = 0
    ahead: int = AHEAD
    barriers: int = 0
    shuffles: int = 0
    trips: int = 0
    shared: float = 0.0
    keeps: bool = False
    early: bool = False
    held: int = 0
    times: int = 1
    near: frozenset[Instruction] = frozenset()
    handed: Sequence[tuple[Shape, Index]] = ()
    origins: Mapping[Instruction, Instruction] = field(default_factory=dict)
    meetings: int = 0


def by_element(region: Region, segment: Segment[Part], launch: Launch) -> list[Walk]:
    """The elements of the outputs are divided among the threads, neighbours to each: the default of a kind."""
    roots = [region.roots[n] for n in segment.roots]
    elements = max(next(root.shape.leaves()).element_count for root in roots)
    threads, place = max(1, elements // segment.vector), variable("place", elements)
    wanted = [(root, root_index(segment.hero, root, place)) for root in roots]
    places = {"place": neighbours(threads, segment.vector)}
    return [Walk(threads, wanted, leaves_at(wanted), places=places, items=segment.vector)]


def neighbours(threads: int, items: int) -> Expression:
    """The position of an item, if each thread takes `items` neighbours."""
    return add(multiply(variable(THREAD, threads), items), variable(ITEM, items))


def leaves_at(roots: Sequence[tuple[Instruction, Index]]) -> list[tuple[Shape, Index]]:
    """The arrays that outputs are written to, at their indices."""
    return [(leaf, index) for root, index in roots for leaf in root.shape.leaves()]
