"""What custom calls that order elements ask of CuPy, or None where it cannot: TopK in its spellings and CUB's radix sort (ops/custom_calls/sorting.py)."""

from __future__ import annotations

from typing import Any

from hlo_opt.ir import Instruction, Shape
from hlo_opt.ops.call_config import is_true

_TOP = frozenset({"TopK", "__gpu$TopK", "mhlo.topk"})
_RADIX = "xla.gpu.ext.cub_sort_"


def ordering_call(instruction: Instruction) -> tuple[str, tuple[Any, ...], str] | None:
    """The call for a custom call that orders elements; None for any other, and for types that CuPy does not sort."""
    target = instruction.word("custom_call_target", "")
    shapes = [leaf for o in instruction.operands for leaf in o.shape.leaves()]
    if not shapes or not shapes[0].rank or not _is_sorted(shapes[0]) or not all(s.is_array for s in shapes):
        return None
    results = list(instruction.shape.leaves())
    if target in _TOP and len(shapes) == 1 and len(results) == 2:
        comparator = next(instruction.called(), None)
        descends = is_true(instruction, "largest", True)
        if comparator is not None:
            descends = comparator.root.word("direction") in ("GT", "GE")
        return "top_call", (results[0].dimensions[-1], descends), "cupy.argsort"
    if target.startswith(_RADIX) and len(results) >= len(shapes):
        return "radix_sort_call", (is_true(instruction, "descending"),), "cupy.argsort"
    return None


def _is_sorted(shape: Shape) -> bool:
    t = shape.type
    return t.name in ("pred", "bf16", "f16", "f32", "f64") or (t.is_integer and t.bits >= 8)
