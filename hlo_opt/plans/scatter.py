"""The scatter plan: threads walk the updates and change the output, which starts as a copy of the operand, in place.

Who makes that copy is the schedule (`Segment.aliases`): blocks of one launch cannot wait for each other. Updates that
may meet go through atomic operations. Where no atomic operation does what the combiner asks for (several results that
depend on each other, 16 bytes), the updates of an element come in turns, in one thread. Where neighbours in an update
are neighbours in the output, and both begin at a multiple of what one operation takes, a thread brings several of them
at a time: sums of f32, bf16 and f16 by one atomic operation as wide as the device has it (PTX ISA, "red": vectors since
sm_90, pairs of f16 since sm_60), elements that no other thread changes by wide loads and stores. Source:
xla/backends/gpu/codegen/emitters/scatter.cc.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import ClassVar

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.diag import Reason
from hlo_opt.ir import Computation, Instruction, Shape
from hlo_opt.ir.index_map import Expression, add, constant, delinearize, linearize, modulo, variable
from hlo_opt.ops.indexing.gather_dimensions import IndexedWindows, scatter_dimensions
from hlo_opt.ops.reduction.reducers import monoid
from hlo_opt.ops.sets import keeps_values
from hlo_opt.ops.shapes import flag
from hlo_opt.plans.instructions import of_body
from hlo_opt.plans.loop import BLOCK, WIDEST_ACCESS
from hlo_opt.plans.plan import Launch, Region, Segment
from hlo_opt.plans.walks import ROUND, Walk, neighbours

_ATOMIC = frozenset({"add", "maximum", "minimum", "and", "or", "xor"})
_MOST_IN_ONE_BLOCK = 1024
_SUMS = {"f32": 1, "bf16": 2, "f16": 2}
"""Floats that come several at a time, and how many of them a word holds: a device without wider operations changes so
many together."""
_HAS_VECTORS = 90
"""The compute capability from which on there are atomic operations on vectors."""


class Update(Enum):
    """How an update changes an element.

    KEEP    not at all: the combiner returns the old value
    STORE   it takes the element's place
    PLAIN   read, combine, write: no other thread has the same element
    ATOMIC  one atomic operation
    SWAP    read, combine, write if the element is still what was read, else again
    """

    KEEP = "keep"
    STORE = "store"
    PLAIN = "plain"
    ATOMIC = "atomic"
    SWAP = "swap"


@dataclass(frozen=True)
class Form:
    """What a scatter's dimensions and combiner say about its kernel.

    results  how many arrays it updates together
    """

    hero: Instruction

    @property
    def results(self) -> int:
        return len(self.hero.operands) // 2

    @cached_property
    def dimensions(self) -> IndexedWindows:
        return scatter_dimensions(self.hero)

    @property
    def combiner(self) -> Computation:
        return self.hero.called_by("to_apply")

    @cached_property
    def windows(self) -> dict[int, int]:
        """The window's size by operand dimension."""
        return self.dimensions.update_windows(self.hero.operands[0].shape, self.hero.operands[self.results + 1].shape)

    @property
    def rooms(self) -> dict[int, int]:
        """The greatest start by indexed operand dimension; negative: no window fits."""
        sizes = self.hero.operands[0].shape.dimensions
        return {d: sizes[d] - self.windows[d] for d in self.dimensions.start_index_map}

    @cached_property
    def starts_apart(self) -> bool:
        """Whether windows with different starts share no element: they have size 1 wherever an index moves them."""
        return all(self.windows[d] == 1 for d in self.dimensions.start_index_map)

    @cached_property
    def meets(self) -> bool:
        """Whether two updates may want the same element."""
        updates = math.prod(self._sizes(self._batch))
        return updates > 1 and not (flag(self.hero, "unique_indices") and self.starts_apart)

    @cached_property
    def updates(self) -> tuple[Update, ...]:
        """How each array's elements are changed."""
        found = [self._update(k) for k in range(self.results)]
        return (Update.PLAIN,) * self.results if None in found else tuple(u for u in found if u is not None)

    @cached_property
    def in_turns(self) -> bool:
        """Whether all updates of an element must come from one thread, in their order."""
        return any(self._update(k) is None for k in range(self.results))

    @property
    def in_order(self) -> bool:
        """Whether the order of threads shows in the result. On a GPU it is open; where threads run one after another it
        is HLO's."""
        kept = (Update.ATOMIC, Update.KEEP)
        return self.meets and not self.in_turns and any(u not in kept for u in self.updates)

    def _update(self, number: int) -> Update | None:
        """None: only in turns."""
        combiner, half = self.combiner, self.results
        root = combiner.root
        part = root.operands[number] if root.opcode == "tuple" else root
        if part.parameter_number == number:
            return Update.KEEP
        if part.parameter_number == half + number:
            return Update.STORE
        if not self.meets:
            return Update.PLAIN
        element_type = self.hero.operands[number].shape.type
        name = monoid(combiner) if half == 1 else None
        if name in _ATOMIC:
            if element_type.is_integer and element_type.bits >= 32:
                return Update.ATOMIC
            if name == "add" and (element_type.is_complex or (element_type.is_float and element_type.bits >= 32)):
                return Update.ATOMIC
        if element_type.bits > 64 or (half > 1 and _reads(part) - {number, half + number}):
            return None
        return Update.SWAP

    def sums_together(self, number: int) -> bool:
        """Whether neighbours of a result can be added by one atomic operation."""
        name = monoid(self.combiner) if self.results == 1 else None
        changes = self._update(number) in (Update.ATOMIC, Update.SWAP)
        return changes and name == "add" and self.hero.operands[number].shape.type.name in _SUMS

    def vector(self, target: DeviceTarget) -> int:
        """How many neighbours a thread takes at a time."""
        most = min((self._most_together(k, target) for k in range(self.results)), default=1)
        room = self._aligned
        while most > 1 and (room is None or any(size % most for size in room)):
            most //= 2
        return most

    def _most_together(self, number: int, target: DeviceTarget) -> int:
        element_type = self.hero.operands[number].shape.type
        how = self._update(number)
        widest = max(1, WIDEST_ACCESS // element_type.bytes)
        if self.in_turns or element_type.per_byte > 1 or how is Update.KEEP:
            return 1
        if self.sums_together(number):
            return widest if target.compute_capability >= _HAS_VECTORS else _SUMS[element_type.name]
        is_enough = math.prod(self.space) >= widest * target.resident_threads
        return widest if how in (Update.STORE, Update.PLAIN) and is_enough else 1

    @property
    def _aligned(self) -> tuple[int, int] | None:
        """Elements from one row of an update to the next, and of the output, where neighbours in one are neighbours in
        the other; else None."""
        s, update, output = self.dimensions, self.hero.operands[self.results + 1].shape, self.hero.operands[0].shape
        others = self.hero.operands[1 : self.results]
        if not update.rank or any(o.shape.minor_to_major != output.minor_to_major for o in others):
            return None
        along = update.minor_to_major[0]
        if along not in s.offset_dims or self.parallel[-1:] != (along,):
            return None
        d = [d for d in range(output.rank) if d not in s.removed][list(s.offset_dims).index(along)]
        if d != output.minor_to_major[0] or (d in s.start_index_map and self.rooms[d]):
            return None
        return update.dimensions[along], output.dimensions[d]

    # ---- threads

    @property
    def _batch(self) -> tuple[int, ...]:
        """The updates' dimensions that count the windows."""
        rank = self.hero.operands[self.results + 1].shape.rank
        return tuple(d for d in range(rank) if d not in self.dimensions.offset_dims)

    @property
    def _window(self) -> tuple[int, ...]:
        """The updates' dimensions that walk within a window."""
        rank = self.hero.operands[self.results + 1].shape.rank
        return tuple(d for d in range(rank) if d in self.dimensions.offset_dims)

    @property
    def parallel(self) -> tuple[int, ...]:
        """The updates' dimensions that threads walk, major to minor."""
        if self.in_turns:
            return self._window if self.starts_apart else ()
        if self.in_order:
            return (*self._batch, *self._window)
        return self.hero.operands[self.results + 1].shape.minor_to_major[::-1]

    @property
    def serial(self) -> tuple[int, ...]:
        """The updates' dimensions that each thread walks."""
        walked = self.parallel
        return tuple(d for d in (*self._batch, *self._window) if d not in walked) if self.in_turns else ()

    def _sizes(self, dimensions: Sequence[int]) -> tuple[int, ...]:
        sizes = self.hero.operands[self.results + 1].shape.dimensions
        return tuple(sizes[d] for d in dimensions)

    @property
    def space(self) -> tuple[int, ...]:
        """Sizes of what threads walk."""
        return self._sizes(self.parallel)

    @property
    def is_empty(self) -> bool:
        """Whether no update can land anywhere."""
        update = self.hero.operands[self.results + 1].shape
        return not update.element_count or any(room < 0 for room in self.rooms.values())


def _reads(root: Instruction) -> set[int]:
    """The parameters that a value depends on."""
    found: set[int] = set()
    todo, seen = [root], {root}
    while todo:
        instruction = todo.pop()
        if instruction.parameter_number is not None:
            found.add(instruction.parameter_number)
        for operand in instruction.operands:
            if operand not in seen:
                seen.add(operand)
                todo.append(operand)
    return found


@dataclass(frozen=True)
class Updates:
    """A scatter and the positions of the roots that it, or elements of its tuple, are.

    aliases  (output, parameter): the output starts as a copy of the parameter
    own      outputs that may be made in their parameter's own memory: nothing else of the region reads it
    vector   neighbours that a thread takes at a time
    """

    kind: ClassVar[str] = "scatter"
    hero: Instruction
    roots: tuple[int, ...]
    aliases: tuple[tuple[int, int], ...]
    own: tuple[int, ...]
    made_inside: bool
    vector: int = 1

    @property
    def threads(self) -> int:
        """Of all blocks."""
        return math.prod(Form(self.hero).space) // self.vector

    @property
    def block(self) -> int:
        """Threads per block when nothing else asks for more."""
        if self.made_inside:
            most = max(leaf.element_count for leaf in self.hero.shape.leaves())
            return max(1, min(_MOST_IN_ONE_BLOCK, max(most, math.prod(Form(self.hero).space))))
        return max(1, min(BLOCK, self.threads))

    def segment(self, block: int) -> Segment[Updates]:
        """The segment in a launch of blocks of that size, which is at least `self.block`."""
        form = Form(self.hero)
        threads = 0 if form.is_empty else self.threads
        blocks = 1 if self.made_inside else max(1, -(-threads // block))
        return Segment(
            self, blocks, self.vector, aliases=self.aliases, own=self.own, in_order=form.in_order, meets=True
        )

    def shared_bytes(self, block: int) -> int:
        """None."""
        return 0


def refusal(region: Region) -> Reason | None:
    """Why the region's scatters have no kernel: something reads what they make, which is complete only when the launch
    is done."""
    roots = {source_of(root) for root in region.roots}
    for instruction in region.computation.instructions:
        if instruction.opcode != "scatter":
            continue
        readers = [u for u in instruction.users if u.opcode not in ("tuple", "get-tuple-element")]
        readers += [
            v for u in instruction.users if u.opcode == "get-tuple-element" for v in u.users if v.opcode != "tuple"
        ]
        if readers or instruction not in roots:
            return Reason.of("FUS609", producer=instruction.name)
        form = Form(instruction)
        if form.in_turns and instruction not in region.roots:
            parts = {element_of(root) for root in region.roots if source_of(root) is instruction}
            if len(parts) < form.results:  # the combiner also needs results that are not used
                return Reason.of("FUS301", element_type="tuple", opcode="scatter")
    return None


def source_of(root: Instruction) -> Instruction:
    """The operation that a root, or the tuple that it is an element of, comes from."""
    while root.opcode == "get-tuple-element":
        root = root.operands[0]
    return root


def element_of(root: Instruction) -> int | None:
    """Which array of a scatter of several a root is; None for all of them."""
    return root.attribute("index", int) if root.opcode == "get-tuple-element" else None


def match(region: Region, roots: Sequence[int], target: DeviceTarget) -> tuple[list[Updates], list[int]]:
    """The scatters among outputs of a region, and the positions of the other outputs."""
    heroes: dict[Instruction, list[int]] = {}
    rest = []
    for position in roots:
        hero = source_of(region.roots[position])
        if hero.opcode == "scatter":
            heroes.setdefault(hero, []).append(position)
        else:
            rest.append(position)
    return [_updates(region, hero, positions, target) for hero, positions in heroes.items()], rest


def _updates(region: Region, hero: Instruction, positions: Sequence[int], target: DeviceTarget) -> Updates:
    first: list[int] = []
    count = 0
    for root in region.roots:
        first.append(count)
        count += len(list(root.shape.leaves()))
    half = len(hero.operands) // 2
    wanted: list[tuple[int, int]] = []  # output, operand
    for position in positions:
        element = element_of(region.roots[position])
        wanted += [(first[position] + k, k) for k in range(half)] if element is None else [(first[position], element)]
    places = [_place(region, hero.operands[k], region.outputs[output]) for output, k in wanted]
    if any(place is None for place in places):
        return Updates(hero, tuple(positions), (), (), True)
    numbers = [region.parameters.index(place) for place in places if place is not None]
    aliases = tuple((output, number) for (output, _), number in zip(wanted, numbers, strict=True))
    own = tuple(output for output, number in aliases if _reads_once(region, number))
    form = Form(hero)
    alike = all(region.outputs[output].minor_to_major == hero.operands[k].shape.minor_to_major for output, k in wanted)
    vector = form.vector(target) if alike and not form.is_empty else 1
    return Updates(hero, tuple(positions), aliases, own, False, vector)


def _place(region: Region, operand: Instruction, output: Shape) -> Instruction | None:
    """The parameter that holds an operand as the output will lie, or None where the kernel has to compute it."""
    lies_alike = operand.shape.minor_to_major == output.minor_to_major
    found = operand
    while keeps_values(found, ("bitcast",)):
        found = found.operands[0]
    if found not in region.parameters:
        return None
    # a parameter that nothing else reads may be asked for in the output's layout
    return found if lies_alike or (found is operand and _reads_once(region, region.parameters.index(found))) else None


def _reads_once(region: Region, number: int) -> bool:
    """Whether one instruction alone reads a parameter, once, and no root hands it on."""
    instruction = region.parameters[number]
    while True:
        if instruction in region.roots or len(instruction.users) != 1:
            return False
        (user,) = instruction.users
        if sum(o is instruction for o in user.operands) != 1:
            return False
        if user.opcode != "bitcast":
            return user.opcode == "scatter"
        instruction = user


_TRIES = {Update.PLAIN: (1.0, 1.0), Update.ATOMIC: (1.0, 1.0), Update.SWAP: (2.0, 3.0)}
"""How often an update goes to an element that is a whole word, and to a part of one. A swap reads before it swaps; of
two lanes that want parts of one word at the same time, one comes again. Sums that come together need no swap where the
device has an operation for them."""


def walks(region: Region, segment: Segment[Updates], launch: Launch) -> list[Walk]:
    """Each thread brings an update to its element, or all updates of an element in turns; where an index puts it is
    known at run time only, and is the same for a window."""
    form, results = Form(segment.hero), Form(segment.hero).results
    shape, indices = segment.hero.operands[results + 1].shape, segment.hero.operands[results]
    places, rounds = max(1, math.prod(form.space)), max(1, math.prod(form._sizes(form.serial)))
    threads = max(1, places // segment.vector)
    at = dict(zip(form.parallel, delinearize(variable("place", places), form.space), strict=True))
    at.update(zip(form.serial, delinearize(variable("turn", rounds), form._sizes(form.serial)), strict=True))
    index = tuple(at[d] for d in range(shape.rank))
    s = form.dimensions
    batch = tuple(e for d, e in enumerate(index) if d not in s.offset_dims)
    wanted: list[tuple[Instruction, tuple[Expression, ...]]] = []
    for k in range(len(s.start_index_map)):
        within = (constant(k),) if s.index_vector_dim < indices.shape.rank else ()
        wanted.append((indices, (*batch[: s.index_vector_dim], *within, *batch[s.index_vector_dim :])))
    wanted += [(update, index) for update in segment.hero.operands[results + 1 :]]
    window = iter([index[d] for d in s.offset_dims])
    target = [constant(0) if d in s.removed else next(window) for d in range(segment.hero.operands[0].shape.rank)]
    sizes = [shape.dimensions[d] for d in range(shape.rank) if d not in s.offset_dims]
    for d in s.start_index_map:  # windows go to rows in the order in which they come: other rows, as scattered as these
        target[d] = add(target[d], modulo(linearize(batch, sizes), max(1, form.rooms[d] + 1)))
    written, changed = [], []
    for number, (how, operand) in enumerate(zip(form.updates, segment.hero.operands[:results], strict=True)):
        bits = operand.shape.type.bits
        if form.sums_together(number) and segment.vector * bits > 32:
            how, bits = Update.ATOMIC, 32
        if how in _TRIES:
            changed.append((operand.shape, tuple(target), _TRIES[how][segment.vector * bits < 32]))
        elif how is not Update.KEEP:
            written.append((operand.shape, tuple(target)))
    of = {"place": neighbours(threads, segment.vector), "turn": variable(ROUND, rounds)}
    body = of_body(form.combiner)
    return [Walk(threads, wanted, written, changed, of, segment.vector, rounds=rounds, body=body)]
