"""The register-transpose plan: a thread moves neighbouring short rows, such as the three colours of some pixels, and
turns them in its registers. Both sides move in vectors, and every byte once.

A loop writes neighbours of the result, and so reads the operand with a stride: each plane of `f32[3,n]` reads all of
`f32[n,3]`. A tile of shared memory is mostly empty where one of its sides is that short.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from hlo_opt.analysis.memory.forms import move_of, relative_order
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.index_map import Expression, constant, delinearize, linearize, variable
from hlo_opt.ir.size import gcd
from hlo_opt.ops.lowering import Index
from hlo_opt.ops.movement.memory import physical_index
from hlo_opt.plans.batch import ENOUGH_THREADS
from hlo_opt.plans.loop import WIDEST_ACCESS, Spread
from hlo_opt.plans.plan import Launch, Region, Segment
from hlo_opt.plans.reads import MOST_JOINED
from hlo_opt.plans.tiled_transpose import in_other_order
from hlo_opt.plans.walks import Own, Walk, leaves_at, neighbours

Order = tuple[tuple[int, ...], tuple[int, ...]]
"""The sizes of a result, and its permutation, as `relative_order` gives them."""

LONGEST = 16
"""Elements of a row at the most: each is a register until it is written, and has a statement of its own."""
MOST_BYTES = 256
"""Limit of the bytes that a thread reads and writes: 64 registers, if all are held."""


@dataclass(frozen=True)
class ShortRows(Spread):
    """Outputs (`roots` are positions) of one size, of which each thread writes all elements of some rows.

    hero    the first output
    sizes   elements before, along and after the short dimension of the outputs, in the order of memory
    vector  neighbouring rows of a thread
    """

    kind: ClassVar[str] = "register-transpose"
    hero: Instruction
    roots: tuple[int, ...]
    sizes: tuple[int, int, int]
    vector: int

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.sizes[0] * self.sizes[2]

    @property
    def threads(self) -> int:
        return self.rows // self.vector

    def segment(self, block: int) -> Segment[ShortRows]:
        resident = max(1, ENOUGH_THREADS // block)
        return Segment(self, -(-self.threads // block), self.vector, resident=resident)

    def written(self, region: Region, row: Expression) -> Iterator[tuple[int, Index]]:
        """(position of an output, index) of each element of a row."""
        before, along, after = self.sizes
        outer, inner = delinearize(row, (before, after))
        for number in self.roots:
            shape = next(region.roots[number].shape.leaves())
            for k in range(along):
                yield number, physical_index(shape, linearize((outer, constant(k), inner), self.sizes))


def match(region: Region, roots: Sequence[int], target: DeviceTarget) -> tuple[list[ShortRows], list[int]]:
    """The outputs of a region that read an array with a short dimension in another order, and the positions of the
    others."""
    parts: list[ShortRows] = []
    if target.in_lanes:  # a processor's lanes read with a stride, and its cache keeps the rest of each line
        return parts, list(roots)
    groups: dict[int, list[int]] = {}
    for number in roots:
        shapes = list(region.roots[number].shape.leaves())
        if len(shapes) == 1 and shapes[0].type.per_byte == 1:
            groups.setdefault(shapes[0].element_count, []).append(number)
    for elements, numbers in groups.items():
        if elements < target.resident_threads:  # too few for vectors
            continue
        orders = dict.fromkeys(_orders(region, numbers, elements))
        found = next((frame for order in orders if (frame := _frame(*order)) is not None), None)
        part = None if found is None else _part(region, numbers, *found, target)
        if part is not None:
            parts.append(part)
    taken = {number for part in parts for number in part.roots}
    return parts, [number for number in roots if number not in taken]


def _orders(region: Region, roots: Sequence[int], elements: int) -> Iterator[Order]:
    """The moves of as many elements in a region."""
    for i in region.computation.instructions:
        order = move_of(i) if i.shape.is_array and i.shape.element_count == elements else None
        if order is not None:
            yield order
    yield from (order for _, order in in_other_order(region, roots, relative_order))


def _frame(sizes: Sequence[int], permutation: Sequence[int]) -> tuple[tuple[int, int, int], int] | None:
    """The elements before, along and after the short dimensions of a move's result, and the size of the dimension along
    which neighbouring rows are neighbours in memory. None if there are no short dimensions that are the minor-most of
    the one side and neighbours on the other, or if rows that are neighbours on the one side are not on the other."""
    minor = len(sizes) - 1
    if minor < 1:
        return None
    inverse = [permutation.index(d) for d in range(len(sizes))]
    for last in range(minor, 0, -1):
        if math.prod(sizes[last:]) <= LONGEST and inverse[minor] == last - 1:
            return (math.prod(sizes[:last]), math.prod(sizes[last:]), 1), sizes[last - 1]
        of_result = sorted(inverse[last:])
        first, behind = of_result[0], of_result[-1] + 1
        along = math.prod(sizes[first:behind])
        if along <= LONGEST and behind - first == len(of_result) and permutation[minor] == last - 1:
            return (math.prod(sizes[:first]), along, math.prod(sizes[behind:])), sizes[minor]
    return None


def _part(
    region: Region, roots: Sequence[int], sizes: tuple[int, int, int], beside: int, target: DeviceTarget
) -> ShortRows | None:
    """The part, with as many rows in a thread as 16 bytes hold, if they divide those that are neighbours, the device
    stays full, and neighbours are found among their elements. None if a thread would hold too much."""
    outputs = [region.roots[n].shape for n in roots]
    elements = math.prod(sizes)
    moved = [*outputs, *(p.shape for p in region.parameters if _is_large(p.shape, elements))]
    vector = gcd(beside, max(4, WIDEST_ACCESS // max(shape.type.bytes for shape in moved)))
    of_row = sizes[1] * sum(shape.type.bytes for shape in moved)
    while vector > 1 and (
        vector * of_row > MOST_BYTES
        or vector * sizes[1] > MOST_JOINED
        or 4 * elements // sizes[1] < vector * target.resident_threads
    ):
        vector //= 2
    if vector * of_row > MOST_BYTES:
        return None
    return ShortRows(region.roots[roots[0]], tuple(roots), sizes, vector)


def _is_large(shape: Shape, elements: int) -> bool:
    return shape.is_array and shape.element_count >= elements


def walks(region: Region, segment: Segment[ShortRows], launch: Launch) -> list[Walk]:
    """The walk over the elements of a row."""
    part = segment.part
    row = variable("row", part.rows)
    wanted = [(region.roots[n], index) for n, index in part.written(region, row)]
    places = {"row": neighbours(part.threads, part.vector)}
    return [Walk(part.threads, wanted, leaves_at(wanted), places=places, items=part.vector)]


def own(region: Region, segment: Segment[ShortRows], launch: Launch, walks: Sequence[Walk]) -> list[Own]:
    """Outputs of which one thread writes all elements of a row, after it has computed them."""
    part = segment.part
    written = list(part.written(region, variable("row", part.rows)))
    return [Own(n, 0, frozenset(index for number, index in written if number == n)) for n in part.roots]
