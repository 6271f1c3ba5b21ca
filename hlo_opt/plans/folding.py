"""Reduces whose results the threads of a block share: the outputs that need them, and the number of passes.

Threads walk a space of kept and reduced positions. Reduces over the same space share a pass. A reduce that needs the
result of another (the sum of a softmax needs the maximum) has a later pass over the same elements, a *level*. An output
has one element per kept position, or one per position of the space.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from hlo_opt.analysis.memory.forms import tiled_move
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.index_map import Expression, add, delinearize, divide, linearize, modulo, multiply, variable
from hlo_opt.ops.lowering import Element, Index
from hlo_opt.ops.movement.memory import physical_index
from hlo_opt.plans.element_reads import depending_on, heroes_read
from hlo_opt.plans.instructions import NOTHING, Work, of_fold
from hlo_opt.plans.plan import Part, Region, Segment, above
from hlo_opt.plans.walks import THREAD, Walk, leaves_at

Levels = tuple[tuple[Instruction, ...], ...]

SHUFFLE = Work(1)
"""The work of a shuffle."""

KEPT, REDUCED = "kept", "reduced"
"""Variables of walks: a position of each side of a space."""


@dataclass(frozen=True, order=True)
class Space:
    """The numbers of kept and reduced positions of a reduce's operand. `minor` kept positions are adjacent in memory
    before the reduced position changes: 1 if rows are reduced, the row's length if columns are. `runs` are the sizes of
    kept and reduced dimensions in turn, the most major first, each with whether it is reduced, where reduced ones are
    not adjacent: a row may be a block of 128 x 128 elements of a matrix."""

    kept: int
    reduced: int
    minor: int = 1
    runs: tuple[tuple[int, bool], ...] = ()

    @property
    def elements(self) -> int:
        return self.kept * self.reduced

    def position(self, kept: Expression, reduced: Expression) -> Expression:
        """The linear position in memory of an element of the space."""
        if self.runs:
            of_side = (
                iter(delinearize(position, [size for size, is_gone in self.runs if is_gone == side]))
                for side, position in enumerate((kept, reduced))
            )
            sides = tuple(of_side)
            return linearize([next(sides[is_gone]) for _, is_gone in self.runs], [size for size, _ in self.runs])
        major = add(multiply(divide(kept, self.minor), self.reduced), reduced)
        return add(multiply(major, self.minor), modulo(kept, self.minor))


def operand_index(reduce: Instruction, kept: Expression, reduced: Expression) -> Index:
    """The index of the operand's element at the linear position `kept` among the dimensions that stay and `reduced`
    among those that are folded. Both count in the order of memory: the next position is the next element there."""
    return _operand_index(reduce.operands[0].shape, reduce.ints("dimensions"), kept, reduced)


@functools.lru_cache(maxsize=1024)
def _operand_index(shape: Shape, dimensions: tuple[int, ...], kept: Expression, reduced: Expression) -> Index:
    gone = set(dimensions)
    order = shape.minor_to_major[::-1]
    digits: dict[int, Expression] = {}
    for position, dims in (
        (kept, [d for d in order if d not in gone]),
        (reduced, [d for d in order if d in gone]),
    ):
        digits.update(zip(dims, delinearize(position, [shape.dimensions[d] for d in dims]), strict=True))
    return tuple(digits[d] for d in range(shape.rank))


def result_index(reduce: Instruction, kept: Expression) -> Index:
    """The logical index of a reduce's result at a kept position."""
    gone = set(reduce.ints("dimensions"))
    index = operand_index(reduce, kept, kept)
    return tuple(e for d, e in enumerate(index) if d not in gone)


def root_index(
    space: Space, reduces: Iterable[Instruction], root: Instruction, kept: Expression, reduced: Expression | None
) -> Index:
    """The logical index at which an output is written: at a kept position, or at a position of the whole space."""
    shape = next(root.shape.leaves())
    for reduce in reduces:
        if reduced is None and next(reduce.shape.leaves()).dimensions == shape.dimensions:
            return result_index(reduce, kept)
        if reduced is not None and reduce.operands[0].shape.dimensions == shape.dimensions:
            return operand_index(reduce, kept, reduced)
    return physical_index(shape, kept if reduced is None else space.position(kept, reduced))


@dataclass(frozen=True)
class Folded:
    """Outputs (`roots` are positions) that the threads of a space write, and the reduces that these need, by level."""

    space: Space
    levels: Levels
    roots: tuple[int, ...]


def ends_in_one_pass(region: Region, folded: Folded) -> bool:
    """Whether one pass is enough: no reduce needs the result of another, and no output with an element per position of
    the space needs a reduce."""
    if len(folded.levels) > 1:
        return False
    whole = [
        region.roots[n]
        for n in folded.roots
        if next(region.roots[n].shape.leaves()).element_count == folded.space.elements
    ]
    return folded.space.reduced > 1 and above(whole).isdisjoint(folded.levels[0])


def match(
    region: Region, roots: Sequence[int], space_of: Callable[[Instruction], Space | None]
) -> tuple[list[Folded], list[int]]:
    """Divides the outputs of a region among the spaces of its reduces. Returns the parts, and the positions of the
    outputs that fit none.

    One space that covers all outputs is preferred. Otherwise the largest space is tried first. An output without a
    reduction joins a space of its size.
    """
    needed = region.needed_by(roots)
    spaces = _by_space(needed, space_of)
    if not spaces:
        return [], list(roots)
    ordered = sorted(spaces.items(), key=lambda item: (-item[0].elements, item[0]))
    walks = [_Walk(region, needed, heroes, space) for space, heroes in ordered]
    folds = set().union(*(walk.depending for walk in walks))
    for walk in walks:
        walk.elsewhere = folds - walk.depending
    for walk in walks:
        whole = walk.cover(roots)
        if whole is not None:
            return [whole], []
    folded: list[Folded] = []
    rest = list(roots)
    for walk in walks:
        fitting = [n for n in rest if walk.needs(n) is not None]
        if any(walk.needs(n) for n in fitting):
            covered = walk.cover(fitting)
            assert covered is not None
            folded.append(covered)
            rest = [n for n in rest if n not in fitting]
    return folded, rest


def _by_space(
    instructions: Iterable[Instruction], space_of: Callable[[Instruction], Space | None]
) -> dict[Space, list[Instruction]]:
    """The reduces that have a space, by space, in the order of the instructions."""
    spaces: dict[Space, list[Instruction]] = {}
    for instruction in instructions:
        space = space_of(instruction) if instruction.opcode == "reduce" else None
        if space is not None:
            spaces.setdefault(space, []).append(instruction)
    return spaces


def across(
    region: Region,
    roots: Sequence[int],
    sums: Sequence[Instruction],
    space: Space,
    space_of: Callable[[Instruction], Space | None],
) -> Folded | None:
    """Covers outputs of a region with the reduces of one space, while `sums`, outputs too, reduce the space
    along the kept side. None if some outputs do not fit."""
    instructions = list(region.computation.instructions)
    heroes = _by_space(instructions, space_of).get(space, [])
    if not heroes:
        return None
    walk = _Walk(region, instructions, heroes, space)
    walk.elsewhere = depending_on(instructions, sums)  # other threads have parts of these
    if not walk.elsewhere.isdisjoint(o for r in sums for o in above(r.operands)):
        return None
    return walk.cover(roots, sums)


def across_index(space: Space, reduce: Instruction, kept: Expression, reduced: Expression) -> Index:
    """The logical index, at a position of the space, of the operand of a reduce along the kept side."""
    return physical_index(reduce.operands[0].shape, space.position(kept, reduced))


class _Walk:
    """The reduces of one space, and which of them an output needs."""

    def __init__(
        self, region: Region, instructions: Sequence[Instruction], heroes: list[Instruction], space: Space
    ) -> None:
        """`instructions` are those that the outputs need, operands first."""
        self.region, self.heroes, self.space = region, heroes, space
        self.kept, self.reduced = variable(KEPT, space.kept), variable(REDUCED, space.reduced)
        self._own: dict[Instruction, Index | None] = {hero: result_index(hero, self.kept) for hero in heroes}
        self.depending = depending_on(instructions, heroes)
        self.elsewhere: set[Instruction] = set()
        """Instructions that need reduces of other spaces only: in this space they would be loops of each thread."""
        self._below: dict[Instruction, set[Instruction] | None] = {}
        for hero in heroes:
            half = len(hero.operands) // 2
            at = operand_index(hero, self.kept, self.reduced)
            starts = [(o, at) for o in hero.operands[:half]] + [(o, ()) for o in hero.operands[half:]]
            self._below[hero] = self._reads(starts)
        self._needs: dict[int, set[Instruction] | None] = {}

    def _reads(self, starts: Iterable[Element]) -> set[Instruction] | None:
        heroes = heroes_read(starts, self.depending, self._own)
        return None if heroes is None else set(heroes)

    def needs(self, number: int) -> set[Instruction] | None:
        """The reduces that an output reads, or None when it does not fit the space."""
        if number not in self._needs:
            self._needs[number] = self._needs_of(self.region.roots[number])
        return self._needs[number]

    def _needs_of(self, root: Instruction) -> set[Instruction] | None:
        size = next(root.shape.leaves()).element_count
        if size not in (self.space.kept, self.space.elements) or root in self.elsewhere:
            return None
        at = root_index(self.space, self.heroes, root, self.kept, None if size == self.space.kept else self.reduced)
        heroes = self._reads([(root, at)])
        if not heroes and any(tiled_move(i) for i in above([root])):  # tiles do that better
            return None
        return self._with_below(heroes)

    def _with_below(self, heroes: set[Instruction] | None) -> set[Instruction] | None:
        """The reduces, and those whose results they need; None if one of these is read at another index than its
        own, or if `heroes` is None."""
        if heroes is None:
            return None
        for hero in reversed(self.heroes):  # operands come before users: what a needed reduce needs
            if hero in heroes:
                below = self._below[hero]
                if below is None:
                    return None
                heroes = heroes | below
        return heroes

    def cover(self, roots: Sequence[int], across: Sequence[Instruction] = ()) -> Folded | None:
        """All the outputs as one part, with the reduces along the kept side (`across`). None if an output does not fit,
        or none needs a reduce."""
        needed: set[Instruction] = set()
        at = [(r.operands[0], across_index(self.space, r, self.kept, self.reduced)) for r in across]
        for heroes in (*map(self.needs, roots), *(self._with_below(self._reads([start])) for start in at)):
            if heroes is None:
                return None
            needed |= heroes
        if not needed:
            return None
        reached: dict[Instruction, int] = {}
        for hero in self.heroes:
            if hero in needed:
                reached[hero] = max((reached[h] + 1 for h in self._below[hero] or ()), default=0)
        levels = tuple(
            tuple(h for h, at in reached.items() if at == level) for level in range(1 + max(reached.values()))
        )
        return Folded(self.space, levels, tuple(roots))


def level_of(root: Instruction, levels: Levels) -> int:
    """The first pass in which all reduces that an output needs are known."""
    needed = above([root])
    return max((k + 1 for k, of_level in enumerate(levels) if not needed.isdisjoint(of_level)), default=0)


def stored_in(region: Region, part: Folding, level: int) -> list[Instruction]:
    """The outputs with an element per position of the space that a pass writes."""
    if part.space.reduced == 1:
        return []
    roots = [region.roots[n] for n in part.roots]
    whole = [r for r in roots if next(r.shape.leaves()).element_count == part.space.elements]
    return [root for root in whole if level_of(root, part.levels) == level]


class Folding(Part, Protocol):
    """A part with reduces."""

    @property
    def space(self) -> Space:
        """The space that its threads walk."""
        ...

    @property
    def levels(self) -> Levels:
        """The reduces, by level."""
        ...


def passes(
    region: Region, segment: Segment[Folding], walk: Walk, across: Sequence[Instruction] = (), together: int = 1
) -> list[Walk]:
    """The walks of a part: one per level, with the threads of `walk`, and one for outputs with an element per kept
    position. The places of `walk` are `kept` and `reduced`. `across` are the roots that reduce along the kept side.
    `together` are the elements that a thread may fold at once."""
    space, levels = segment.part.space, segment.part.levels
    kept, reduced = variable(KEPT, space.kept), variable(REDUCED, space.reduced)
    reduces = [r for level in levels for r in level]
    stores: dict[int, list[Instruction]] = {}
    singles: list[Instruction] = []
    sums: dict[int, list[Instruction]] = {}
    for root in (region.roots[n] for n in segment.roots):
        level = level_of(root, levels)
        if root in across:
            sums.setdefault(level, []).append(root)
        elif next(root.shape.leaves()).element_count != space.elements or space.reduced == 1:
            singles.append(root)
        else:
            stores.setdefault(level, []).append(root)
    walks: list[Walk] = []
    known: frozenset[Instruction] = frozenset()
    for level in range(len(levels) + 1):
        folds = levels[level] if level < len(levels) else ()
        roots = stores.get(level, [])
        wanted = [(o, operand_index(r, kept, reduced)) for r in folds for o in r.operands[: len(r.operands) // 2]]
        beside = sums.get(level, [])
        wanted += [(r.operands[0], across_index(space, r, kept, reduced)) for r in beside]
        at = [(root, root_index(space, reduces, root, kept, reduced)) for root in roots]
        body = sum((*(of_fold(fold, together) for fold in folds), *map(of_fold, beside)), NOTHING)
        if folds:  # by each shuffle, a thread gets another's results and combines them with its own
            moved = SHUFFLE * sum(len(list(r.shape.leaves())) for r in folds) + sum(map(of_fold, folds), NOTHING)
            body += moved * (walk.shuffles / (walk.items * walk.rounds))
        meets = (walk.barriers, walk.shuffles, walk.trips) if folds else (0, 0, 0)
        level_walk = replace(
            walk,
            wanted=[*wanted, *at],
            written=leaves_at(at),
            known=known,
            body=body,
            steps=min(1, len(folds)),
            barriers=meets[0],
            shuffles=meets[1],
            trips=meets[2],
            keeps=walk.keeps and level > 0,
        )
        known |= frozenset(folds)
        if wanted or at:
            walks.append(level_walk)
    if singles:
        at = [(root, root_index(space, reduces, root, kept, None)) for root in singles]
        places = {KEPT: variable(THREAD, space.kept)}
        walks.append(Walk(space.kept, at, leaves_at(at), places=places, known=known))
    return walks
