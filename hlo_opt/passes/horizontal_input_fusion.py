"""Horizontal input fusion: reductions that feed one consumer become one launch.

Source: xla/service/gpu/horizontal_input_fusion.cc, as it was before XLA dropped it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.analysis.properties import is_generic_triton
from hlo_opt.diag import Reason
from hlo_opt.fusion import compatibility
from hlo_opt.fusion.compatibility import Beside
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.horizontal import Joiner, consumers, impossible, is_forced, operand_kernels, other_users, size_of
from hlo_opt.ir import Computation, Instruction
from hlo_opt.passes.base import FusionPass, Refusal


@dataclass(frozen=True)
class HorizontalInputFusion(FusionPass):
    """Join reductions that a common consumer reads, in order of size.

    any_form   join reductions of several forms; each has blocks of its own in the launch
    """

    name: ClassVar[str] = "horizontal-input-fusion"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"
    kind: ClassVar[str] = "horizontal"

    any_form: bool = False

    def fuse_in(self, computation: Computation, engine: Engine) -> bool:
        changed = False
        joiner = Joiner(engine, computation)
        for consumer in reversed(list(consumers(computation, joiner.instructions))):
            if consumer.parent is computation:
                changed |= self._join(engine, consumer, joiner)
        return changed

    def _join(self, engine: Engine, consumer: Instruction, joiner: Joiner) -> bool:
        changed = False
        anchor: Instruction | None = None
        for kernel in self._candidates(engine, consumer):
            if anchor is None or next(self._apart(engine, anchor, kernel, joiner), None) is not None:
                anchor = kernel
                continue
            anchor = joiner.join(anchor, kernel)
            if anchor is None:
                return changed
            changed = True
        return changed

    def _candidates(self, engine: Engine, consumer: Instruction) -> list[Instruction]:
        """The reductions with a single reader, sorted so that those over arrays of equal sizes are neighbours."""
        return [k for k in self._reductions(engine, consumer) if next(_shared(engine, k, consumer), None) is None]

    def _reductions(self, engine: Engine, consumer: Instruction) -> list[Instruction]:
        kernels = [k for k in operand_kernels(consumer) if self._is_reduction(engine, k)]
        return sorted(kernels, key=lambda k: self._order(engine, k))

    def _order(self, engine: Engine, kernel: Instruction) -> tuple[int, tuple[int, ...], int]:
        shape = compatibility.walk_of(engine.state, kernel).shape
        return shape.rank, shape.dimensions, size_of(engine, kernel)

    def _is_reduction(self, engine: Engine, kernel: Instruction) -> bool:
        if (
            engine.state.lowering(kernel) is not None
            or engine.state.traits(kernel).library
            or is_generic_triton(kernel)
        ):
            return False
        return engine.state.emitter(kernel)[0] == "reduction"

    def _apart(self, engine: Engine, anchor: Instruction, kernel: Instruction, joiner: Joiner) -> Iterator[Reason]:
        """Why a reduction does not join the one before it; None where it does."""
        yield from joiner.connected(anchor, kernel)
        yield from impossible(engine, anchor, kernel)
        pair = Beside(anchor, kernel, engine.state, engine.origins)
        if not is_forced(engine, anchor, kernel):
            forms = () if self.any_form else (compatibility.heroes_fit, compatibility.shapes_fit)
            yield from engine.against((*forms, *compatibility.BUDGETS, compatibility.keeps_row_reductions), pair)
        unplanned = compatibility.without_plan(pair)
        if unplanned is not None:
            yield from engine.legal([unplanned])

    def sibling_refusals(self, engine: Engine, computation: Computation) -> Iterator[Refusal]:
        """Neighbours among the reductions that a consumer reads."""
        joiner = Joiner(engine, computation)
        for consumer in consumers(computation, joiner.instructions):
            for first, second in itertools.pairwise(self._reductions(engine, consumer)):
                shared = [r for k in (first, second) for r in _shared(engine, k, consumer)]
                yield Refusal(first, second, [*shared, *self._apart(engine, first, second, joiner)])


def _shared(engine: Engine, kernel: Instruction, consumer: Instruction) -> Iterator[Reason]:
    """Whether a kernel has other readers than the consumer."""
    shared = other_users(kernel, consumer)
    return engine.switched_on(() if shared is None else (shared,))
