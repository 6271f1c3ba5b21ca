"""Regions, the instructions of a kernel, and plans, the way in which it computes them. Legality, cost, code generation
and explanations read the same plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from hlo_opt.ir import Computation, Instruction, Shape
from hlo_opt.ir.walk import reached


@dataclass(frozen=True, eq=False)
class Region:
    """The instructions of one kernel, as a computation whose parameters are the kernel's operands.

    `parameters` are in the order of the launched instruction's operands; `roots` are the array values written, in the
    order of the flattened result. `declared`: the shapes that the module gives what has another type here (see
    `stored_bits`).
    """

    instruction: Instruction
    computation: Computation
    parameters: tuple[Instruction, ...]
    roots: tuple[Instruction, ...]
    declared: Mapping[Instruction, Shape] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[Shape, ...]:
        return tuple(p.shape for p in self.parameters)

    @property
    def outputs(self) -> tuple[Shape, ...]:
        return tuple(leaf for r in self.roots for leaf in r.shape.leaves())

    @property
    def declared_inputs(self) -> tuple[Shape, ...]:
        return tuple(self.declared.get(p, p.shape) for p in self.parameters)

    @property
    def declared_outputs(self) -> tuple[Shape, ...]:
        return tuple(leaf for r in self.roots for leaf in self.declared.get(r, r.shape).leaves())

    @cached_property
    def _places(self) -> dict[Instruction, int]:
        return {instruction: place for place, instruction in enumerate(self.computation.instructions)}

    def needed_by(self, roots: Sequence[int]) -> list[Instruction]:
        """The roots at some positions, and the instructions that they need, operands first. For all roots, the whole
        computation."""
        if len(roots) == len(self.roots):
            return list(self.computation.instructions)
        return sorted(above(self.roots[n] for n in roots), key=self._places.__getitem__)


@dataclass(slots=True, unsafe_hash=True)
class Launch:
    """The launch of a kernel. It does not change: not declared frozen, it is made in a third of the time.

    grid          blocks
    block         threads per block
    shared_bytes  static shared memory per block
    cooperative   all blocks must be resident, because they wait for each other
    cluster       the number of neighbouring blocks that are resident together and write to each other's shared memory
    """

    grid: int
    block: int
    shared_bytes: int = 0
    cooperative: bool = False
    cluster: int = 1


class Part(Protocol):
    """The data of a segment, from a matcher. Each kind has a class of its own, which its emitter reads."""

    kind: ClassVar[str]
    """`loop`, `row-reduction`, ...: names the emitter."""

    @property
    def roots(self) -> tuple[int, ...]:
        """Positions in the region's roots that the segment writes."""
        ...

    @property
    def hero(self) -> Instruction:
        """The instruction that determines the kind."""
        ...

    @property
    def block(self) -> int:
        """The number of threads per block that this part needs."""
        ...

    def segment(self, block: int) -> Segment[Self]:
        """The segment in a launch of blocks of that size, which is at least `self.block`."""
        ...

    def shared_bytes(self, block: int) -> int:
        """Shared memory of a block of that size."""
        ...


class Unshared:
    """A part whose threads share no memory."""

    def shared_bytes(self, block: int) -> int:
        return 0


P = TypeVar("P", bound=Part, covariant=True)


@dataclass(frozen=True, eq=False)
class Segment(Generic[P]):
    """A part of a launch with its own range of the launch's blocks.

    part      the data of its kind
    blocks    its number of blocks; the blocks of segments are consecutive
    vector    consecutive elements per thread
    folded    the reduces whose partial results threads combine
    aliases   (output, parameter), both as numbers: before the launch the output holds the parameter's elements
    own       the outputs among these that may use the parameter's own memory: nothing else reads it
    in_order  the result depends on the order of threads; unspecified on a GPU, HLO's order if threads run one after
              another
    scratch   arrays that the launch writes and reads, but that are not results
    rereads   threads read each element many times, as in a product
    meets     threads may write the same element
    resident  resident blocks per multiprocessor for which registers must suffice; 0 leaves it to the compiler
    together  its blocks wait for each other
    in_rows   its threads access neighbouring elements, also with a vector of 1
    cluster   the number of neighbouring blocks that must be resident together; above 1, it is the only segment
    """

    part: P
    blocks: int
    vector: int = 1
    folded: tuple[Instruction, ...] = ()
    aliases: tuple[tuple[int, int], ...] = ()
    own: tuple[int, ...] = ()
    in_order: bool = False
    scratch: tuple[Shape, ...] = ()
    rereads: bool = False
    meets: bool = False
    resident: int = 0
    together: bool = False
    in_rows: bool = False
    cluster: int = 1

    @property
    def kind(self) -> str:
        """The name of its kind."""
        return self.part.kind

    @property
    def roots(self) -> tuple[int, ...]:
        """Positions in the region's roots that the segment writes."""
        return self.part.roots

    @property
    def hero(self) -> Instruction:
        """The instruction that determines the kind."""
        return self.part.hero


@dataclass(frozen=True, eq=False)
class Plan:
    """One launch."""

    region: Region
    launch: Launch
    segments: tuple[Segment[Part], ...]

    @property
    def row_reductions(self) -> int:
        """The number of reductions whose results the threads of a block share. One that several segments compute does
        not count."""
        folded = {reduce for segment in self.segments for reduce in segment.folded}
        if len(self.segments) > 1 and folded:
            needed = [above([self.region.roots[n] for n in segment.roots]) for segment in self.segments]
            folded = {reduce for reduce in folded if sum(reduce in values for values in needed) == 1}
        return len(folded)

    @property
    def scratch(self) -> tuple[Shape, ...]:
        """Arrays that the launch needs besides operands and results; their pointers come last."""
        return tuple(shape for segment in self.segments for shape in segment.scratch)

    @property
    def scratch_names(self) -> tuple[str, ...]:
        """The names of the scratch pointers in the kernel's text."""
        return tuple(f"scratch{number}" for number in range(len(self.scratch)))

    @property
    def kind(self) -> str:
        """The kinds of the segments, joined: what `explain` and the manifest show."""
        return "+".join(dict.fromkeys(s.kind for s in self.segments))


def above(roots: Iterable[Instruction]) -> set[Instruction]:
    """The roots and everything that they need."""
    return reached(roots, attrgetter("operands"))
