"""The estimate of a module whose independent launches run side by side, as in a CUDA graph with several streams.

The time is that of the longest chain of launches that wait for each other, unless something that all launches share
is busy for longer: memory, caches, arithmetic, or the streams. What waits only because memory is used again is not
counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ops.sets import looped
from hlo_opt.plans.price import Price

STREAMS = 4
"""Streams of a CUDA graph, unless `$HLO_OPT_STREAMS` sets another number."""
_SHARED = ("memory", "cache", "instructions", "slow")
"""The parts of a price that launches side by side wait for together."""


def overlapped_us(
    module: Module,
    prices: Mapping[Instruction, Price],
    times: Mapping[Computation, int],
    trips: Callable[[Instruction], int],
) -> float:
    """Microseconds of a module.

    prices  of the instructions that launch work
    times   how often each computation runs
    trips   the iterations of a loop
    """
    one_by_one = sum(times[i.computation] * price.us for i, price in prices.items())
    shared = (sum(times[i.computation] * getattr(p, part) for i, p in prices.items()) for part in _SHARED)
    return max(_Chains(prices, times, trips).longest(module.entry), one_by_one / STREAMS, *shared)


class _Chains:
    """The longest chains of launches that wait for each other, by computation."""

    def __init__(
        self,
        prices: Mapping[Instruction, Price],
        times: Mapping[Computation, int],
        trips: Callable[[Instruction], int],
    ) -> None:
        self._prices, self._times, self._trips = prices, times, trips
        self._known: dict[Computation, float] = {}

    def longest(self, computation: Computation) -> float:
        """Microseconds from the start of a computation to its last result."""
        if computation not in self._known:
            ends: dict[Instruction, float] = {}
            for i in computation.instructions:
                begin = max((ends[before] for before in (*i.operands, *i.control_predecessors)), default=0.0)
                ends[i] = begin + self._alone(i)
            self._known[computation] = max(ends.values(), default=0.0)
        return self._known[computation]

    def _alone(self, instruction: Instruction) -> float:
        price = self._prices.get(instruction)
        if price is not None:
            return price.us
        inner = [self.longest(c) for c in instruction.called() if c in self._times]
        if looped(instruction) is not None:
            return self._trips(instruction) * sum(inner)
        return max(inner, default=0.0)
