"""Instruction fusion: kernels grow upwards from their consumers, one producer at a time.

Source: xla/service/instruction_fusion.cc (RunImpl, ReversePostOrderFusionQueue) and the classic xla/service/gpu/instruction_fusion.cc.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.analysis.facts import is_effectively_scalar, launches
from hlo_opt.diag import Reason
from hlo_opt.fusion.choices import InstructionFusionChoices
from hlo_opt.fusion.duplication import globally_unfusible
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.legality import Edge
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ir.walk import post_order
from hlo_opt.passes.base import PassContext
from hlo_opt.passes.fusion_pass import FusionPass

FREE_PRODUCERS = frozenset({"constant", "bitcast"})
"""Instructions that launch nothing but may move into kernels."""


@dataclass(frozen=True)
class InstructionFusion(FusionPass):
    """Fuse single producers into consumers, consumers last in post-order first, of a consumer's operands the latest first.

    may_duplicate   compute a producer again in each of several consumers
    max_emissions   how often a producer's code may be emitted inside a kernel
    row_kernels     know the kernels that compute several reductions of a row; without, judge as XLA did
    """

    name: ClassVar[str] = "instruction-fusion"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    may_duplicate: bool = True
    max_emissions: int = 15
    row_kernels: bool = True

    def run(self, module: Module, context: PassContext) -> bool:
        changed = False
        while True:
            engine = self.engine(module, context)
            here = False
            for computation in engine.computations():
                here |= self._run(computation, engine, context)
            changed |= here
            if not engine.finish():
                return changed

    def choices(self, do_not_duplicate: frozenset[Instruction] = frozenset()) -> InstructionFusionChoices:
        return InstructionFusionChoices(self.may_duplicate, self.max_emissions, do_not_duplicate, self.row_kernels)

    def unfusible(self, engine: Engine, computation: Computation) -> frozenset[Instruction]:
        """What must not be duplicated in a computation."""
        if not self.may_duplicate or "FUS403" in engine.disabled:
            return frozenset()
        order = post_order(computation)
        plain = self.choices()
        known: dict[tuple[Instruction, Instruction], bool] = {}

        def allows(producer: Instruction, consumer: Instruction) -> bool:
            key = (producer, consumer)
            if key not in known:
                known[key] = _is_consumer(consumer) and self._allows(engine, producer, consumer, plain)
            return known[key]

        return frozenset(globally_unfusible(computation, order, allows))

    def _allows(
        self, engine: Engine, producer: Instruction, consumer: Instruction, choices: InstructionFusionChoices
    ) -> bool:
        return engine.allows(engine.edge(producer, consumer), choices, any_form=not self.row_kernels)

    def _run(self, computation: Computation, engine: Engine, context: PassContext) -> bool:
        computation.index_users()
        choices = self.choices(self.unfusible(engine, computation))
        position = {instruction: n for n, instruction in enumerate(post_order(computation))}
        queue = list(position)
        changed = False
        while queue:
            consumer = queue.pop()
            if consumer.parent is None or not _is_consumer(consumer):
                continue
            for producer in sorted(dict.fromkeys(consumer.operands), key=lambda o: -position[o]):
                if not _is_producer(producer, consumer):
                    continue
                if not self._allows(engine, producer, consumer, choices):
                    continue
                if not context.step():
                    return changed
                fusion = engine.fuse(producer, consumer)
                position[fusion] = position[consumer]
                queue.append(fusion)
                changed = True
                break
        return changed

    def looks_at(self, edge: Edge) -> bool:
        return _is_consumer(edge.consumer)

    def refusals(self, engine: Engine, edge: Edge) -> Iterator[Reason]:
        unfusible = _unfusible_cache(self, engine, edge.producer.computation)
        yield from engine.reasons(edge, self.choices(unfusible), any_form=not self.row_kernels)


def _unfusible_cache(fusion: InstructionFusion, engine: Engine, computation: Computation) -> frozenset[Instruction]:
    key = (fusion, computation)
    if key not in engine.notes:
        engine.notes[key] = fusion.unfusible(engine, computation)
    found: frozenset[Instruction] = engine.notes[key]
    return found


def _is_consumer(instruction: Instruction) -> bool:
    return launches(instruction)


def _is_producer(producer: Instruction, consumer: Instruction) -> bool:
    """Kernels, free instructions that kernels can hold, and constants of one element once the consumer is a kernel of several instructions."""
    if producer.opcode == "constant":
        return consumer.opcode == "fusion" and is_effectively_scalar(producer.shape)
    return launches(producer) or producer.opcode in FREE_PRODUCERS
