"""The sort plan: a block holds lines of what a sort compares in shared memory, orders them there, and writes every
operand in that order.

Lines are compared and exchanged in a bitonic network whose first step of each size compares mirrored places, so that
every exchange brings the lesser element to the front and lines of any length need no padding (XLA's sort_util.cc,
EmitSortInPlace). Equal elements stay in order whether or not the sort is stable: every backend then gives the same
result. Operands that the comparator does not read take no shared memory. A `topk` is a sort of which the first elements
of each line, and where they were, are written (xla/service/topk_rewriter.cc, TopkDecomposer).
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
from hlo_opt.plans.columns import MOST_THREADS, SHARED_BYTES, WARP
from hlo_opt.plans.instructions import of_body
from hlo_opt.plans.plan import Launch, Region, Segment, above
from hlo_opt.plans.walks import ROUND, THREAD, Walk

LONGEST = 4096
"""Elements of a line. A longer one is a library's: its radix sort reads each element a fixed number of times."""
POSITION_BYTES = 2
"""Of the place that an element had in its line."""
_BLOCK = 128
_ACROSS = 32  # lines side by side that threads read together where the elements of a line do not follow each other


_Pointer = TypeVar("_Pointer")


@dataclass(frozen=True)
class Lines:
    """A sort or topk that blocks of threads do, `per_block` of its lines each; `roots` are positions of outputs, all of
    them the sort's."""

    kind: ClassVar[str] = "sort"
    hero: Instruction
    roots: tuple[int, ...]
    lines: int
    length: int
    per_block: int

    @cached_property
    def comparator(self) -> Computation:
        """What says whether elements come before others."""
        if self.hero.opcode == "sort":
            return self.hero.called_by("to_apply")
        direction = "GT" if flag(self.hero, "largest", True) else "LT"
        return _comparison(self.hero.operands[0].shape.type, direction)

    @cached_property
    def compared(self) -> tuple[int, ...]:
        """The operands whose elements the comparator reads."""
        comparator = self.comparator
        read = above([comparator.root])
        return tuple(k for k in range(len(self.hero.operands)) if read & set(comparator.parameters[2 * k : 2 * k + 2]))

    @cached_property
    def has_positions(self) -> bool:
        """Whether places are sorted along: to fetch what is not compared, and to keep equal elements in order."""
        return self.hero.opcode == "topk" or len(self.compared) < len(self.hero.operands) or not self.breaks_ties

    @cached_property
    def breaks_ties(self) -> bool:
        """Whether the order of what the comparator does not tell apart is all the same: it compares the elements
        themselves, in a total order, and nothing goes with them."""
        comparator = self.comparator
        root, parameters = comparator.root, comparator.parameters
        if (
            self.hero.opcode == "topk"
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
        """Elements of a line that are written, the first ones."""
        return integer(self.hero, "k") if self.hero.opcode == "topk" else self.length

    @property
    def across(self) -> bool:
        """Whether neighbouring threads belong to neighbouring lines: the sorted dimension is not the fastest varying
        one."""
        shape = self.hero.operands[0].shape
        faster = shape.minor_to_major[: shape.minor_to_major.index(self.along)]
        return any(shape.dimensions[d] != 1 for d in faster)

    @property
    def pairs(self) -> int:
        """Pairs of places of a line that one step compares, the line's length rounded up to a power of two."""
        return (1 << (self.length - 1).bit_length()) // 2

    @property
    def cells(self) -> int:
        """Elements of a block."""
        return self.per_block * self.length

    @property
    def block(self) -> int:
        """Threads per block."""
        return round_up(max(1, min(MOST_THREADS, self.per_block * self.pairs)), WARP)

    def segment(self, block: int) -> Segment[Self]:
        """The segment, alone in its launch."""
        return Segment(self, -(-self.lines // self.per_block) if self.length else 0)

    def shared_bytes(self, block: int) -> int:
        """Bytes of what is compared, and of places."""
        width = sum(self.hero.operands[k].shape.type.bytes for k in self.compared)
        return self.cells * (width + (POSITION_BYTES if self.has_positions else 0))


def match(region: Region) -> Lines | None:
    """The region as a sort that fits into shared memory, or None: it gives something else than results of one sort, or
    lines are too long."""
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
    found = Lines(hero, tuple(range(len(region.roots))), lines, length, 1)
    wanted = max(_ACROSS if found.across else 1, _BLOCK // max(1, found.pairs))
    for per_block in _halves(max(1, min(lines, wanted))):
        found = Lines(hero, found.roots, lines, length, per_block)
        if found.shared_bytes(found.block) <= SHARED_BYTES:
            return found
    return None


def operands_of(root: Instruction, outputs: Sequence[tuple[_Pointer, Shape]]) -> list[tuple[int, _Pointer, Shape]]:
    """For each array of a root: the operand of the sort that it holds in order (for a topk, 1 stands for positions),
    and where it is written."""
    if root.opcode == "get-tuple-element":
        return [(root.attribute("index", int), *outputs[0])]
    return [(k, *output) for k, output in enumerate(outputs)]


def along_of(hero: Instruction) -> int:
    return sorted_dimension(hero) if hero.opcode == "sort" else hero.operands[0].shape.rank - 1


def _comparison(element_type: ElementType, direction: str) -> Computation:
    """A comparator of two elements, floats in total order."""
    made = Computation("comparator")
    scalar = Shape(element_type)
    sides = [edit.create(made, name, "parameter", scalar, parameter_number=n) for n, name in enumerate("ab")]
    order = {"type": Attribute.of("TOTALORDER")} if element_type.is_float else {}
    attributes = {"direction": Attribute.of(direction), **order}
    edit.set_root(made, edit.create(made, "less", "compare", Shape(PRED), sides, attributes))
    return made


def _maker(root: Instruction) -> Instruction:
    return root.operands[0] if root.opcode == "get-tuple-element" else root


def _halves(number: int) -> list[int]:
    found = [number]
    while found[-1] > 1:
        found.append(found[-1] // 2)
    return found


def walks(region: Region, segment: Segment[Lines], launch: Launch) -> list[Walk]:
    """A block reads its lines, takes them through the network, whose every step it waits for, and writes them."""
    part = segment.part
    shape = part.hero.operands[0].shape
    threads = segment.blocks * part.block
    rounds = max(1, -(-part.cells // part.block))
    number = add(multiply(variable(ROUND, rounds), part.block), modulo(variable(THREAD, threads), part.block))
    line, place = (modulo(number, part.per_block), divide(number, part.per_block))
    if not part.across:
        length = max(1, part.length)  # of lines of nothing no thread reads anything
        line, place = divide(number, length), modulo(number, length)
    line = add(multiply(divide(variable(THREAD, threads), part.block), part.per_block), line)
    sizes = [size for d, size in enumerate(shape.dimensions) if d != part.along]
    index = list(delinearize(variable("line", max(1, part.lines)), sizes))
    index.insert(part.along, variable("place", max(1, part.length)))
    places = {"line": line, "place": place}
    wanted = [(operand, tuple(index)) for operand in part.hero.operands]
    written = [(leaf, tuple(index)) for leaf in part.hero.shape.leaves()]
    depth = (2 * part.pairs).bit_length() - 1
    steps = depth * (depth + 1) // 2
    in_shared = part.shared_bytes(part.block) > 0
    return [
        Walk(
            threads,
            wanted,
            written,
            places=places,
            rounds=rounds,
            body=of_body(part.comparator) * (steps / 2),
            barriers=steps,
            shared=2.0 * steps,
            trips=0 if in_shared else steps,
        )
    ]
