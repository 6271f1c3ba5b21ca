"""Producers whose duplication would read more memory than it saves, judged over the whole computation.

Source: ComputeGloballyUnfusible and CanFuseOnAllPaths in xla/service/instruction_fusion.cc.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo_opt.analysis.facts import is_effectively_scalar, true_rank
from hlo_opt.analysis.reachability import Reachability
from hlo_opt.ir import Instruction

Allows = Callable[[Instruction, Instruction], bool]
"""Whether an edge producer -> consumer may be fused, duplication left aside."""


def effectively_at_most_unary(instruction: Instruction) -> bool:
    """At most one operand is as large in rank as the result; broadcasts, iotas and scalars do not count."""
    rank = max((true_rank(leaf) for leaf in instruction.shape.leaves()), default=0)
    large = 0
    for operand in dict.fromkeys(instruction.operands):
        if operand.opcode in ("broadcast", "iota") or (
            operand.opcode == "constant" and is_effectively_scalar(operand.shape)
        ):
            continue
        if max((true_rank(leaf) for leaf in operand.shape.leaves()), default=0) >= rank:
            large += 1
    return large <= 1


def globally_unfusible(order: list[Instruction], reachability: Reachability, allows: Allows) -> set[Instruction]:
    """The producers that must not be duplicated. `order` has operands before users."""
    found: set[Instruction] = set()
    known: dict[tuple[Instruction, Instruction], bool] = {}
    for consumer in reversed(order):
        for producer in consumer.operands:
            if producer in found or len(producer.users) < 2 or effectively_at_most_unary(producer):
                continue
            read = sum(o.shape.element_count for o in dict.fromkeys(producer.operands))
            if read <= producer.shape.element_count:
                continue
            if not _on_all_paths(producer, consumer, found, reachability, allows, known):
                found.add(producer)
    return found


def _on_all_paths(
    producer: Instruction,
    consumer: Instruction,
    refused: set[Instruction],
    reachability: Reachability,
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
        between = [o for o in dict.fromkeys(current.operands) if reachability.reaches(producer, o)]
        if not ready:
            if any(o in refused or not allows(o, current) for o in between):
                known[key] = False
                continue
            stack.append((current, True))
            stack.extend((o, False) for o in reversed(between))
        else:
            known[key] = all(o is producer or known[producer, o] for o in between)
    return consumer is producer or known[producer, consumer]
