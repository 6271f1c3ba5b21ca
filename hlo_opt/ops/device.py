"""A device of a run, as `evaluate` faces see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hlo_opt.ir import Instruction


class Device(Protocol):
    """One of `replicas` x `partitions` devices that run the same program."""

    @property
    def replica(self) -> int: ...
    @property
    def partition(self) -> int: ...
    @property
    def replicas(self) -> int: ...
    @property
    def partitions(self) -> int: ...

    @property
    def number(self) -> int:
        """replica * partitions + partition"""
        ...

    def exchange(self, instruction: Instruction, values: Sequence[Any], group: Sequence[int]) -> list[Any]:
        """The operands that the devices with these numbers bring to a collective, after all of them have brought theirs."""
        ...


@dataclass(frozen=True, slots=True)
class OnlyDevice:
    """The device of a run of one, where collectives move nothing: groups may name more devices, but there are none.

    A sum of what is plainly the same constant everywhere counts all devices that the group names, as XLA folds it before it looks at how many
    there are (xla/hlo/transforms/simplifiers/algebraic_simplifier.cc, HandleAllReduce and HandleReduceScatter).
    """

    replica: int = 0
    partition: int = 0
    replicas: int = 1
    partitions: int = 1

    @property
    def number(self) -> int:
        return 0

    def exchange(self, instruction: Instruction, values: Sequence[Any], group: Sequence[int]) -> list[Any]:
        folded = instruction.opcode in ("all-reduce", "reduce-scatter") and len(instruction.operands) == 1
        return [values] * (len(group) if folded and _is_uniform(instruction.operands[0]) else 1)


def _is_uniform(instruction: Instruction) -> bool:
    """Whether the value is one constant number everywhere, be it made by a fusion or a call."""
    callers: list[Instruction] = []
    may_broadcast = True
    while True:
        if instruction.opcode in ("fusion", "call"):
            callers.append(instruction)
            instruction = instruction.called_by("calls" if instruction.opcode == "fusion" else "to_apply").root
        elif instruction.parameter_number is not None and callers:
            instruction = callers.pop().operands[instruction.parameter_number]
        elif instruction.opcode == "get-tuple-element":
            taken = _made_by(instruction, callers)
            if taken is None:
                return False
            instruction = taken
        elif instruction.opcode == "broadcast" and may_broadcast:
            may_broadcast = False
            instruction = instruction.operands[0]
        else:
            return instruction.opcode == "constant" and not instruction.shape.rank


def _made_by(element: Instruction, callers: list[Instruction]) -> Instruction | None:
    """The value that an element of a tuple is, inside the fusion that makes the tuple, which joins the callers; None where it is none of a fusion."""
    source = element.operands[0]
    if source.opcode == "fusion":
        root = source.called_by("calls").root
        if root.opcode == "tuple":
            callers.append(source)
            return root.operands[element.attribute("index", int)]
    return None
