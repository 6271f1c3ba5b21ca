"""Edges beside a product that our kernels may take in: asked by the passes that do, and for the cause of a refused
edge."""

from __future__ import annotations

from hlo_opt.fusion.legality import Edge
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Instruction
from hlo_opt.ops.sets import is_product
from hlo_opt.ops.spec import OpKind, find
from hlo_opt.plans.kinds import ATTENTION_KINDS, PRODUCT_KINDS
from hlo_opt.plans.products import terms_of
from hlo_opt.plans.sketch import Sketch

WORTH = 0.85
"""The most that one kernel may take, relative to a library's product and the kernel beside it."""
WORTH_ALONE = 0.7
"""The same for our kernel of a product by itself, which saves no kernel beside it: on an H200, kernels of small
products took up to half as long again as their prices say."""
LONG = 128
"""Terms of a product that is not left to single threads. Of 230 pairs of kernels (the dumps of this repository, and
real models) whose kernel had no plan of a product, none took less time than the pair from 32 terms on; from 128 on it
took at least 2.6 times as long."""


def is_beside_product(edge: Edge, *, is_shared: bool = False) -> bool:
    """Whether one side is a product with what has been joined to it, and the other a loop; `is_shared` where several
    consumers may compute the producer."""
    if (
        (edge.duplicates and not is_shared)
        or edge.above.reduces
        or edge.below.reduces
        or bool(edge.above.library) == bool(edge.below.library)
    ):
        return False
    return _is_contraction(edge.above.library or edge.below.library)


def breaks_product(edge: Edge) -> bool:
    """Whether one side is a long product, and the other a reduction or a product, too. In one kernel threads share the
    work of one of them only: each adds up the other for every element that it needs."""
    above, below = edge.above, edge.below
    return (bool(below.significant_reduces or below.library) and has_long_product(edge.state, edge.producer)) or (
        bool(above.significant_reduces or above.library) and has_long_product(edge.state, edge.consumer)
    )


def has_long_product(state: FusionState, kernel: Instruction) -> bool:
    """Whether a kernel computes a product of at least `LONG` terms."""
    if not _is_contraction(state.traits(kernel).library):
        return False
    members = [node.instruction for node in state.cluster(kernel).members]
    return any(is_product(member) and terms_of(member) >= LONG for member in members)


def is_product_kernel(sketch: Sketch) -> bool:
    """Whether threads of a kernel share the terms of its products."""
    return sketch.kind in PRODUCT_KINDS | ATTENTION_KINDS


def _is_contraction(opcode: str) -> bool:
    spec = find(opcode)
    return spec is not None and spec.kind is OpKind.CONTRACTION
