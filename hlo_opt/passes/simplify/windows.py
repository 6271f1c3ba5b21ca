"""Rules for reduce-windows: of one element, without elements, over padding, and over one number."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hlo_opt.evaluate import Interpreter
from hlo_opt.evaluate.program import face
from hlo_opt.ir import Instruction, PaddingDimension, Shape, SliceDimension, Window, WindowDimension, array
from hlo_opt.ops.movement.table import padding_dimensions
from hlo_opt.ops.reduction.reducers import monoid, starts_with_identity
from hlo_opt.passes.simplify.constants import LARGEST
from hlo_opt.passes.simplify.reading import is_a, loses_sign, uniform
from hlo_opt.passes.simplify.rule import rule
from hlo_opt.passes.simplify.site import Site


def _window(i: Instruction) -> tuple[WindowDimension, ...] | None:
    """The window of a reduce-window of one array, whose reducer is a single operation; None for any other."""
    if not i.shape.is_array or len(i.operands) != 2 or monoid(i.called_by("to_apply")) is None:
        return None
    window = i.value("window", Window(()))
    whole = isinstance(window, Window) and len(window.dimensions) == i.operands[0].shape.rank
    return window.dimensions if whole and isinstance(window, Window) else None


@rule(
    "reduce-window-of-nothing",
    "reduce-window",
    "reduce-window of arrays without elements = the init values everywhere",
    "nothing but padding is folded",
)
def reduce_window_of_nothing(i: Instruction, site: Site) -> Instruction | None:
    values, starts = i.operands[: len(i.operands) // 2], i.operands[len(i.operands) // 2 :]
    if any(v.shape.element_count for v in values) or not next(iter(i.shape.leaves())).element_count:
        return None
    if any(uniform(s) is None for s in starts) or not _keeps(i, starts):
        return None
    parts = [site.spread(s, leaf.dimensions) for s, leaf in zip(starts, i.shape.leaves(), strict=True)]
    return parts[0] if i.shape.is_array else site.emit("tuple", Shape.tuple_of(*(p.shape for p in parts)), *parts)


def _keeps(i: Instruction, starts: list[Instruction] | tuple[Instruction, ...]) -> bool:
    """Whether the reducer applied to the init values returns them."""
    numbers = [n for n in map(uniform, starts) if n is not None]
    root = i.called_by("to_apply")
    result = Interpreter().call(root, [*numbers, *numbers])
    leaves = result if isinstance(result, (list, tuple)) else [result]
    return all(np.asarray(a).tobytes() == b.tobytes() for a, b in zip(leaves, numbers, strict=True))


@rule(
    "reduce-window-of-ones",
    "reduce-window",
    "reduce-window of windows of one element, from the identity = pad and slice",
    "one element is folded, and the init value changes nothing",
)
def reduce_window_of_ones(i: Instruction, site: Site) -> Instruction | None:
    window, (value, start) = _window(i), (i.operands[0], i.operands[-1])
    if window is None or any(w.size != 1 for w in window) or not starts_with_identity(i) or loses_sign(i):
        return None
    if not i.shape.element_count or not value.shape.element_count:
        return None
    edges = tuple(PaddingDimension(w.pad_low, w.pad_high, w.lhs_dilate - 1) for w in window)
    if any(e.low or e.high or e.interior for e in edges):
        sizes = [n + e.low + e.high + (n - 1) * e.interior for n, e in zip(value.shape.dimensions, edges, strict=True)]
        value = site.emit("pad", array(i.shape.type, *sizes), value, start, padding=edges)
    if all(w.stride == 1 for w in window):
        return value
    dimensions = zip(window, i.shape.dimensions, strict=True)
    return site.slice(value, [SliceDimension(0, (n - 1) * w.stride + 1, w.stride) for w, n in dimensions])


@rule(
    "reduce-window-of-pad",
    "reduce-window",
    "reduce-window of a pad by the init value = reduce-window with wider edges",
    "what a window reads outside of the array is the init value",
)
def reduce_window_of_pad(i: Instruction, site: Site) -> Instruction | None:
    window, inner = _window(i), i.operands[0]
    if window is None or not is_a(inner, "pad") or not inner.operands[0].shape.element_count:
        return None
    value, start = uniform(inner.operands[1]), uniform(i.operands[1])
    if value is None or start is None or value.tobytes() != start.tobytes():
        return None
    edges = padding_dimensions(inner)
    if any(e.low < 0 or e.high < 0 for e in edges):
        return None
    wider = tuple(
        replace(
            w,
            pad_low=w.pad_low + e.low * w.lhs_dilate,
            pad_high=w.pad_high + e.high * w.lhs_dilate,
            lhs_dilate=w.lhs_dilate * (e.interior + 1),
        )
        for w, e in zip(window, edges, strict=True)
    )
    return site.again(i, [inner.operands[0], i.operands[1]], window=Window(wider))


@rule(
    "reduce-window-of-same",
    "reduce-window",
    "reduce-window of one known number everywhere = a constant in the dimensions that windows reach over",
    "it is computed as the interpreter computes it; HLO leaves the order of a fold open",
)
def reduce_window_of_same(i: Instruction, site: Site) -> Instruction | None:
    window, number, start = _window(i), uniform(i.operands[0]), uniform(i.operands[-1])
    if window is None or number is None or start is None or not i.shape.element_count:
        return None
    value, sizes = i.operands[0], i.shape.dimensions
    wide = [d for d, w in enumerate(window) if w != WindowDimension(1, w.stride)]
    inner = [n if d in wide else 1 for d, n in enumerate(value.shape.dimensions)]
    outer = [n if d in wide else 1 for d, n in enumerate(sizes)]
    if np.prod(outer) * np.prod([w.size for w in window]) > LARGEST * LARGEST or np.prod(outer) > LARGEST:
        return None
    if np.prod(inner) > LARGEST * LARGEST:
        return None
    small = site.full(array(value.shape.type, *inner), number)
    narrow = Window(tuple(w if d in wide else WindowDimension(1) for d, w in enumerate(window)))
    fold = site.again(i, [small, i.operands[1]], array(i.shape.type, *outer), window=narrow)
    numbers = np.full(inner, number, number.dtype)
    folds = np.asarray(face(fold)(Interpreter(), fold, [numbers, start]))
    constant = site.literal(array(i.shape.type, *(sizes[d] for d in wide)), folds.reshape([sizes[d] for d in wide]))
    return constant if len(wide) == len(sizes) else site.broadcast(constant, sizes, wide)
