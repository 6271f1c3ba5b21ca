"""Edges beside a product that our kernels may take in: asked by the pass that does, and for the cause of a refused
edge."""

from __future__ import annotations

from hlo_opt.fusion.legality import Edge
from hlo_opt.ops.spec import OpKind, find

LEAST = 1 << 20
"""Bytes of the smallest product that is worth it: the kernel after a smaller one takes next to no time."""


def is_beside_product(edge: Edge) -> bool:
    """Whether one side is a large product, with what has been joined to it, and the other a loop."""
    if (
        edge.duplicates
        or edge.above.reduces
        or edge.below.reduces
        or bool(edge.above.library) == bool(edge.below.library)
    ):
        return False
    product = edge.producer if edge.above.library else edge.consumer
    found = find(edge.above.library or edge.below.library)
    return found is not None and found.kind is OpKind.CONTRACTION and product.shape.byte_size >= LEAST
