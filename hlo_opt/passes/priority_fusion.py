"""Priority fusion: what XLA does today. The producer whose fusion saves most time goes into all its users, until
nothing is worth fusing.

Source: xla/backends/gpu/transforms/priority_fusion.cc.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.analysis.properties import is_generic_triton
from hlo_opt.analysis.xla.performance import estimate_fusion
from hlo_opt.diag import Reason
from hlo_opt.fusion.compatibility import XLAS_MODEL
from hlo_opt.fusion.costs import cost_of, kept_us
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.legality import MAX_CODE_SIZE, Edge
from hlo_opt.fusion.priority_choices import ConstantChoices, PriorityChoices, is_fusible, retile
from hlo_opt.fusion.priority_queue import PriorityQueue, saved_quarters
from hlo_opt.ir import Computation, Instruction
from hlo_opt.ops.sets import is_view, launches
from hlo_opt.passes.base import FusionPass


@dataclass(frozen=True)
class PriorityFusion(FusionPass):
    """Fuse producers into all their users, first the one that saves most by XLA's cost model; constants of one element
    last.

    max_code_size    operations that a merged kernel may emit
    sliding_windows  keep the kernels in which threads fold sliding windows together; XLA has none
    own_prices       do not fuse where our kernels would take longer
    constants        also fuse kernels that read only constants, as XLA does; if false, later passes fuse them
    """

    name: ClassVar[str] = "priority-fusion"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    max_code_size: int = MAX_CODE_SIZE
    sliding_windows: bool = False
    own_prices: bool = False
    constants: bool = True

    def fuse_in(self, computation: Computation, engine: Engine) -> bool:
        changed = self._fuse_arrays(computation, engine)
        return (self.constants and self._fuse_constants(computation, engine)) or changed

    def policy(self, engine: Engine, computation: Computation) -> PriorityChoices:
        return _choices(self.max_code_size, self.sliding_windows)

    def _fuse_arrays(self, computation: Computation, engine: Engine) -> bool:
        queue = PriorityQueue(
            computation,
            engine.state,
            functools.partial(self.takes, engine),
            partly="FUS108" in engine.disabled,
            at_any_cost="FUS408" in engine.disabled,
            takes=_producers(engine),
            wanted=(lambda producer, consumer: engine.is_forced(engine.edge(producer, consumer)))
            if engine.forced
            else None,
        )
        changed = False
        while (entry := queue.pop()) is not None:
            producer, users = entry
            if (reason := self._refused_by_price(engine, producer, users)) is not None:
                engine.context.left[self.name, engine.edge(producer, users[0]).producer_name] = reason
                continue
            for consumer in users:
                if not engine.context.step():
                    return changed
                fusion = _fuse(engine, producer, consumer)
                queue.fused(producer, consumer, fusion)
                changed = True
            queue.update()
        for producer in queue.too_dear():
            name = engine.edge(producer, next(iter(producer.users))).producer_name
            engine.context.left[self.name, name] = _slower(engine, producer, list(producer.users))
        return changed

    def _refused_by_price(self, engine: Engine, producer: Instruction, users: list[Instruction]) -> Reason | None:
        """The reason, by the prices of our own kernels, not to fuse a producer into some users: it takes longer than
        separate kernels, or than a first user that also writes the producer's result for the others."""
        if not self.own_prices or "FUS408" in engine.disabled:
            return None
        if any(engine.is_forced(engine.edge(producer, user)) for user in users):
            return None
        prices = engine.state.prices
        apart = [prices.of(one) for one in (producer, *users)]
        cost = cost_of(apart, [prices.joined(producer, user) for user in users])
        if isinstance(cost, Reason):
            return cost
        us_unfused = cost.us_unfused
        if cost.us_fused <= us_unfused:
            us_unfused = min(us_unfused, kept_us(prices, producer, users))
        if cost.us_fused <= us_unfused:
            return None
        return Reason.of(
            "FUS408",
            producer=engine.edge(producer, users[0]).producer_name,
            users=len(users),
            model="",
            us_fused=cost.us_fused,
            us_unfused=us_unfused,
        )

    def _fuse_constants(self, computation: Computation, engine: Engine) -> bool:
        changed = False
        choices = ConstantChoices()
        for constant in list(computation.instructions):
            if constant.literal is None or not constant.shape.is_array or constant.shape.element_count > 1:
                continue
            for user in [u for u in constant.users if not is_view(u.opcode)]:
                if not engine.allows(engine.edge(constant, user), choices):
                    continue
                if not engine.context.step():
                    return changed
                engine.fuse(constant, user)
                changed = True
        return changed

    def looks_at(self, edge: Edge) -> bool:
        return launches(edge.consumer)

    def refusals(self, engine: Engine, edge: Edge) -> Iterator[Reason]:
        own = list(super().refusals(engine, edge))
        if not own:  # it would be worth it now, but was not before users took their constants in
            left = engine.context.left.get((self.name, edge.producer_name))
            own += [] if left is None or left.code in engine.disabled else [left]
        yield from own

    def against_producer(self, engine: Engine, producer: Instruction) -> Iterator[tuple[Instruction | None, Reason]]:
        """The reasons against fusing a producer into all its users: the first user that refuses it, and the cost."""
        if is_view(producer.opcode) or not _producers(engine)(producer):
            return
        users = [u for u in producer.users if not is_view(u.opcode)]
        name = engine.edge(producer, users[0]).producer_name
        takers: dict[Instruction, None] = {}
        for user in users:
            reason = self.decide(engine, producer, user)
            if reason is None:
                takers[user] = None
            elif "FUS108" not in engine.disabled:
                why = (
                    "it is how the value leaves"
                    if user.is_root and not launches(user)
                    else f"{reason.code} {reason.slug}"
                )
                edge = engine.edge(producer, user)
                yield user, Reason.of("FUS108", producer=name, user=edge.consumer.name, opcode=user.opcode, why=why)
                return
        priced = [u for u in producer.users if u in takers or is_view(u.opcode)]
        if takers and "FUS408" not in engine.disabled and saved_quarters(engine.state, producer, priced) < 0:
            yield None, _slower(engine, producer, priced)


@functools.cache
def _choices(max_code_size: int, sliding_windows: bool) -> PriorityChoices:
    """One object for all edges: each is asked for its policy."""
    return PriorityChoices(max_code_size, sliding_windows)


def _producers(engine: Engine) -> Callable[[Instruction], bool]:
    """The instructions that the queue takes: those of the opcodes that XLA fuses, or with that rule switched off all
    that fill an array by a launch."""
    if "FUS122" not in engine.disabled:
        return is_fusible
    return lambda instruction: is_fusible(instruction) or (launches(instruction) and instruction.shape.is_array)


def _slower(engine: Engine, producer: Instruction, users: list[Instruction]) -> Reason:
    """Why a producer is not fused although all its users would take it."""
    state = engine.state
    if any(map(is_generic_triton, (producer, *users))):
        us_unfused, us_fused, _, _ = estimate_fusion(
            state.priced_by_xla(producer), [state.priced_by_xla(u) for u in users]
        )
    else:  # the same, from what is known of the structures
        launch = state.target.kernel_launch_us
        alone, below = state.estimate_by_xla(producer), [state.estimate_by_xla(u) for u in users]
        us_unfused = launch * (len(users) + 1) + alone.us + sum([b.us for b in below])
        us_fused = launch * len(users) + sum([state.fused_by_xla(producer, u).us for u in users])
    name = engine.edge(producer, users[0]).producer_name
    return Reason.of(
        "FUS408", producer=name, users=len(users), model=XLAS_MODEL, us_fused=us_fused, us_unfused=us_unfused
    )


def _fuse(engine: Engine, producer: Instruction, consumer: Instruction) -> Instruction:
    """Fuse a producer into a consumer. A tiled kernel that has grown may have other best tiles."""
    tiled = is_generic_triton(producer) or is_generic_triton(consumer)
    tiles = engine.state.best_tiles(producer, consumer) if tiled else None
    fusion = engine.fuse(producer, consumer)
    if tiles is not None:
        retile(fusion, tiles)
    return fusion
