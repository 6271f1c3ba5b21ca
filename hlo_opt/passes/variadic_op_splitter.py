"""Concatenates of very many operands become concatenates of concatenates, so that no kernel takes more arguments than
fit.

Source: xla/backends/gpu/transforms/variadic_op_splitter.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

from hlo_opt.ir import Computation, Instruction, edit
from hlo_opt.passes.base import PassContext, RewritingPass

MOST_OPERANDS = 128


@dataclass(frozen=True)
class VariadicOpSplitter(RewritingPass):
    """Split concatenates of many operands. The values stay the same; the graph does not.

    most_operands  a concatenate with more operands is split
    """

    name: ClassVar[str] = "variadic-op-splitter"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"

    most_operands: int = MOST_OPERANDS

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        if self.most_operands < 2:
            return
        for i in list(computation.instructions):
            if i.opcode == "concatenate" and len(i.operands) > self.most_operands:
                yield partial(self._split, i)

    def _split(self, concatenate: Instruction) -> None:
        """Join the operands group by group, and the groups again, until one concatenate takes what is left."""
        operands = list(concatenate.operands)
        while len(operands) > self.most_operands:
            groups = [operands[n : n + self.most_operands] for n in range(0, len(operands), self.most_operands)]
            operands = [group[0] if len(group) == 1 else _join(concatenate, group) for group in groups]
        edit.set_operands(concatenate, operands)


def _join(concatenate: Instruction, group: list[Instruction]) -> Instruction:
    computation: Computation = concatenate.computation
    (dimension,) = concatenate.ints("dimensions")
    sizes = list(concatenate.shape.dimensions)
    sizes[dimension] = sum(operand.shape.dimensions[dimension] for operand in group)
    shape = replace(concatenate.shape, dimensions=tuple(sizes))
    return edit.create(computation, concatenate.name, "concatenate", shape, group, concatenate.attributes)
