"""Sorts, and folds with custom reducers, on spreads.

Sorted values are monotonic in each value, so a sort of the bounds alone bounds the sorted values. What moves along
with a key is certain unless its key ties with a neighbour's; elements of a run of ties may be in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlo_opt.ir import Computation, ElementType, Instruction
from hlo_opt.ir.values import Array, DType
from hlo_opt.ir.walk import needed_first
from hlo_opt.ops import find
from hlo_opt.ops.ordering.meaning import comparisons
from hlo_opt.ops.ordering.table import sorted_dimension
from hlo_opt.ops.reduction.reducers import MONOIDS, is_wide, monoid, running_types
from hlo_opt.ops.reduction.table import reduced
from hlo_opt.ops.sets import tuple_elements
from hlo_opt.ops.spec import OpKind
from hlo_opt.ops.spread import (
    by_rows,
    certain,
    full,
    is_narrow,
    is_real,
    is_spread,
    leaves,
    ordered,
    picked,
    rows_of,
    set_aside,
    settled,
)
from hlo_opt.ops.values import HIGH, LOW, MOVED, ROWS, VALUE, Spread, Value, parts
from hlo_opt.runtime.rounding.calibration import MOST
from hlo_opt.runtime.rounding.elementwise import Analyst, Face, force
from hlo_opt.runtime.rounding.sums import unit


def sort(instruction: Instruction, evaluate: Face) -> Face:
    """The face of a sort."""
    comparator = instruction.called_by("to_apply")
    axis = sorted_dimension(instruction)
    alone = len(instruction.operands) == 1 and len(comparisons(comparator)) == 1 and _plain(comparator)

    def run(analyst: Analyst, instruction: Instruction, values: list[Value]) -> Value:
        if not any(type(v) is Spread for v in values):
            result = evaluate(analyst, instruction, values)
            return result if alone else _if_in_order(analyst, instruction, result, axis)
        if alone:
            return by_rows(lambda row: evaluate(analyst, instruction, row), values)
        operands = [np.asarray(picked(v, VALUE)) for v in values]
        places = np.broadcast_to(
            np.arange(operands[0].shape[axis]).reshape([-1 if d == axis else 1 for d in range(operands[0].ndim)]),
            operands[0].shape,
        )
        order = _order(analyst, evaluate, instruction, operands, places)
        moved = [
            np.take_along_axis(full(rows_of(v)), np.broadcast_to(order, (ROWS, *order.shape)), axis=1 + axis)
            for v in values
        ]
        ties = _ties(analyst, comparator, [settled(m, look=False) for m in moved], axis)
        number = int(np.count_nonzero(ties))
        if number:
            analyst.tie(instruction, number)
            moved = [_hulled(m, ties, 1 + axis) for m in moved]
        results = [settled(m) for m in moved]
        return tuple(results) if instruction.shape.is_tuple else results[0]

    return run


def _if_in_order(analyst: Analyst, instruction: Instruction, result: Value, axis: int) -> Value:
    """The result of a sort, set aside where a comparator is no order: it would still have an element before the one
    that it has put in front of it."""
    several = instruction.shape.is_tuple
    arrays = [np.moveaxis(np.asarray(v), axis, 0) for v in (parts(result) if several else (result,))]
    pairs = [x for array in arrays for x in (array[1:], array[:-1])]
    if not np.asarray(analyst.map_elements(instruction.called_by("to_apply"), pairs)[0]).any():
        return result
    analyst.tie(instruction, arrays[0].size)
    open_ = []
    for leaf, value in zip(instruction.shape.leaves(), parts(result) if several else (result,), strict=True):
        rows = np.array(full(np.asarray(value)[None]))
        set_aside(rows, np.ones(rows.shape[1:], np.bool_), leaf.type)
        open_.append(Spread(rows))
    return tuple(open_) if several else open_[0]


def _plain(comparator: Computation) -> bool:
    """Whether the comparator compares its parameters themselves."""
    return all(o.parameter_number is not None for o in comparator.root.operands)


def _order(analyst: Analyst, evaluate: Face, instruction: Instruction, operands: list[Array], places: Array) -> Array:
    """The permutation of a sort, from sorting the positions along with the operands."""
    from hlo_opt.ir import Shape
    from hlo_opt.ir.element_type import S64
    from hlo_opt.ir.module import Instruction as Made

    comparator = instruction.called_by("to_apply")
    if len(comparator.parameters) != 2 * len(operands):
        raise ValueError("the comparator does not fit")
    # comparators take operands by number, so that one more at the end is only moved
    shape = Shape(S64, operands[0].shape)
    extra = Made("places", "parameter", shape)
    whole = Shape.tuple_of(*(o.shape for o in instruction.operands), shape)
    wide = Made(instruction.name, "sort", whole, [*instruction.operands, extra], dict(instruction.attributes))
    wide.parent = instruction.parent
    sorted_values = evaluate(_Loose(analyst), wide, [*operands, places])
    return np.asarray(parts(sorted_values)[-1])


class _Loose:
    """An evaluator that drops the additional pair of arguments of comparators."""

    def __init__(self, analyst: Analyst) -> None:
        self._analyst = analyst

    def map_elements(self, computation: Computation, arguments: Sequence[Value], *, wide: bool = False) -> list[Value]:
        return list(self._analyst.map_elements(computation, arguments[: len(computation.parameters)], wide=wide))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._analyst, name)


def _ties(analyst: Analyst, comparator: Computation, values: Sequence[Value], axis: int) -> Array:
    """Which elements may stand behind their successor instead of before it."""

    def part(value: Spread, where: slice) -> Value:
        cut = [slice(None)] * value.rows.ndim
        cut[1 + axis] = where
        return settled(value.rows[tuple(cut)])

    spreads = [Spread(full(rows_of(v))) for v in values]
    before = [part(s, slice(None, -1)) for s in spreads]
    after = [part(s, slice(1, None)) for s in spreads]
    arguments = [x for pair in zip(after, before, strict=True) for x in pair]
    less = analyst.map_elements(comparator, arguments)[0]
    return np.asarray(rows_of(less)[-ROWS:][HIGH if type(less) is Spread else VALUE])


def _hulled(rows: Array, ties: Array, axis: int) -> Array:
    """Widen the bounds in each run of ties to those of the whole run."""
    widened = np.moveaxis(np.array(rows), axis, -1)
    joined = np.moveaxis(ties, axis - 1, -1)
    low, high = widened[LOW], widened[HIGH]
    if widened.dtype.kind == "c":
        return np.moveaxis(widened, -1, axis)
    for _ in range(64):  # propagate bounds to the neighbours until nothing changes
        before = low.copy(), high.copy()
        least, most = np.minimum(low[..., :-1], low[..., 1:]), np.maximum(high[..., :-1], high[..., 1:])
        for part in (np.s_[..., :-1], np.s_[..., 1:]):
            low[part] = np.where(joined, np.minimum(low[part], least), low[part])
            high[part] = np.where(joined, np.maximum(high[part], most), high[part])
        if (before[0] == low).all() and (before[1] == high).all():
            break
    swap = np.zeros(widened.shape[1:], np.bool_)
    swap[..., :-1] = joined
    for lane in (0, 1):  # two simulated backends swap neighbours
        mine = swap.copy()
        mine[..., lane::2] = False
        target = np.roll(mine, 1, axis=-1)
        old = widened[MOVED + lane].copy()
        widened[MOVED + lane] = np.where(
            mine, np.roll(old, -1, axis=-1), np.where(target, np.roll(old, 1, axis=-1), old)
        )
    return np.moveaxis(widened, -1, axis)


def folded(instruction: Instruction, evaluate: Face) -> Face:
    """The face of a reduce with a custom reducer: neighbours are combined pairwise, which any reducer allows.

    Imagined backends start elsewhere. What changes with the order by more than roundings, as when one of two NaN is
    picked, is set aside.
    """
    reducer = instruction.called_by("to_apply")
    sums = _sums(reducer)

    def run(analyst: Analyst, instruction: Instruction, values: list[Value]) -> Value:
        folded = fold(analyst, instruction, values)
        if sums is not None or rounds(reducer):
            return folded
        return _left_open(analyst, instruction, evaluate, values, folded)

    def fold(analyst: Analyst, instruction: Instruction, values: list[Value]) -> Value:
        half = len(values) // 2
        spreads = any(type(v) is Spread for v in values)
        if not spreads and not rounds(reducer):
            return evaluate(analyst, instruction, values)
        axes = reduced(instruction)
        if sums is not None:
            return tuple(sums(analyst, instruction, values))
        types = [t.dtype for t in running_types(instruction)]
        wide = is_wide(instruction)
        inputs = [_in_front(rows_of(v), axes).astype(t, copy=False) for v, t in zip(values[:half], types, strict=True)]
        count = inputs[0].shape[1]
        if not count:
            return evaluate(analyst, instruction, [picked(v, VALUE) for v in values])
        if rounds(reducer):
            inputs = [_turned(full(i), analyst, count) for i in inputs]
        level: list[Value] = [Spread(full(i)) for i in inputs]
        while count > 1:
            even = count // 2
            left = [_cut(v, slice(0, even)) for v in level]
            right = [_cut(v, slice(even, 2 * even)) for v in level]
            results = analyst.map_elements(reducer, [*left, *right], wide=wide)
            if count % 2:
                rest = [_cut(v, slice(2 * even, None)) for v in level]
                results = [_joined(m, r) for m, r in zip(results, rest, strict=True)]
            level, count = results, even + count % 2
        level = [_cut(v, 0) for v in level]
        leaf = next(instruction.shape.leaves())
        inits = [_spread_to(v, leaf.dimensions, t) for v, t in zip(values[half:], types, strict=True)]
        results = analyst.map_elements(reducer, [*inits, *level], wide=wide)
        results = [
            _rounded(analyst, m, leaf.type, rounds(reducer))
            for m, leaf in zip(results, instruction.shape.leaves(), strict=True)
        ]
        results = [settled(m.rows) if type(m) is Spread else m for m in results]
        return tuple(results) if instruction.shape.is_tuple else results[0]

    return run


def _left_open(analyst: Analyst, instruction: Instruction, evaluate: Face, values: list[Value], folded: Value) -> Value:
    """The results of a fold, with those set aside that depend on its order: where folding from the other end gives
    another value, or a value that was folded would still change the result."""
    half, axes = len(values) // 2, tuple(reduced(instruction))
    plain = [np.asarray(picked(v, VALUE)) for v in values]
    turned = [*(np.flip(v, axes) for v in plain[:half]), *plain[half:]]
    several = instruction.shape.is_tuple
    forward, backward = (
        [np.asarray(x) for x in (parts(made) if several else (made,))]
        for made in (evaluate(analyst, instruction, [*arguments]) for arguments in (plain, turned))
    )
    leaves, gives_way = [], _gives_way(analyst, instruction, plain, forward)
    every = zip(instruction.shape.leaves(), parts(folded) if several else (folded,), forward, backward, strict=True)
    for (leaf, value, a, b), own in zip(every, gives_way, strict=True):
        open_ = _differ(a, b) | own
        if open_.any():
            analyst.tie(instruction, int(np.count_nonzero(open_)))
            rows = np.array(full(rows_of(value)))
            set_aside(rows, open_, leaf.type)
            value = Spread(rows)
        leaves.append(value)
    return tuple(leaves) if several else leaves[0]


def _gives_way(
    analyst: Analyst, instruction: Instruction, given: Sequence[Array], result: Sequence[Array]
) -> list[Array]:
    """For each result where it, or one that it depends on, gives way to one of the values that were folded, or to an
    initial value, as the first of two that tie does, and any beside NaN: had it met that one last, another would have
    come of it. Only a reducer that makes of two equal values the same one leaves its result as it is otherwise."""
    reducer, axes, half = instruction.called_by("to_apply"), reduced(instruction), len(given) // 2
    types = [t.dtype for t in running_types(instruction)]
    values = [_in_front(v[None], axes)[0].astype(t, copy=False) for v, t in zip(given[:half], types, strict=True)]
    starts = [np.broadcast_to(v.astype(t), r.shape)[None] for v, t, r in zip(given[half:], types, result, strict=True)]
    met = [np.concatenate(pair) for pair in zip(values, starts, strict=True)]
    found = [np.broadcast_to(r.astype(t), m.shape) for r, t, m in zip(result, types, met, strict=True)]

    def changes(left: Sequence[Array], right: Sequence[Array], known: Sequence[Array]) -> list[Array]:
        made = analyst.map_elements(reducer, [*left, *right], wide=is_wide(instruction))
        return [_differ(np.asarray(m), k) for m, k in zip(made, known, strict=True)]

    with np.errstate(all="ignore"):
        if any(c.any() for c in changes(met, met, met)):
            return [np.zeros(r.shape, np.bool_) for r in result]
        both = zip(changes(found, met, found), changes(met, found, found), strict=True)
        own = [np.asarray((a | b).any(axis=0)) for a, b in both]
    return [np.logical_or.reduce([own[k] for k in needed]) for needed in _needed(reducer)]


def _needed(reducer: Computation) -> list[list[int]]:
    """For each result of a reducer the numbers of those that it depends on, itself among them."""
    half = len(reducer.parameters) // 2
    made = tuple_elements(reducer.root) if half > 1 else [reducer.root]
    if made is None:
        return [list(range(half))] * half
    above = [needed_first([value], lambda i: i.operands) for value in made]
    numbers = [{i.parameter_number % half for i in each if i.parameter_number is not None} for each in above]
    return [sorted({k, *own}) for k, own in enumerate(numbers)]


def _differ(a: Array, b: Array) -> Array:
    """Where two arrays differ; NaN are alike."""
    with np.errstate(invalid="ignore"):
        return np.asarray((a != b) & ~((a != a) & (b != b)))


def _sums(reducer: Computation) -> Any:
    """How to fold a reducer whose leaves are independent plain folds; None for others."""
    from hlo_opt.runtime.rounding.sums import reduction

    root = reducer.root
    if tuple_elements(root) is None or len(reducer.parameters) != 2 * len(root.operands):
        return None
    half = len(root.operands)
    for k, leaf in enumerate(root.operands):
        numbers = {o.parameter_number for o in leaf.operands}
        if leaf.opcode not in MONOIDS or leaf.opcode == "xor" or numbers != {k, half + k}:
            return None

    def run(analyst: Analyst, instruction: Instruction, values: list[Value]) -> list[Value]:
        from hlo_opt.evaluate.program import face

        results = []
        for k, single in enumerate(_singles(reducer)):
            operands = [instruction.operands[k], instruction.operands[half + k]]
            leaf = list(instruction.shape.leaves())[k]
            attributes = {n: v for n, v in instruction.attributes.items() if n != "to_apply"}
            from hlo_opt.ir import Called

            attributes["to_apply"] = Called(single)
            single_reduce = Instruction(instruction.name, "reduce", leaf, operands, attributes)
            single_reduce.parent = instruction.parent
            rule = reduction(single_reduce, face(single_reduce))
            assert rule is not None
            results.append(rule(analyst, single_reduce, [values[k], values[half + k]]))
        return results

    return run


def _singles(reducer: Computation) -> list[Computation]:
    """One reducer of two scalars for each leaf."""
    from hlo_opt.ir import edit

    reducers = []
    for leaf in reducer.root.operands:
        single = Computation(reducer.name)
        parameters = []
        for number in (0, 1):
            parameter = Instruction(f"p{number}", "parameter", leaf.shape, [], {}, parameter_number=number)
            edit.append(single, parameter)
            parameters.append(parameter)
        root = Instruction(leaf.name, leaf.opcode, leaf.shape, parameters, {})
        edit.append(single, root)
        edit.set_root(single, root)
        reducers.append(single)
    return reducers


def rounds(reducer: Computation) -> bool:
    """Whether the result of a fold depends on its order because of roundings."""
    for i in reducer.instructions:
        spec = find(i.opcode)
        if spec is None or spec.kind is not OpKind.ELEMENTWISE or spec.spread.keeps:
            continue
        if i.shape.is_array and (i.shape.type.is_float or i.shape.type.is_complex):
            return True
    return False


def _in_front(rows: Array, axes: Sequence[int]) -> Array:
    """The rows with all folded dimensions as one, right after the dimension of the rows."""
    kept = [1 + d for d in range(rows.ndim - 1) if d not in axes]
    front = rows.transpose([0, *(1 + d for d in axes), *kept])
    count = int(np.prod(front.shape[1 : 1 + len(axes)], dtype=np.int64))
    return front.reshape(rows.shape[0], count, *front.shape[1 + len(axes) :])


def _turned(rows: Array, analyst: Analyst, count: int) -> Array:
    rotated = np.array(rows)
    for lane in range(MOVED, ROWS):
        rotated[lane] = np.roll(rotated[lane], (lane * count) // ROWS + 1, axis=0)
    return rotated


def _cut(value: Value, where: Any) -> Value:
    return Spread(value.rows[:, where]) if type(value) is Spread else np.asarray(value)[where]


def _joined(left: Value, right: Value) -> Value:
    if type(left) is Spread or type(right) is Spread:
        return Spread(np.concatenate([full(rows_of(left)), full(rows_of(right))], axis=1))
    return np.concatenate([left, right])


def _spread_to(value: Value, sizes: tuple[int, ...], dtype: DType) -> Value:
    if type(value) is Spread:
        return Spread(np.broadcast_to(value.rows.astype(dtype).reshape(ROWS, *(1,) * len(sizes)), (ROWS, *sizes)))
    return np.broadcast_to(np.asarray(value).astype(dtype), sizes)


def _rounded(analyst: Analyst, value: Value, element_type: ElementType, shows: bool) -> Value:
    """The result of a fold in its own type; if it depends on the order, the bounds come from the moved values plus some
    roundings."""
    rows = np.array(full(rows_of(value)))
    is_complex = rows.dtype.kind == "c"
    if not is_real(rows.dtype) and not is_complex:
        return value
    if shows:
        wide = rows.astype(np.complex128 if is_complex else np.float64)
        moves = np.abs(wide[MOVED:] - wide[VALUE]).max(axis=0)
        far = MOST * np.maximum(moves, moves.mean() if moves.size else 0.0) + 16 * unit(element_type) * np.abs(
            wide[VALUE]
        )
        for part in (wide.real, wide.imag) if is_complex else (wide,):
            part[LOW] = np.minimum(part[LOW], part[VALUE] - far)
            part[HIGH] = np.maximum(part[HIGH], part[VALUE] + far)
        rows = wide
    rows = rows.astype(element_type.dtype)
    ordered(rows, element_type)
    open_ = ~certain(rows)
    if open_.any() and is_narrow(rows.dtype):
        force(analyst, rows, open_)
    return settled(rows)


__all__ = ["folded", "is_spread", "leaves", "monoid", "rounds", "sort"]
