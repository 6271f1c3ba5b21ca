"""Products take in the operations on their result, and those on their operands, where our kernel of both takes less
time than a library's product and the kernel beside it.

A library writes a product, and the kernel that adds a bias, a residual or an activation reads all of it again. Where
few terms are added that is most of the time. Prices decide, and must differ clearly: a library is better at its
products than they say.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.analysis.graph.cluster import merge_clusters
from hlo_opt.analysis.targets import InLanes
from hlo_opt.diag import Reason
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.in_place import in_place_conflict
from hlo_opt.fusion.legality import Edge, can_be_planned
from hlo_opt.fusion.products import WORTH, WORTH_ALONE, is_beside_product
from hlo_opt.ir import Computation, Instruction
from hlo_opt.ir.walk import post_order
from hlo_opt.ops.sets import is_product, launches
from hlo_opt.passes.base import FusionPass


@dataclass(frozen=True)
class _ProductChoices:
    """The policy: one kernel must be cheaper by a factor. Not where all kernels around a product are priced together
    (`by_price` False), as those are that read one operand (`is_shared`)."""

    any_form: ClassVar[bool] = True
    by_price: bool = True
    is_shared: bool = False

    def rules_out(self, edge: Edge, disabled: frozenset[str] = frozenset()) -> bool:
        if not is_beside_product(edge, is_shared=self.is_shared):
            return True
        return self.by_price and "FUS408" not in disabled and _product_is_slower(edge)

    def likeness(self, edge: Edge) -> Hashable:
        return type(self).__name__, self.by_price, self.is_shared

    def against(self, edge: Edge, disabled: frozenset[str] = frozenset()) -> Iterator[Reason]:
        conflict = in_place_conflict(edge)
        if conflict is not None:
            yield conflict
        reason = _slower(edge) if self.by_price and can_be_planned(edge) else None
        if reason is not None and reason.code not in disabled:
            yield reason


@dataclass(frozen=True)
class ProductFusion(FusionPass):
    """Move products into the kernels after them, and what makes their operands into them, where products are the only
    users. A product becomes a kernel by itself where that takes less time than a library's."""

    name: ClassVar[str] = "product-fusion"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    def fuse_in(self, computation: Computation, engine: Engine) -> bool:
        if isinstance(engine.context.options.target, InLanes):
            return False  # routines that know a processor's caches
        changed = False
        for product in [i for i in post_order(computation) if is_product(i)]:
            users = [u for u in product.users if launches(u)]
            around = [(product, users[0])] if len(product.users) == len(users) == 1 else []
            around += [(o, product) for o in dict.fromkeys(product.operands) if launches(o)]
            kernel = product
            together = not any(self.takes(engine, *pair) for pair in around) and _pays_together(engine, product, around)
            for producer, consumer in around:
                pair = (producer, kernel) if consumer is product else (producer, consumer)
                if together or self.takes(engine, *pair):
                    if not engine.context.step():
                        return changed
                    kernel = engine.fuse(*pair)
                    changed = True
            if kernel is product and _is_quicker_alone(product, engine):
                if not engine.context.step():
                    return changed
                engine.start(product)
                changed = True
        for producer in [i for i in post_order(computation) if launches(i) and len(i.users) > 1]:
            if _pays_for_all(engine, producer):
                if not engine.context.step():
                    return changed
                for user in list(producer.users):
                    engine.fuse(producer, user)
                changed = True
        return changed

    def looks_at(self, edge: Edge) -> bool:
        return launches(edge.consumer) and launches(edge.producer) and is_beside_product(edge)

    def policy(self, engine: Engine, computation: Computation) -> _ProductChoices:
        return _ProductChoices()


def _is_quicker_alone(product: Instruction, engine: Engine) -> bool:
    """Whether our kernel of a product takes clearly less time than a library: where it is small, a library's kernels
    take longer to begin than to multiply, and where its batch dimensions do not follow one another in memory, there are
    several calls, or one by a list of addresses. A product that waits for others, or for which others wait, stays."""
    state = engine.state
    if product.control_predecessors or product in state.waited_for(product.computation):
        return False
    alone = state.sketch(state.structure(product), lambda: state.cluster(product))
    return not isinstance(alone, Reason) and alone.price.us < WORTH_ALONE * state.prices.of(product).us


def _pays_together(engine: Engine, product: Instruction, around: Sequence[tuple[Instruction, Instruction]]) -> bool:
    """Whether one kernel of a product and all kernels around it pays, where none of them alone does: a library is left
    once only."""
    if len(around) < 2 or not all(
        engine.allows(engine.edge(*pair), _ProductChoices(by_price=False)) for pair in around
    ):
        return False
    state, prices = engine.state, engine.state.prices
    others = [producer if consumer is product else consumer for producer, consumer in around]
    room = WORTH * sum([prices.of(one).us for one in (product, *others)])
    if any(isinstance(joint := prices.joined(*pair), Reason) or joint.us > room for pair in around):
        return False
    cluster = state.cluster(product)
    for producer, consumer in around:
        if consumer is product:
            cluster = merge_clusters(state.cluster(producer), cluster, producer)
        else:
            cluster = merge_clusters(cluster, state.cluster(consumer), product)
    sketch = state.sketch_of(cluster)
    return not isinstance(sketch, Reason) and sketch.price.us <= room


def _pays_for_all(engine: Engine, producer: Instruction) -> bool:
    """Whether several products that read one operand compute it each for themselves, as a training step's do with an
    activation: the next layer, and the gradient of its weights."""
    if producer.is_root or not producer.shape.is_array or is_product(producer):
        return False
    users = list(producer.users)
    shared = _ProductChoices(by_price=False, is_shared=True)
    if not all(launches(u) and engine.allows(engine.edge(producer, u), shared) for u in users):
        return False
    prices = engine.state.prices
    room = WORTH * (prices.of(producer).us + sum(prices.of(u).us for u in users))
    for user in users:
        joint = prices.joined(producer, user)
        room -= room + 1 if isinstance(joint, Reason) else joint.us
        if room < 0:
            return False
    return True


def _product_is_slower(edge: Edge) -> bool:
    """Whether our kernel of a product takes longer by itself than one kernel of it and what follows may: then the price
    of that, which does more, is not asked for. Where less is written than before, both are priced."""
    product, consumer, state = edge.producer, edge.consumer, edge.state
    if edge.below.library or not launches(product) or not launches(consumer):
        return False
    alone, after = state.prices.of(product), state.prices.of(consumer)
    if after.bytes < 2 * alone.written:
        return False
    ours = state.sketch(state.structure(product), lambda: state.cluster(product))
    return not isinstance(ours, Reason) and ours.price.us > WORTH * (alone.us + after.us)


def _slower(edge: Edge) -> Reason | None:
    merged, prices = edge.merged, edge.state.prices
    if isinstance(merged, Reason):
        return merged
    both = merged.price
    apart = WORTH * prices.apart(edge.producer, edge.consumer)
    if both.us <= apart:
        return None
    us_unfused = apart / WORTH
    wanted = f", not {100 * (1 - WORTH):.0f} % less" if both.us <= us_unfused else ""
    return Reason.of(
        "FUS408", producer=edge.producer_name, users=1, model=wanted, us_fused=both.us, us_unfused=us_unfused
    )
