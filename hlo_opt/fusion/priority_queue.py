"""The queue of priority fusion: producers, those whose fusion saves most time first.

A producer's priority is what the cost model says that fusing it into all its users saves. It changes when a user does,
so the queue remembers the verdict and the cost of each producer with each of its users, and looks again only at pairs
of which one side changed. Source: PriorityFusionQueue in xla/backends/gpu/transforms/priority_fusion.cc.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hlo_opt.fusion.priority_choices import is_fusible
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Computation, Instruction
from hlo_opt.ir.walk import post_order
from hlo_opt.ops.sets import is_view

_PER_US = 4000
"""Times are kept as whole quarters of a nanosecond, so that sums do not depend on the order in which they were made."""

_FOREVER = 1e12
"""Microseconds that stand for an infinite estimate, so that sums can go back."""

Accepts = Callable[[Instruction, Instruction], bool]
"""Whether a consumer can take a producer."""


@dataclass
class _Standing:
    """A producer and its users: those not asked yet, those that refuse, and those that accept, with what fusing into
    each saves (None: not priced yet). Of those that accept, `wanted` is fused into whatever it costs, and `launching`
    is how many are no bitcasts."""

    unknown: dict[Instruction, None]
    refusing: dict[Instruction, None] = field(default_factory=dict)
    accepting: dict[Instruction, int | None] = field(default_factory=dict)
    unpriced: dict[Instruction, None] = field(default_factory=dict)
    wanted: dict[Instruction, None] = field(default_factory=dict)
    launching: int = 0
    saved: int = 0

    def accept(self, user: Instruction, *, wanted: bool) -> None:
        self.accepting[user] = None
        self.unpriced[user] = None
        self.launching += not is_view(user.opcode)
        if wanted:
            self.wanted[user] = None

    def drop(self, user: Instruction) -> None:
        self.unknown.pop(user, None)
        self.refusing.pop(user, None)
        self.unpriced.pop(user, None)
        self.wanted.pop(user, None)
        if user in self.accepting:
            self.launching -= not is_view(user.opcode)
            self.saved -= self.accepting.pop(user) or 0


class PriorityQueue:
    """Producers of one computation. `partly`: fuse a producer into those users that accept it even where others refuse;
    `at_any_cost`: also where the model says that it is slower. `takes`: which instructions are producers at all."""

    def __init__(
        self,
        computation: Computation,
        state: FusionState,
        accepts: Accepts,
        *,
        partly: bool = False,
        at_any_cost: bool = False,
        takes: Callable[[Instruction], bool] = is_fusible,
        wanted: Callable[[Instruction, Instruction], bool] | None = None,
    ) -> None:
        self._state = state
        self._accepts = accepts
        self._partly = partly
        self._at_any_cost = at_any_cost
        self._takes = takes
        self._wanted = wanted
        self._numbers: dict[Instruction, int] = {}
        self._standings: dict[Instruction, _Standing] = {}
        self._priorities: dict[Instruction, float] = {}
        self._instructions: list[Instruction] = []
        self._heap: list[tuple[float, int]] = []
        self._touched: dict[Instruction, None] = {}
        self._too_dear: dict[Instruction, None] = {}
        order = post_order(computation)
        for instruction in order:
            self._number(instruction)
        for instruction in order:
            self._enqueue(instruction)

    def pop(self) -> tuple[Instruction, list[Instruction]] | None:
        """The producer with the highest priority (of equal ones the latest instruction) and the users to fuse it into;
        None when nothing is worth fusing."""
        while self._heap:
            priority, number = heapq.heappop(self._heap)
            producer = self._instructions[-number]
            if self._priorities.get(producer) != -priority:
                continue  # an entry from before the priority changed
            del self._priorities[producer]
            standing = self._standings[producer]
            self._ask(producer, standing, all_of_them=True)
            users = [u for u in standing.accepting if not is_view(u.opcode)]
            if not is_view(producer.opcode) and standing.refusing and not self._partly:
                users = [u for u in users if u in standing.wanted]
            if users:
                return producer, users
        return None

    def fused(self, producer: Instruction, consumer: Instruction, fusion: Instruction) -> None:
        """A producer was moved into a consumer, which is `fusion` now."""
        if fusion is not consumer:
            self._number(fusion)
            self._forget(consumer)
        gone = producer.parent is None
        if gone:
            self._forget(producer)
        self._standings.pop(fusion, None)
        self._touched[fusion] = None
        for operand in fusion.operands:
            standing = self._standings.get(operand)
            if standing is None:
                continue
            standing.drop(consumer)
            standing.drop(fusion)
            if gone:
                standing.drop(producer)
            standing.unknown[fusion] = None
            self._touched[operand] = None
        if not gone:
            standing = self._standings.get(producer)
            if standing is not None:
                standing.drop(consumer)
                self._touched[producer] = None

    def update(self) -> None:
        """Look again at what `fused` changed."""
        for instruction in self._touched:
            if instruction.parent is not None:
                self._enqueue(instruction)
        self._touched.clear()

    def too_dear(self) -> list[Instruction]:
        """The producers that all users accept, but whose fusion does not pay as things are."""
        return [p for p in self._too_dear if p.parent is not None]

    def priority(self, producer: Instruction) -> float:
        """Quarters of a nanosecond that fusing the producer into all its users saves; minus infinity when that cannot
        be done."""
        if is_view(producer.opcode):
            return math.inf
        standing = self._standings[producer]
        self._ask(producer, standing, all_of_them=self._partly)
        if standing.wanted:
            return math.inf
        if standing.refusing and not self._partly:
            return -math.inf
        if not standing.launching:
            return -math.inf
        alone = self._state.estimate_by_xla(producer)
        for user in standing.unpriced:
            saved = _saved(self._state, producer, user)
            standing.accepting[user] = saved
            standing.saved += saved
        standing.unpriced.clear()
        return _quarters(self._state.target.kernel_launch_us + alone.us) + standing.saved

    def _number(self, instruction: Instruction) -> None:
        self._numbers[instruction] = len(self._instructions)
        self._instructions.append(instruction)

    def _enqueue(self, instruction: Instruction) -> None:
        if not instruction.users or not self._takes(instruction) or instruction.literal is not None:
            return
        if instruction not in self._standings:
            self._standings[instruction] = _Standing(dict.fromkeys(instruction.users))
        priority = self.priority(instruction)
        self._too_dear.pop(instruction, None)
        if -math.inf < priority < 0:
            self._too_dear[instruction] = None
        if priority == self._priorities.get(instruction):
            return
        self._priorities.pop(instruction, None)
        if priority < 0 and not (self._at_any_cost and priority > -math.inf):
            return
        self._priorities[instruction] = priority
        heapq.heappush(self._heap, (-priority, -self._numbers[instruction]))

    def _ask(self, producer: Instruction, standing: _Standing, *, all_of_them: bool) -> None:
        """Ask users whether they accept the producer: until one refuses, or all. Bitcasts launch nothing and need not
        accept."""
        while standing.unknown and (all_of_them or not standing.refusing):
            user = next(iter(standing.unknown))
            del standing.unknown[user]
            if not is_view(user.opcode) and not self._accepts(producer, user):
                standing.refusing[user] = None
            else:
                standing.accept(user, wanted=self._wanted is not None and self._wanted(producer, user))

    def _forget(self, instruction: Instruction) -> None:
        self._standings.pop(instruction, None)
        self._priorities.pop(instruction, None)
        self._touched.pop(instruction, None)
        self._too_dear.pop(instruction, None)


def saved_quarters(state: FusionState, producer: Instruction, users: Iterable[Instruction]) -> int:
    """What fusing a producer into all of the users saves, in quarters of a nanosecond."""
    total = _quarters(state.target.kernel_launch_us + state.estimate_by_xla(producer).us)
    return total + sum(_saved(state, producer, user) for user in users)


def _saved(state: FusionState, producer: Instruction, user: Instruction) -> int:
    """How much the user's time shrinks when it computes the producer itself instead of reading it."""
    return _quarters(state.estimate_by_xla(user).us) - _quarters(state.fused_by_xla(producer, user).us)


def _quarters(us: float) -> int:
    return round(min(us, _FOREVER) * _PER_US)
