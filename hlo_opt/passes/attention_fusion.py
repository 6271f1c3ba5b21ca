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
from hlo_opt.plans.attention import Attention
from hlo_opt.plans.tensor_attention import TensorAttention

WORTH = 0.95
"""The most that the kernel may take, relative to all that it stands for."""
_KINDS = (Attention.kind, TensorAttention.kind)
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
class AttentionFusion(FusionPass):
    """Make one kernel of two products and the softmax between them, where that takes less time. The values stay the
    same up to rounding: sums are added up in another order."""

    name: ClassVar[str] = "attention-fusion"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    def fuse_in(self, computation: Computation, engine: Engine) -> bool:
        if isinstance(engine.context.options.target, InLanes):
            return False  # routines that know a processor's caches
        changed = False
        places = {i: n for n, i in enumerate(post_order(computation))}
        for product in [i for i in places if _is_product(engine, i)]:
            if product not in places:  # inside another kernel by now
                continue
            for weights in dict.fromkeys(product.operands):
                above = _above(engine, product, weights, places)
                if above and self._pays(engine, product, above):
                    if not engine.context.step():
                        return changed
                    kernel = product
                    for producer in above:
                        kernel = engine.fuse(producer, kernel)
                    changed = True
                    places = {i: n for n, i in enumerate(post_order(computation))}  # with the kernel just made
                    break
        return changed

    def policy(self, engine: Engine, computation: Computation) -> _AnyLegal:
        return _AnyLegal()

    def _pays(self, engine: Engine, product: Instruction, above: Sequence[Instruction]) -> bool:
        state, policy = engine.state, _AnyLegal()
        inside = {product, *above}
        for producer in above:
            if not all(engine.allows(engine.edge(producer, user), policy) for user in producer.users if user in inside):
                return False
        cluster = state.cluster(product)
        for producer in above:
            cluster = merge_clusters(state.cluster(producer), cluster, producer)
        sketch = state.sketch_of(cluster)
        if isinstance(sketch, Reason) or sketch.kind not in _KINDS:
            return False
        return sketch.price.us <= WORTH * math.fsum(_least(engine, kernel) for kernel in inside)


def _is_product(engine: Engine, instruction: Instruction) -> bool:
    """Whether an instruction is a product of matrices, or a kernel around one."""
    if multiplies_matrices(instruction):
        return True
    if not launches(instruction):
        return False
    members = engine.state.cluster(instruction).members
    return sum(multiplies_matrices(node.instruction) for node in members) == 1


def _above(
    engine: Engine, product: Instruction, weights: Instruction, places: dict[Instruction, int]
) -> list[Instruction]:
    """The kernels from another product to the weights of this one, users first, and then that product; none where there
    is more than one, no softmax among them, or anything else reads them."""
    found: dict[Instruction, None] = {}
    first: Instruction | None = None
    todo = [weights]
    while todo:
        kernel = todo.pop()
        if kernel in found or kernel is first or not (launches(kernel) or keeps_values(kernel, COPIES)):
            continue
        if _is_product(engine, kernel):
            if first is not None:
                return []
            first = kernel
            continue
        found[kernel] = None
        if len(found) > MOST_BETWEEN:
            return []
        todo += kernel.operands
    if first is None or not any(engine.state.traits(kernel).reduces for kernel in found):
        return []
    # of the kernels above the weights, only those that need the first product; masks and the like may be read by others
    needing: set[Instruction] = {first}
    for kernel in sorted(found, key=places.__getitem__):
        if not needing.isdisjoint(kernel.operands):
            needing.add(kernel)
    inside = {*needing, product}
    if any(kernel.is_root or not inside.issuperset(kernel.users) for kernel in needing):
        return []
    return sorted(needing, key=places.__getitem__, reverse=True)


def _least(engine: Engine, kernel: Instruction) -> float:
    """Microseconds of a kernel as it is, or of ours where a library's product takes longer."""
    state = engine.state
    us = state.prices.of(kernel).us
    if multiplies_matrices(kernel):
        alone = state.sketch(state.structure(kernel), lambda: state.cluster(kernel))
        us = us if isinstance(alone, Reason) else min(us, alone.price.us)
    return us
