"""The gather plan: a thread copies neighbouring elements of one slice, so that it reads the slice's index once and uses
wide accesses.

It needs enough elements to fill the device, and slices of whole vectors along the result's minor-most dimension; any
other gather is a loop. So is one whose slices hold only short vectors, where more elements for each thread are quicker:
a thread waits for the index, then for what is there, however few elements it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction
from hlo_opt.ir.size import gcd
from hlo_opt.ops.indexing.gather_dimensions import gather_dimensions
from hlo_opt.plans.loop import Spread, elements_per_thread
from hlo_opt.plans.plan import Region, Segment
from hlo_opt.plans.tiled_transpose import read_along


@dataclass(frozen=True)
class Slices(Spread):
    """Outputs (`roots` are positions) that are elementwise functions of gathers of one shape."""

    kind: ClassVar[str] = "gather"
    heroes: tuple[Instruction, ...]
    roots: tuple[int, ...]
    vector: int

    @property
    def hero(self) -> Instruction:
        """The first gather."""
        return self.heroes[0]

    @property
    def threads(self) -> int:
        return self.heroes[0].shape.element_count // self.vector

    def segment(self, block: int) -> Segment[Slices]:
        return Segment(self, -(-self.threads // block), self.vector)


def match(region: Region, roots: Sequence[int], target: DeviceTarget) -> tuple[list[Slices], list[int]]:
    """The outputs of a region that have a gather plan, and the positions of the other outputs."""
    groups: dict[int, list[int]] = {}
    for position in roots:
        groups.setdefault(next(region.roots[position].shape.leaves()).element_count, []).append(position)
    parts: list[Slices] = []
    rest: list[int] = []
    for elements, positions in groups.items():
        heroes = heroes_of(region, positions)
        outputs = [leaf for n in positions for leaf in region.roots[n].shape.leaves()]
        vector = elements_per_thread(outputs, region.inputs, elements, target.resident_threads)
        vector = gcd(vector, *(_together(hero) for hero in heroes))
        if heroes and vector > 1:
            parts.append(Slices(tuple(heroes), tuple(positions), vector))
        else:
            rest += positions
    return parts, sorted(rest)


def heroes_of(region: Region, positions: Sequence[int]) -> list[Instruction]:
    """The gathers that outputs of one size read at the same position in memory; only those with the shape and layout of
    the first."""
    roots = [region.roots[n] for n in positions]
    elements = next(roots[0].shape.leaves()).element_count
    heroes = [i for i in region.computation.instructions if i.opcode == "gather" and i.shape.element_count == elements]
    if not heroes or any(root.shape.is_tuple for root in roots):
        return []
    read = read_along(roots, heroes)
    chosen = [hero for hero in heroes if hero in read and _together(hero) > 1]
    return [h for h in chosen if h.shape.dimensions == chosen[0].shape.dimensions and _order(h) == _order(chosen[0])]


def _order(hero: Instruction) -> tuple[int, ...]:
    return hero.shape.minor_to_major


def _together(hero: Instruction) -> int:
    """The number of elements of a slice that are contiguous in the result and in the operand."""
    dimensions = gather_dimensions(hero)
    minor = next(iter(hero.shape.minor_to_major), None)  # none of a single element
    if minor not in dimensions.offset_dims:
        return 1
    kept = [d for d in range(hero.operands[0].shape.rank) if d not in dimensions.removed]
    along = kept[sorted(dimensions.offset_dims).index(minor)]
    return hero.shape.dimensions[minor] if hero.operands[0].shape.minor_to_major[0] == along else 1
