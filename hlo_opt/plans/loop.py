"""The loop plan: every thread computes some consecutive elements of each output, with all that they need.

Launch rule: xla/backends/gpu/codegen/emitters/loop.cc and xla/service/gpu/gpu_fusible.cc (ComputeLoopFusionConfig):
four elements per thread once the elements are enough to fill the device, one before that; 128 threads per block.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.index_map import Expression, add, constant
from hlo_opt.ir.size import most
from hlo_opt.ops.lowering import Index
from hlo_opt.ops.movement.memory import physical_index
from hlo_opt.ops.shapes import window
from hlo_opt.plans.plan import Launch, Region, Segment, Unshared, above

BLOCK = 128
WIDEST_ACCESS = 16
"""Bytes that one instruction of a thread loads or stores at most."""
MOST_ELEMENTS = 32
"""Limit of elements per thread (`MAX_UNROLL` of xla/service/gpu/gpu_fusible.cc)."""
SLICED_THREADS = 768
"""Resident threads of slices for which registers must suffice: 80 registers each."""
_SHORT = 32
"""Elements of a window up to which a thread has two."""

_FOLDED = 8
"""Elements that a thread's folds read in all, up to which the kernel waits for memory. With more it waits for lookups
of cache lines: the 32 lanes of a warp look up a quarter of a line for each element that a thread folds."""


class Spread(Unshared, ABC):
    """A part whose work is divided evenly among `threads` threads, in blocks of any size."""

    @property
    @abstractmethod
    def threads(self) -> int: ...

    @property
    def block(self) -> int:
        return launch(self.threads).block


@dataclass(frozen=True)
class Elements(Spread):
    """Outputs of one size, whose elements are divided among threads.

    hero      one of the outputs, for the index of an element
    elements  the size of each output, in elements
    vector    consecutive elements of a thread; those after the last whole vector have a thread each
    roots     the positions of the outputs
    slices    parts of the outputs along their major-most dimension: a thread has the same elements of each, and
              computes once what they share (`hlo_opt.plans.slices`)
    """

    hero: Instruction
    elements: int
    vector: int
    roots: tuple[int, ...]
    slices: int = 1
    kind: ClassVar[str] = "loop"

    @property
    def of_slice(self) -> int:
        """The elements of a slice of an output."""
        return self.elements // self.slices

    @property
    def in_vectors(self) -> int:
        """The number of threads that have a vector."""
        return self.of_slice // self.vector

    @property
    def threads(self) -> int:
        """The number of threads: one for each vector, and one for each element after the last."""
        return self.in_vectors + self.of_slice % self.vector

    def segment(self, block: int) -> Segment[Elements]:
        # left alone, the compiler spills elements of slices to fit more threads
        resident = max(1, SLICED_THREADS // block) if self.slices > 1 else 0
        return Segment(self, -(-self.threads // block), self.vector, resident=resident)


def launch(threads: int) -> Launch:
    """The launch of a kernel that is one loop."""
    block = max(1, min(BLOCK, most(threads)))
    return Launch(-(-threads // block), block)


def match(region: Region, roots: Sequence[int], target: DeviceTarget) -> list[Elements]:
    """The outputs of a region, grouped by size: those of one size share an index space. The elements of a thread depend
    on the arrays that these outputs need, not on others in the launch."""
    needed = above(region.roots[n] for n in roots)
    inputs = [parameter.shape for parameter in region.parameters if parameter in needed]
    groups: dict[int, list[int]] = {}
    for position in roots:
        groups.setdefault(next(region.roots[position].shape.leaves()).element_count, []).append(position)
    parts = []
    for elements, positions in groups.items():
        outputs = [leaf for n in positions for leaf in region.roots[n].shape.leaves()]
        vector = elements_per_thread(
            outputs, inputs, elements, target.resident_threads, may_have_rest=not target.in_lanes
        )
        if not target.in_lanes:
            vector = math.gcd(vector, math.lcm(_beside_windows(region, positions), *(s.type.per_byte for s in outputs)))
        parts.append(Elements(region.roots[positions[0]], elements, vector, tuple(positions)))
    return parts


def _beside_windows(region: Region, roots: Sequence[int]) -> int:
    """The most elements per thread. Windows and folds along the minor-most dimension are read element by element: the
    lanes of a warp then touch as many lines as a thread has elements."""
    limit = MOST_ELEMENTS
    for i in region.needed_by(roots):
        if i.opcode == "reduce":
            folded = _neighbours_folded(i)
            if folded > 1:
                limit = min(limit, max(1, _FOLDED // folded))
        elif "window" in i.attributes:
            operand = i.operands[0].shape
            parts = window(i, operand.rank)
            if operand.rank and parts[operand.minor_to_major[0]].size > 1:
                limit = min(limit, 2 if math.prod(w.size for w in parts) <= _SHORT else 1)
    return limit


def _neighbours_folded(reduce: Instruction) -> int:
    """How many neighbours in memory a fold combines to one element."""
    shape, gone, count = reduce.operands[0].shape, reduce.ints("dimensions"), 1
    for d in shape.minor_to_major:
        if shape.dimensions[d] > 1 and d not in gone:
            break
        count *= shape.dimensions[d]
    return count


def elements_per_thread(
    outputs: Sequence[Shape], inputs: Iterable[Shape], elements: int, resident: int, *, may_have_rest: bool = False
) -> int:
    """Consecutive elements per thread: 1 where `elements` are fewer than the `resident` threads of the device, else 4,
    or as many as 16 bytes hold if all arrays are narrow. The number divides `elements`, unless `may_have_rest`. If
    elements share bytes of an output, a thread writes whole bytes (as in xla/service/gpu/gpu_fusible.cc,
    ComputeLoopFusionConfig)."""
    moved = [*outputs, *(shape for shape in inputs if shape.is_array and shape.element_count >= elements)]
    vector = max(4, min(MOST_ELEMENTS, *(WIDEST_ACCESS // s.type.bytes * s.type.per_byte for s in moved)))
    least = max(leaf.type.per_byte for leaf in outputs)
    divides = not may_have_rest or least > 1
    while vector > 4 and ((divides and elements % vector) or 4 * elements < vector * resident):
        vector //= 2
    count = vector if elements >= resident else 1
    while divides and elements % count:
        count //= 2
    return count if elements % least else math.lcm(count, least)


def root_index(hero: Instruction, root: Instruction, position: Expression) -> tuple[Expression, ...]:
    """The index of the root's element that the thread at a position writes: that of the hero, or, if the dimensions
    differ, the one at the same position in memory."""
    return physical_index(_laid_out_as(hero, root), position)


def _laid_out_as(hero: Instruction, root: Instruction) -> Shape:
    """The shape in whose order the elements of a root are written."""
    first, shape = next(hero.shape.leaves()), next(root.shape.leaves())
    return first if first.dimensions == shape.dimensions else shape


def index_in_slice(hero: Instruction, root: Instruction, position: Expression, number: int, slices: int) -> Index:
    """As `root_index`, for a position within a slice of the outputs, by the number of that slice."""
    index = root_index(hero, root, position)
    if not number:
        return index
    major = major_dimension(_laid_out_as(hero, root))
    extent = _laid_out_as(hero, root).dimensions[major] // slices
    return tuple(add(e, constant(number * extent)) if d == major else e for d, e in enumerate(index))


def major_dimension(shape: Shape) -> int:
    """The major-most dimension that has several elements."""
    return next((d for d in reversed(shape.minor_to_major) if shape.dimensions[d] > 1), shape.minor_to_major[-1])
