"""The round of a loop as one computation, in which small products and small folds are sums of what they are made of:
then each element of theirs is computed from elements at known places."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hlo_opt.ir import Instruction, edit
from hlo_opt.ops.sets import held, looped, taken_element
from hlo_opt.ops.spec import find
from hlo_opt.ops.terms import Terms


class Round(Terms):
    """Writes a round. `origins` are the operations of the module that what is written stands for. `written_out` says
    whether small products and folds are."""

    def __init__(self, *, written_out: bool = True) -> None:
        super().__init__("round")
        self._opens = written_out
        self.origins: dict[Instruction, Instruction] = {}

    def copy(self, instruction: Instruction, operands: Sequence[Instruction]) -> Instruction | None:
        """An operation of the loop on values of the round, written out where it is a small product or fold. None where
        kernels have no text for it."""
        before = len(self.computation.instructions)
        made = self.written_out(instruction, operands) if self._opens else None
        if made is None and not has_text(instruction):
            return None
        made = made or edit.clone_into(self.computation, instruction, operands)
        for written in itertools.islice(self.computation.instructions, before, None):
            self.origins[written] = instruction
        return made


def has_text(i: Instruction) -> bool:
    """Whether kernels have a text for an operation by itself."""
    if i.literal is not None or taken_element(i) is not None or held(i) is not None:
        return True
    spec = find(i.opcode)
    return spec is not None and spec.cuda is not None and not spec.is_planned and looped(i) is None
