"""What the members of a kernel add up to."""

from __future__ import annotations

from typing import NamedTuple

from hlo_opt.analysis.memory.forms import fast_form
from hlo_opt.analysis.xla.heroes import shared_memory
from hlo_opt.ir import Instruction
from hlo_opt.ops import find
from hlo_opt.ops.emission import HEROES, XlaEmitter
from hlo_opt.plans.cumulative import lines_of
from hlo_opt.plans.kinds import may_share_folds
from hlo_opt.plans.limits import is_direct
from hlo_opt.plans.sliding_window import slides


class Traits(NamedTuple):
    """Sums over the members of a kernel.

    members        how many there are
    depth          an upper bound of how deep they nest: those that read operands under conditions or in loops
    scatters, reduces  members of these opcodes
    reductions     reduces that a reduction emitter would take
    significant_reduces  reduces of one array that fold at least `SIGNIFICANT` elements into one
    shared_memory  bytes that all would need as heroes (FusionFitsInBudget)
    windows        cumulative windows of more elements than XLA leaves in one
    slides         sliding windows that threads fold together
    library        the opcode of a member that a library would compute; empty without one
    folds          members whose partial results threads may combine
    """

    members: int = 0
    depth: int = 0
    scatters: int = 0
    reduces: int = 0
    reductions: int = 0
    significant_reduces: int = 0
    shared_memory: int = 0
    windows: int = 0
    slides: int = 0
    library: str = ""
    folds: int = 0

    @classmethod
    def of(cls, member: Instruction) -> Traits:
        spec = find(member.opcode)
        return cls(
            members=1,
            depth=not all(is_direct(member, n) for n in range(len(member.operands))),
            scatters=HEROES.get(member.opcode) is XlaEmitter.SCATTER,
            reduces=HEROES.get(member.opcode) is XlaEmitter.REDUCTION,
            reductions=fast_form(member) is not None,
            significant_reduces=_folds_many(member),
            shared_memory=shared_memory(member),
            windows=is_long_window(member),
            slides=slides(member),
            library=member.opcode if spec is not None and spec.is_library else "",
            folds=may_share_folds(member),
        )

    def plus(self, other: Traits) -> Traits:
        return Traits(
            self.members + other.members,
            self.depth + other.depth,
            self.scatters + other.scatters,
            self.reduces + other.reduces,
            self.reductions + other.reductions,
            self.significant_reduces + other.significant_reduces,
            self.shared_memory + other.shared_memory,
            self.windows + other.windows,
            self.slides + other.slides,
            self.library or other.library,
            self.folds + other.folds,
        )


SIGNIFICANT = 16
"""Smaller reductions are loops in any kernel (CanFuse in xla/backends/gpu/transforms/priority_fusion.cc)."""


LEFT = 16
"""Elements of the cumulative windows that XLA:GPU makes of longer ones before it fuses
(xla/service/gpu/gpu_compiler.cc, ReduceWindowRewriter)."""


def is_long_window(member: Instruction) -> bool:
    lines = lines_of(member)
    return lines is not None and lines.length > LEFT


def _folds_many(member: Instruction) -> bool:
    if (
        HEROES.get(member.opcode) is not XlaEmitter.REDUCTION
        or not member.shape.is_array
        or not member.shape.element_count
    ):
        return False
    return member.operands[0].shape.element_count // member.shape.element_count >= SIGNIFICANT
