"""How a reduction lies in memory, and which emitter XLA would give it.

Source: xla/service/gpu/reduction_utils.cc.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from hlo_opt.ir import Instruction
from hlo_opt.ops.emission import HEROES, Emitter

WARP = 32
ROW_RACE_FREE_MINOR = 1024 * 16
ROW_RACE_FREE_MAJOR = 8
COLUMN_RACE_FREE = 32 * 128


@dataclass(frozen=True, slots=True)
class ReductionForm:
    """The normal form. Row: [reduced, kept, reduced]; column: [kept, reduced, kept]; sizes from the slowest dimension on."""

    is_row: bool
    sizes: tuple[int, int, int]

    @property
    def is_race_free(self) -> bool:
        """Whether one block can finish a result, so that an epilogue may follow in the same kernel."""
        if self.is_row:
            return self.sizes[2] <= ROW_RACE_FREE_MINOR and self.sizes[0] <= ROW_RACE_FREE_MAJOR
        return self.sizes[1] <= COLUMN_RACE_FREE

    @property
    def is_fast(self) -> bool:
        """Whether a reduction emitter beats one thread per result (IsUnnestedReductionFasterThanElemental)."""
        _, middle, minor = self.sizes
        if self.is_row:
            return minor >= WARP or (minor > 0 and WARP % minor == 0)
        small = (
            middle < WARP
            or (middle < 2 * WARP and minor < WARP)
            or (middle < 4 * WARP and minor < 8)
            or (middle < 8 * WARP and minor < 3)
        )
        return not small


def reduction_form(reduce: Instruction) -> ReductionForm | None:
    """The normal form of a reduce's first operand, or None where neither the kept nor the reduced dimensions lie together."""
    shape = reduce.operands[0].shape
    return _form(shape.dimensions, shape.minor_to_major, reduce.ints("dimensions"))


@functools.lru_cache(maxsize=4096)
def _form(
    dimensions: tuple[int, ...], minor_to_major: tuple[int, ...], reduced: tuple[int, ...]
) -> ReductionForm | None:
    """Remembered, for rules ask about the same reductions again and again."""
    groups: list[tuple[bool, int]] = []
    for dimension in reversed(minor_to_major):
        size = dimensions[dimension]
        if size == 1:
            continue
        is_reduced = dimension in reduced
        if groups and groups[-1][0] == is_reduced:
            groups[-1] = (is_reduced, groups[-1][1] * size)
        else:
            groups.append((is_reduced, size))
    sizes = [size for _, size in groups]
    match [is_reduced for is_reduced, _ in groups]:
        case []:
            return ReductionForm(True, (1, 1, 1))
        case [True]:
            return ReductionForm(True, (1, 1, sizes[0]))
        case [False]:
            return ReductionForm(True, (1, sizes[0], 1))
        case [False, True]:
            return ReductionForm(True, (1, sizes[0], sizes[1]))
        case [True, False]:
            return ReductionForm(False, (1, sizes[0], sizes[1]))
        case [True, False, True]:
            return ReductionForm(True, (sizes[0], sizes[1], sizes[2]))
        case [False, True, False]:
            return ReductionForm(False, (sizes[0], sizes[1], sizes[2]))
        case _:
            return None


def fast_form(instruction: Instruction) -> ReductionForm | None:
    """The normal form when the instruction is a reduce that a reduction emitter would take, else None."""
    if HEROES.get(instruction.opcode) is not Emitter.REDUCTION or not instruction.operands[0].shape.element_count:
        return None
    form = reduction_form(instruction)
    return form if form is not None and form.is_fast else None
