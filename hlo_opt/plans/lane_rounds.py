"""The round of a loop as one computation. Small products and reductions are expanded into scalar sums, and reads and
writes at a computed place of a short dimension into choices, so that each of their elements depends on elements at
known indices."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hlo_opt.analysis.graph.structure import Members, Structures
from hlo_opt.analysis.properties import has_side_effect
from hlo_opt.diag.time_limit import check_time
from hlo_opt.ir import Instruction, edit
from hlo_opt.ops.extremes import Extremes
from hlo_opt.ops.reduction.reducers import monoid, starts_with_identity
from hlo_opt.ops.sets import looped, tuple_elements, tuple_index
from hlo_opt.ops.spec import find
from hlo_opt.plans.cumulative import lines_of


class Round(Extremes):
    """Builds a round. `origins` maps its instructions to the operations of the module. `written_out` says whether small
    products and reductions are expanded. `chooses`: also `dynamic-slice` and `dynamic-update-slice` of what the round
    computes or carries, along one short dimension; `has_choices` says whether there was one. `pulls`: scatters of up to
    so many pairs of an element and an update are folds of the updates that name an element; where it is not 0, small
    folds of several arrays are unrolled, an argmin is folds of one array, and cumulative windows take as many steps as
    their length has binary digits. `scatters`: other scatters go into copies."""

    def __init__(
        self, *, written_out: bool = True, chooses: bool = False, pulls: int = 0, scatters: bool = False
    ) -> None:
        super().__init__("round")
        self._opens, self._chooses, self._pulls, self._scatters = written_out, chooses, pulls, scatters
        self.has_choices = False
        self.origins: dict[Instruction, Instruction] = {}
        self._members = Members(Structures())
        self._copies: dict[tuple[int, ...], Instruction] = {}

    def copy(self, instruction: Instruction, operands: Sequence[Instruction]) -> Instruction | None:
        """Copies an operation of the loop into the round, expanded if it is a small product or reduction. What kernels
        of the loop compute twice is one value of the round. None if kernels have no text for it."""
        if has_side_effect(instruction):
            return self._copy(instruction, operands)
        key = (self._members.of(instruction), *map(id, operands))
        if key not in self._copies:
            copy = self._copy(instruction, operands)
            if copy is None:
                return None
            self._copies[key] = copy
        return self._copies[key]

    def _copy(self, instruction: Instruction, operands: Sequence[Instruction]) -> Instruction | None:
        check_time()
        before = len(self.computation.instructions)
        result = self.written_out(instruction, operands) if self._opens else None
        if self._chooses and result is None:
            result = self.chosen(instruction, operands) or self.chosen_apart(instruction, operands)
            self.has_choices |= result is not None
        if self._pulls and result is None:
            result = self.pulled(instruction, operands, self._pulls) or self.several(instruction, operands)
            result = result or self.extreme(instruction, operands) or self._doubled(instruction, operands)
        if self._scatters and result is None:
            result = self.started(instruction, operands)
        if result is not None:
            for written in itertools.islice(self.computation.instructions, before, None):
                self.origins[written] = instruction
        elif has_text(instruction):
            result = edit.clone_into(self.computation, instruction, operands)
            self.origins[result] = instruction
        return result

    def _doubled(self, window: Instruction, operands: Sequence[Instruction]) -> Instruction | None:
        lines = lines_of(window)
        if lines is None:
            return None
        if window.shape.is_tuple:
            return self.cumulated_together(window, operands, lines.axis, from_end=lines.is_reversed)
        step = monoid(window.called_by("to_apply"))
        if step is None or window.shape.type.bits < 32 or not starts_with_identity(window):
            return None
        return self.cumulated(operands[0], operands[1], step, lines.axis, from_end=lines.is_reversed)


def has_text(i: Instruction) -> bool:
    """Whether code generation has a text for an operation by itself."""
    if i.literal is not None or tuple_index(i) is not None or tuple_elements(i) is not None:
        return True
    spec = find(i.opcode)
    return spec is not None and spec.cuda is not None and not spec.is_planned and looped(i) is None
