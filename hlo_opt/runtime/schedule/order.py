"""The order of the operations of a routine. A kernel that only reads an array goes before the one that updates the
array in place, where what each needs allows it: then nothing has to copy the array. Fusing puts such readers behind the
update, because a fusion stands where its last operation stood.

This comes before anything is decided about memory, and changes no value: until then every buffer is written once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from hlo_opt.analysis.properties import has_side_effect
from hlo_opt.ir import Computation, Instruction
from hlo_opt.ir.walk import needed_by, needed_first
from hlo_opt.ops import OpKind, find
from hlo_opt.runtime.schedule.lifetimes import callees_first
from hlo_opt.runtime.schedule.ops import Allocate, CallOp, Copy, Op, Routine, RoutineKey, callees


@dataclass(frozen=True)
class Wanted:
    """An order that lets an operation have the memory of what it reads.

    updater  position of the launch or loop that would write there
    readers  positions of all other operations that read the memory: they must come before
    copied   bytes that are otherwise copied
    held     bytes of the memory, which is otherwise held beside the result
    """

    updater: int
    readers: tuple[int, ...]
    copied: int
    held: int

    @property
    def is_so(self) -> bool:
        """Whether the operations stand so already."""
        return all(reader < self.updater for reader in self.readers)


def rearranged(routine: Routine, wanted: Sequence[Wanted], acting: Set[Op]) -> Routine:
    """The routine in an order that grants wishes: those that spare most copied bytes first, then those that spare most
    memory. One that contradicts what is granted before, or what operations need, is left. `acting`: the operations
    that keep their order among each other."""
    if all(wish.is_so for wish in wanted):
        return routine
    graph = _Graph.of(routine, acting)
    for wish in sorted(wanted, key=lambda w: (-w.copied, -w.held, not w.is_so, w.updater)):
        graph.grant(wish)
    return replace(routine, ops=graph.ops())


def with_effects(routines: Mapping[RoutineKey, Routine]) -> set[Op]:
    """The operations that keep their order among each other: calls with side effects or to other devices, and what
    runs some."""
    acting: set[Op] = set()
    telling: set[RoutineKey] = set()
    for key in callees_first(routines):
        for op in routines[key].ops:
            if (isinstance(op, CallOp) and _acts(op)) or not telling.isdisjoint(callees(op)):
                acting.add(op)
                telling.add(key)
    return acting


def _acts(op: CallOp) -> bool:
    spec = find(op.instruction.opcode)
    return spec is None or spec.kind is OpKind.COLLECTIVE or has_side_effect(op.instruction)


@dataclass
class _Graph:
    """What must come before what. The nodes are groups of operations that stay together: a launch with the memory of
    its outputs, or one other operation; their numbers are in the order of the routine.

    of_op  the number of each operation's group, by its position
    needs  for each group, those that must come before
    """

    groups: list[tuple[Op, ...]]
    of_op: list[int]
    needs: list[set[int]]

    @classmethod
    def of(cls, routine: Routine, acting: Set[Op]) -> _Graph:
        groups: list[tuple[Op, ...]] = []
        of_op: list[int] = []
        memory: list[Op] = []
        for op in routine.ops:
            of_op.append(len(groups))
            memory.append(op)
            if not isinstance(op, Allocate | Copy):
                groups.append(tuple(memory))
                memory = []
        assert not memory, "memory that no launch writes"
        needs = _needs_of(groups, acting)
        if any(i.control_predecessors for i in routine.computation.instructions):
            _add_control(needs, groups, routine.computation)
        return cls(groups, of_op, needs)

    def grant(self, wish: Wanted) -> None:
        """Put the readers before the updater, unless one of them needs it."""
        updater = self.of_op[wish.updater]
        readers = {self.of_op[reader] for reader in wish.readers} - {updater}
        if not any(updater in self._before(reader, updater) for reader in readers):
            self.needs[updater] |= readers

    def _before(self, group: int, wanted: int) -> set[int]:
        """The groups that must come before a group, until a wanted one is among them."""
        before, todo = {group}, [group]
        while todo and wanted not in before:
            new = self.needs[todo.pop()] - before
            before |= new
            todo += new
        return before

    def ops(self) -> tuple[Op, ...]:
        """The operations in order: as they stood, but what must come before another one directly before it."""
        needs = [sorted(needed) for needed in self.needs]
        order = needed_first(range(len(self.groups)), needs.__getitem__)
        return tuple(op for group in order for op in self.groups[group])


def _needs_of(groups: Sequence[Sequence[Op]], acting: Set[Op]) -> list[set[int]]:
    """For each group, those whose results it reads, and for one with effects the one with effects before."""
    needs: list[set[int]] = []
    maker: dict[int, int] = {}
    last: set[int] = set()
    for number, group in enumerate(groups):
        needed = {maker[b] for op in group for b in op.inputs if b in maker}
        if not acting.isdisjoint(group):
            needed |= last
            last = {number}
        for op in group:
            maker.update(dict.fromkeys(op.outputs, number))
        needs.append(needed - {number})
    return needs


def _add_control(needs: list[set[int]], groups: Sequence[Sequence[Op]], computation: Computation) -> None:
    """Add what control dependencies name. A tuple, or an element of one, has no operation: it stands for those of its
    operands."""
    stands_for: dict[Instruction, set[int]] = defaultdict(set)
    for number, group in enumerate(groups):
        stands_for[group[-1].instruction].add(number)
    for instruction in computation.instructions:
        before = {number for needed in needed_by(instruction) for number in stands_for[needed]}
        for number in stands_for[instruction]:
            needs[number] |= before - stands_for[instruction]
        if not stands_for[instruction]:
            stands_for[instruction] = before
