"""The window-scatter plan: a `select-and-scatter` with overlapping windows, as in the gradient of max pooling.

Each element asks the windows that contain it which element they selected. Here a thread has a box of neighbouring
elements: it reads all that their windows hold once, finds each window's selected element once, and combines sources in
row-major order. Threads of a warp have neighbouring boxes. XLA:GPU selects with a reduce-window and scatters with
atomic operations (xla/hlo/transforms/expanders/select_and_scatter_expander.cc).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction
from hlo_opt.ir.attribute import WindowDimension
from hlo_opt.ir.index_map import Expression, add, constant, delinearize, multiply, variable
from hlo_opt.ops.lowering import Index
from hlo_opt.ops.shapes import window
from hlo_opt.plans.element_reads import depending_on, read_at
from hlo_opt.plans.instructions import Work, of_body
from hlo_opt.plans.loop import BLOCK
from hlo_opt.plans.plan import Launch, Region, Segment, Unshared
from hlo_opt.plans.walks import ITEM, THREAD, Walk

WINDOWED = frozenset({"select-and-scatter"})
"""Opcodes of heroes."""
_MOST_COMPARED, _MOST_READ = 400, 64
"""Limits of what a thread compares and reads: all of it is written out, and is in registers."""
_STRIDES = (4, 2, 1)
"""Strides of a box along each dimension, the first that the limits allow: a longer box shares more elements."""
_SELECTED, _ASKED = Work(3), Work(4)
"""The instructions to keep the better of two elements and its place, and to ask a window which one it selected."""


@dataclass(frozen=True)
class BoxSide:
    """A box along one dimension of the result.

    window  of the dimension
    count   windows along it
    size    elements of the operand along it
    length  elements of the result along it
    box     elements of a thread
    base    elements of the first box before the result
    first   number of the window whose first element begins the first box
    """

    window: WindowDimension
    count: int
    size: int
    length: int
    box: int
    base: int
    first: int

    @classmethod
    def of(cls, w: WindowDimension, count: int, size: int, offset: int, length: int, strides: int) -> BoxSide:
        """The side along a dimension in which the result has `length` elements, from `offset` on. A box is as wide as
        `strides` strides where windows overlap."""
        stretch = w.stride * (strides if w.size > w.stride else 1)
        return cls(w, count, size, length, stretch, (offset + w.pad_low) % w.stride, (offset + w.pad_low) // w.stride)

    @property
    def boxes(self) -> int:
        """The number of boxes."""
        return -(-(self.length + self.base) // self.box)

    @property
    def back(self) -> int:
        """Windows before a box that reach into it."""
        return (self.window.size - 1) // self.window.stride

    @property
    def numbers(self) -> range:
        """The windows that reach into a box, counted from the one that begins with it."""
        return range(-self.back, self.box // self.window.stride)

    def window_of(self, box: Expression, number: int) -> Expression:
        """One of `numbers` among all windows."""
        return add(multiply(box, self.box // self.window.stride), constant(self.first + number))

    def element_of(self, box: Expression, number: int, at: int) -> Expression:
        """Where element `at` of such a window is along the operand."""
        return add(
            multiply(box, self.box),
            constant((self.first + number) * self.window.stride + at - self.window.pad_low),
        )

    def result_of(self, box: Expression, at: int) -> Expression:
        """Where an element of a box is along the result."""
        return add(multiply(box, self.box), constant(at - self.base))

    def reaching(self, at: int) -> list[tuple[int, int]]:
        """The windows that contain an element of a box, in order, each with the element's place in it."""
        at_stride, w = at, self.window
        places = [(number, at_stride - number * w.stride) for number in self.numbers]
        return [(number, place) for number, place in places if 0 <= place < w.size]


@dataclass(frozen=True)
class Boxes(Unshared):
    """An output (`roots` has its position) that has the elements of a select-and-scatter, or a slice of them."""

    kind: ClassVar[str] = "window-scatter"
    hero: Instruction
    roots: tuple[int, ...]
    sides: tuple[BoxSide, ...]
    order: tuple[int, ...]

    @property
    def threads(self) -> int:
        """The number of boxes."""
        return math.prod(side.boxes for side in self.sides)

    @property
    def block(self) -> int:
        return BLOCK

    def segment(self, block: int) -> Segment[Boxes]:
        return Segment(self, -(-self.threads // block), in_rows=True)

    def box_of(self, thread: Expression) -> list[Expression]:
        """The number of a thread's box along each dimension; neighbours in memory have neighbouring threads."""
        digits = delinearize(thread, [self.sides[d].boxes for d in self.order])
        by_dimension = dict(zip(self.order, digits, strict=True))
        return [by_dimension[d] for d in range(len(self.sides))]


def match(region: Region, roots: Sequence[int], target: DeviceTarget, room: int) -> tuple[list[Boxes], list[int]]:
    """The outputs that have one element for each of a select-and-scatter whose windows overlap, or of a slice of it,
    and the positions of the others."""
    if target.in_lanes:
        return [], list(roots)
    parts, rest = [], []
    for n in roots:
        part = _boxes(region, n)
        if part is None:
            rest.append(n)
        else:
            parts.append(part)
    return parts, rest


def _boxes(region: Region, position: int) -> Boxes | None:
    root = region.roots[position]
    heroes = [i for i in region.needed_by((position,)) if i.opcode in WINDOWED]
    if len(heroes) != 1 or not root.shape.is_array:
        return None
    (hero,) = heroes
    offsets = _offsets_of(hero, root, region)
    operand, source = hero.operands[0].shape, hero.operands[1].shape
    parts = window(hero, operand.rank)
    if offsets is None or all(w.size <= w.stride for w in parts):
        return None
    if not (operand.element_count and source.element_count):
        return None
    rows = list(zip(parts, source.dimensions, operand.dimensions, offsets, root.shape.dimensions, strict=True))
    minor = root.shape.minor_to_major[0]
    for strides in _STRIDES:
        # neighbours in memory have neighbouring threads, so that a warp reads whole lines
        sides = tuple(BoxSide.of(*row, strides if d != minor else 1) for d, row in enumerate(rows))
        compared = math.prod(len(side.numbers) * side.window.size for side in sides)
        if compared <= _MOST_COMPARED and math.prod(len(places_read(side)) for side in sides) <= _MOST_READ:
            return Boxes(hero, (position,), sides, tuple(root.shape.minor_to_major[::-1]))
    return None


def places_read(side: BoxSide) -> list[tuple[int, int]]:
    """The elements that a box needs along a dimension, each as a window and a place in it."""
    places = {n * side.window.stride + k: (n, k) for n in side.numbers for k in range(side.window.size)}
    return [places[at] for at in sorted(places)]


def index_in(hero: Instruction, root: Instruction, region: Region, index: Index) -> Index | None:
    """Where an element of a root needs a hero; None where that is unknown, or in several places."""
    needed = region.needed_by([region.roots.index(root)])
    below = depending_on(needed, [hero])
    indices = {root: index}
    for instruction in reversed([i for i in needed if i in below and i is not hero]):
        for number, operand in enumerate(instruction.operands):
            if operand not in below:
                continue
            there = read_at(instruction, number, indices[instruction]) if instruction in indices else None
            if there is None or indices.setdefault(operand, there) != there:
                return None
    return indices.get(hero)  # a root need not need a hero that nobody reads


def _offsets_of(hero: Instruction, root: Instruction, region: Region) -> list[int] | None:
    """How far the element of a hero that an element of a root needs is ahead of it; None where that differs."""
    origin = tuple(variable(f"d{d}", size) for d, size in enumerate(root.shape.dimensions))
    there = index_in(hero, root, region, origin)
    if there is None or len(there) != len(origin):
        return None
    ahead = [e.low - own.low for e, own in zip(there, origin, strict=True)]
    moved = tuple(add(own, constant(distance)) for own, distance in zip(origin, ahead, strict=True))
    return ahead if moved == there else None


def walks(region: Region, segment: Segment[Boxes], launch: Launch) -> list[Walk]:
    """The walk in which each thread reads what the windows of its box hold, and writes the box."""
    part, hero = segment.part, segment.part.hero
    boxes = [variable(f"box{d}", side.boxes) for d, side in enumerate(part.sides)]
    along = list(zip(part.sides, boxes, strict=True))
    reads = [[side.element_of(box, *place) for place in places_read(side)] for side, box in along]
    sources = [[side.window_of(box, n) for n in side.numbers] for side, box in along]
    results = [[side.result_of(box, at) for at in range(side.box)] for side, box in along]
    items, last = part.sides[part.order[-1]].box, part.order[-1]
    results[last] = [add(part.sides[last].result_of(boxes[last], 0), variable(ITEM, items))]  # stored together
    wanted = [(hero.operands[0], index) for index in itertools.product(*reads)]
    wanted += [(hero.operands[1], index) for index in itertools.product(*sources)]
    root = region.roots[part.roots[0]]
    written = list(itertools.product(*results))
    needed = region.needed_by(part.roots)
    below = depending_on(needed, [hero])
    others = {o: 0 for i in needed if i in below and i is not hero for o in i.operands if o not in below}
    wanted += [(o, index) for o in others if o.shape.dimensions == root.shape.dimensions for index in written]
    compared = math.prod(len(side.numbers) * side.window.size for side in part.sides)
    asked = math.prod(sum(len(side.reaching(at)) for at in range(side.box)) for side in part.sides)
    selecting = (of_body(hero.called_by("select")) + _SELECTED) * (compared / items)
    combining = (of_body(hero.called_by("scatter")) + _ASKED) * (asked / items)
    places = dict(zip((f"box{d}" for d in range(len(boxes))), part.box_of(variable(THREAD, part.threads)), strict=True))
    arrays = [(root.shape, index) for index in written]
    return [Walk(part.threads, wanted, arrays, places=places, items=items, body=selecting + combining)]
