"""Multi-output fusion: kernels that read the same value become one, and a kernel joins one that reads it without losing
its own result.

Source: xla/backends/gpu/transforms/multi_output_fusion.cc. There the reachability of the whole computation is built
anew after every fusion; here an order of the instructions is kept up (`hlo_opt.fusion.order`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.analysis.properties import is_boundary_fusion, is_effectively_scalar
from hlo_opt.diag import Reason
from hlo_opt.fusion import compatibility
from hlo_opt.fusion.compatibility import Beside, MultiOutputEdge, Pair
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.legality import MAX_OPERANDS_AND_OUTPUTS, Edge
from hlo_opt.fusion.order import Connected, Order, order_of
from hlo_opt.fusion.outline import join
from hlo_opt.ir import Computation, Instruction
from hlo_opt.ir.walk import post_order
from hlo_opt.ops.sets import fused, launches, tuple_elements
from hlo_opt.passes.base import FusionPass, Refusal


@dataclass(frozen=True)
class MultiOutputFusion(FusionPass):
    """Join the kernels that read the same producer, then the producer with one of them; producers are visited users
    before operands.

    siblings           join kernels that read the same value
    producer_consumer  join a producer with a consumer and keep writing what others read
    plain_siblings     join two siblings even where neither is a fusion yet
    any_form           join kernels whatever loops they walk; each index space then has blocks of its own
    price_siblings     join siblings only where that pays; for a producer and its consumer this always holds
    levels             join a kernel that reduces rows with one that reads the same rows, so that they are read once
    xla_prices         decide by XLA's cost model, not by the prices of our kernels
    max_tries          the number of refusals after which a kernel tries no more siblings
    """

    name: ClassVar[str] = "multi-output-fusion"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"
    kind: ClassVar[str] = "outputs"

    siblings: bool = True
    producer_consumer: bool = True
    plain_siblings: bool = False
    any_form: bool = False
    price_siblings: bool = False
    levels: bool = False
    xla_prices: bool = False
    max_tries: int = 100

    def fuse_in(self, computation: Computation, engine: Engine) -> bool:
        producers = post_order(computation)
        order = Order(computation, producers)
        changed = False
        for producer in reversed(producers):
            if producer.parent is None or producer.literal is not None:
                continue
            if is_boundary_fusion(producer) and "FUS137" not in engine.disabled:
                continue
            if self.siblings and _may_have_siblings(producer):
                changed |= self._join_siblings(producer, order, engine)
            if self.producer_consumer:
                consumer = self._consumer(producer, order, engine)
                if consumer is not None:
                    if not engine.context.step():
                        return changed
                    _join(engine, order, MultiOutputEdge(producer, consumer, engine.state, engine.origins))
                    changed = True
        return changed

    # ---- siblings

    def _join_siblings(self, parent: Instruction, order: Order, engine: Engine) -> bool:
        changed = False
        for group in self._groups(engine, _candidates(engine, parent)):
            while len(group) > 1:
                host, *others = group
                others.reverse()
                group = []
                tries = 0
                reach: Connected | None = None
                while others:
                    other = others.pop()
                    if reach is None or not reach.knows(other):
                        reach = Connected(order, host, [other, *others[-self.max_tries :]])
                    pair = Beside(host, other, engine.state, engine.origins, parent=parent)
                    reason = next(self._against(engine, pair, order, reach), None)
                    if reason is None:
                        if not engine.context.step():
                            return changed
                        reach.add(other)
                        host = _join(engine, order, pair)
                        changed = True
                        continue
                    group.append(other)
                    tries += 1
                    if tries >= self.max_tries or _is_full(pair, reason):
                        break
                group += reversed(others)
        return changed

    def _groups(self, engine: Engine, candidates: list[Instruction]) -> list[list[Instruction]]:
        """Siblings in groups that walk equally many elements."""
        if len(candidates) < 2:
            return []
        if self.any_form or not {"FUS431", "FUS432"}.isdisjoint(engine.disabled) or engine.forced:
            return [candidates]
        groups: dict[int, list[Instruction]] = {}
        for candidate in candidates:
            walk = compatibility.walk_of(engine.state, candidate)
            if walk.form and "FUS133" not in engine.disabled:  # no pair with it would be joined
                continue
            shape = walk.shape
            groups.setdefault(shape.element_count if shape.is_array else -1, []).append(candidate)
        return list(groups.values())

    # ---- producers and consumers

    def _consumer(self, producer: Instruction, order: Order, engine: Engine) -> Instruction | None:
        """The consumer that a producer joins: one with several outputs, else a fusion, else a plain operation."""
        if not launches(producer):
            return None
        users = [u for u in producer.users if launches(u)]
        if not _is_shared(producer):
            users = [u for u in users if _writes_several(u)]
        for consumer in sorted(users, key=_rank):
            pair = MultiOutputEdge(producer, consumer, engine.state, engine.origins)
            if next(_cycle(pair, order), None) is not None:  # before anything is planned: most have one
                continue
            if next(self._against(engine, pair, order), None) is None:
                return consumer
        return None

    # ---- reasons

    def _against(self, engine: Engine, pair: Pair, order: Order, reach: Connected | None = None) -> Iterator[Reason]:
        """All reasons against one kernel of both; cheap checks come first. A forced pair is only checked for legality.
        `reach` knows the connections of the first of two siblings."""
        yield from engine.legal(compatibility.structure(pair))
        yield from engine.refused_before(pair)
        wanted = engine.is_forced(pair) or engine.is_forced_pair(pair)
        if not wanted:
            yield from engine.against(self._checks(pair), pair)
        yield from engine.legal(_cycle(pair, order, reach))
        if not wanted:
            yield from engine.against(self._dear_checks(pair), pair)
            yield from engine.chosen(pair)
        unplanned = compatibility.without_plan(pair)
        if unplanned is not None:
            yield from engine.legal([unplanned])

    def _checks(self, pair: Pair) -> Iterable[compatibility.PairCheck]:
        if isinstance(pair, MultiOutputEdge):
            if self.levels and compatibility.is_one_walk(pair):
                return compatibility.BUDGETS
            return (*(() if self.any_form else compatibility.KEPT), *compatibility.BUDGETS)
        plain = () if self.plain_siblings else (compatibility.plain_siblings,)
        forms = (compatibility.updates_in_place,) if self.any_form else compatibility.BESIDE
        return (*plain, *forms, *compatibility.BUDGETS)

    def _dear_checks(self, pair: Pair) -> Iterable[compatibility.PairCheck]:
        if isinstance(pair, MultiOutputEdge):
            one_walk = self.levels and compatibility.is_one_walk(pair)
            return (*(compatibility.ONE_WALK_DEAR if one_walk else compatibility.KEPT_DEAR), self._pays)
        return (*compatibility.BESIDE_DEAR, *((self._pays,) if self.price_siblings else ()))

    def _pays(self, pair: Pair) -> Reason | None:
        return compatibility.pays_by_xla(pair) if self.xla_prices else compatibility.pays(pair)

    def looks_at(self, edge: Edge) -> bool:
        if not (self.producer_consumer and launches(edge.producer) and launches(edge.consumer)):
            return False
        return _is_shared(edge.producer) or _writes_several(edge.consumer)

    def refusals(self, engine: Engine, edge: Edge) -> Iterator[Reason]:
        pair = MultiOutputEdge(edge.producer, edge.consumer, edge.state, edge.origins)
        yield from self._against(engine, pair, order_of(engine, edge.producer.computation))

    def sibling_refusals(self, engine: Engine, computation: Computation) -> Iterator[Refusal]:
        """The reasons that keep neighbours among the kernels that read the same value apart."""
        if not self.siblings:
            return
        seen: set[tuple[Instruction, Instruction]] = set()
        for parent in sorted(
            computation.instructions, key=is_boundary_fusion
        ):  # a pair that another parent has is reported with that parent
            if parent.literal is not None or not _may_have_siblings(parent):
                continue
            untried = is_boundary_fusion(parent) and "FUS137" not in engine.disabled
            candidates = _candidates(engine, parent)
            for first, second in itertools.pairwise(candidates):
                if (first, second) in seen:
                    continue
                seen.add((first, second))
                pair = Beside(first, second, engine.state, engine.origins, parent=parent)
                reasons = list(self._against(engine, pair, order_of(engine, computation)))
                if untried:
                    names = {"first": pair.producer_name, "second": pair.consumer_name}
                    reasons.append(Reason.of("FUS137", parent=parent.name, **names))
                yield Refusal(first, second, reasons)


def _join(engine: Engine, order: Order, pair: Pair) -> Instruction:
    """Join a pair: the consumer takes its producer in, or the first of two siblings the second. Returns the fusion."""
    other, host = (
        (pair.producer, pair.consumer) if isinstance(pair, MultiOutputEdge) else (pair.consumer, pair.producer)
    )
    known = compatibility.joint(pair)
    order.merge(other, host, host)
    fusion = join(engine, other, host, known)
    order.rename(host, fusion)
    return fusion


def _may_have_siblings(parent: Instruction) -> bool:
    return len(parent.users) > 1 and not (parent.shape.is_array and is_effectively_scalar(parent.shape))


def _candidates(engine: Engine, parent: Instruction) -> list[Instruction]:
    """The generated kernels that read a value, in the order in which XLA tries them."""
    state = engine.state
    users = (u for u in parent.users if launches(u) and state.lowering(u) is None and not state.traits(u).library)
    return sorted(users, key=_rank)


def _rank(instruction: Instruction) -> int:
    """Kernels with several outputs first, then fusions, then plain operations."""
    if _writes_several(instruction):
        return 0
    return 2 if fused(instruction) is None else 1


def _writes_several(instruction: Instruction) -> bool:
    body = fused(instruction)
    return body is not None and tuple_elements(body.root) is not None


def _is_shared(producer: Instruction) -> bool:
    """Whether a kernel's value has readers besides any one consumer."""
    return len(producer.users) > 1 or producer.is_root


def _is_full(pair: Beside, reason: Reason) -> bool:
    """Whether the first of a pair has as many outputs as a kernel may have."""
    return reason.code == "FUS201" and sum(1 for _ in pair.producer.shape.leaves()) + 1 >= MAX_OPERANDS_AND_OUTPUTS


def _cycle(pair: Pair, order: Order, reach: Connected | None = None) -> Iterator[Reason]:
    """The reason against a pair in which one needs the other through a third kernel; None where it reads it directly
    only."""
    if isinstance(pair, MultiOutputEdge):
        if order.depends_otherwise(pair.consumer, pair.producer):
            yield Reason.of("FUS131", producer=pair.producer_name, consumer=pair.consumer_name)
    elif order.connected(pair.producer, pair.consumer) if reach is None else reach.connected(pair.consumer):
        first, second = pair.producer, pair.consumer
        needed, user = (first, second) if order.place(first) < order.place(second) else (second, first)
        names = {first: pair.producer_name, second: pair.consumer_name}
        yield Reason.of("FUS132", needed=names[needed], user=names[user])
