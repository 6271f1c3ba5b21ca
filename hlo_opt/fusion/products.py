"""Edges beside a product that our kernels may take in: asked by the pass that does, and for the cause of a refused
edge."""

from __future__ import annotations

from hlo_opt.fusion.legality import Edge
from hlo_opt.ops.spec import OpKind, find

LEAST = 1 << 20
"""Bytes of a product, or of the operand that a kernel before it writes, that are worth it: a kernel beside smaller ones
takes next to no time."""


def is_beside_product(edge: Edge) -> bool:
    """Whether one side is a product with what has been joined to it, the other a loop, and the product or what it reads
    of the loop is large."""
    if (
        edge.duplicates
        or edge.above.reduces
        or edge.below.reduces
        or bool(edge.above.library) == bool(edge.below.library)
    ):
        return False
    product = edge.producer if edge.above.library else edge.consumer
    spec = find(edge.above.library or edge.below.library)
    largest = max(product.shape.byte_size, edge.producer.shape.byte_size)
    return spec is not None and spec.kind is OpKind.CONTRACTION and largest >= LEAST
