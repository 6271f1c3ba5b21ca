"""Signs move out of odd functions: the function of a number and of its opposite is then computed once.

The price of an option needs four error functions of two numbers. Rounding stays the same: signs go through products and
quotients unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from hlo_opt.ir import Computation, Instruction, Module, edit
from hlo_opt.ops.sets import LINEAR, ODD, OPPOSITE
from hlo_opt.passes.base import PassContext
from hlo_opt.passes.cse import CommonSubexpressionElimination
from hlo_opt.passes.dce import DeadCodeElimination
from hlo_opt.passes.expansion import Expansion


@dataclass(frozen=True)
class OddFunctions(Expansion):
    """Move signs out of odd functions of floats where a computation has several of one, and merge those that are equal
    then."""

    name: ClassVar[str] = "odd-functions"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"

    def concerns(self, module: Module) -> bool:
        return any(map(_has_several, module.computations))

    def computations(self, module: Module) -> Iterable[Computation]:
        return filter(_has_several, list(module.computations))

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        computation.index_users()
        for i in list(computation.instructions):
            if i.opcode in ODD | LINEAR and i.operands[0].opcode == OPPOSITE and i.shape.type.is_float:
                yield partial(_take_out, i)

    def run(self, module: Module, context: PassContext) -> bool:
        changed = super().run(module, context)
        if changed:
            CommonSubexpressionElimination().run(module, context)
            DeadCodeElimination().run(module, context)
        return changed


def _has_several(computation: Computation) -> bool:
    counts = Counter(i.opcode for i in computation.instructions if i.opcode in ODD)
    return max(counts.values(), default=0) > 1 and any(i.opcode == OPPOSITE for i in computation.instructions)


def _take_out(i: Instruction) -> None:
    """The opposite of the function of the opposite of its first operand."""
    computation = i.computation
    positive = edit.clone_into(computation, i, [i.operands[0].operands[0], *i.operands[1:]])
    opposite = edit.create(computation, OPPOSITE, OPPOSITE, i.shape, [positive])
    edit.replace_all_uses(i, opposite)
    edit.remove(i)
