"""Which instruction depends on which, kept up while instructions of a computation are merged.

Every instruction has a place in an order with operands before users. Asking whether one depends on another looks only
at what lies between their places; merging two moves only what lies between them and has to. (D. Pearce and P. Kelly, A
Dynamic Topological Sort Algorithm for Directed Acyclic Graphs, 2006; XLA builds its reachability map anew after every
fusion, xla/hlo/ir/hlo_reachability.h.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from hlo_opt.ir import Computation, Instruction
from hlo_opt.ir.walk import needed_by, post_order

if TYPE_CHECKING:
    from hlo_opt.fusion.engine import Engine


class Order:
    """The places of a computation's instructions. An element of a tuple stands where its tuple does."""

    def __init__(self, computation: Computation, order: Iterable[Instruction]) -> None:
        """`order` has operands before users."""
        self._place = {i: number for number, i in enumerate(order) if i.opcode != "get-tuple-element"}
        self._successors: dict[Instruction, list[Instruction]] = {}
        for instruction in computation.instructions:
            for needed in instruction.control_predecessors:
                self._successors.setdefault(needed, []).append(instruction)

    def place(self, instruction: Instruction) -> int:
        while instruction.opcode == "get-tuple-element":
            instruction = instruction.operands[0]
        return self._place[instruction]

    def below(
        self,
        start: Instruction,
        last: int,
        seen: set[Instruction] | None = None,
        ends: Collection[Instruction] = frozenset(),
    ) -> set[Instruction]:
        """The instructions that depend on `start`, itself included, at places up to `last` in the order. They are added
        to `seen`, which is returned; what is in it already is not searched again. The search is over at the first of
        `ends`."""
        seen = set() if seen is None else seen
        seen.add(start)
        places, successors = self._place, self._successors
        stack = [start]
        while stack:
            instruction = stack.pop()
            for near in instruction.users:
                if near not in seen and (places[near] if near in places else self.place(near)) <= last:
                    seen.add(near)
                    if near in ends:
                        return seen
                    stack.append(near)
            for near in successors.get(instruction, ()) if successors else ():
                if near not in seen and self.place(near) <= last:
                    seen.add(near)
                    stack.append(near)
        return seen

    def above(self, start: Instruction, first: int, seen: set[Instruction] | None = None) -> set[Instruction]:
        """What the start depends on, as far as it has a place from `first` on; the start too. What was `seen` is not
        looked at again."""
        seen = set() if seen is None else seen
        seen.add(start)
        places = self._place
        stack = [start]
        while stack:
            instruction = stack.pop()
            waits = instruction.control_predecessors
            for near in (*instruction.operands, *waits) if waits else instruction.operands:
                if near not in seen and (places[near] if near in places else self.place(near)) >= first:
                    seen.add(near)
                    stack.append(near)
        return seen

    def depends(self, user: Instruction, on: Instruction) -> bool:
        """Whether `user` needs the value of `on`, or waits for it, directly or through other instructions."""
        return on is not user and self.place(on) <= self.place(user) and user in self.below(on, self.place(user))

    def connected(self, one: Instruction, other: Instruction) -> bool:
        """Whether either depends on the other."""
        return self.depends(one, other) or self.depends(other, one)

    def depends_otherwise(self, user: Instruction, on: Instruction) -> bool:
        """Whether the user depends on another of its operands that depends on `on`, so that there is a path besides the
        direct one."""
        return self.reaches_any(on, needed_by(user))

    def reaches_any(self, start: Instruction, others: Iterable[Instruction]) -> bool:
        """Whether one of the others, but for those at the place of `start`, depends on it."""
        first = self.place(start)
        later = {o for o in others if self.place(o) > first}
        if not later:
            return False
        return not later.isdisjoint(self.below(start, max(map(self.place, later)), ends=later))

    def merge(self, one: Instruction, other: Instruction, merged: Instruction) -> None:
        """Both are about to become `merged`, which may be one of them. Neither may reach the other but directly. Call
        before the graph changes."""
        places = self._place
        early, late = sorted((one, other), key=self.place)
        first, last = places[early], places[late]
        above = [i for i in self.above(late, first) if i in places and i not in (early, late)]
        below = [i for i in self.below(early, last) if i in places and i not in (early, late)]
        above.sort(key=places.__getitem__)
        below.sort(key=places.__getitem__)
        free = sorted([places.pop(i) for i in (*above, early, late, *below)])
        places.update(zip((*above, merged, *below), free, strict=False))

    def rename(self, old: Instruction, new: Instruction) -> None:
        """`new` has taken the place of `old`."""
        if old is not new:
            self._place[new] = self._place.pop(old)


class Connected:
    """Which of some instructions are connected with a kernel that takes in one after the other. Each instruction
    between them is looked at once, when it is first asked which are."""

    def __init__(self, order: Order, start: Instruction, candidates: Iterable[Instruction]) -> None:
        self._order = order
        places = [order.place(c) for c in (start, *candidates)]
        self._first, self._last = min(places), max(places)
        self._below: set[Instruction] = set()
        self._above: set[Instruction] = set()
        self._start: Instruction | None = start

    def knows(self, other: Instruction) -> bool:
        """Whether the instruction stands where the group has looked."""
        return self._first <= self._order.place(other) <= self._last

    def add(self, member: Instruction) -> None:
        """Call before the member is merged, and after `connected` said no."""
        self._look()
        self._order.below(member, self._last, self._below)
        self._order.above(member, self._first, self._above)

    def _look(self) -> None:
        start, self._start = self._start, None
        if start is not None:
            self.add(start)

    def connected(self, other: Instruction) -> bool:
        self._look()
        return other in self._below or other in self._above


class Settled(Order):
    """The order of a computation that nothing changes any more, where edges are explained. What each instruction needs
    is found out once, for all of them: a bit for each instruction."""

    def __init__(self, computation: Computation, order: Sequence[Instruction]) -> None:
        super().__init__(computation, order)
        self._number = {instruction: number for number, instruction in enumerate(order)}
        self._needed: dict[Instruction, int] = {}
        for instruction, number in self._number.items():
            needed = 1 << number
            for near in needed_by(instruction):
                needed |= self._needed[near]
            self._needed[instruction] = needed

    def depends(self, user: Instruction, on: Instruction) -> bool:
        return on is not user and bool(self._needed[user] >> self._number[on] & 1)

    def reaches_any(self, start: Instruction, others: Iterable[Instruction]) -> bool:
        first = self.place(start)
        return any(self.place(other) > first and self.depends(other, start) for other in others)


MOST_SETTLED = 20_000
"""Instructions of a computation for which `Settled` is used: it takes a bit for each two of them, 50 MB."""


def order_of(engine: Engine, computation: Computation) -> Order:
    """The order of a computation, which an engine may ask for as long as nothing changes. A pass asks little before its
    next change; where edges are explained, all are asked for."""
    key = ("order", computation)
    if key not in engine.notes:
        members = post_order(computation)
        is_settled = not engine.rule and len(members) <= MOST_SETTLED
        engine.notes[key] = (Settled if is_settled else Order)(computation, members)
    order: Order = engine.notes[key]
    return order
