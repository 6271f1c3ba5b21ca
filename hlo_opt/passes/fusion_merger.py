"""Fusion merging: a fusion moves into all kernels that read it, or into none.

Source: the classic xla/service/gpu/fusion_merger.cc (removed from XLA; priority fusion took its place).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.analysis.cost import estimate_fusion
from hlo_opt.analysis.facts import launches
from hlo_opt.diag import Reason
from hlo_opt.fusion.choices import InstructionFusionChoices, producer_is_fusion
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.legality import Check, Edge
from hlo_opt.fusion.priority_choices import PriorityChoices
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ir.walk import post_order
from hlo_opt.passes.base import PassContext
from hlo_opt.passes.fusion_pass import FusionPass


class _MergerChoices(InstructionFusionChoices):
    """The per-edge rules of instruction fusion that hold for fusions too; duplication is what the cost decides."""

    def rules_out(self, edge: Edge, disabled: frozenset[str] = frozenset()) -> bool:
        return False

    def checks(self) -> tuple[Check, ...]:
        left_out = (producer_is_fusion, self.duplication, self.memory_traffic)
        code_size = () if self.row_kernels else (PriorityChoices().code_size,)
        return (*(c for c in super().checks() if c not in left_out), *code_size)


@dataclass(frozen=True)
class FusionMerger(FusionPass):
    """Merge fusions into their users where the cost model says that it pays.

    max_emissions   how often a member's code may be emitted inside a kernel
    max_copies      instructions that merging one fusion may add to the module: its size times the users after the first
    row_kernels     know the kernels that compute several reductions of a row; without, judge and price as XLA did
    """

    name: ClassVar[str] = "fusion-merger"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    max_emissions: int = 15
    max_copies: int = 256
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

    def _run(self, computation: Computation, engine: Engine, context: PassContext) -> bool:
        computation.index_users()
        changed = False
        for producer in post_order(computation):
            if producer.opcode != "fusion":
                continue
            for user in self._takers(engine, producer):
                if not context.step():
                    return changed
                engine.fuse(producer, user)
                changed = True
        return changed

    def _takers(self, engine: Engine, producer: Instruction) -> list[Instruction]:
        """The users that a fusion is merged into: all of them, or none."""
        users = list(producer.users)
        if self._copies(engine, producer) is not None:
            return []
        partly = "FUS108" in engine.disabled or any(engine.is_forced(engine.edge(producer, u)) for u in users)
        takers: list[Instruction] = []
        for user in users:
            if self._allows(engine, producer, user):
                takers.append(user)
            elif not partly:
                return []
        if len(takers) < len(users) and "FUS108" not in engine.disabled:
            return [u for u in takers if engine.is_forced(engine.edge(producer, u))]
        if takers and self._slower(engine, producer, takers) is not None:
            return []
        return takers

    def _choices(self) -> _MergerChoices:
        return _MergerChoices(max_emissions=self.max_emissions, row_kernels=self.row_kernels)

    def _allows(self, engine: Engine, producer: Instruction, user: Instruction) -> bool:
        """Whether there is no obstacle; asked once for edges that are alike."""
        return launches(user) and engine.allows(
            engine.edge(producer, user), self._choices(), any_form=not self.row_kernels
        )

    def _obstacle(self, engine: Engine, producer: Instruction, user: Instruction) -> Reason | None:
        """What keeps one user from taking a fusion; the user is no kernel, or the edge is refused."""
        edge = engine.edge(producer, user)
        if not launches(user):
            return _cannot_take(
                edge, "it is how the value leaves" if user.is_root else f"`{user.opcode}` launches no kernel"
            )
        return next(engine.reasons(edge, self._choices(), any_form=not self.row_kernels), None)

    def _copies(self, engine: Engine, producer: Instruction) -> Reason | None:
        size = sum(1 for _ in engine.state.cluster(producer).members)
        users = sum(launches(u) for u in producer.users)
        copies = size * (users - 1)
        if copies <= self.max_copies or "FUS205" in engine.disabled:
            return None
        name = engine.edge(producer, next(iter(producer.users))).producer_name
        return Reason.of("FUS205", producer=name, size=size, users=users, copies=copies, limit=self.max_copies)

    def _slower(self, engine: Engine, producer: Instruction, takers: list[Instruction]) -> Reason | None:
        if "FUS408" in engine.disabled or producer.shape.is_tuple:
            return None
        if any(engine.is_forced(engine.edge(producer, u)) for u in takers):
            return None
        us_unfused, us_fused = self._times(engine, producer, takers)
        if us_fused <= us_unfused:
            return None
        return Reason.of(
            "FUS408",
            producer=engine.edge(producer, takers[0]).producer_name,
            users=len(takers),
            us_fused=us_fused,
            us_unfused=us_unfused,
        )

    def _times(self, engine: Engine, producer: Instruction, takers: list[Instruction]) -> tuple[float, float]:
        """Microseconds of a fusion and the users that take it, apart and merged."""
        state = engine.state
        key = (self.row_kernels, tuple([state.structure_of_both(producer, u) for u in takers]))
        found = state.known.merges.get(key)
        if found is None:
            priced = state.priced if self.row_kernels else state.priced_by_xla
            us_unfused, us_fused, _, _ = estimate_fusion(priced(producer), [priced(u) for u in takers])
            found = state.known.merges[key] = us_unfused, us_fused
        return found

    def looks_at(self, edge: Edge) -> bool:
        return edge.producer.opcode == "fusion" and launches(edge.consumer)

    def refusals(self, engine: Engine, edge: Edge) -> Iterator[Reason]:
        yield from engine.reasons(edge, self._choices(), any_form=not self.row_kernels)
        producer = edge.producer
        key = (self, producer)
        if key not in engine.notes:
            engine.notes[key] = list(self._against_all(engine, producer))
        for user, reason in engine.notes[key]:
            if user is not edge.consumer:
                yield reason

    def _against_all(self, engine: Engine, producer: Instruction) -> Iterator[tuple[Instruction | None, Reason]]:
        """What keeps a fusion from being merged into all its users: the first user that cannot take it, and the cost."""
        if "FUS108" not in engine.disabled:
            for user in producer.users:
                obstacle = self._obstacle(engine, producer, user)
                if obstacle is None:
                    continue
                if obstacle.code != "FUS108":
                    obstacle = _cannot_take(engine.edge(producer, user), f"{obstacle.code} {obstacle.slug}")
                yield user, obstacle
                break
        copies = self._copies(engine, producer)
        if copies is not None:
            yield None, copies
        takers = [u for u in producer.users if self._allows(engine, producer, u)]
        slower = self._slower(engine, producer, takers) if takers else None
        if slower is not None:
            yield None, slower


def _cannot_take(edge: Edge, why: str) -> Reason:
    return Reason.of(
        "FUS108", producer=edge.producer_name, user=edge.consumer.name, opcode=edge.consumer.opcode, why=why
    )
