"""Which instruction reaches which, for a whole computation at once.

Source of the idea: xla/hlo/ir/hlo_reachability.h. One bit set per instruction, kept as a Python integer.
"""

from __future__ import annotations

from collections.abc import Iterable

from hlo_opt.ir import Computation, Instruction
from hlo_opt.ir.walk import post_order


class Reachability:
    """`reaches(a, b)`: whether b depends on a through operands or control predecessors. An instruction reaches itself."""

    def __init__(self, computation: Computation, order: Iterable[Instruction] | None = None) -> None:
        self._number: dict[Instruction, int] = {}
        self._above: dict[Instruction, int] = {}
        for number, instruction in enumerate(post_order(computation) if order is None else order):
            self._number[instruction] = number
            bits = 1 << number
            for needed in (*instruction.operands, *instruction.control_predecessors):
                bits |= self._above[needed]
            self._above[instruction] = bits

    def reaches(self, start: Instruction, end: Instruction) -> bool:
        return bool(self._above[end] >> self._number[start] & 1)

    def connected(self, one: Instruction, other: Instruction) -> bool:
        """Whether either depends on the other."""
        return self.reaches(one, other) or self.reaches(other, one)
