"""Instruction fusion: kernels grow upwards from their consumers, one producer at a time.

Source: xla/service/instruction_fusion.cc (RunImpl, ReversePostOrderFusionQueue) and the classic
xla/service/gpu/instruction_fusion.cc.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.analysis.properties import is_effectively_scalar
from hlo_opt.fusion.choices import InstructionFusionChoices, always_duplicable
from hlo_opt.fusion.duplication import globally_unfusible
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.legality import Edge
from hlo_opt.ir import Computation, Instruction
from hlo_opt.ir.walk import post_order
from hlo_opt.ops.sets import launches
from hlo_opt.passes.base import FusionPass

FREE_PRODUCERS = frozenset({"constant", "bitcast"})
"""Instructions that launch nothing but may move into kernels."""


@dataclass(frozen=True)
class InstructionFusion(FusionPass):
    """Fuse one producer at a time into its consumer: consumers from last to first in post-order, and of a consumer's
    operands the latest first.

    may_duplicate   compute a producer again in each of several consumers
    max_emissions   how often a producer's code may be emitted inside a kernel
    row_kernels     allow kernels that compute several reductions of a row, and charge for computing again a value that
                    is written anyway; if false, judge as XLA did
    """

    name: ClassVar[str] = "instruction-fusion"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    may_duplicate: bool = True
    max_emissions: int = 15
    row_kernels: bool = True

    def policy(self, engine: Engine, computation: Computation) -> InstructionFusionChoices:
        """The policy of a computation. What must not be duplicated, and what stays a kernel, is computed once, before
        the first fusion."""
        key = (self, computation)
        if key not in engine.notes:
            engine.notes[key] = self.choices(*self._fusible_and_beside(engine, computation))
        choices: InstructionFusionChoices = engine.notes[key]
        return choices

    def choices(
        self,
        do_not_duplicate: frozenset[Instruction] = frozenset(),
        staying: frozenset[Instruction] = frozenset(),
    ) -> InstructionFusionChoices:
        return InstructionFusionChoices(
            self.may_duplicate, self.max_emissions, do_not_duplicate, self.row_kernels, staying
        )

    def _fusible_and_beside(
        self, engine: Engine, computation: Computation
    ) -> tuple[frozenset[Instruction], frozenset[Instruction]]:
        """The instructions that must not be duplicated, and those that stay kernels because a reader cannot take them
        in."""
        if not self.may_duplicate:
            return frozenset(), frozenset()
        order = post_order(computation)
        plain = self.choices()
        known: dict[tuple[Instruction, Instruction], bool] = {}

        def allows(producer: Instruction, consumer: Instruction) -> bool:
            key = (producer, consumer)
            if key not in known:
                known[key] = launches(consumer) and engine.allows(engine.edge(producer, consumer), plain)
            return known[key]

        refused = () if "FUS403" in engine.disabled else globally_unfusible(computation, order, allows)
        if not self.row_kernels or "FUS410" in engine.disabled:
            return frozenset(refused), frozenset()
        shared = (i for i in order if len(i.users) > 1 and launches(i) and not always_duplicable(i))
        staying = frozenset(i for i in shared if i.is_root or not all(allows(i, user) for user in i.users))
        return frozenset(refused), staying

    def fuse_in(self, computation: Computation, engine: Engine) -> bool:
        policy = self.policy(engine, computation)
        position = {instruction: n for n, instruction in enumerate(post_order(computation))}
        queue = list(position)
        changed = False
        while queue:
            consumer = queue.pop()
            if consumer.parent is None or not launches(consumer):
                continue
            for producer in sorted(dict.fromkeys(consumer.operands), key=lambda o: -position[o]):
                if not _is_producer(producer, consumer):
                    continue
                if not engine.allows(engine.edge(producer, consumer), policy):
                    continue
                if not engine.context.step():
                    return changed
                fusion = engine.fuse(producer, consumer)
                position[fusion] = position[consumer]
                queue.append(fusion)
                changed = True
                break
        return changed

    def looks_at(self, edge: Edge) -> bool:
        return launches(edge.consumer)


def _is_producer(producer: Instruction, consumer: Instruction) -> bool:
    """Kernels, free instructions that kernels can hold, and constants of one element once the consumer is a kernel of
    several instructions."""
    if producer.opcode == "constant":
        return consumer.opcode == "fusion" and is_effectively_scalar(producer.shape)
    return launches(producer) or producer.opcode in FREE_PRODUCERS
