"""The scatter plan: threads walk the updates and change the output in place, which starts as a copy of the operand.

The schedule makes that copy (`Segment.aliases`), because blocks of one launch cannot wait for each other. Updates that
may conflict are atomic operations. If no atomic operation can do the combiner's work (several results that depend on
each other, 16 bytes), one thread does all updates of an element, one after another. If neighbours in an update are
aligned neighbours in the output, a thread updates several of them at a time: sums of f32, bf16 and f16 by the widest
atomic operation of the device (PTX ISA, "red": vectors since sm_90, pairs of f16 since sm_60), maxima and minima of
floats by reading all of them first, elements without conflicts by wide loads and stores. Of updates of single elements,
which go anywhere, a thread reads several before it makes the first. Source:
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
from hlo_opt.ir.index_map import (
    Expression,
    add,
    constant,
    delinearize,
    divide,
    linearize,
    modulo,
    multiply,
    variable,
)
from hlo_opt.ir.size import gcd, most
from hlo_opt.ops.indexing.gather_dimensions import IndexedWindows, scatter_dimensions
from hlo_opt.ops.lowering import Index
from hlo_opt.ops.reduction.reducers import EXTREMES, MONOIDS, monoid
from hlo_opt.ops.sets import keeps_values, tuple_index
from hlo_opt.ops.shapes import flag
from hlo_opt.plans.columns import WORD
from hlo_opt.plans.instructions import of_body
from hlo_opt.plans.loop import BLOCK, WIDEST_ACCESS
from hlo_opt.plans.plan import Launch, Region, Segment, Unshared, above
from hlo_opt.plans.samples import SECTOR
from hlo_opt.plans.walks import ITEM, ROUND, THREAD, Walk, neighbours

ATOMIC = MONOIDS - {"multiply"}
"""Combiners with atomic operations. The order of updates does not matter to them."""
_MOST_IN_ONE_BLOCK = 1024
_SUMS = {"f32": 1, "bf16": 2, "f16": 2}
"""Floats with atomic sums of several elements: the number of elements in a word, which is the vector on devices without
wider operations."""
_HAS_VECTORS = 90
"""The least compute capability with atomic operations on vectors."""
_EXTREMES_OF = frozenset({"f64", "f32", "bf16", "f16"})


class Update(Enum):
    """How an update changes an element.

    KEEP    not at all: the combiner returns the old value
    STORE   it replaces the element
    PLAIN   read, combine, write: no other thread changes the same element
    ATOMIC  one atomic operation
    SWAP    read, combine, compare-and-swap, until the swap succeeds
    """

    KEEP = "keep"
    STORE = "store"
    PLAIN = "plain"
    ATOMIC = "atomic"
    SWAP = "swap"


@dataclass(frozen=True)
class ScatterForm:
    """The properties of a scatter's kernel that follow from its dimensions and combiner.

    results  the number of arrays that it updates together
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
        """Whether two updates may change the same element."""
        updates = math.prod(self._sizes(self._batch))
        return updates > 1 and not (flag(self.hero, "unique_indices") and self.starts_apart)

    @cached_property
    def updates(self) -> tuple[Update, ...]:
        """How each array's elements are changed."""
        forms = [self._update(k) for k in range(self.results)]
        return (Update.PLAIN,) * self.results if None in forms else tuple(u for u in forms if u is not None)

    @cached_property
    def in_turns(self) -> bool:
        """Whether one thread must do all updates of an element, in their order."""
        return any(self._update(k) is None for k in range(self.results))

    @property
    def in_order(self) -> bool:
        """Whether the result depends on the order of threads. On a GPU it is unspecified; if threads run one after
        another it is HLO's."""
        kept = (Update.ATOMIC, Update.KEEP)
        return self.meets and not self.in_turns and any(u not in kept for u in self.updates)

    def _update(self, number: int) -> Update | None:
        """How an update changes array `number`; None if one thread must do all updates of an element."""
        combiner, half = self.combiner, self.results
        root = combiner.root
        part = root.operands[number] if root.shape.is_tuple else root
        if part.parameter_number == number:
            return Update.KEEP
        if part.parameter_number == half + number:
            return Update.STORE
        if not self.meets:
            return Update.PLAIN
        element_type = self.hero.operands[number].shape.type
        name = monoid(combiner) if half == 1 else None
        if name in ATOMIC:
            if element_type.is_integer and element_type.bits >= 32:
                return Update.ATOMIC
            if name == "add" and element_type.is_complex:
                return Update.ATOMIC
            if name in ("add", *EXTREMES) and element_type.is_float and element_type.bits >= 32:
                return Update.ATOMIC
        if element_type.bits > 64 or (half > 1 and _reads(part) - {number, half + number}):
            return None
        return Update.SWAP

    def sums_together(self, number: int) -> bool:
        """Whether one atomic operation can add to several neighbours of array `number`."""
        name = monoid(self.combiner) if self.results == 1 else None
        changes = self._update(number) in (Update.ATOMIC, Update.SWAP)
        return changes and name == "add" and self.hero.operands[number].shape.type.name in _SUMS

    def finds_extremes(self, number: int) -> bool:
        """Whether an update is a maximum or minimum of floats, for which a thread reads elements of array `number`
        before it changes them."""
        name = monoid(self.combiner) if self.results == 1 else None
        changes = self._update(number) in (Update.ATOMIC, Update.SWAP)
        return changes and name in EXTREMES and self.hero.operands[number].shape.type.name in _EXTREMES_OF

    def changes_together(self, number: int, vector: int) -> bool:
        """Whether `vector` neighbours of array `number`, which other threads may change too, are changed by whole
        words."""
        bits = vector * self.hero.operands[number].shape.type.bits
        if self.finds_extremes(number):
            return self.are_neighbours and bits >= WORD
        return self.are_neighbours and self.sums_together(number) and bits > WORD

    def vector(self, target: DeviceTarget) -> int:
        """The number of neighbouring updates of a thread: where they are single elements that go anywhere, as many as
        one load reads."""
        if not self.are_neighbours:
            return self._abreast(target)
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
        if self.finds_extremes(number):
            return widest
        if self.sums_together(number):
            return widest if target.compute_capability >= _HAS_VECTORS else _SUMS[element_type.name]
        return widest if how in (Update.STORE, Update.PLAIN) and self._fills(widest, target) else 1

    def _abreast(self, target: DeviceTarget) -> int:
        """Updates of single elements whose indices and values a thread reads together, before it changes the first: it
        waits for them once."""
        update = self.hero.operands[self.results + 1].shape
        bits = [self.hero.operands[k].shape.type.bits for k in (self.results, self.results + 1)]
        is_single = not self.in_turns and all(update.dimensions[d] == 1 for d in self._window)
        if target.in_lanes or not is_single or Update.PLAIN in self.updates or min(bits) < 8 or not update.rank:
            return 1
        most = 8 * WIDEST_ACCESS // max(bits)
        return gcd(update.dimensions[self.parallel[-1]], most) if self._fills(most, target) else 1

    def _fills(self, vector: int, target: DeviceTarget) -> bool:
        """Whether there are threads for the whole device, with so many elements for each."""
        return math.prod(self.space) >= vector * target.resident_threads

    @cached_property
    def are_neighbours(self) -> bool:
        """Whether neighbours in an update are neighbours in the output."""
        return self._aligned is not None

    @cached_property
    def _aligned(self) -> tuple[int, int] | None:
        """The row lengths of an update and of the output, if neighbours in one are neighbours in the other; else
        None."""
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
        in_memory = self.hero.operands[self.results + 1].shape.minor_to_major[::-1]
        windows = tuple(d for d in in_memory if d not in self._window)
        if self.in_order and not (self.starts_apart and windows == self._batch):
            return (*self._batch, *self._window)
        return in_memory

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
        """The sizes of the dimensions that threads walk."""
        return self._sizes(self.parallel)

    @property
    def is_empty(self) -> bool:
        """Whether no update can be in bounds."""
        update = self.hero.operands[self.results + 1].shape
        return not update.element_count or any(room < 0 for room in self.rooms.values())


def _reads(root: Instruction) -> set[int]:
    """The parameters that a value depends on."""
    return {i.parameter_number for i in above([root]) if i.parameter_number is not None}


@dataclass(frozen=True)
class Updates(Unshared):
    """A scatter, and the positions of the roots that are its results.

    aliases           (output, parameter): the output starts as a copy of the parameter
    own               outputs that may use their parameter's own memory: nothing else of the region reads it
    is_copied_inside  the kernel, in one block, computes the operands itself before the updates
    vector            neighbours that a thread updates at a time
    """

    kind: ClassVar[str] = "scatter"
    hero: Instruction
    roots: tuple[int, ...]
    aliases: tuple[tuple[int, int], ...]
    own: tuple[int, ...]
    is_copied_inside: bool
    vector: int = 1

    @property
    def threads(self) -> int:
        """Threads of all blocks."""
        return math.prod(ScatterForm(self.hero).space) // self.vector

    @property
    def block(self) -> int:
        if self.is_copied_inside:
            written = max(leaf.element_count for leaf in self.hero.shape.leaves())
            return max(1, min(_MOST_IN_ONE_BLOCK, most(max(written, math.prod(ScatterForm(self.hero).space)))))
        return max(1, min(BLOCK, most(self.threads)))

    def segment(self, block: int) -> Segment[Updates]:
        """The segment in a launch of blocks of `block` threads, at least `self.block`: a thread for each vector of the
        updates."""
        form = ScatterForm(self.hero)
        threads = 0 if form.is_empty else self.threads
        blocks = 1 if self.is_copied_inside else max(1, -(-threads // block))
        return Segment(
            self, blocks, self.vector, aliases=self.aliases, own=self.own, in_order=form.in_order, meets=True
        )


def refusal(region: Region) -> Reason | None:
    """The reason why the region's scatters have no kernel: something in it reads their results, which are complete only
    after the launch."""
    roots = {source_of(root) for root in region.roots}
    for instruction in region.computation.instructions:
        if instruction.opcode != "scatter":
            continue
        readers = [u for u in instruction.users if u.opcode not in ("tuple", "get-tuple-element")]
        readers += [v for u in instruction.users if tuple_index(u) is not None for v in u.users if v.opcode != "tuple"]
        if readers or instruction not in roots:
            return Reason.of("FUS609", producer=instruction.name)
        form = ScatterForm(instruction)
        if form.in_turns and instruction not in region.roots:
            parts = {element_of(root) for root in region.roots if source_of(root) is instruction}
            if len(parts) < form.results:  # the combiner needs unused results, too
                return Reason.of("FUS301", element_type="tuple", opcode=instruction.opcode)
    return None


def source_of(root: Instruction) -> Instruction:
    """The operation whose result, or tuple element, a root is."""
    while tuple_index(root) is not None:
        root = root.operands[0]
    return root


def element_of(root: Instruction) -> int | None:
    """The number of the scatter's array that a root is; None for all of them."""
    return tuple_index(root)


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
    form = ScatterForm(hero)
    alike = all(region.outputs[output].minor_to_major == hero.operands[k].shape.minor_to_major for output, k in wanted)
    vector = form.vector(target) if alike and not form.is_empty else 1
    return Updates(hero, tuple(positions), aliases, own, False, vector)


def _place(region: Region, operand: Instruction, output: Shape) -> Instruction | None:
    """The parameter that is an operand, in the output's layout; None if the kernel must compute the operand."""
    lies_alike = operand.shape.minor_to_major == output.minor_to_major
    source = operand
    while keeps_values(source, ("bitcast",)):
        source = source.operands[0]
    if source not in region.parameters:
        return None
    # the kernel may require the output's layout of a parameter that nothing else reads
    return (
        source if lies_alike or (source is operand and _reads_once(region, region.parameters.index(source))) else None
    )


def _reads_once(region: Region, number: int) -> bool:
    """Whether a scatter is the only reader of a parameter, and no root is the parameter."""
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
"""Memory operations of an update, for an element that is a whole word and for one that is part of a word. A swap reads
first; of two lanes that swap parts of one word at the same time, one tries again."""


def _tries_of_extremes(form: ScatterForm, number: int, vector: int) -> float:
    """Memory operations of an update that is a maximum or a minimum, each of a sector: lanes read neighbours together,
    but change them one by one, and only where they are greater or less than all before: the n-th is that once in n
    times, in any order."""
    operand, update = (form.hero.operands[k].shape for k in (number, form.results + 1))
    each = update.element_count / operand.element_count
    changes = (1 + math.log(each)) / each if each > 1 else 1.0
    bits, own = operand.type.bits, vector * operand.type.bits
    swapped = 2.0 if own < WORD else min(1.0, bits / WORD)
    if not form.are_neighbours:
        return 1.0 + changes * (2.0 if bits < WORD else 1.0)
    return bits / 8 / SECTOR + changes * swapped * min(1.0, own / 8 / SECTOR)


def walks(region: Region, segment: Segment[Updates], launch: Launch) -> list[Walk]:
    """The walk in which a thread does one update, or all updates of an element. The position of a window is known only
    at run time. Before it, where one block computes the operands itself, the walks in which it does."""
    form, results = ScatterForm(segment.hero), ScatterForm(segment.hero).results
    shape, indices = segment.hero.operands[results + 1].shape, segment.hero.operands[results]
    places, rounds = max(1, math.prod(form.space)), max(1, math.prod(form._sizes(form.serial)))
    threads = max(1, places // segment.vector)
    at = dict(zip(form.parallel, delinearize(variable("place", places), form.space), strict=True))
    at.update(zip(form.serial, delinearize(variable("turn", rounds), form._sizes(form.serial)), strict=True))
    index = tuple(at[d] for d in range(shape.rank))
    s = form.dimensions
    batch = tuple(e for d, e in enumerate(index) if d not in s.offset_dims)
    wanted: list[tuple[Instruction, tuple[Expression, ...]]] = []
    wanted += [(indices, place) for place in places_of_starts(form, batch)]
    wanted += [(update, index) for update in segment.hero.operands[results + 1 :]]
    window = iter([index[d] for d in s.offset_dims])
    target = [constant(0) if d in s.removed else next(window) for d in range(segment.hero.operands[0].shape.rank)]
    sizes = [shape.dimensions[d] for d in range(shape.rank) if d not in s.offset_dims]
    for d in s.start_index_map:  # windows are assumed to go to consecutive rows
        target[d] = add(target[d], modulo(linearize(batch, sizes), max(1, form.rooms[d] + 1)))
    written, changed, looks = [], [], 0
    for number, (how, operand) in enumerate(zip(form.updates, segment.hero.operands[:results], strict=True)):
        bits = operand.shape.type.bits
        if form.changes_together(number, segment.vector):
            how, bits = Update.ATOMIC, WORD
        looks += form.finds_extremes(number)
        if how in _TRIES:
            tries = _TRIES[how][bits * (segment.vector if form.are_neighbours else 1) < WORD]
            if form.finds_extremes(number):
                tries = _tries_of_extremes(form, number, segment.vector)
            changed.append((operand.shape, tuple(target), tries))
        elif how is not Update.KEEP:
            written.append((operand.shape, tuple(target)))
    body = of_body(form.combiner)
    if not segment.part.is_copied_inside:
        of = {"place": neighbours(threads, segment.vector), "turn": variable(ROUND, rounds)}
        return [Walk(threads, wanted, written, changed, of, segment.vector, rounds=rounds, body=body, looks=looks)]
    together = min(threads, launch.block)
    times = -(-threads // together)
    turn = variable(ROUND, times * rounds)
    first = add(variable(THREAD, together), multiply(divide(turn, rounds), together))
    of = {
        "place": add(multiply(first, segment.vector), variable(ITEM, segment.vector)),
        "turn": modulo(turn, rounds),
    }
    filled = threads / (together * times)
    updating = Walk(
        together,
        wanted,
        written,
        changed,
        of,
        segment.vector,
        rounds=times * rounds,
        filled=filled,
        body=body,
        looks=looks,
    )
    return [*(_computing(operand, launch.block) for operand in segment.hero.operands[:results]), updating]


def places_of_starts(form: ScatterForm, batch: Index) -> list[Index]:
    """The places of the start indices of a window, one for each dimension that they move it along."""
    s = form.dimensions
    if s.index_vector_dim == form.hero.operands[form.results].shape.rank:
        return [batch] * len(s.start_index_map)
    before, behind = batch[: s.index_vector_dim], batch[s.index_vector_dim :]
    return [(*before, constant(k), *behind) for k in range(len(s.start_index_map))]


def _computing(operand: Instruction, block: int) -> Walk:
    """The walk in which the threads of one block compute the array that is updated."""
    count = operand.shape.element_count
    threads = max(1, min(block, count))
    rounds = max(1, -(-count // threads))
    element = variable("element", max(1, count))
    index = delinearize(element, operand.shape.dimensions)
    at = add(variable(THREAD, threads), multiply(variable(ROUND, rounds), threads))
    filled = count / (threads * rounds)
    written = [(operand.shape, index)]
    return Walk(threads, [(operand, index)], written, places={"element": at}, rounds=rounds, filled=filled, barriers=1)
