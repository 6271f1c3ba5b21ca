"""A product with keys, its softmax, and the product of that with values become one kernel, where this takes less time
than the kernels, or library calls, that they are.

Scores and weights then never go to memory: `hlo_opt.plans.attention` says how. What lies between the products, such as
a scale, a mask or a cap, may be in several kernels; all of them become part of the one.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_opt.analysis.graph.cluster import merge_clusters
from hlo_opt.analysis.targets import InLanes
from hlo_opt.diag import Reason
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.legality import Edge
from hlo_opt.ir import Computation, Instruction
from hlo_opt.ir.walk import post_order
from hlo_opt.ops.sets import COPIES, keeps_values, launches, multiplies_matrices
from hlo_opt.passes.base import FusionPass
from hlo_opt.plans.kinds import ATTENTION_KINDS

WORTH = 0.95
"""The most that the kernel may take, relative to all that it stands for."""
MOST_BETWEEN = 12
"""The most kernels, and views of what they write, between the products."""


@dataclass(frozen=True)
class _AnyLegal:
    """The policy: the price of all kernels together decides, not that of an edge."""

    any_form: ClassVar[bool] = True

    def rules_out(self, edge: Edge, disabled: frozenset[str] = frozenset()) -> bool:
        return edge.duplicates

    def likeness(self, edge: Edge) -> Hashable:
        return type(self).__name__

    def against(self, edge: Edge, disabled: frozenset[str] = frozenset()) -> Iterator[Reason]:
        return iter(())


@dataclass(frozen=True)
class _AllTogether(_AnyLegal):
    """As above, for kernels of which all readers become part of the one."""

    def rules_out(self, edge: Edge, disabled: frozenset[str] = frozenset()) -> bool:
        return False


@dataclass(frozen=True)
class AttentionFusion(FusionPass):
    """Make one kernel of two products and the softmax between them, where that takes less time. The values stay the
    same up to rounding: sums are added up in another order."""

    name: ClassVar[str] = "attention-fusion"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    def fuse_in(self, computation: Computation, engine: Engine) -> bool:
        if isinstance(engine.context.options.target, InLanes):
            return False  # routines that know a processor's caches
        changed = False
        places = _places(computation)
        for product in [i for i in places if _is_product(engine, i)]:
            if product not in places:
                continue  # it went into another
            for weights in dict.fromkeys(product.operands):
                last = product
                above = _above(engine, last, product, weights, places)
                if not above and (reader := _reader(product)) is not None:  # it may divide by the sum
                    last = reader
                    above = _above(engine, last, product, weights, places)
                if above and self._pays(engine, last, above):
                    if not engine.context.step():
                        return changed
                    kernel = last
                    for producer in above:
                        kernel = engine.fuse(producer, kernel)
                    changed, places = True, _places(computation)
                    break
        return changed

    def policy(self, engine: Engine, computation: Computation) -> _AnyLegal:
        return _AnyLegal()

    def _pays(self, engine: Engine, last: Instruction, above: Sequence[Instruction]) -> bool:
        state, policy = engine.state, _AllTogether()
        inside = {last, *above}
        for producer in above:
            if not all(engine.allows(engine.edge(producer, user), policy) for user in producer.users if user in inside):
                return False
        cluster = state.cluster(last)
        for producer in above:
            cluster = merge_clusters(state.cluster(producer), cluster, producer)
        sketch = state.sketch_of(cluster)
        if isinstance(sketch, Reason) or sketch.kind not in ATTENTION_KINDS:
            return False
        return sketch.price.us <= WORTH * math.fsum(_least(engine, kernel) for kernel in inside)


def _places(computation: Computation) -> dict[Instruction, int]:
    """The place of each instruction in an order of operands before users."""
    return {i: n for n, i in enumerate(post_order(computation))}


def _is_product(engine: Engine, instruction: Instruction) -> bool:
    """Whether an instruction is a product of matrices, or a kernel around one."""
    if multiplies_matrices(instruction):
        return True
    if not launches(instruction):
        return False
    members = engine.state.cluster(instruction).members
    return sum(multiplies_matrices(node.instruction) for node in members) == 1


def _reader(product: Instruction) -> Instruction | None:
    """The only kernel that reads a product, also through views; None where there are several, or it is a result."""
    value = product
    while True:
        if value.is_root or len(value.users) != 1:
            return None
        (value,) = value.users
        if launches(value):
            return None if multiplies_matrices(value) else value
        if not keeps_values(value, COPIES):
            return None


def _above(
    engine: Engine, last: Instruction, product: Instruction, weights: Instruction, places: dict[Instruction, int]
) -> list[Instruction]:
    """The kernels from another product to this one, and to the `last` one if that is its reader, users first; none
    where the weights need more than one other product, no softmax is among them, or anything else reads them."""
    first = _product_above(engine, weights)
    if first is None:
        return []
    inside: dict[Instruction, None] = {}
    todo = [first]
    while todo:
        kernel = todo.pop()
        if kernel in inside or kernel is last:
            continue
        if kernel.is_root or kernel not in places or not _may_be_between(kernel):
            return []
        if kernel not in (first, product) and _is_product(engine, kernel):
            return []
        inside[kernel] = None
        if len(inside) > MOST_BETWEEN + 2:
            return []
        todo += kernel.users
    if (product is not last and product not in inside) or not any(engine.state.traits(k).reduces for k in inside):
        return []
    return sorted(inside, key=places.__getitem__, reverse=True)


def _product_above(engine: Engine, weights: Instruction) -> Instruction | None:
    """The only product that the weights need by way of other kernels; None where there are none or several."""
    found: set[Instruction] = set()
    first: Instruction | None = None
    todo = [weights]
    while todo:
        kernel = todo.pop()
        if kernel in found or kernel is first or not _may_be_between(kernel):
            continue
        if _is_product(engine, kernel):
            if first is not None:
                return None
            first = kernel
            continue
        found.add(kernel)
        if len(found) > MOST_BETWEEN:
            return None
        todo += kernel.operands
    return first


def _may_be_between(kernel: Instruction) -> bool:
    return launches(kernel) or keeps_values(kernel, COPIES)


def _least(engine: Engine, kernel: Instruction) -> float:
    """Microseconds of a kernel as it is, or of ours where a library's product takes longer."""
    state = engine.state
    us = state.prices.of(kernel).us
    if multiplies_matrices(kernel):
        alone = state.sketch(state.structure(kernel), lambda: state.cluster(kernel))
        us = us if isinstance(alone, Reason) else min(us, alone.price.us)
    return us
