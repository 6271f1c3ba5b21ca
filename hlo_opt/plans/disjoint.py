"""Groups of a region's outputs that share work. The outputs of a group walk one index space together; groups have
blocks of their own.

Source of the idea: GroupDisjointReductions in xla/backends/gpu/codegen/emitters/reduction.cc, here for every kind of
output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, Self, TypeVar

from hlo_opt.ir import Instruction, Shape
from hlo_opt.plans.plan import Region, above

_FREE = frozenset({"constant", "iota"})
_REPEATING = frozenset({"broadcast"})


class InstructionOrNode(Protocol):
    """An instruction, or a node of a cluster."""

    @property
    def opcode(self) -> str: ...

    @property
    def shape(self) -> Shape: ...

    @property
    def operands(self) -> Sequence[Self]: ...


V = TypeVar("V", bound=InstructionOrNode)


def disjoint_outputs(region: Region) -> list[tuple[int, ...]]:
    """The positions of the region's roots in groups. Two groups have nothing in common but constants, single elements
    and their broadcasts."""
    if len(region.roots) == 1:
        return [(0,)]
    needed = above(region.roots)
    members = [i for i in region.computation.instructions if i in needed]
    return grouped(members, region.roots, _is_parameter)


def grouped(values: Iterable[V], roots: Sequence[V], is_input: Callable[[V], bool]) -> list[tuple[int, ...]]:
    """The positions of roots in groups that share no work, by the first of each. `values` are all that the roots need,
    operands first, with the inputs or without."""
    leader: dict[V, V] = {}

    def find(value: V) -> V:
        leader.setdefault(value, value)
        while leader[value] is not value:
            leader[value] = leader[leader[value]]
            value = leader[value]
        return value

    free: dict[V, bool] = {}
    for value in values:
        for operand in () if is_input(value) else value.operands:
            known = free.get(operand)
            if known is None:
                known = free[operand] = _costs_nothing(operand, is_input)
            if not known:
                leader[find(operand)] = find(value)
    groups: dict[V, list[int]] = {}
    for position, root in enumerate(roots):
        groups.setdefault(find(root), []).append(position)
    return [tuple(group) for group in groups.values()]


def _costs_nothing(value: V, is_input: Callable[[V], bool]) -> bool:
    """Whether two threads can both have a value at no more than the cost of one element."""
    while not is_input(value) and value.opcode in _REPEATING:
        value = value.operands[0]
    if is_input(value):
        return value.shape.is_array and value.shape.element_count == 1
    return value.opcode in _FREE


def _is_parameter(instruction: Instruction) -> bool:
    return instruction.parameter_number is not None
