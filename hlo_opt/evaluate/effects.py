"""Operations whose value, or whose act, a module does not show: random draws, transfers from and to the host, custom calls that nobody knows.

Evaluating one is an error, unless somebody plays the world outside: he is told of each occurrence of such an instruction in a run, and gives its value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hlo_opt.ir import Computation, Instruction
from hlo_opt.ops import find
from hlo_opt.ops.custom_calls.targets import is_known, says_side_effect
from hlo_opt.ops.sets import started


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One run of an instruction that the world outside answers.

    operands    the operands' values, in order: arrays, tuples of such, and empty tuples for tokens
    callers     the instructions whose computations it runs in, the outermost first; none in the entry
    iterations  how many iterations the loops around it have done, the outermost first
    device      the simulated device, from 0
    """

    instruction: Instruction
    operands: Sequence[Any]
    callers: tuple[Instruction, ...]
    iterations: tuple[int, ...]
    device: int


Effects = Callable[[Occurrence], Any]
"""Answers an occurrence: with an array of the instruction's shape and type, a tuple for a tuple, an empty one for a token."""


def is_answered(instruction: Instruction) -> bool:
    """Whether the world outside gives the instruction's value: its op has none of its own, it is a custom call that says that it has a side effect,
    or one whose target nobody knows."""
    if instruction.opcode == "custom-call":
        return says_side_effect(instruction) or not is_known(instruction)
    spec = find(instruction.opcode)
    if spec is None:
        inner = started(instruction)
        return inner is not None and is_answered(inner)
    return spec.side_effects and (spec.evaluate is None or spec.hides_state)


class Acting:
    """Tells which instructions must run although nobody asks for their value: those that the world outside answers, and calls of computations that hold
    any."""

    def __init__(self) -> None:
        self._known: dict[Computation, bool] = {}

    def computation(self, computation: Computation) -> bool:
        """Whether it holds one, or calls one that does."""
        found = self._known.get(computation)
        if found is None:
            found = self._known[computation] = any(self.instruction(i) for i in computation.instructions)
        return found

    def instruction(self, instruction: Instruction) -> bool:
        return is_answered(instruction) or any(self.computation(c) for c in instruction.called())
