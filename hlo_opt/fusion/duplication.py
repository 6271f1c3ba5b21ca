"""Producers whose duplication would read more memory than it saves, judged over the whole computation.

Source: ComputeGloballyUnfusible and CanFuseOnAllPaths in xla/service/instruction_fusion.cc.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from hlo_opt.analysis.properties import is_effectively_scalar, true_rank
from hlo_opt.fusion.order import Order
from hlo_opt.ir import Computation, Instruction, Shape

Allows = Callable[[Instruction, Instruction], bool]
"""Whether an edge producer -> consumer may be fused, duplication left aside."""


def effectively_at_most_unary(instruction: Instruction) -> bool:
    """Whether at most one operand has the rank of the result; broadcasts, iotas and scalars do not count."""
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
    """The largest rank of the arrays of a shape. The state of a loop may have thousands of them."""
    return max((true_rank(leaf) for leaf in shape.leaves()), default=0)


REMEMBERED = 2_000_000
"""Instructions in all the sets together that are kept for later consumers of a producer."""


class _Between:
    """Finds operands on the paths from a producer to one of its consumers. It visits only what stands between the two,
    and visits that once per producer if the consumers are asked for from the last to the first."""

    def __init__(self, computation: Computation, order: list[Instruction]) -> None:
        self._order = Order(computation, order)
        self._below: dict[Instruction, tuple[int, set[Instruction]]] = {}
        self._size = 0

    def operands(self, producer: Instruction, current: Instruction, consumer: Instruction) -> list[Instruction]:
        """The operands of `current`, which is on a way to the consumer, that depend on the producer."""
        first = self._order.place(producer)
        return [
            o
            for o in dict.fromkeys(current.operands)
            if o is producer or (self._order.place(o) >= first and o in self._reached(producer, consumer))
        ]

    def _reached(self, producer: Instruction, consumer: Instruction) -> set[Instruction]:
        last = self._order.place(consumer)
        known, reached = self._below.get(producer, (-1, set()))
        if known < last:
            self._size -= len(reached)
            reached = self._order.below(producer, last)
            self._size += len(reached)
            if self._size > REMEMBERED:
                self._below.clear()
                self._size = len(reached)
            self._below[producer] = last, reached
        return reached


def globally_unfusible(computation: Computation, order: list[Instruction], allows: Allows) -> set[Instruction]:
    """The producers that must not be duplicated. `order` has operands before users."""
    between = _Between(computation, order)
    unfusible: set[Instruction] = set()
    known: dict[tuple[Instruction, Instruction], bool] = {}
    for consumer in reversed(order):
        for producer in consumer.operands:
            if producer in unfusible or len(producer.users) < 2 or effectively_at_most_unary(producer):
                continue
            read = sum(o.shape.element_count for o in dict.fromkeys(producer.operands))
            if read <= producer.shape.element_count:
                continue
            if not _on_all_paths(producer, consumer, unfusible, between, allows, known):
                unfusible.add(producer)
    return unfusible


def _on_all_paths(
    producer: Instruction,
    consumer: Instruction,
    refused: set[Instruction],
    between: _Between,
    allows: Allows,
    known: dict[tuple[Instruction, Instruction], bool],
) -> bool:
    """Whether every operand edge on every path from producer to consumer may be fused. Results from before `refused`
    grew stay, as in XLA."""
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
