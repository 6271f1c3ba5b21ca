"""Recipes of reductions, windows, scans, sorts and selections."""

from __future__ import annotations

import math

from hlo_opt.ir import ELEMENT_TYPES, Called, Shape, Window, WindowDimension
from random_modules.comparable.known import Known, limits
from random_modules.comparable.reducers import argument_of_maximum, reducer
from random_modules.comparable.writer import COMPLEX, FLOATS, INTEGERS, PRED, S32, Writer, arr, family, tup


def _folded(w: Writer, shape: Shape, most: int) -> Shape:
    """Sums of many narrow floats round differently in each order: longer ones are in f32."""
    return shape if most <= 64 or not shape.type.is_narrow_float else arr("f32", *shape.dimensions)


@family("reduce", "reduce")
def _reduce(w: Writer, opcode: str) -> None:
    shape = w.array((*FLOATS, *INTEGERS, "pred", *COMPLEX), 1)
    axes = w.some(range(shape.rank))
    count = math.prod(shape.dimensions[d] for d in axes)
    rest = [s for d, s in enumerate(shape.dimensions) if d not in axes]
    if not w.number(0, 4) and shape.type.name in ("f32", "s32", "f64"):
        _reduce_two(w, shape, axes, rest)
        return
    shape = _folded(w, shape, count)
    combine = reducer(w, shape.type, most=count)
    source = w.take(shape, *combine.interval)
    init = w.constant(Shape(shape.type), combine.identity)
    made = w.emit(opcode, arr(shape.type, *rest), [source, init], dimensions=axes, to_apply=combine.computation)
    w.keep(made, combine.after(w.known[source], count))


def _reduce_two(w: Writer, shape: Shape, axes: tuple[int, ...], rest: list[int]) -> None:
    """The greatest value and where it is: only of exact values."""
    value = w.take(shape, exact=True)
    index = w.take(shape.with_type(S32.type), 0, 1000)
    low = limits(shape.type)[0] if shape.type.is_integer else -math.inf
    inits = [w.constant(Shape(shape.type), low), w.constant(S32, 2**31 - 1)]
    result = tup(arr(shape.type, *rest), arr("s32", *rest))
    body = argument_of_maximum(w, shape.type)
    made = w.emit("reduce", result, [value, index, *inits], dimensions=axes, to_apply=body)
    w.element(made, 0, Known(low, w.known[value].high, True))
    w.element(made, 1, Known(0, 2**31 - 1, True))


def _window(w: Writer, sizes: tuple[int, ...], *, dilations: bool) -> tuple[Window, list[int]] | None:
    """A window over an operand, and the sizes of what comes out."""
    parts, out = [], []
    for size in sizes:
        span = w.number(1, 4)
        stride = w.number(1, 3)
        base = w.number(1, 2) if dilations else 1
        step = w.number(1, 2) if dilations else 1
        low, high = w.number(0, span - 1), w.number(0, span - 1)
        reach = (span - 1) * step + 1
        full = (max(size - 1, 0) * base + 1 if size else 0) + low + high
        parts.append(WindowDimension(span, stride=stride, pad_low=low, pad_high=high, lhs_dilate=base, rhs_dilate=step))
        out.append((full - reach) // stride + 1 if full >= reach else 0)
    return Window(tuple(parts)), out


@family("reduce-window", "reduce-window")
def _reduce_window(w: Writer, opcode: str) -> None:
    shape = w.array((*FLOATS, *INTEGERS), 1, 2, 1)
    combine = reducer(w, shape.type, most=16)
    source = w.take(shape, *combine.interval)
    init = w.constant(Shape(shape.type), combine.identity)
    window, out = _window(w, shape.dimensions, dilations=w.flag())
    if not w.number(0, 3):  # a cumulative one
        along = w.number(0, shape.rank - 1)
        sizes = [s if d == along else 1 for d, s in enumerate(shape.dimensions)]
        window = Window(tuple(WindowDimension(s, pad_low=s - 1) for s in sizes))
        out = list(shape.dimensions)
        if sizes[along] > 16:
            combine = reducer(w, shape.type, most=sizes[along])
            source = w.take(shape, *combine.interval)
            init = w.constant(Shape(shape.type), combine.identity)
    made = w.emit(opcode, arr(shape.type, *out), [source, init], window=window, to_apply=combine.computation)
    w.keep(made, combine.after(w.known[source], math.prod(d.size for d in window.dimensions)))


@family("select-and-scatter", "select-and-scatter")
def _select_and_scatter(w: Writer, opcode: str) -> None:
    shape = w.array(("f32", "f64", "s32", "bf16"), 1, 2, 2)
    source = w.take(shape, exact=True)
    parts, out = [], []
    for size in shape.dimensions:
        span, stride = w.number(1, 2), w.number(1, 2)
        parts.append(WindowDimension(span, stride=stride))
        out.append((size - span) // stride + 1)
    update = w.take(arr(shape.type, *out), -8, 8)
    add = w.scalar_function("add", shape.type)
    select = w.scalar_function("compare", shape.type, direction="GE")
    init = w.constant(Shape(shape.type), 0)
    made = w.emit(opcode, shape, [source, update, init], window=Window(tuple(parts)), select=select, scatter=add)
    w.keep(made, Known(-64, 64, shape.type.is_integer))


@family("scan", "scan")
def _scan(w: Writer, opcode: str) -> None:
    shape = w.array(("f32", "f64", "s32"), 1, 2, 1)
    along = w.number(0, shape.rank - 1)
    rest = arr(shape.type, *(s for d, s in enumerate(shape.dimensions) if d != along))
    source, start = w.take(shape, -4, 4), w.take(rest, -4, 4)
    bound = 4 * (shape.dimensions[along] + 1)
    with w.computation([rest, rest], [w.known[source], Known(-bound, bound, False)]) as (value, total):
        total = w.emit("add", rest, [value, total])
        step: Called = w.finish(w.emit("tuple", tup(rest, rest), [total, total]))
    made = w.emit(
        opcode, tup(shape, rest), [source, start],
        dimensions=(along,), num_carries=1, is_reverse=True if w.flag() else None, to_apply=step,
    )  # fmt: skip
    for index in range(2):
        w.element(made, index, Known(-bound, bound, shape.type.is_integer))


@family("sort", "sort")
def _sort(w: Writer, opcode: str) -> None:
    """By exact keys; stable, or of keys alone, or by all operands: HLO leaves the order of equal elements open
    otherwise."""
    key = w.array((*INTEGERS, *FLOATS), 1, 2)
    along = w.number(0, key.rank - 1)
    operands = [w.take(key, exact=True)]
    for _ in range(w.number(0, 2)):
        operands.append(w.take(key.with_type(ELEMENT_TYPES[w.pick(("f32", "s32", "pred", "f16"))])))
    if len(operands) == 2 and w.flag() and w.known[operands[1]].exact:
        less, stable = _lexicographic(w, [o.shape for o in operands]), None
    else:
        less, stable = _by_first(w, [o.shape for o in operands]), True if len(operands) > 1 or w.flag() else None
    result = tup(*(o.shape for o in operands)) if len(operands) > 1 else key
    made = w.emit(opcode, result, operands, dimensions=(along,), is_stable=stable, to_apply=less)
    if len(operands) == 1:
        w.moved(made, operands[0])
        return
    for index, operand in enumerate(operands):
        w.element(made, index, w.known[operand])


def _by_first(w: Writer, shapes: list[Shape]) -> Called:
    scalars = [Shape(s.type) for s in shapes for _ in range(2)]
    with w.computation(scalars, [Known(0, 0, False)] * len(scalars)) as parameters:
        a, b = parameters[:2]
        if w.flag() and a.shape.type.kind != "unsigned":
            a, b = (w.emit("negate", a.shape, [x]) for x in (a, b))
        total = "TOTALORDER" if a.shape.type.is_float and w.flag() else None
        return w.finish(w.emit("compare", PRED, [a, b], direction=w.pick(("LT", "GT")), type=total))


def _lexicographic(w: Writer, shapes: list[Shape]) -> Called:
    scalars = [Shape(s.type) for s in shapes for _ in range(2)]
    with w.computation(scalars, [Known(0, 0, False)] * 4) as (a, b, c, d):
        before = w.emit("compare", PRED, [a, b], direction="LT")
        equal = w.emit("compare", PRED, [a, b], direction="EQ")
        second = w.emit("compare", PRED, [c, d], direction="GT")
        return w.finish(w.emit("or", PRED, [before, w.emit("and", PRED, [equal, second])]))


@family("sort", "topk")
def _topk(w: Writer, opcode: str) -> None:
    shape = w.array(("f32", "s32", "bf16"), 1, 2, 1)
    source = w.take(shape, exact=True)
    k = w.number(1, shape.dimensions[-1])
    sizes = (*shape.dimensions[:-1], k)
    made = w.emit(opcode, tup(arr(shape.type, *sizes), arr("s32", *sizes)), [source], k=k, largest=w.flag())
    w.element(made, 0, w.known[source])
    w.element(made, 1, Known(0, shape.dimensions[-1], True))


@family("batch norm", "batch-norm-training", "batch-norm-inference", "batch-norm-grad")
def _batch_norm(w: Writer, opcode: str) -> None:
    data = arr("f32", *w.array(("f32",), 2, 3, 2).dimensions)
    feature = w.number(0, data.rank - 1)
    one = arr("f32", data.dimensions[feature])
    source = w.take(data, -4.0, 4.0)
    shared = {"epsilon": 0.5, "feature_index": feature}
    if opcode == "batch-norm-training":
        made = w.emit(opcode, tup(data, one, one), [source, w.take(one, -4.0, 4.0), w.take(one, -4.0, 4.0)], **shared)
        bounds = (40.0, 4.0, 16.0)
    elif opcode == "batch-norm-grad":
        operands = [
            source,
            w.take(one, -4.0, 4.0),
            w.take(one, -4.0, 4.0),
            w.take(one, 0.1, 4.0),
            w.take(data, -4.0, 4.0),
        ]
        made = w.emit(opcode, tup(data, one, one), operands, **shared)
        count = data.element_count
        bounds = (1e4, 40.0 * count, 4.0 * count)
    else:
        operands = [source, *(w.take(one, -4.0, 4.0) for _ in range(3)), w.take(one, 0.1, 4.0)]
        w.keep(w.emit(opcode, data, operands, **shared), Known(-60.0, 60.0, False))
        return
    for index, bound in enumerate(bounds):
        w.element(made, index, Known(-bound, bound, False))
