"""The sort plan: a block sorts lines of the compared operands in shared memory, and writes every operand in that order.

The network is bitonic; the first step of each size compares mirrored positions, so that every exchange moves the lesser
element to the front, and lines of any length need no padding (XLA's sort_util.cc, EmitSortInPlace). Equal elements
stay in order whether or not the sort is stable, so that every backend gives the same result. Operands that the
comparator does not read take no shared memory. Where the comparator compares a function of the elements, shared memory
holds its results (`sort_keys`). Threads take elements of longer lines through several steps in registers. A `topk` is a
sort that writes the first elements of each line and their positions (xla/service/topk_rewriter.cc, TopkDecomposer).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self, TypeVar

from hlo_opt.analysis.memory.forms import round_up
from hlo_opt.ir import Attribute, Computation, ElementType, Instruction, Shape, edit
from hlo_opt.ir.element_type import PRED
from hlo_opt.ir.index_map import add, delinearize, divide, modulo, multiply, variable
from hlo_opt.ops.ordering.table import sorted_dimension
from hlo_opt.ops.shapes import flag, integer
from hlo_opt.ops.stored_bits import as_stored
from hlo_opt.plans.columns import MOST_THREADS, SHARED_BYTES, WARP
from hlo_opt.plans.instructions import ACCESS, NOTHING, Work, of_body
from hlo_opt.plans.plan import Launch, Region, Segment, above
from hlo_opt.plans.sort_keys import ComparatorKey, key_of
from hlo_opt.plans.walks import ROUND, THREAD, Walk

LONGEST = 4096
"""Limit of the length of a line. A library sorts longer ones: its radix sort reads each element a fixed number of
times."""
POSITION_BYTES = 2
"""Bytes of the original position of an element in its line."""
VISIT = 3
"""Steps of the network between two accesses to shared memory: a thread takes 8 elements through them."""
GROUPED = 8
"""The least number of pairs of a line of which threads take several steps at a time."""
_INDICES = 1.5
"""Instructions for the places of an element, for each visit."""
_BLOCK = 128
_ACROSS = 32  # adjacent lines that threads read together if the elements of a line are not contiguous


_Pointer = TypeVar("_Pointer")


@dataclass(frozen=True)
class SortLines:
    """A sort or topk with `per_block` lines per block; `roots` are positions of outputs, all of them its results."""

    kind: ClassVar[str] = "sort"
    hero: Instruction
    roots: tuple[int, ...]
    lines: int
    length: int
    per_block: int

    @property
    def is_top(self) -> bool:
        """Whether it is a topk."""
        return self.hero.opcode == "topk"

    @cached_property
    def _declared(self) -> Computation:
        """The comparator of the sort; for a topk, one by total order."""
        if not self.is_top:
            return self.hero.called_by("to_apply")
        direction = "GT" if flag(self.hero, "largest", True) else "LT"
        return _comparison(self.hero.operands[0].shape.type, direction)

    @cached_property
    def comparator(self) -> Computation:
        """The comparator, which takes as integers the narrow floats of which it reads the bits (`stored_bits`)."""
        stored = as_stored(self._declared)[0]
        types = [p.shape.type for p in stored.parameters]
        return stored if types[::2] == types[1::2] else self._declared

    def takes_bits(self, operand: int) -> bool:
        """Whether the comparator takes an operand's elements as integers."""
        return self.comparator.parameters[2 * operand].shape.type != self._declared.parameters[2 * operand].shape.type

    @cached_property
    def compared(self) -> tuple[int, ...]:
        """The operands whose elements the comparator reads."""
        comparator = self.comparator
        read = above([comparator.root])
        return tuple(k for k in range(len(self.hero.operands)) if read & set(comparator.parameters[2 * k : 2 * k + 2]))

    @cached_property
    def key(self) -> ComparatorKey | None:
        """What is compared in place of the elements of an operand."""
        if self.is_top or key_of(self._declared) is None:
            return None
        return key_of(self.comparator)

    @property
    def sorted_ones(self) -> tuple[int, ...]:
        """The operands whose elements are in shared memory as they are."""
        return self.compared if self.key is None else ()

    @cached_property
    def has_positions(self) -> bool:
        """Whether positions are sorted with the elements: to read operands that are not compared, or by a key, and to
        keep equal elements in order."""
        return (
            self.key is not None or self.is_top or len(self.compared) < len(self.hero.operands) or not self.breaks_ties
        )

    @cached_property
    def breaks_ties(self) -> bool:
        """Whether the order of equal elements cannot be seen: the comparator is a total order of the only operand."""
        comparator = self._declared
        root, parameters = comparator.root, comparator.parameters
        if (
            self.is_top
            or len(parameters) != 2
            or root.opcode != "compare"
            or root.word("direction") not in ("LT", "GT")
        ):
            return False
        kind = parameters[0].shape.type
        return set(root.operands) == set(parameters) and (not kind.is_float or root.word("type") == "TOTALORDER")

    @property
    def along(self) -> int:
        """The dimension that is sorted."""
        return along_of(self.hero)

    @property
    def kept(self) -> int:
        """The number of elements of a line that are written."""
        return integer(self.hero, "k") if self.is_top else self.length

    @property
    def across(self) -> bool:
        """Whether neighbouring threads have neighbouring lines: the sorted dimension is not minor-most."""
        shape = self.hero.operands[0].shape
        faster = shape.minor_to_major[: shape.minor_to_major.index(self.along)]
        return any(shape.dimensions[d] != 1 for d in faster)

    @property
    def pairs(self) -> int:
        """The number of pairs that one step of the network compares in a line, whose length is rounded up to a power of
        two."""
        return (1 << (self.length - 1).bit_length()) // 2

    @property
    def threads(self) -> int:
        """Threads for each line."""
        return self.pairs >> (VISIT - 1) if self.pairs >= GROUPED else self.pairs

    @property
    def steps(self) -> int:
        """Steps of the network."""
        levels = (2 * self.pairs).bit_length() - 1
        return levels * (levels + 1) // 2

    @property
    def visits(self) -> int:
        """How often threads read and write an element in the network."""
        if self.pairs < GROUPED:
            return self.steps
        return sum(-(-level // VISIT) for level in range(1, (2 * self.pairs).bit_length()))

    @property
    def cells(self) -> int:
        """Elements of a block."""
        return self.per_block * self.length

    @property
    def block(self) -> int:
        return round_up(max(1, min(MOST_THREADS, self.per_block * self.threads)), WARP)

    def segment(self, block: int) -> Segment[Self]:
        """The segment, alone in its launch."""
        return Segment(self, -(-self.lines // self.per_block) if self.length else 0)

    def shared_bytes(self, block: int) -> int:
        """Bytes of the compared elements, or their keys, and the positions."""
        width = sum(self.hero.operands[k].shape.type.bytes for k in self.sorted_ones)
        width += 0 if self.key is None else self.key.bytes
        return self.cells * (width + (POSITION_BYTES if self.has_positions else 0))


def match(region: Region) -> SortLines | None:
    """The region as a sort in shared memory. None if its outputs are not all results of one sort, or lines are too
    long."""
    heroes = [i for i in region.computation.instructions if i.opcode in ("sort", "topk")]
    if len(heroes) != 1 or any(_maker(root) is not heroes[0] for root in region.roots):
        return None
    (hero,) = heroes
    if not hero.operands[0].shape.rank:
        return None
    shape, along = hero.operands[0].shape, along_of(hero)
    length = shape.dimensions[along]
    lines = math.prod(size for d, size in enumerate(shape.dimensions) if d != along)
    if length > LONGEST:
        return None
    part = SortLines(hero, tuple(range(len(region.roots))), lines, length, 1)
    wanted = max(_ACROSS if part.across else 1, _BLOCK // max(1, part.threads))
    for per_block in _halves(max(1, min(lines, wanted))):
        part = SortLines(hero, part.roots, lines, length, per_block)
        if part.shared_bytes(part.block) <= SHARED_BYTES:
            return part
    return None


def operands_of(root: Instruction, outputs: Sequence[tuple[_Pointer, Shape]]) -> list[tuple[int, _Pointer, Shape]]:
    """For each array of a root: the number of the operand that it holds in order (for a topk, 1 for the positions), and
    the pointer and shape of the output."""
    if root.opcode == "get-tuple-element":
        return [(root.attribute("index", int), *outputs[0])]
    return [(k, *output) for k, output in enumerate(outputs)]


def _outputs(root: Instruction) -> list[tuple[int, Shape]]:
    """For each array of a root: the number of the operand that it holds in order (for a topk, 1 for the positions), and
    its shape."""
    return [(k, leaf) for k, _, leaf in operands_of(root, [(None, leaf) for leaf in root.shape.leaves()])]


def along_of(hero: Instruction) -> int:
    return sorted_dimension(hero) if hero.opcode == "sort" else hero.operands[0].shape.rank - 1


def _comparison(element_type: ElementType, direction: str) -> Computation:
    """A comparator of two elements, floats in total order."""
    comparator = Computation("comparator")
    scalar = Shape(element_type)
    sides = [edit.create(comparator, name, "parameter", scalar, parameter_number=n) for n, name in enumerate("ab")]
    order = {"type": Attribute.of("TOTALORDER")} if element_type.is_float else {}
    attributes = {"direction": Attribute.of(direction), **order}
    edit.set_root(comparator, edit.create(comparator, "less", "compare", Shape(PRED), sides, attributes))
    return comparator


def _maker(root: Instruction) -> Instruction:
    return root.operands[0] if root.opcode == "get-tuple-element" else root


def _halves(number: int) -> list[int]:
    sizes = [number]
    while sizes[-1] > 1:
        sizes.append(sizes[-1] // 2)
    return sizes


def walks(region: Region, segment: Segment[SortLines], launch: Launch) -> list[Walk]:
    """The walk in which a block reads its lines, sorts them with a barrier after each step, and writes them."""
    part = segment.part
    shape = part.hero.operands[0].shape
    threads = segment.blocks * part.block
    rounds = max(1, -(-part.cells // part.block))
    number = add(multiply(variable(ROUND, rounds), part.block), modulo(variable(THREAD, threads), part.block))
    line, place = (modulo(number, part.per_block), divide(number, part.per_block))
    if not part.across:
        length = max(1, part.length)  # lines may be empty
        line, place = divide(number, length), modulo(number, length)
    line = add(multiply(divide(variable(THREAD, threads), part.block), part.per_block), line)
    sizes = [size for d, size in enumerate(shape.dimensions) if d != part.along]
    index = list(delinearize(variable("line", max(1, part.lines)), sizes))
    index.insert(part.along, variable("place", max(1, part.length)))
    places = {"line": line, "place": place}
    outputs = [output for n in part.roots for output in _outputs(region.roots[n])]
    needed = {*part.compared, *(k for k, _ in outputs)}
    wanted = [(operand, tuple(index)) for k, operand in enumerate(part.hero.operands) if k in needed]
    written = [(leaf, tuple(index)) for _, leaf in outputs]
    in_shared = part.shared_bytes(part.block) > 0
    tables, ties = len(part.compared) + part.has_positions, part.has_positions and not part.breaks_ties
    compares, once = (of_body(part.comparator), NOTHING) if part.key is None else (Work(1), part.key.work + ACCESS)
    moved = Work(2 * tables + ties * (2 + 2 * len(part.compared)))  # of a pair
    return [
        Walk(
            threads,
            wanted,
            written,
            places=places,
            rounds=rounds,
            body=(compares + moved) * (part.steps / 2) + Work(_INDICES * part.visits) + once,
            barriers=part.visits,
            shared=2.0 * part.visits,
            trips=0 if in_shared else part.steps,
        )
    ]
