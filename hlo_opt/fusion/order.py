"""Which instruction depends on which, kept up while instructions of a computation are merged; and which producers must not be duplicated, judged over the whole computation.

Every instruction has a place in an order with operands before users. Asking whether one depends on another looks only at what lies between their
places; merging two moves only what lies between them and has to. (D. Pearce and P. Kelly, A Dynamic Topological Sort Algorithm for Directed Acyclic
Graphs, 2006; XLA builds its reachability map anew after every fusion, xla/hlo/ir/hlo_reachability.h.)

Duplicating a producer must not read more memory than it saves: ComputeGloballyUnfusible and CanFuseOnAllPaths in xla/service/instruction_fusion.cc.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from hlo_opt.analysis.properties import is_effectively_scalar, true_rank
from hlo_opt.ir import Computation, Instruction, Shape


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

    def below(self, start: Instruction, last: int, seen: set[Instruction] | None = None) -> set[Instruction]:
        """What depends on the start, as far as it has a place up to `last`; the start too. What was `seen` is not looked at again."""
        seen = set() if seen is None else seen
        seen.add(start)
        places, successors = self._place, self._successors
        stack = [start]
        while stack:
            instruction = stack.pop()
            for near in instruction.users:
                if near not in seen and (places[near] if near in places else self.place(near)) <= last:
                    seen.add(near)
                    stack.append(near)
            for near in successors.get(instruction, ()) if successors else ():
                if near not in seen and self.place(near) <= last:
                    seen.add(near)
                    stack.append(near)
        return seen

    def above(self, start: Instruction, first: int, seen: set[Instruction] | None = None) -> set[Instruction]:
        """What the start depends on, as far as it has a place from `first` on; the start too. What was `seen` is not looked at again."""
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
        """Whether one depends on another, directly or not."""
        return on is not user and self.place(on) <= self.place(user) and user in self.below(on, self.place(user))

    def connected(self, one: Instruction, other: Instruction) -> bool:
        """Whether either depends on the other."""
        return self.depends(one, other) or self.depends(other, one)

    def depends_otherwise(self, user: Instruction, on: Instruction) -> bool:
        """Whether the user depends on another of its operands that depends on `on`, so that there is a path besides the direct one."""
        first = self.place(on)
        others = [o for o in (*user.operands, *user.control_predecessors) if self.place(o) > first]
        if not others:
            return False
        reached = self.below(on, max(self.place(o) for o in others))
        return any(o in reached for o in others)

    def merge(self, one: Instruction, other: Instruction, merged: Instruction) -> None:
        """Both are about to become `merged`, which may be one of them. Neither may reach the other but directly. Call before the graph changes."""
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


class Group:
    """Which of some instructions are connected with a kernel that takes in one after the other. Each instruction between them is looked at once."""

    def __init__(self, order: Order, start: Instruction, candidates: Iterable[Instruction]) -> None:
        self._order = order
        places = [order.place(c) for c in (start, *candidates)]
        self._first, self._last = min(places), max(places)
        self._below: set[Instruction] = set()
        self._above: set[Instruction] = set()
        self.add(start)

    def knows(self, other: Instruction) -> bool:
        """Whether the instruction stands where the group has looked."""
        return self._first <= self._order.place(other) <= self._last

    def add(self, member: Instruction) -> None:
        """Call before the member is merged, and after `connected` said no."""
        self._order.below(member, self._last, self._below)
        self._order.above(member, self._first, self._above)

    def connected(self, other: Instruction) -> bool:
        return other in self._below or other in self._above


Allows = Callable[[Instruction, Instruction], bool]
"""Whether an edge producer -> consumer may be fused, duplication left aside."""


def effectively_at_most_unary(instruction: Instruction) -> bool:
    """At most one operand is as large in rank as the result; broadcasts, iotas and scalars do not count."""
    rank = _largest_rank(instruction.shape)
    large = 0
    for operand in dict.fromkeys(instruction.operands):
        if operand.opcode in ("broadcast", "iota") or (
            operand.opcode == "constant" and is_effectively_scalar(operand.shape)
        ):
            continue
        if _largest_rank(operand.shape) >= rank:
            large += 1
    return large <= 1


@functools.lru_cache(maxsize=4096)
def _largest_rank(shape: Shape) -> int:
    """Of the arrays of a shape. The state of a loop may hold thousands."""
    return max((true_rank(leaf) for leaf in shape.leaves()), default=0)


REMEMBERED = 2_000_000
"""Instructions in all the sets together that are kept for later consumers of a producer."""


class _Between:
    """Which operands lie on a way from a producer to one of its consumers. Looks only at what stands between both, and, for consumers that come last
    first, once at what depends on a producer."""

    def __init__(self, computation: Computation, order: list[Instruction]) -> None:
        self._order = Order(computation, order)
        self._below: dict[Instruction, tuple[int, set[Instruction]]] = {}
        self._size = 0

    def operands(self, producer: Instruction, current: Instruction, consumer: Instruction) -> list[Instruction]:
        """Those operands of `current`, on a way to the consumer, that depend on the producer."""
        first = self._order.place(producer)
        return [
            o
            for o in dict.fromkeys(current.operands)
            if o is producer or (self._order.place(o) >= first and o in self._reached(producer, consumer))
        ]

    def _reached(self, producer: Instruction, consumer: Instruction) -> set[Instruction]:
        last = self._order.place(consumer)
        known, found = self._below.get(producer, (-1, set()))
        if known < last:
            self._size -= len(found)
            found = self._order.below(producer, last)
            self._size += len(found)
            if self._size > REMEMBERED:
                self._below.clear()
                self._size = len(found)
            self._below[producer] = last, found
        return found


def globally_unfusible(computation: Computation, order: list[Instruction], allows: Allows) -> set[Instruction]:
    """The producers that must not be duplicated. `order` has operands before users."""
    between = _Between(computation, order)
    found: set[Instruction] = set()
    known: dict[tuple[Instruction, Instruction], bool] = {}
    for consumer in reversed(order):
        for producer in consumer.operands:
            if producer in found or len(producer.users) < 2 or effectively_at_most_unary(producer):
                continue
            read = sum(o.shape.element_count for o in dict.fromkeys(producer.operands))
            if read <= producer.shape.element_count:
                continue
            if not _on_all_paths(producer, consumer, found, between, allows, known):
                found.add(producer)
    return found


def _on_all_paths(
    producer: Instruction,
    consumer: Instruction,
    refused: set[Instruction],
    between: _Between,
    allows: Allows,
    known: dict[tuple[Instruction, Instruction], bool],
) -> bool:
    """Whether every operand edge on every path from producer to consumer may be fused. Results from before `refused` grew stay, as in XLA."""
    stack: list[tuple[Instruction, bool]] = [(consumer, False)]
    while stack:
        current, ready = stack.pop()
        key = (producer, current)
        if current is producer or (key in known and not ready):
            continue
        inside = between.operands(producer, current, consumer)
        if not ready:
            if any(o in refused or not allows(o, current) for o in inside):
                known[key] = False
                continue
            stack.append((current, True))
            stack.extend((o, False) for o in reversed(inside))
        else:
            known[key] = all(o is producer or known[producer, o] for o in inside)
    return consumer is producer or known[producer, consumer]
