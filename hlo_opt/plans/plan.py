"""Region and Plan: what one kernel covers, and how it will run. Legality, cost, code generation and explanations read
the same plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from hlo_opt.ir import Computation, Instruction, Shape


@dataclass(frozen=True, eq=False)
class Region:
    """The instructions of one kernel, as a computation whose parameters are the kernel's operands.

    `parameters` are in the order of the launched instruction's operands; `roots` are the array values written, in the
    order of the flattened result.
    """

    instruction: Instruction
    computation: Computation
    parameters: tuple[Instruction, ...]
    roots: tuple[Instruction, ...]

    @property
    def inputs(self) -> tuple[Shape, ...]:
        return tuple(p.shape for p in self.parameters)

    @property
    def outputs(self) -> tuple[Shape, ...]:
        return tuple(leaf for r in self.roots for leaf in r.shape.leaves())

    @cached_property
    def _places(self) -> dict[Instruction, int]:
        return {instruction: place for place, instruction in enumerate(self.computation.instructions)}

    def needed_by(self, roots: Sequence[int]) -> list[Instruction]:
        """What the roots at these positions need, and they, operands first; for all roots the whole computation."""
        if len(roots) == len(self.roots):
            return list(self.computation.instructions)
        return sorted(above(self.roots[n] for n in roots), key=self._places.__getitem__)


@dataclass(frozen=True, slots=True)
class Launch:
    """Grid and block are one-dimensional: block counts and threads per block. `shared_bytes` is static shared memory
    per block. `cooperative`: blocks wait for each other, so that the launch has to be one that runs all of them at the
    same time."""

    grid: int
    block: int
    shared_bytes: int = 0
    cooperative: bool = False


class Part(Protocol):
    """What a matcher found: outputs that a segment will write. Each kind has a class of its own, which its emitter
    reads."""

    kind: ClassVar[str]
    """`loop`, `row-reduction`, ...: names the emitter."""

    @property
    def roots(self) -> tuple[int, ...]:
        """Positions in the region's roots that the segment writes."""
        ...

    @property
    def hero(self) -> Instruction:
        """The instruction that decides the form."""
        ...

    @property
    def block(self) -> int:
        """Threads per block when nothing else asks for more."""
        ...

    def segment(self, block: int) -> Segment[Self]:
        """The segment in a launch of blocks of that size, which is at least `self.block`."""
        ...

    def shared_bytes(self, block: int) -> int:
        """Shared memory of a block of that size."""
        ...


P = TypeVar("P", bound=Part, covariant=True)


@dataclass(frozen=True, eq=False)
class Segment(Generic[P]):
    """A part of a launch with its own range of the launch's blocks.

    part      what its kind knows of it
    blocks    how many of the launch's blocks are its own; segments follow each other in the order of blocks
    vector    consecutive elements per thread
    folded    the reduces whose results threads bring together
    aliases   (output, parameter), both as numbers: before the launch the output holds the parameter's elements
    own       outputs among these that may take the parameter's own memory: nothing else reads it
    in_order  the result depends on which thread comes first; open on a GPU, HLO's order where threads run one after
              another
    scratch   arrays that the launch writes and reads, and that are no results
    rereads   threads read each element many times, as in a product
    meets     threads may write the same element
    resident  blocks that registers of a multiprocessor are to hold at a time; 0 leaves it to the compiler
    together  its blocks wait for each other
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

    @property
    def kind(self) -> str:
        """The name of its kind."""
        return self.part.kind

    @property
    def roots(self) -> tuple[int, ...]:
        """Positions in the region's roots that it writes."""
        return self.part.roots

    @property
    def hero(self) -> Instruction:
        """The instruction that decides its form."""
        return self.part.hero


@dataclass(frozen=True, eq=False)
class Plan:
    """One launch."""

    region: Region
    launch: Launch
    segments: tuple[Segment[Part], ...]

    @property
    def row_reductions(self) -> int:
        """How many reductions the threads of a block share. One that another segment needs as well, and repeats, does
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
        """Names of the pointers to these, in the kernel's text."""
        return tuple(f"scratch{number}" for number in range(len(self.scratch)))

    @property
    def kind(self) -> str:
        """The kinds of the segments, joined: what `explain` and the manifest show."""
        return "+".join(dict.fromkeys(s.kind for s in self.segments))


def above(roots: Iterable[Instruction]) -> set[Instruction]:
    """The roots and everything that they need."""
    found = set(roots)
    stack = list(found)
    while stack:
        for operand in stack.pop().operands:
            if operand not in found:
                found.add(operand)
                stack.append(operand)
    return found
