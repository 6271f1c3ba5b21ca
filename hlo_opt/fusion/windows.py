"""Windows that threads fold together must not become folds of a whole window for each element: cumulative ones, and
those that slide.

XLA has no such kernel: it makes a long window into several of 16 elements before it fuses, and folds each of those in a
loop (ReduceWindowRewriter in xla/service/gpu/gpu_compiler.cc). About windows as short as those the rules are XLA's.
"""

from __future__ import annotations

from hlo_opt.diag import Reason
from hlo_opt.fusion.legality import Edge, can_be_planned
from hlo_opt.plans.sketch import Sketch


def keeps_windows(edge: Edge) -> Reason | None:
    """Both together must still fold each long cumulative window along its lines, and share the rows of each
    reduction."""
    return _keeps(edge) if edge.above.windows or edge.below.windows else None


def keeps_sliding_windows(edge: Edge) -> Reason | None:
    """The same for sliding windows, which XLA folds in loops."""
    return _keeps(edge) if edge.above.slides or edge.below.slides else None


def _keeps(edge: Edge) -> Reason | None:
    if not can_be_planned(edge):
        return None
    wanted = edge.state.row_reductions(edge.producer) + edge.state.row_reductions(edge.consumer)
    merged = edge.merged if wanted else None
    if not isinstance(merged, Sketch) or merged.row_reductions >= wanted:
        return None
    return Reason.of("FUS409", consumer=edge.consumer_name, producer=edge.producer_name, kind=merged.kind)
