"""Walks: the work of a segment's threads, for its price. A walk tells which values threads compute at which indices, in
how many rounds, and where they wait for each other. Each kind describes its own parts, with the expressions that its
emitter writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.index_map import Expression, add, multiply, variable
from hlo_opt.ops.lowering import Index
from hlo_opt.plans.instructions import NOTHING, Work
from hlo_opt.plans.loop import root_index
from hlo_opt.plans.plan import Launch, Part, Region, Segment

THREAD, ROUND, ITEM = "thread", "round", "item"
"""Variables of index expressions: the number of a thread in its segment, of its round, and of one of its neighbouring
elements."""

AHEAD = 4
"""Rounds of a loop whose loads are in flight together: NVRTC unrolls a loop of unknown length by this factor."""


@dataclass
class Walk:
    """The work of each of `threads` threads, for `items` neighbouring elements in each of `rounds` rounds. It does not
    change: not declared frozen, it is made in a third of the time.

    wanted    values that are computed, each at an index
    written   arrays that are written, each at an index
    changed   arrays that atomic operations change: shape, index, and the number of operations per element
    filled    the fraction of the items of all rounds that exist: the last rounds may be partly empty
    places    the variables of the indices, in terms of THREAD, ROUND and ITEM
    limits    how many values of these variables exist, where `places` gives more of them: the rest is not `filled`
    known     values that exist already: folded before, or in shared memory
    body      further work for each item: reducers, comparators, products
    steps     instructions of each round that depend on the round before
    ahead     rounds whose loads are in flight together
    barriers  barriers of a block
    shuffles  shuffles of a warp
    trips     how often blocks exchange results in memory
    shared    accesses to shared memory for each item
    hops      loads from shared memory one after another, each of what was written there just before: threads wait
    keeps     whether registers hold the values of the segment's earlier walks
    early     whether loads hit L2, because they were prefetched
    registers registers of a thread for such values; 0: as many as it has items in all rounds
    times     how often threads repeat the walk; after the first time, loads hit L2 if the arrays fit
    near      parameters for values that the launch has written before
    published arrays that are written for other threads of the launch, at an index: they stay in L2 if they fit
    origins   the operations of the module that other instructions are copies of, to look up their work
    meetings  barriers of all blocks of the launch, each time
    looks     how often threads read from L2 what they change by atomic operations, before they do
    alone     whether no thread waits for another: a large block takes as long as small ones beside each other
    in_pieces whether the items of a thread in a round meet each condition together, and the code has a branch for all
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
    registers: int = 0
    times: int = 1
    near: frozenset[Instruction] = frozenset()
    published: Sequence[tuple[Shape, Index]] = ()
    origins: Mapping[Instruction, Instruction] = field(default_factory=dict)
    meetings: int = 0
    alone: bool = False
    hops: int = 0
    looks: int = 0
    limits: Mapping[str, int] = field(default_factory=dict)
    in_pieces: bool = False


def by_element(region: Region, segment: Segment[Part], launch: Launch) -> list[Walk]:
    """The walk in which each thread computes neighbouring elements of the outputs: the default of a kind."""
    roots = [region.roots[n] for n in segment.roots]
    elements = max(next(root.shape.leaves()).element_count for root in roots)
    threads, place = max(1, elements // segment.vector), variable("place", elements)
    wanted = [(root, root_index(segment.hero, root, place)) for root in roots]
    places = {"place": neighbours(threads, segment.vector)}
    return [Walk(threads, wanted, leaves_at(wanted), places=places, items=segment.vector)]


def neighbours(threads: int, items: int) -> Expression:
    """The position of an item, if each thread has `items` neighbouring elements."""
    return add(multiply(variable(THREAD, threads), items), variable(ITEM, items))


def leaves_at(roots: Sequence[tuple[Instruction, Index]]) -> list[tuple[Shape, Index]]:
    """The arrays that outputs are written to, at their indices."""
    return [(leaf, index) for root, index in roots for leaf in root.shape.leaves()]


@dataclass(frozen=True)
class Own:
    """An output of which each element is one thread's: it alone writes it, and where it reads an operand there, on this
    walk or one before with the same `places`, no other thread does.

    root     its position among the region's roots
    walk     the number of the walk on which it is written, or which says what is read before
    indices  the elements that a thread writes of it, after all that it reads on the walk for these elements
    """

    root: int
    walk: int
    indices: frozenset[Index]


def no_own(region: Region, segment: Segment[Part], launch: Launch, walks: Sequence[Walk]) -> list[Own]:
    """None is known to be."""
    return []


def own_on(
    region: Region,
    segment: Segment[Part],
    launch: Launch,
    walks: Sequence[Walk],
    is_exact: Callable[[Walk], bool] = lambda walk: True,
) -> list[Own]:
    """Arrays that are written on one walk, each element by the thread that the walk names, where the walk is exact."""
    own = []
    for position in segment.roots:
        root = region.roots[position]
        at = {
            (number, index)
            for number, walk in enumerate(walks)
            for wanted, index in walk.wanted
            if wanted is root and (root.shape, index) in walk.written
        }
        numbers = {number for number, _ in at}
        if root.shape.is_array and len(numbers) == 1:
            number = numbers.pop()
            if is_exact(walks[number]):
                own.append(Own(position, number, frozenset(index for _, index in at)))
    return own
