"""Whole modules as Z3 terms: arrays of terms, one for each element, on each device.

What moves elements moves terms. A place that is not known is a choice among all places. A fold is the operations in
some order, a product a sum of products. What a sort does is an unknown function of what its comparator reads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import z3
from symbolic_terms import Terms, UnknownError, chosen

from hlo_opt.ir import Computation, ElementType, Instruction, Module
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.collective.module_devices import counts, participants
from hlo_opt.ops.contraction.table import DotDimensions, convolution_dimensions
from hlo_opt.ops.indexing.gather_dimensions import gather_dimensions, scatter_dimensions
from hlo_opt.ops.movement.table import padding_dimensions, slice_dimensions
from hlo_opt.ops.reduction.table import reduced
from hlo_opt.ops.shapes import window

MOST = 6000
"""Elements of the largest array that is written out."""


def filled(sizes: Sequence[int], value: Callable[[tuple[int, ...]], Any]) -> Any:
    """An array of objects, by its index."""
    if math.prod(sizes) > MOST:
        raise UnknownError("too many elements")
    found = np.empty(tuple(sizes), dtype=object)
    for index in np.ndindex(*sizes):
        found[index] = value(index)
    return found


def known_integer(term: Any) -> int | None:
    term = z3.simplify(term)
    return term.as_signed_long() if z3.is_bv_value(term) else None


class Arrays:
    """The values of one module. `given` are parameters by number and leaf, the same for all modules that are compared;
    those that are not marked as replicated differ between devices."""

    def __init__(self, module: Module, terms: Terms) -> None:
        self.module, self.terms = module, terms
        self.devices = math.prod(counts(module))

    def outputs(self) -> list[Any]:
        """The root's arrays, on all devices, one after another."""
        entry = self.module.entry
        arguments = [self._given(p) for p in entry.parameters]
        return [leaf for value in self.call(entry, arguments) for leaf in leaves(value)]

    def _given(self, parameter: Instruction) -> list[Any]:
        same = parameter.attributes.get("parameter_replication") is not None

        def value(shape: Any, name: str) -> Any:
            if shape.is_tuple:
                return tuple(value(s, f"{name}.{k}") for k, s in enumerate(shape.elements))
            return filled(shape.dimensions, lambda at: self.terms.fresh(f"{name}{list(at)}", shape.type))

        number = parameter.parameter_number
        return [value(parameter.shape, f"p{number}" if same else f"p{number}d{d}") for d in range(self.devices)]

    def call(self, computation: Computation, arguments: Sequence[list[Any]]) -> list[Any]:
        """The root's value on each device that the arguments have values for."""
        found: dict[Instruction, list[Any]] = {}
        devices = len(arguments[0]) if arguments else self.devices
        for i in computation.instructions:
            if i.parameter_number is not None:
                found[i] = arguments[i.parameter_number]
                continue
            operands = [found[o] for o in i.operands]
            found[i] = self._of_devices(i, operands, devices)
        return found[computation.root]

    def _of_devices(self, i: Instruction, operands: list[list[Any]], devices: int) -> list[Any]:
        if i.opcode in ("all-reduce", "all-gather", "reduce-scatter"):
            return [self._collective(i, operands[0], d) for d in range(devices)]
        if i.opcode == "replica-id":
            return [filled((), lambda at, d=d: self.terms.number(d, i.shape.type)) for d in range(devices)]
        return [self._value(i, [o[d] for o in operands]) for d in range(devices)]

    def _collective(self, i: Instruction, values: list[Any], device: int) -> Any:
        group = participants(i, device, 0, len(values), 1)
        members = [values[d] for d in group]
        if i.opcode == "all-gather":
            return np.concatenate(members, axis=i.ints("dimensions")[0])
        total = members[0]
        for other in members[1:]:
            total = self._each(i.called_by("to_apply"), [total, other])[0]
        if i.opcode == "all-reduce":
            return total
        (along,) = i.ints("dimensions")
        return np.split(total, len(members), axis=along)[group.index(device)]

    def _each(self, computation: Computation, arrays: Sequence[Any]) -> list[Any]:
        """A computation of scalars, on the elements of arrays of one shape."""
        sizes = np.shape(arrays[0])
        results: list[Any] = []
        for index in np.ndindex(*sizes):
            results.append(self.scalars(computation, [a[index] for a in arrays]))
        number = len(results[0]) if results else 1
        found = [np.empty(sizes, dtype=object) for _ in range(number)]
        for index, result in zip(np.ndindex(*sizes), results, strict=True):
            for array, element in zip(found, result, strict=True):
                array[index] = element
        return found

    def scalars(self, computation: Computation, elements: Sequence[Any]) -> list[Any]:
        """The elements that a computation of scalars gives."""
        (value,) = self.call(computation, [[filled((), lambda at, e=e: e)] for e in elements])
        return [leaf[()] for leaf in leaves(value)]

    def _value(self, i: Instruction, v: list[Any]) -> Any:
        plain = PLAIN.get(i.opcode)
        if plain is not None:
            return plain(self, i, v)
        if i.literal is not None:
            values = np.broadcast_to(np.asarray(i.literal.value), i.shape.dimensions)
            return filled(i.shape.dimensions, lambda at: self.terms.number(values[at], i.shape.type))
        spec = find(i.opcode)
        if spec is None or spec.kind is not OpKind.ELEMENTWISE:
            raise UnknownError(i.opcode)
        sizes = i.shape.dimensions
        operands = [o if np.shape(o) == sizes else np.broadcast_to(o, sizes) for o in v]
        return filled(sizes, lambda at: self.terms.operation(i, [o[at] for o in operands]))

    # ---- places that are not known

    def place(self, array: Any, starts: Sequence[Any], room: Sequence[int]) -> Iterator[tuple[Any, tuple[int, ...]]]:
        """The places that starts may name, each between 0 and its room, with the condition for each."""
        per_dimension = []
        for start, most in zip(starts, room, strict=True):
            number = start if isinstance(start, int) else known_integer(start)
            if number is not None:
                per_dimension.append([(z3.BoolVal(True), max(0, min(number, most)))])
                continue
            conditions = [
                (start <= 0 if k == 0 else start == k if k < most else start >= most, k) for k in range(most + 1)
            ]
            per_dimension.append(conditions if most else [(z3.BoolVal(True), 0)])
        for parts in itertools.product(*per_dimension):
            yield z3.And(*[c for c, _ in parts]), tuple(k for _, k in parts)

    def signed(self, starts: Sequence[Any], kind: ElementType) -> list[Any]:
        """Starts as signed vectors that hold all values of their type."""
        return [
            z3.SignExt(64 - kind.bits, s) if kind.kind == "signed" else z3.ZeroExt(65 - kind.bits, s) for s in starts
        ]

    def window_at(self, array: Any, starts: Sequence[Any], sizes: Sequence[int]) -> Any:
        """The window at starts, which are moved inside."""
        room = [n - s for n, s in zip(np.shape(array), sizes, strict=True)]
        found = None
        for condition, at in self.place(array, starts, room):
            part = array[tuple(slice(a, a + s) for a, s in zip(at, sizes, strict=True))]
            found = part if found is None else either(condition, part, found)
        return found

    def written_at(self, array: Any, update: Any, starts: Sequence[Any]) -> Any:
        room = [n - s for n, s in zip(np.shape(array), np.shape(update), strict=True)]
        found = None
        for condition, at in self.place(array, starts, room):
            changed = array.copy()
            changed[tuple(slice(a, a + s) for a, s in zip(at, np.shape(update), strict=True))] = update
            found = changed if found is None else either(condition, changed, found)
        return found


def leaves(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, tuple) else [value]


def either(condition: Any, x: Any, y: Any) -> Any:
    return filled(np.shape(x), lambda at: chosen(condition, x[at], y[at]))


# ---- operations


def _broadcast(a: Arrays, i: Instruction, v: list[Any]) -> Any:
    mapped = i.ints("dimensions")
    return filled(i.shape.dimensions, lambda at: v[0][tuple(at[d] for d in mapped)])


def _reshape(a: Arrays, i: Instruction, v: list[Any]) -> Any:
    source, target = i.operands[0].shape.type, i.shape.type
    if source != target and not (source.is_integer and target.is_integer and source.bits == target.bits):
        raise UnknownError("bitcast to another type")
    return v[0].reshape(i.shape.dimensions)


def _pad(a: Arrays, i: Instruction, v: list[Any]) -> Any:
    parts, array = padding_dimensions(i), v[0]

    def element(at: tuple[int, ...]) -> Any:
        source = []
        for k, p, n in zip(at, parts, array.shape, strict=True):
            step, rest = divmod(k - p.low, p.interior + 1)
            if rest or not 0 <= step < n:
                return v[1][()]
            source.append(step)
        return array[tuple(source)]

    return filled(i.shape.dimensions, element)


def _reverse(a: Arrays, i: Instruction, v: list[Any]) -> Any:
    return np.flip(v[0], i.ints("dimensions"))


def _slice(a: Arrays, i: Instruction, v: list[Any]) -> Any:
    return v[0][tuple(slice(p.start, p.limit, p.stride) for p in slice_dimensions(i))]


def _iota(a: Arrays, i: Instruction, v: list[Any]) -> Any:
    along = i.attribute("iota_dimension", int)
    return filled(
        i.shape.dimensions, lambda at: a.terms.number(np.asarray(at[along]).astype(i.shape.type.dtype), i.shape.type)
    )


def _starts(a: Arrays, i: Instruction, first: int, v: list[Any]) -> list[Any]:
    return a.signed([s[()] for s in v[first:]], i.operands[first].shape.type) if len(v) > first else []


def _dynamic_slice(a: Arrays, i: Instruction, v: list[Any]) -> Any:
    return a.window_at(v[0], _starts(a, i, 1, v), i.ints("dynamic_slice_sizes"))


def _update(a: Arrays, i: Instruction, v: list[Any]) -> Any:
    return a.written_at(v[0], v[1], _starts(a, i, 2, v))


def _vectors(indices: Any, along: int) -> Any:
    """Index vectors: the component comes last."""
    return indices[..., None] if along == indices.ndim else np.moveaxis(indices, along, -1)


def _gather(a: Arrays, i: Instruction, v: list[Any]) -> Any:
    g, kind = gather_dimensions(i), i.operands[1].shape.type
    if g.batching.operand_dims:
        raise UnknownError("batching dimensions")
    vectors, kept = _vectors(v[1], g.index_vector_dim), [d for d in range(v[0].ndim) if d not in g.removed]
    batch = vectors.shape[:-1]
    out = np.empty((*batch, *(g.slice_sizes[d] for d in kept)), dtype=object)
    for at in np.ndindex(*batch):
        named = dict(zip(g.start_index_map, a.signed(list(vectors[at]), kind), strict=True))
        part = a.window_at(v[0], [named.get(d, 0) for d in range(v[0].ndim)], g.slice_sizes)
        out[at] = part.reshape(out.shape[len(batch) :])
    return np.moveaxis(out, range(len(batch), out.ndim), g.offset_dims)


def _scatter(a: Arrays, i: Instruction, v: list[Any]) -> Any:
    target, indices, updates = v
    s, kind = scatter_dimensions(i), i.operands[1].shape.type
    if s.batching.operand_dims:
        raise UnknownError("batching dimensions")
    windows = s.update_windows(i.operands[0].shape, i.operands[2].shape)
    vectors = _vectors(indices, s.index_vector_dim)
    batch = vectors.shape[:-1]
    moved = np.moveaxis(updates, s.offset_dims, range(len(batch), updates.ndim))
    for at in np.ndindex(*batch):
        named = dict(zip(s.start_index_map, a.signed(list(vectors[at]), kind), strict=True))
        room = {d: target.shape[d] - windows[d] for d in named}
        inside = z3.And(*[z3.And(k >= 0, k <= room[d]) for d, k in named.items()])
        starts, sizes = [named.get(d, 0) for d in range(target.ndim)], [windows[d] for d in range(target.ndim)]
        there = a.window_at(target, starts, sizes)
        (combined,) = a._each(i.called_by("to_apply"), [there, moved[at].reshape(sizes)])
        target = either(inside, a.written_at(target, combined, starts), target)
    return target


def _reduce(a: Arrays, i: Instruction, v: list[Any]) -> Any:
    half = len(v) // 2
    folded, reducer = reduced(i), i.called_by("to_apply")
    kept = [d for d in range(v[0].ndim) if d not in folded]
    rows = [x.transpose(*kept, *folded).reshape(*(x.shape[d] for d in kept), -1) for x in v[:half]]
    if rows[0].size > MOST:
        raise UnknownError("too many elements")
    found = [np.empty(rows[0].shape[:-1], dtype=object) for _ in range(half)]
    for at in np.ndindex(*found[0].shape):
        total = [start[()] for start in v[half:]]
        for k in range(rows[0].shape[-1]):
            total = a.scalars(reducer, [*total, *(r[(*at, k)] for r in rows)])
        for array, element in zip(found, total, strict=True):
            array[at] = element
    return tuple(found) if i.shape.is_tuple else found[0]


def _steps(at: int, part: Any, size: int) -> Iterator[tuple[int, int]]:
    """What a window at a place reads of one dimension: the number within the window, and the element."""
    for k in range(part.size):
        step, rest = divmod(at * part.stride + k * part.rhs_dilate - part.pad_low, part.lhs_dilate)
        if not rest and 0 <= step < size:
            yield part.size - 1 - k if part.rhs_reversal else k, step


def _reduce_window(a: Arrays, i: Instruction, v: list[Any]) -> Any:
    if len(v) != 2:
        raise UnknownError("windows of several arrays")
    parts, reducer = window(i, v[0].ndim), i.called_by("to_apply")

    def element(at: tuple[int, ...]) -> Any:
        total = v[1][()]
        reads = [list(_steps(k, p, n)) for k, p, n in zip(at, parts, v[0].shape, strict=True)]
        for places in itertools.product(*reads):
            (total,) = a.scalars(reducer, [total, v[0][tuple(step for _, step in places)]])
        return total

    return filled(i.shape.dimensions, element)


def _summed(a: Arrays, i: Instruction, products: list[tuple[Any, Any]]) -> Any:
    kind = i.shape.type
    if any(o.shape.type != kind for o in i.operands) or (products and kind.is_float and a.terms.exact):
        raise UnknownError("sums of products of floats are rounded in any order")
    if kind.kind == "pred" or kind.is_complex:
        raise UnknownError(f"sums of products of {kind.name}")
    total = a.terms.number(0, kind)
    for x, y in products:
        total = total + x * y
    return total


def _dot(a: Arrays, i: Instruction, v: list[Any]) -> Any:
    d = DotDimensions.of(i)
    left, right = d.free(v[0].ndim, right=False), d.free(v[1].ndim, right=True)
    x = v[0].transpose(*d.lhs_batch, *left, *d.lhs_contracting)
    y = v[1].transpose(*d.rhs_batch, *right, *d.rhs_contracting)
    batch, summed = len(d.lhs_batch), [v[0].shape[k] for k in d.lhs_contracting]

    def element(at: tuple[int, ...]) -> Any:
        own, first, second = at[:batch], at[batch : batch + len(left)], at[batch + len(left) :]
        return _summed(a, i, [(x[(*own, *first, *k)], y[(*own, *second, *k)]) for k in np.ndindex(*summed)])

    return filled(i.shape.dimensions, element)


def _convolution(a: Arrays, i: Instruction, v: list[Any]) -> Any:
    c = convolution_dimensions(i)
    if c.batch_groups != 1:
        raise UnknownError("groups of the batch")
    (lb, lf, ls), (ro, ri, rs), (ob, of, os_) = c.lhs, c.rhs, c.output
    features, per_group = v[1].shape[ri], v[1].shape[ro] // c.feature_groups

    def element(at: tuple[int, ...]) -> Any:
        reads = [list(_steps(at[o], p, v[0].shape[s])) for o, p, s in zip(os_, c.window, ls, strict=True)]
        products = []
        for places in itertools.product(*reads):
            for f in range(features):
                x, y = [0] * v[0].ndim, [0] * v[1].ndim
                x[lb], x[lf], y[ro], y[ri] = at[ob], at[of] // per_group * features + f, at[of], f
                for (tap, step), s, r in zip(places, ls, rs, strict=True):
                    x[s], y[r] = step, tap
                products.append((v[0][tuple(x)], v[1][tuple(y)]))
        return _summed(a, i, products)

    return filled(i.shape.dimensions, element)


def _sort(a: Arrays, i: Instruction, v: list[Any]) -> Any:
    """The order is a function of the operands that the comparator reads, and of what it does with them."""
    (along,) = i.ints("dimensions")
    size = v[0].shape[along]
    if size <= 1:
        return tuple(v) if i.shape.is_tuple else v[0]
    comparator = i.called_by("to_apply")
    sides = [a.terms.fresh(f"side{p.parameter_number}", p.shape.type) for p in comparator.parameters]
    (answer,) = a.scalars(comparator, sides)
    read = [k for k in range(len(v)) if any(occurs(sides[2 * k + side], answer) for side in (0, 1))]
    names = [
        (sides[2 * k + s], z3.Const(f"key{n}.{s}", sides[2 * k].sort())) for n, k in enumerate(read) for s in (0, 1)
    ]
    name = z3.substitute(answer, *names).sexpr()
    rows = [np.moveaxis(x, along, -1) for x in v]
    found = [np.empty(rows[0].shape, dtype=object) for _ in v]
    for at in np.ndindex(*rows[0].shape[:-1]):
        keys = [e for k in read for e in rows[k][at]]
        for n in range(size):
            where = z3.Function(f"{n} of {name}", *[e.sort() for e in keys], z3.IntSort())(*keys)
            for array, row in zip(found, rows, strict=True):
                value = row[(*at, size - 1)]
                for k in range(size - 1):
                    value = chosen(where == k, row[(*at, k)], value)
                array[(*at, n)] = value
    moved = [np.moveaxis(f, -1, along) for f in found]
    return tuple(moved) if i.shape.is_tuple else moved[0]


def occurs(constant: Any, term: Any) -> bool:
    return constant.eq(term) or any(occurs(constant, child) for child in term.children())


def _conditional(a: Arrays, i: Instruction, v: list[Any]) -> Any:
    chooser, *arguments = v
    branches = list(i.called())
    results = [leaves(a.call(c, [[x]])[0]) for c, x in zip(branches, arguments, strict=True)]
    index = chooser[()]
    if i.operands[0].shape.type.kind == "pred":
        merged = [either(index, x, y) for x, y in zip(*results, strict=True)]
    else:
        merged = results[-1]
        for k, result in enumerate(results[:-1]):
            merged = [either(index == k, x, y) for x, y in zip(result, merged, strict=True)]
    return tuple(merged) if i.shape.is_tuple else merged[0]


def _bits(a: Arrays, i: Instruction, v: list[Any]) -> Any:
    source, target = i.operands[0].shape.type, i.shape.type
    array = v[0]
    if target.bits > source.bits:
        return filled(i.shape.dimensions, lambda at: a.terms.of_bits(list(array[at]), source, target)[0])
    if target.bits == source.bits:
        return filled(i.shape.dimensions, lambda at: a.terms.of_bits([array[at]], source, target)[0])
    return filled(i.shape.dimensions, lambda at: a.terms.of_bits([array[at[:-1]]], source, target)[at[-1]])


def _call(a: Arrays, i: Instruction, v: list[Any]) -> Any:
    (computation,) = i.called()
    return a.call(computation, [[x] for x in v])[0]


def _custom_call(a: Arrays, i: Instruction, v: list[Any]) -> Any:
    if i.word("custom_call_target") != "Sharding":
        raise UnknownError(i.word("custom_call_target"))
    return v[0]


PLAIN: dict[str, Callable[[Arrays, Instruction, list[Any]], Any]] = {
    "broadcast": _broadcast,
    "reshape": _reshape,
    "bitcast": _reshape,
    "bitcast-convert": _bits,
    "transpose": lambda a, i, v: v[0].transpose(i.ints("dimensions")),
    "pad": _pad,
    "reverse": _reverse,
    "slice": _slice,
    "concatenate": lambda a, i, v: np.concatenate(v, axis=i.ints("dimensions")[0]),
    "iota": _iota,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _update,
    "gather": _gather,
    "scatter": _scatter,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "dot": _dot,
    "convolution": _convolution,
    "sort": _sort,
    "tuple": lambda a, i, v: tuple(v),
    "get-tuple-element": lambda a, i, v: v[0][i.attribute("index", int)],
    "opt-barrier": lambda a, i, v: v[0],
    "conditional": _conditional,
    "call": _call,
    "map": lambda a, i, v: a._each(i.called_by("to_apply"), v)[0],
    "custom-call": _custom_call,
    "get-dimension-size": lambda a, i, v: filled(
        (), lambda at: a.terms.number(i.operands[0].shape.dimensions[i.ints("dimensions")[0]], i.shape.type)
    ),
}
