"""The round of a loop as one computation. Small products and reductions are expanded into scalar sums, so that each of
their elements depends on elements at known indices."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hlo_opt.ir import Instruction, edit
from hlo_opt.ops.sets import looped, tuple_elements, tuple_index
from hlo_opt.ops.spec import find
from hlo_opt.ops.terms import Terms


class Round(Terms):
    """Builds a round. `origins` maps its instructions to the operations of the module. `written_out` says whether small
    products and reductions are expanded."""

    def __init__(self, *, written_out: bool = True) -> None:
        super().__init__("round")
        self._opens = written_out
        self.origins: dict[Instruction, Instruction] = {}

    def copy(self, instruction: Instruction, operands: Sequence[Instruction]) -> Instruction | None:
        """Copies an operation of the loop into the round, expanded if it is a small product or reduction. None if
        kernels have no text for it."""
        before = len(self.computation.instructions)
        result = self.written_out(instruction, operands) if self._opens else None
        if result is not None:
            for written in itertools.islice(self.computation.instructions, before, None):
                self.origins[written] = instruction
        elif has_text(instruction):
            result = edit.clone_into(self.computation, instruction, operands)
            self.origins[result] = instruction
        return result


def has_text(i: Instruction) -> bool:
    """Whether code generation has a text for an operation by itself."""
    if i.literal is not None or tuple_index(i) is not None or tuple_elements(i) is not None:
        return True
    spec = find(i.opcode)
    return spec is not None and spec.cuda is not None and not spec.is_planned and looped(i) is None
