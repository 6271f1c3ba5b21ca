"""Kernels that reduce dimensions which lie apart in memory become two, for processors: the longest run of reduced
dimensions is folded first, and what is left of it after that.

On a device the threads of a warp read neighbours whatever the dimensions are, and one launch is better than two. The
lanes of a processor that walk such a row divide each place by the length of a run, and gather the elements one by one:
a sum of f32[60,80,100] over its first and last dimension takes four times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from hlo_opt.analysis.graph.inlining import is_plain_fusion
from hlo_opt.ir import Instruction, edit
from hlo_opt.ops.sets import fused
from hlo_opt.passes.kernels_apart import KernelsApart, copied, has, kernel_of, take_out
from hlo_opt.passes.reduction_splitter import LEAST, longest_of_runs, put_two
from hlo_opt.plans import Plan
from hlo_opt.plans.folding import Folded, ends_in_one_pass
from hlo_opt.plans.row_reduction import Rows


@dataclass(frozen=True)
class ReductionsApart(KernelsApart):
    """Fold the longest run of reduced dimensions in a kernel of its own. The values stay the same up to rounding."""

    name: ClassVar[str] = "reductions-apart"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"

    def may_hold(self, instruction: Instruction) -> bool:
        body = fused(instruction) if is_plain_fusion(instruction) else None
        return body is not None and any(map(_is_apart, body.instructions))

    def change(self, kernel: Instruction, kernel_plan: Plan) -> Callable[[], object] | None:
        part = kernel_plan.segments[0].part
        if len(kernel_plan.segments) > 1 or not isinstance(part, Rows) or not all(map(_is_apart, part.levels[0])):
            return None
        # an output of the size of what is reduced would read it once more, in the second kernel
        if not ends_in_one_pass(kernel_plan.region, Folded(part.space, part.levels, part.roots)):
            return None
        return partial(_take_apart, kernel, part.levels[0]) if has(kernel, part.levels[0]) else None


def _is_apart(i: Instruction) -> bool:
    """Whether it is a reduce of a large array along several runs of dimensions."""
    return i.opcode == "reduce" and i.operands[0].shape.element_count >= LEAST and longest_of_runs(i) is not None


def _take_apart(kernel: Instruction, reduces: Sequence[Instruction]) -> None:
    body, copies = copied(kernel.called_by("calls"))
    firsts = [(copies[reduce], longest_of_runs(reduce)) for reduce in reduces]
    parts = [put_two(reduce, first) for reduce, first in firsts if first is not None]
    edit.sort(body)
    in_two = kernel_of(kernel, body, list(kernel.operands))
    edit.replace_all_uses(kernel, in_two)
    edit.remove(kernel)
    take_out(in_two, parts)
