"""The NumPy evaluators of sort, topk and select-and-scatter."""

from __future__ import annotations

import itertools

import numpy as np

from hlo_opt.ir import Computation, ElementType, Instruction
from hlo_opt.ir.values import Array
from hlo_opt.ir.walk import match
from hlo_opt.library.order import order_by
from hlo_opt.ops.numeric import total_order
from hlo_opt.ops.ordering.table import sorted_dimension
from hlo_opt.ops.reduction.folding import combine_at
from hlo_opt.ops.reduction.reducers import is_wide, running_types
from hlo_opt.ops.shapes import flag, integer, window
from hlo_opt.ops.spec import SHARED_ATTRIBUTES, Evaluator, OpKind, find, spec_of
from hlo_opt.ops.values import Value, packed


def total_order_key(value: Array, element_type: ElementType) -> Array:
    """Integers that order like XLA's total order: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN."""
    if not element_type.is_float:
        return value.astype(np.int64) if element_type.bits < 8 or element_type.kind == "pred" else value
    return total_order(value)


def _keys(evaluator: Evaluator, comparator: Computation, values: list[Array]) -> list[Array]:
    """Sort keys, most significant first, for a comparator of elementwise functions of its operands; [] for other
    comparators."""
    keys = [_one_key(evaluator, compare, values) for compare in comparisons(comparator)]
    known_keys = [key for key in keys if key is not None]
    return known_keys if len(known_keys) == len(keys) else []


def comparisons(comparator: Computation) -> list[Instruction]:
    """The comparisons of a lexicographic comparator, `a < b | (a == b & (c < d | ..))`; [] for others."""
    compares: list[Instruction] = []
    root = comparator.root
    while root.opcode in ("or", "select"):
        if root.opcode == "select":
            if not _is_tie(root):
                return []
            compares.append(root.operands[2])
            root = root.operands[1]
            continue
        ways = [_next(x, y) for x, y in (tuple(root.operands), tuple(root.operands[::-1]))]
        way = next((w for w in ways if w is not None), None)
        if way is None:
            return []
        compares.append(way[0])
        root = way[1]
    return [*compares, root] if root.opcode == "compare" else []


def _is_tie(choice: Instruction) -> bool:
    """Whether a select is `(a < b) == (b < a) ? next : a < b`, the form of jax.lax.top_k and approx_max_k."""
    tie, _, first = choice.operands
    if (
        tie.opcode != "compare"
        or tie.word("direction") != "EQ"
        or first.opcode != "compare"
        or first not in tie.operands
    ):
        return False
    left, right = tie.operands
    other = right if left is first else left
    return (
        other.opcode == "compare"
        and all(first.word(name) == other.word(name) for name in ("direction", "type"))
        and first.word("direction") in ("LT", "GT")
        and tuple(other.operands) == tuple(first.operands)[::-1]
    )


def _next(first: Instruction, rest: Instruction) -> tuple[Instruction, Instruction] | None:
    """(comparison, tie-breaker) of `first | rest`; None for another form."""
    if first.opcode != "compare" or rest.opcode != "and":
        return None
    for equal, after in (tuple(rest.operands), tuple(rest.operands[::-1])):
        same = (
            equal.opcode == "compare" and equal.word("direction") == "EQ" and equal.word("type") == first.word("type")
        )
        if same and set(equal.operands) == set(first.operands):
            return first, after
    return None


def _one_key(evaluator: Evaluator, root: Instruction, values: list[Array]) -> Array | None:
    """The sort key of a comparison `f(x) < f(y)` or `f(x) > f(y)` with elementwise f; None for others."""
    if root.word("direction") not in ("LT", "GT"):
        return None
    descending = root.word("direction") == "GT"
    left, right = root.operands
    side = mirrored(left, right)
    if side is None:
        return None
    if side:
        descending = not descending
    value, element_type = _computed(evaluator, left, values), left.shape.type
    if element_type.is_complex:
        return None
    if element_type.is_float and root.word("type") != "TOTALORDER":
        value = value.astype(np.float64)
        if np.isnan(value).any():
            return None
        return -value if descending else value + 0.0
    key = total_order_key(value, element_type)
    return ~key if descending else key


def mirrored(left: Instruction, right: Instruction, *, bitcasts: bool = False) -> int | None:
    """Whether `left` and `right` are one elementwise function, applied to the two sides of a comparator.

    0: left is of the first elements (parameters 0, 2, ..); 1: the reverse; None: anything else. `bitcasts` counts
    bitcasts of scalars as elementwise, for callers that can compute them.
    """
    side: int | None = None

    def below(a: Instruction, b: Instruction) -> list[tuple[Instruction, Instruction]] | None:
        nonlocal side
        if a.parameter_number is not None and b.parameter_number is not None:
            first = a.parameter_number % 2
            if a.parameter_number ^ b.parameter_number != 1 or side not in (None, first):
                return None
            side = first
            return []
        spec = find(a.opcode)
        same = a.opcode == b.opcode and a.shape.same_values(b.shape) and len(a.operands) == len(b.operands)
        if not same or a.parameter_number is not None or spec is None or a.shape.rank or not a.shape.is_array:
            return None
        if a.opcode == "constant":
            return [] if a.literal is not None and a.literal == b.literal else None
        of_bits = bitcasts and a.opcode == "bitcast" and a.shape.type.bits == a.operands[0].shape.type.bits
        if (spec.kind is not OpKind.ELEMENTWISE and not of_bits) or dict(_meaningful(a)) != dict(_meaningful(b)):
            return None
        return list(zip(a.operands, b.operands, strict=True))

    return side if match(left, right, below) else None


def _meaningful(instruction: Instruction) -> list[tuple[str, str]]:
    return [(name, value.text) for name, value in instruction.attributes.items() if name not in SHARED_ATTRIBUTES]


def _computed(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    """An elementwise function of the comparator, computed for all elements at once."""
    needed = {instruction}
    todo = [instruction]
    while todo:
        for operand in todo.pop().operands:
            if operand not in needed:
                needed.add(operand)
                todo.append(operand)
    computed: dict[Instruction, Array] = {}
    for i in instruction.computation.instructions:
        if i not in needed:
            continue
        if i.parameter_number is not None:
            computed[i] = np.asarray(values[i.parameter_number // 2])
            continue
        evaluate = spec_of(i).evaluate
        assert evaluate is not None
        computed[i] = np.asarray(evaluate(evaluator, i, [computed[o] for o in i.operands]))
    return np.broadcast_to(computed[instruction], np.shape(values[0]))


def sort(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """A stable sort, also where HLO leaves the order of equal elements open."""
    comparator = instruction.called_by("to_apply")
    axis = sorted_dimension(instruction)
    arrays = [np.asarray(v) for v in values]
    if not arrays[0].size:
        return packed(instruction, arrays)
    keys = _keys(evaluator, comparator, values)
    if keys:
        order = _ranked(keys[0], axis) if len(keys) == 1 and _is_short(keys[0]) else order_by(np, keys, axis)
    else:
        rows = _merge_sort(evaluator, comparator, [_rows(a, axis) for a in arrays])
        order = np.moveaxis(rows.reshape(np.moveaxis(arrays[0], axis, -1).shape), -1, axis)
    sorted_arrays = [np.take_along_axis(a, order, axis=axis) for a in arrays]
    return packed(instruction, sorted_arrays)


def _is_short(key: Array) -> bool:
    """Whether a key and an element's position fit 64 bits together."""
    return key.dtype.kind in "iub" and key.dtype.itemsize <= 4


def _ranked(key: Array, axis: int) -> Array:
    """The stable order by one key. With the position appended to the key all numbers differ, and NumPy sorts numbers in
    a sixth of the time that it takes for positions."""
    numbers = _numbered(np.moveaxis(key, axis, -1))
    numbers.sort(axis=-1)
    return np.moveaxis(numbers & 0xFFFFFFFF, -1, axis)


def _numbered(key: Array) -> Array:
    """Keys of at most 32 bits as numbers in the same order, with the position in the last 32 bits."""
    numbers = key.astype(np.int64)
    if key.dtype.kind == "u":
        numbers -= 1 << (8 * key.dtype.itemsize - 1)
    numbers <<= 32
    numbers |= np.arange(key.shape[-1])
    return numbers


def _rows(array: Array, axis: int) -> Array:
    return np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis])


def _merge_sort(evaluator: Evaluator, comparator: Computation, lines: list[Array]) -> Array:
    """The stable order of every row under any strict weak order: a bottom-up merge sort.

    All runs of a width merge at once. An element's new position is its rank in its own run plus its rank in the
    neighbouring run, found by a binary search that compares elements of all rows in one call.
    """
    rows, count = lines[0].shape
    order = np.broadcast_to(np.arange(count), (rows, count)).copy()
    place = np.broadcast_to(np.arange(count), (rows, count))
    at = np.arange(count)
    width = 1
    while width < count:
        start = at // (2 * width) * (2 * width)
        in_left = at - start < width
        other = np.where(in_left, np.minimum(start + width, count), start)
        end = np.where(in_left, np.minimum(start + 2 * width, count), np.minimum(start + width, count))
        low = np.broadcast_to(other, (rows, count)).copy()
        high = np.broadcast_to(end, (rows, count)).copy()
        for _ in range(width.bit_length()):
            open_ = low < high
            middle = (low + high) // 2
            probe = np.take_along_axis(order, np.minimum(middle, count - 1), axis=1)
            mine = [np.take_along_axis(line, order, axis=1) for line in lines]
            theirs = [np.take_along_axis(line, probe, axis=1) for line in lines]
            before = _less(evaluator, comparator, theirs, mine)
            not_after = ~_less(evaluator, comparator, mine, theirs)
            goes_first = np.where(in_left, before, not_after)  # stable: the left run's element precedes an equal one
            low = np.where(open_ & goes_first, middle + 1, low)
            high = np.where(open_ & ~goes_first, middle, high)
        run_start = np.where(in_left, start, np.minimum(start + width, count))
        target = start + (place - run_start) + (low - other)
        # a comparator that is not an order may repeat positions; argsort keeps this a permutation
        order = np.take_along_axis(order, np.argsort(target, axis=1, kind="stable"), axis=1)
        width *= 2
    return order


def _less(evaluator: Evaluator, comparator: Computation, left: list[Array], right: list[Array]) -> Array:
    arguments = [a for pair in zip(left, right, strict=True) for a in pair]
    return np.asarray(evaluator.map_elements(comparator, arguments)[0])


def topk(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """By XLA's total order, so NaN is the largest; of equal values the lower index comes first."""
    value, t = np.asarray(values[0]), instruction.operands[0].shape.type
    return first_of(value, t, integer(instruction, "k"), largest=flag(instruction, "largest", True))


def first_of(value: Array, element_type: ElementType, count: int, *, largest: bool) -> tuple[Array, Array]:
    """The largest or smallest elements of the last dimension by total order, and their positions; stable."""
    key = total_order_key(value, element_type)
    key = ~key if largest else key
    few = 0 < 4 * count <= key.shape[-1] and key.dtype.itemsize <= 4
    order = _first_few(key, count) if few else np.argsort(key, axis=-1, kind="stable")[..., :count]
    return np.take_along_axis(value, order, axis=-1), order.astype(np.int32)


def _first_few(key: Array, count: int) -> Array:
    """The positions of the smallest keys, of at most 32 bits, found without sorting all."""
    numbers = _numbered(key)
    return np.sort(np.partition(numbers, count - 1, axis=-1)[..., :count], axis=-1) & 0xFFFFFFFF


def select_and_scatter(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    """Select a position in each window, then combine sources in row-major order.

    The combiner's first argument is the current value, as in XLA's SelectAndScatterExpander; XLA's evaluator swaps
    them.
    """
    value, source, init = np.asarray(values[0]), np.asarray(values[1]), values[2]
    select, scatter = instruction.called_by("select"), instruction.called_by("scatter")
    parts = window(instruction, value.ndim)
    best = np.zeros(source.shape, dtype=value.dtype)
    where = np.full(source.shape, -1, dtype=np.int64)
    flat = value.reshape(-1)
    for position in itertools.product(*(range(w.size) for w in parts)):
        linear = np.zeros(source.shape, dtype=np.int64)
        valid = np.ones(source.shape, dtype=bool)
        for k, (w, offset) in enumerate(zip(parts, position, strict=True)):
            index = np.arange(source.shape[k]) * w.stride + offset - w.pad_low
            index = index.reshape([-1 if d == k else 1 for d in range(value.ndim)])
            valid &= (index >= 0) & (index < value.shape[k])
            linear = linear * value.shape[k] + index
        candidate = flat[np.where(valid, linear, 0)]
        keep = np.asarray(evaluator.map_elements(select, [best, candidate])[0])
        take = valid & ((where < 0) | ~keep)
        best = np.where(take, candidate, best)
        where = np.where(take, linear, where)
    scattered = np.full(value.size, init, dtype=running_types(instruction)[0].dtype)
    chosen = where.reshape(-1) >= 0
    updates = source.reshape(-1)[chosen].astype(scattered.dtype)
    combine_at(evaluator, scatter, [scattered], where.reshape(-1)[chosen], [updates], wide=is_wide(instruction))
    return scattered.reshape(value.shape).astype(instruction.shape.type.dtype)
