"""Fusion merging: a fusion moves into all kernels that read it, or into none.

Source: the classic xla/service/gpu/fusion_merger.cc (removed from XLA; priority fusion took its place).
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.analysis.xla.performance import estimate_fusion
from hlo_opt.diag import Reason
from hlo_opt.fusion.choices import InstructionFusionChoices, folds_short_rows, producer_is_fusion
from hlo_opt.fusion.compatibility import XLAS_MODEL
from hlo_opt.fusion.costs import kept_us
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.legality import Check, Edge
from hlo_opt.fusion.priority_choices import PriorityChoices
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Computation, Instruction
from hlo_opt.ir.walk import post_order
from hlo_opt.ops.sets import launches
from hlo_opt.passes.base import FusionPass
from hlo_opt.plans.price import Price

KEPT_SHARE = 0.97
"""If the first user could write the fusion's result for the others, the time of that counts as this share of itself
when it is compared with merging into each user. Prices do not tell smaller differences apart, and of two equal ways the
one that computes less is better."""

CERTAIN = 1 + 1e-9
"""The factor above which one sum of microseconds is longer than another in every order of additions."""


BY_PRICE = frozenset({"FUS402", "FUS404", "FUS407"})
"""The rules that keep reductions out of other kernels. For short rows prices decide."""


@dataclass(frozen=True)
class _MergerChoices(InstructionFusionChoices):
    """The rules of instruction fusion for single edges that also hold for fusions; duplication is a matter of cost.
    With `short_rows`, so are reductions of short rows, which each thread may fold by itself."""

    short_rows: bool = False

    def rules_out(self, edge: Edge, disabled: frozenset[str] = frozenset()) -> bool:
        return False

    def checks(self) -> tuple[Check, ...]:
        left_out = (producer_is_fusion, self.duplication, self.memory_traffic, self.recomputation)
        code_size = () if self.row_kernels else (PriorityChoices().code_size,)
        return (*(c for c in super().checks() if c not in left_out), *code_size)

    def against(self, edge: Edge, disabled: frozenset[str] = frozenset()) -> Iterator[Reason]:
        by_price: bool | None = None
        for reason in super().against(edge, disabled):
            if self.short_rows and reason.code in BY_PRICE:  # only then the price is asked for
                by_price = folds_short_rows(edge, anywhere=True) if by_price is None else by_price
                if by_price:
                    continue
            yield reason

    def likeness(self, edge: Edge) -> Hashable:
        known = super().likeness(edge)
        return None if known is None else (known, self.short_rows)


@dataclass(frozen=True)
class FusionMerger(FusionPass):
    """Merge fusions into their users where the cost model says that it pays.

    max_emissions   how often a member's code may be emitted inside a kernel
    max_copies      instructions that merging one fusion may add to the module: its size times the users after the first
    row_kernels     allow kernels that compute several reductions of a row, and use the prices of our kernels; if false,
                    allow and price what XLA did
    weigh_kept      by those prices, leave a fusion for `multi-output-fusion` if it is cheaper for its first user to
                    contain it and write its result for the others
    short_rows      also merge reductions of at most a warp's elements, which each thread then folds by itself
    """

    name: ClassVar[str] = "fusion-merger"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    max_emissions: int = 15
    max_copies: int = 256
    row_kernels: bool = True
    weigh_kept: bool = True
    short_rows: bool = False

    def fuse_in(self, computation: Computation, engine: Engine) -> bool:
        changed = False
        for producer in post_order(computation):
            if not self._is_moved(producer):
                continue
            for user in self._takers(engine, producer):
                if not engine.context.step():
                    return changed
                engine.fuse(producer, user)
                changed = True
        return changed

    def _is_moved(self, producer: Instruction) -> bool:
        """Whether an instruction may move: a fusion or, with `short_rows`, a reduction by itself."""
        return producer.opcode == "fusion" or (self.short_rows and producer.opcode == "reduce")

    def _takers(self, engine: Engine, producer: Instruction) -> list[Instruction]:
        """The users that a fusion is merged into: all, or only those that are forced."""
        if self._copies(engine, producer) is not None:
            return []
        takers = list(producer.users)
        if not all(self.takes(engine, producer, u) for u in takers):
            only_forced = "FUS108" not in engine.disabled
            if only_forced and not engine.forced:
                return []
            takers = [u for u in takers if self.takes(engine, producer, u)]
            if only_forced:
                return [u for u in takers if engine.is_forced(engine.edge(producer, u))]
        is_slower = self._may_be_slower(engine, producer, takers) and self._is_slower(engine, producer, takers)
        return [] if is_slower else takers

    def policy(self, engine: Engine, computation: Computation) -> _MergerChoices:
        return _MergerChoices(
            max_emissions=self.max_emissions, row_kernels=self.row_kernels, short_rows=self.short_rows
        )

    def takes(self, engine: Engine, producer: Instruction, consumer: Instruction) -> bool:
        return launches(consumer) and super().takes(engine, producer, consumer)

    def _copies(self, engine: Engine, producer: Instruction) -> Reason | None:
        size = engine.state.traits(producer).members
        users = sum(launches(u) for u in producer.users)
        copies = size * (users - 1)
        if copies <= self.max_copies or "FUS205" in engine.disabled:
            return None
        name = engine.edge(producer, next(iter(producer.users))).producer_name
        return Reason.of("FUS205", producer=name, size=size, users=users, copies=copies, limit=self.max_copies)

    def _slower(self, engine: Engine, producer: Instruction, takers: list[Instruction]) -> Reason | None:
        if not self._may_be_slower(engine, producer, takers):
            return None
        us_unfused, us_fused = self._times(engine, producer, takers)
        if us_fused <= us_unfused:
            return None
        return Reason.of(
            "FUS408",
            producer=engine.edge(producer, takers[0]).producer_name,
            users=len(takers),
            model="" if self.row_kernels else XLAS_MODEL,
            us_fused=us_fused,
            us_unfused=us_unfused,
        )

    def _may_be_slower(self, engine: Engine, producer: Instruction, takers: list[Instruction]) -> bool:
        """Whether the cost of merging has to be computed."""
        if "FUS408" in engine.disabled or producer.shape.is_tuple or not takers:
            return False
        return not any(engine.is_forced(engine.edge(producer, u)) for u in takers)

    def _is_slower(self, engine: Engine, producer: Instruction, takers: list[Instruction]) -> bool:
        """Whether merging takes longer. Stops as soon as that is certain, without the price of every kernel: none takes
        less than its launch."""
        state = engine.state
        if self.row_kernels and self._key(state, producer, takers) not in state.known.merges:
            prices, launch = state.prices, state.target.kernel_launch_us
            if not any(isinstance(prices.sketch_joined(producer, u), Reason) for u in takers):
                room = CERTAIN * (prices.of(producer).us + sum([prices.of(u).us for u in takers]))
                merged = itertools.accumulate(_us(prices.joined(producer, u)) - launch for u in takers)
                if any(launch * len(takers) + us > room for us in merged):
                    return True
        us_unfused, us_fused = self._times(engine, producer, takers)
        return us_fused > us_unfused

    def _key(self, state: FusionState, producer: Instruction, takers: list[Instruction]) -> Hashable:
        return self.row_kernels, self.weigh_kept, tuple([state.structure_of_both(producer, u) for u in takers])

    def _times(self, engine: Engine, producer: Instruction, takers: list[Instruction]) -> tuple[float, float]:
        """Microseconds of a fusion and its users, apart and merged."""
        state = engine.state
        key = self._key(state, producer, takers)
        times = state.known.merges.get(key)
        if times is None:
            times = self._priced(engine, producer, takers) if self.row_kernels else _by_xla(state, producer, takers)
            state.known.merges[key] = times
        return times

    def _priced(self, engine: Engine, producer: Instruction, takers: list[Instruction]) -> tuple[float, float]:
        """The times by the prices of our kernels; what no kernel can hold, legality refuses. Apart may mean that the
        first user takes the fusion in and writes it (`kept_us`)."""
        prices = engine.state.prices
        fused = [prices.joined(producer, u) for u in takers]
        alone, users = prices.of(producer), [prices.of(u).us for u in takers]
        unfused = alone.us + sum(users)
        if any(isinstance(f, Reason) for f in fused):
            return unfused, unfused
        if self.weigh_kept:
            unfused = min(unfused, KEPT_SHARE * kept_us(prices, producer, takers))
        return unfused, sum(f.us for f in fused if not isinstance(f, Reason))

    def looks_at(self, edge: Edge) -> bool:
        return self._is_moved(edge.producer) and launches(edge.consumer)

    def against_producer(self, engine: Engine, producer: Instruction) -> Iterator[tuple[Instruction | None, Reason]]:
        """The reasons against merging a fusion into all its users: the first user that cannot take it, and the cost."""
        if "FUS108" not in engine.disabled:
            for user in producer.users:
                if not self.takes(engine, producer, user):
                    yield user, self._cannot_take(engine, producer, user)
                    break
        copies = self._copies(engine, producer)
        if copies is not None:
            yield None, copies
        takers = [u for u in producer.users if self.takes(engine, producer, u)]
        slower = self._slower(engine, producer, takers) if takers else None
        if slower is not None:
            yield None, slower

    def _cannot_take(self, engine: Engine, producer: Instruction, user: Instruction) -> Reason:
        """Why a user cannot take the fusion: it is no kernel, or the edge is refused."""
        if launches(user):
            refusal = self.decide(engine, producer, user)
            assert refusal is not None
            why = f"{refusal.code} {refusal.slug}"
        else:
            why = "it is how the value leaves" if user.is_root else f"`{user.opcode}` launches no kernel"
        name = engine.edge(producer, user).producer_name
        return Reason.of("FUS108", producer=name, user=user.name, opcode=user.opcode, why=why)


def _us(result: Price | Reason) -> float:
    assert not isinstance(result, Reason)
    return result.us


def _by_xla(state: FusionState, producer: Instruction, takers: list[Instruction]) -> tuple[float, float]:
    users = [state.priced_by_xla(u) for u in takers]
    us_unfused, us_fused, _, _ = estimate_fusion(state.priced_by_xla(producer), users)
    return us_unfused, us_fused
