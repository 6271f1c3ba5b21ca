"""The phases of a `while` whose threads go through all rounds together: what kinds have in common that keep the state where all these threads reach it.

A round is cut into phases. In each, threads share out the elements of some values among them, which they leave in memory, and then wait for each other. Values are cut off where
many elements are read for one (a fold, a product) and where an element would be computed more than once; everything else is computed where it is read. XLA:GPU runs every loop as a
thunk that launches the kernels of its body round after round (xla/backends/gpu/runtime/while_thunk.cc).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

from hlo_opt.ir import Computation, Instruction, Shape
from hlo_opt.ir.index_map import Expression, delinearize
from hlo_opt.ops.lowering import Index
from hlo_opt.plans.instructions import Work
from hlo_opt.plans.lane_loop import Results, Value


@dataclass(frozen=True)
class Cell:
    """A value of a round that lies in memory.

    value   what computes it
    stands  the parameter of the round that stands for it where it is read
    work    of an element
    serial  instructions of an element that wait for each other
    terms   elements of an operand that are folded to one
    """

    value: Instruction
    stands: Instruction
    work: Work
    serial: int
    terms: int


@dataclass(frozen=True)
class Phases:
    """A loop by phases.

    roots    positions of outputs, all of them the loop's
    numbers  of each root, which element of the loop's tuple it is
    values   what is handed on from round to round: `made` is a parameter that stands for a cell
    results  arrays into which each round writes, and which no round reads
    phases   the cells of a round: those of a phase read only cells of phases before
    round    what a round computes
    read     what the rounds read of the loop's operands, again in each
    trips    rounds, where they are counted
    rounds   rounds that the price expects
    test     what stands for the cell that says whether there is another round, where rounds are not counted: it is one of the phases' own
    aliases  (output, parameter): arrays of which the rounds may leave something as it was
    """

    hero: Instruction
    roots: tuple[int, ...]
    numbers: tuple[int, ...]
    values: tuple[Value, ...]
    results: tuple[Results, ...]
    phases: tuple[tuple[Cell, ...], ...]
    round: Computation
    read: tuple[Instruction, ...]
    trips: int | None
    rounds: int
    test: Instruction | None
    aliases: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, cut: Phases) -> Self:
        """These phases as those of a kind."""
        return cls(**{f.name: getattr(cut, f.name) for f in fields(Phases)})

    @property
    def state(self) -> list[Value]:
        """What is handed on in memory: all but counters."""
        return [v for v in self.values if v.counts is None]

    @property
    def cells(self) -> list[Cell]:
        """All cells of a round."""
        return [cell for phase in self.phases for cell in phase]

    def read_by(self, result: Results) -> set[Instruction]:
        """What stands for the cells, and for the state, that a result is computed from."""
        found = {i for o in result.update.operands[1:] for i in [o, *below(o, self.round)]}
        return found & {*(cell.stands for cell in self.cells), *(v.taken for v in self.state)}

    @property
    def lasting(self) -> bool:
        """Whether results are computed from the state, which has to stay until all threads have read it."""
        return any(v.taken in self.read_by(result) for result in self.results for v in self.state)


def place_in(shape: Shape, position: Expression) -> Index:
    """The index of an element by its number in memory."""
    order = [*reversed(shape.minor_to_major)]
    at = dict(zip(order, delinearize(position, [shape.dimensions[d] for d in order]), strict=True))
    return tuple(at[d] for d in range(shape.rank))


def inside(part: Phases) -> Sequence[Instruction]:
    """What a round computes, and what stands for what it is given."""
    return list(part.round.instructions)


def below(value: Instruction, inside: Computation) -> list[Instruction]:
    """What a cell is computed from, down to other cells and what is handed on."""
    found, stack = {value: None}, [value] if value.parameter_number is None else []
    while stack:
        for operand in stack.pop().operands:
            if operand.parent is inside and operand not in found:
                found[operand] = None
                if operand.parameter_number is None:
                    stack.append(operand)
    return list(found)
