"""Custom calls that order elements: TopK in its spellings, what XLA:TPU leaves of an approximate top-k, and CUB's radix sort.

Source: xla/service/topk_rewriter.cc, xla/hlo/builder/lib/approx_topk.cc, jax/_src/lax/ann.py, xla/backends/gpu/transforms/sort_rewriter.cc (targets and `descending`).
"""

from __future__ import annotations

from hlo_opt.ops.custom_calls.targets import CustomCallSpec, register_custom_call
from hlo_opt.ops.lazy import lazy

for _target, _function, _library in (
    ("TopK", "top_k", "xla"),
    ("__gpu$TopK", "top_k", "xla"),
    ("mhlo.topk", "top_k", ""),
    ("ApproxTopK", "best", ""),
    ("PartialReduce", "best", ""),
    ("xla.gpu.ext.cub_sort_keys", "radix_sort", "CUB"),
    ("xla.gpu.ext.cub_sort_pairs", "radix_sort", "CUB"),
    ("xla.gpu.ext.cub_sort_unassigned_scratch_size", "radix_sort", "CUB"),
):
    register_custom_call(
        CustomCallSpec(
            _target,
            evaluate=lazy("custom_calls.sorting_meaning", _function),
            call=None if _function == "best" else lazy("calls.order", _function),
            library=_library,
        )
    )
