"""A kernel whose threads meet, cut at the meetings: what `lanes_blocks` makes loops over threads of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hlo_opt.codegen.tree import For, Let, Neighbours, Statement, StrideLoop


@dataclass(eq=False)
class Stretch:
    """Statements that every thread does without meeting another."""

    threads: int
    """How many threads there are still: the first ones of the block."""
    items: list[Statement] = field(default_factory=list)
    step: WalkRound | None = None
    """Where the stretch is what each thread does in a round of a walk: how it finds its element."""
    tree: For | None = None
    """Where the stretch is a round of a loop in which some lanes of a warp take what others have."""
    in_turn: bool = False
    """Whether each thread takes something from the one before it."""


@dataclass(eq=False)
class WalkRound:
    """A thread's element in a round of a walk that is turned inside out: the walk's `base` and the thread's own place
    together make its element's. `vector`: the thread takes several, and this is one of them, whose place `places`
    declare. `is_bounded`: only the first `hlo_live` threads have one. `is_always_first`: at the walk's base 0, and only
    there, a thread is at its first element. `piece`: the number of threads, from `ahead` on, whose elements of a
    round are neighbours in memory (0: each thread's elements are at a place of its own). `by_rows`: the loop over
    rounds runs only for threads that walk together."""

    walk: StrideLoop
    base: str
    vector: Neighbours | None
    places: list[Let]
    is_bounded: bool
    is_always_first: bool
    piece: int = 0
    ahead: str = ""
    by_rows: bool = False


@dataclass(eq=False)
class Around:
    """A loop or a condition that is the same for all threads, around stretches. `is_whole`: in its rounds all threads
    have an element. `is_segment`: no other segment runs in the same block, so threads that leave it leave no other."""

    header: str
    inside: list[Node]
    is_whole: bool = False
    is_segment: bool = False


@dataclass(eq=False)
class Rows:
    """A loop over the rows that a block's threads walk, a fixed number of threads for each row. `stretch` is a round of
    that walk."""

    stretch: Stretch
    together: int
    inside: list[Node]


Node = Stretch | Around | Rows | str
"""A string is a statement that is the same for all threads."""


def stretches(nodes: Sequence[Node]) -> Iterator[Stretch]:
    """All stretches."""
    for node in nodes:
        if isinstance(node, Around | Rows):
            yield from stretches(node.inside)
        elif isinstance(node, Stretch):
            yield node
