"""Edges beside a product that our kernels may take in: asked by the pass that does, and for the cause of a refused
edge."""

from __future__ import annotations

from hlo_opt.fusion.legality import Edge
from hlo_opt.ops.spec import OpKind, find

WORTH = 0.85
"""The most that one kernel may take, relative to a library's product and the kernel beside it."""
WORTH_ALONE = 0.7
"""The same for our kernel of a product by itself, which saves no kernel beside it: on an H200, kernels of small
products took up to half as long again as their prices say."""


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
    spec = find(edge.above.library or edge.below.library)
    return spec is not None and spec.kind is OpKind.CONTRACTION
