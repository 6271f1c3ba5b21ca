"""Arrays with dynamic dimensions become arrays of their bounds, with a number for each size, so that kernels can
contain them.

Source: xla/service/dynamic_padder.cc, which does the same before XLA:CPU and XLA:GPU compile. Elements beyond the sizes
in use must not count: where an operation would read them (a reduction, a padding, a scatter), neutral values replace
them. A result of the program has the elements in use first, in row-major order, and zeros after them, as in
`hlo_opt.ops.dynamic.Dynamic.buffer`. Everywhere but at the program's ends, an array with dynamic dimensions becomes a
tuple of the array at its bound and the sizes, in the order of the dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from hlo_opt.ir import Called, Computation, Instruction, Module, Shape, edit
from hlo_opt.ir.attribute import WindowDimension
from hlo_opt.ir.element_type import PRED, S32
from hlo_opt.ops.contraction.table import DotDimensions
from hlo_opt.ops.dynamic import is_dynamic, takes_dynamic
from hlo_opt.ops.indexing.gather_dimensions import gather_dimensions, scatter_dimensions
from hlo_opt.ops.movement.table import padding_dimensions
from hlo_opt.ops.ordering.table import sorted_dimension
from hlo_opt.ops.reduction.reducers import identity, monoid
from hlo_opt.ops.reduction.table import reduced
from hlo_opt.ops.shapes import window
from hlo_opt.ops.spec import OpKind, find
from hlo_opt.passes.base import PassContext
from hlo_opt.passes.expansion import BroadcastingWriter, Expansion


class _UnsupportedError(Exception):
    """An operation on dynamic sizes that the pass does not know: the module stays unchanged."""

    place: str = ""
    """The name of the operation, if it is one."""


@dataclass(frozen=True, slots=True)
class _Value:
    """An array at its bound, and the sizes in use of its dynamic dimensions, not limited by the bound."""

    data: Instruction
    sizes: Mapping[int, Instruction] = field(default_factory=dict)


@dataclass(frozen=True)
class DynamicPadder(Expansion):
    """Replace all dynamic dimensions of a module. A module with an unknown operation on dynamic sizes stays
    unchanged."""

    name: ClassVar[str] = "dynamic-padder"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"
    idempotent: ClassVar[bool] = True

    def concerns(self, module: Module) -> bool:
        if any(is_dynamic(p.shape) for p in module.entry.parameters):
            return False
        return any(takes_dynamic(i) for c in module.computations for i in c.instructions)

    def run(self, module: Module, context: PassContext) -> bool:
        if not self.concerns(module):
            return False
        try:
            _without_dynamic(edit.clone_module(module))
        except _UnsupportedError:
            return False
        if not context.step():
            return False
        _without_dynamic(module)
        return True


def unknown(module: Module) -> Instruction | None:
    """An operation on sizes in use that the pass does not know, so that kernels would take bounds for sizes. None where
    there is none. Parameters have the size of their bound."""
    every = {i.name: i for c in module.computations for i in c.instructions if takes_dynamic(i)}
    if not every:
        return None
    if any(is_dynamic(p.shape) for p in module.entry.parameters):
        return next((i for i in every.values() if i.opcode in _MAKERS), None)
    copy = edit.clone_module(module)
    try:
        _without_dynamic(copy)
    except _UnsupportedError as error:
        return every.get(error.place, next(iter(every.values())))
    return None


def _without_dynamic(module: Module) -> None:
    for computation in list(module.computations):
        if any(takes_dynamic(i) for i in computation.instructions):
            _Rewriter(computation, computation is module.entry).run()
    edit.sort_computations(module)


def _static(shape: Shape) -> Shape:
    """The shape without dynamic dimensions."""
    if shape.elements is not None:
        return Shape.tuple_of(*(_static(e) for e in shape.elements))
    if -1 in shape.dimensions:
        raise _UnsupportedError
    return Shape(shape.element_type, shape.dimensions, shape.layout) if any(shape.dynamic) else shape


def _carried(shape: Shape) -> Shape:
    """The shape of a value in control flow and tuples."""
    if shape.elements is not None:
        return Shape.tuple_of(*(_carried(e) for e in shape.elements))
    if not any(shape.dynamic):
        return shape
    return Shape.tuple_of(_static(shape), *(Shape(S32, ()) for _ in _open(shape)))


def _open(shape: Shape) -> list[int]:
    return [d for d, is_open in enumerate(shape.dynamic) if is_open]


_CARRIERS = frozenset(
    {"while", "conditional", "call", "opt-barrier", "optimization-barrier", "get-tuple-element", "tuple", "parameter"}
)


class _Rewriter:
    """Rewrites one computation."""

    def __init__(self, computation: Computation, is_entry: bool) -> None:
        self.computation, self.is_entry = computation, is_entry
        self.write = BroadcastingWriter(computation)
        self.shapes = {i: i.shape for i in computation.instructions}
        self.values: dict[Instruction, _Value] = {}

    def run(self) -> None:
        old_root = self.computation.root
        for i in list(self.computation.instructions):
            if is_dynamic(self.shapes[i]) or any(is_dynamic(self.shapes[o]) for o in i.operands):
                try:
                    self.values[i] = self.rewritten(i)
                except _UnsupportedError as error:
                    error.place = i.name
                    raise
            else:
                edit.set_operands(i, [self.values[o].data for o in i.operands])
                self.values[i] = _Value(i)
        shape, value = self.shapes[old_root], self.values[old_root]
        if not self.is_entry:
            root = self.carried(old_root)
        elif value.sizes:
            root = self.write.reshape(self.packed(value), _static(shape))
        else:
            root = self.finished(value.data, shape)
        edit.set_root(self.computation, root)
        edit.sort(self.computation)
        for i in reversed(list(self.computation.instructions)):
            if not i.users and i is not self.computation.root and i.parameter_number is None and _is_pure(i):
                edit.remove(i)

    # ---- values

    def size(self, value: _Value, dimension: int) -> Instruction:
        """The size of a dimension, not limited by its bound."""
        return value.sizes.get(dimension) or self.write.number(value.data.shape.dimensions[dimension])

    def used(self, value: _Value, dimension: int) -> Instruction:
        """The size of a dimension, limited by its bound."""
        bound = value.data.shape.dimensions[dimension]
        if dimension not in value.sizes:
            return self.write.number(bound)
        inside = self.write.binary("minimum", value.sizes[dimension], self.write.number(bound))
        return self.write.binary("maximum", inside, self.write.number(0))

    def carried(self, i: Instruction) -> Instruction:
        """The value of an instruction in the form that control flow and tuples carry."""
        value, shape = self.values[i], self.shapes[i]
        if not set(value.sizes) <= set(_open(shape)):
            raise _UnsupportedError  # the type does not tell
        if not shape.is_array or not any(shape.dynamic):
            return value.data
        sizes = [self.size(value, d) for d in _open(shape)]
        return self.write.emit("tuple", _carried(shape), value.data, *sizes)

    def taken(self, result: Instruction, shape: Shape) -> _Value:
        """The value behind what control flow carries: the array and its sizes."""
        if not shape.is_array or not any(shape.dynamic):
            return _Value(result)
        data = self.write.element(result, 0)
        return _Value(data, {d: self.write.element(result, 1 + k) for k, d in enumerate(_open(shape))})

    def finished(self, value: Instruction, shape: Shape) -> Instruction:
        """A carried value in the form that the program returns."""
        if shape.elements is not None:
            if not is_dynamic(shape):
                return value
            elements = [self.finished(self.write.element(value, k), e) for k, e in enumerate(shape.elements)]
            return self.write.emit("tuple", _static(shape), *elements)
        if not any(shape.dynamic):
            return value
        padded = self.taken(value, shape)
        return self.write.reshape(self.packed(padded), _static(shape))

    def masked(self, value: _Value, dimensions: Sequence[int], instead: Instruction) -> Instruction:
        """The array with another scalar in place of the elements that are not in use in these dimensions."""
        data = value.data
        for d in dimensions:
            if d in value.sizes:
                inside = self.write.compare("LT", self.write.iota(data.shape.dimensions, d), self.used(value, d))
                data = self.write.select(inside, data, instead)
        return data

    def packed(self, value: _Value) -> Instruction:
        """A vector of all elements of the bound: those in use first, in row-major order, then zeros."""
        w, shape = self.write, value.data.shape
        flat = w.reshape(value.data, Shape(shape.element_type, (shape.element_count,)))
        if not value.sizes or not shape.element_count:
            return flat
        position = w.iota((shape.element_count,), 0)
        rest, source, total, stride = position, w.number(0), w.number(1), 1
        one = w.number(1)
        for d in reversed(range(shape.rank)):
            size = self.used(value, d)
            total = w.binary("multiply", total, size)
            divisor = w.binary("maximum", size, one)
            part = w.binary("multiply", w.binary("remainder", rest, divisor), w.number(stride))
            source, rest = w.binary("add", source, part), w.binary("divide", rest, divisor)
            stride *= shape.dimensions[d]
        return self._picked(flat, source, w.compare("LT", position, total))

    def unpacked(self, flat: Instruction, shape: Shape, sizes: Mapping[int, Instruction]) -> _Value:
        """The first elements of a vector, in row-major order, as an array of these sizes."""
        w = self.write
        value = _Value(w.zeros(shape), sizes)
        source, step, inside = w.number(0), w.number(1), w.predicate(True)
        for d in reversed(range(shape.rank)):
            at, size = w.iota(shape.dimensions, d), self.used(value, d)
            source = w.binary("add", source, w.binary("multiply", at, step))
            step = w.binary("multiply", step, size)
            inside = w.binary("and", inside, w.compare("LT", at, size))
        return _Value(self._picked(flat, source, inside), sizes)

    def _picked(self, flat: Instruction, source: Instruction, inside: Instruction) -> Instruction:
        w = self.write
        zero = w.zeros(Shape(flat.shape.element_type, ()))
        return w.select(inside, w.picked(flat, w.select(inside, source, w.number(0))), zero)

    # ---- operations

    def rewritten(self, i: Instruction) -> _Value:
        shape = self.shapes[i]
        if i.opcode in _CARRIERS:
            if i.parameter_number is None:
                edit.set_operands(i, [self.carried(o) for o in i.operands])
            edit.set_shape(i, _carried(shape))
            return self.taken(i, shape)
        operands = [self.values[o] for o in i.operands]
        spec = find(i.opcode)
        if i.opcode in _OPERATIONS:
            value = _OPERATIONS[i.opcode](self, i, operands)
        elif (
            spec is not None
            and spec.kind is OpKind.ELEMENTWISE
            and all(o.data.shape.rank in (0, len(shape.dimensions)) for o in operands)
        ):
            value = self.elementwise(i, operands)
        else:
            raise _UnsupportedError
        return value

    def same(self, i: Instruction, operands: Sequence[Instruction], shape: Shape | None = None) -> Instruction:
        """The operation on other operands."""
        clone = edit.clone_into(self.computation, i, operands)
        clone.shape = _static(self.shapes[i]) if shape is None else shape
        return clone

    def elementwise(self, i: Instruction, operands: list[_Value]) -> _Value:
        return _Value(self.same(i, [v.data for v in operands]), self.smallest([v.sizes for v in operands]))

    def smallest(self, sizes: Sequence[Mapping[int, Instruction]]) -> dict[int, Instruction]:
        """The sizes of what is combined element by element: the smallest of each dimension."""
        found: dict[int, Instruction] = {}
        for own in sizes:
            for d, size in own.items():
                known = found.get(d)
                found[d] = size if known is None or known is size else self.write.binary("minimum", known, size)
        return found

    def concatenate(self, i: Instruction, operands: list[_Value]) -> _Value:
        """Each operand is written over what the one before has beyond its size."""
        (along,), w = i.ints("dimensions"), self.write
        sizes = self.smallest([{d: s for d, s in v.sizes.items() if d != along} for v in operands])
        if not any(along in v.sizes for v in operands):
            return _Value(self.same(i, [v.data for v in operands]), sizes)
        shape, start = _static(self.shapes[i]), w.number(0)
        data = w.zeros(shape)
        for value in operands:
            starts = [start if d == along else w.number(0) for d in range(shape.rank)]
            data = w.emit("dynamic-update-slice", shape, data, value.data, *starts)
            start = w.binary("add", start, self.used(value, along))
        return _Value(data, {**sizes, along: start})

    def reverse(self, i: Instruction, operands: list[_Value]) -> _Value:
        """What is in use comes last, and is moved to the front."""
        (value,), w = operands, self.write
        data = self.same(i, [value.data])
        for d in i.ints("dimensions"):
            if d in value.sizes:
                shape, bound = data.shape, data.shape.dimensions[d]
                longer = tuple(size * (1 + (k == d)) for k, size in enumerate(shape.dimensions))
                twice = w.concatenate(Shape(shape.element_type, longer), [data, data], d)
                beyond = w.binary("subtract", w.number(bound), self.used(value, d))
                starts = [beyond if k == d else w.number(0) for k in range(shape.rank)]
                data = w.emit("dynamic-slice", shape, twice, *starts, dynamic_slice_sizes=shape.dimensions)
        return _Value(data, dict(value.sizes))

    def sort(self, i: Instruction, operands: list[_Value]) -> _Value:
        """What is not in use is sorted behind all that is, by a mark that goes along."""
        along, w = sorted_dimension(i), self.write
        if len(operands) != 1:
            raise _UnsupportedError
        value = operands[0]
        if along not in value.sizes:
            return _Value(self.same(i, [value.data]), dict(value.sizes))
        inside = w.compare("LT", w.iota(value.data.shape.dimensions, along), self.used(value, along))
        shape = Shape.tuple_of(_static(self.shapes[i]), inside.shape)
        both = self.same(i, [value.data, inside], shape)
        edit.set_attribute(both, "to_apply", Called(_used_first(i.called_by("to_apply"))))
        return _Value(w.element(both, 0), dict(value.sizes))

    def dot(self, i: Instruction, operands: list[_Value]) -> _Value:
        """Products of what is not in use are 0."""
        dims = DotDimensions.of(i)
        data, sizes = [], []
        for value, right in zip(operands, (False, True), strict=True):
            batch, summed = (dims.rhs_batch, dims.rhs_contracting) if right else (dims.lhs_batch, dims.lhs_contracting)
            free, first = dims.free(value.data.shape.rank, right=right), len(batch)
            if right:
                first += operands[0].data.shape.rank - len(dims.lhs_batch) - len(dims.lhs_contracting)
            places = {d: to for to, d in enumerate(batch)} | {d: first + k for k, d in enumerate(free)}
            sizes.append({places[d]: size for d, size in value.sizes.items() if d in places})
            data.append(self.masked(value, summed, self.write.scalar(value.data.shape.type, 0)))
        return _Value(self.same(i, data), self.smallest(sizes))

    def reduce_window(self, i: Instruction, operands: list[_Value]) -> _Value:
        if len(operands) != 2 or operands[1].sizes:
            raise _UnsupportedError
        value, init = operands
        wide, sizes = [], dict(value.sizes)
        for d, part in enumerate(window(i, value.data.shape.rank)):
            if d in sizes and part != WindowDimension(1):
                wide.append(d)
                sizes[d] = self.windows(self.used(value, d), part)
        nothing = (self.identity(i) or [init.data])[0]
        return _Value(self.same(i, [self.masked(value, wide, nothing), init.data]), sizes)

    def windows(self, size: Instruction, part: WindowDimension) -> Instruction:
        """The number of window positions along a dimension (`hlo_opt.ops.shapes.windowed`)."""
        w, span = self.write, (part.size - 1) * part.rhs_dilate + 1
        dilated = w.binary("multiply", w.binary("subtract", size, w.number(1)), w.number(part.lhs_dilate))
        base = w.binary("maximum", w.binary("add", dilated, w.number(1)), w.number(0))
        room = w.binary("add", base, w.number(part.pad_low + part.pad_high - span))
        steps = w.binary("divide", w.binary("maximum", room, w.number(0)), w.number(part.stride))
        return w.select(w.compare("GE", room, w.number(0)), w.binary("add", steps, w.number(1)), w.number(0))

    def inside(self, value: _Value, starts: Sequence[_Value], lengths: Sequence[int]) -> list[Instruction]:
        """The starts of a part of an array, limited so that the part is in use."""
        w, limited = self.write, []
        for d, (start, length) in enumerate(zip(starts, lengths, strict=True)):
            own = w.convert(start.data, S32)
            if d in value.sizes:
                last = w.binary("subtract", self.used(value, d), w.number(length))
                own = w.binary("maximum", w.binary("minimum", own, last), w.number(0))
            limited.append(own)
        return limited

    def slice(self, i: Instruction, operands: list[_Value]) -> _Value:
        """A part ends within what is in use."""
        (value,), shape, sizes = operands, self.shapes[i], dict[int, Instruction]()
        for d, size in value.sizes.items():
            is_whole = shape.dimensions[d] == value.data.shape.dimensions[d]
            if is_whole or (shape.dynamic and shape.dynamic[d]):
                sizes[d] = size if is_whole else self.write.number(shape.dimensions[d])
        return _Value(self.same(i, [value.data]), sizes)

    def dynamic_slice(self, i: Instruction, operands: list[_Value]) -> _Value:
        value, *starts = operands
        lengths = self.shapes[i].dimensions
        if any(self.shapes[i].dynamic) or len(starts) != len(lengths):
            raise _UnsupportedError
        return _Value(self.same(i, [value.data, *self.inside(value, starts, lengths)]))

    def dynamic_update_slice(self, i: Instruction, operands: list[_Value]) -> _Value:
        value, update, *starts = operands
        lengths = update.data.shape.dimensions
        if update.sizes or len(starts) != len(lengths):
            raise _UnsupportedError
        return _Value(self.same(i, [value.data, update.data, *self.inside(value, starts, lengths)]), dict(value.sizes))

    def set_size(self, i: Instruction, operands: list[_Value]) -> _Value:
        (along,) = i.ints("dimensions")
        value, size = operands[0], self.write.convert(operands[1].data, S32)
        return _Value(value.data, {**value.sizes, along: size} if along in _open(self.shapes[i]) else dict(value.sizes))

    def get_size(self, i: Instruction, operands: list[_Value]) -> _Value:
        return _Value(self.write.convert(self.size(operands[0], i.ints("dimensions")[0]), self.shapes[i].type))

    def reduce(self, i: Instruction, operands: list[_Value]) -> _Value:
        half, gone = len(operands) // 2, reduced(i)
        inits = [v.data for v in operands[half:]]
        nothing = self.identity(i) or inits
        masked = [self.masked(v, gone, n) for v, n in zip(operands[:half], nothing, strict=True)]
        kept = [d for d in range(masked[0].shape.rank) if d not in gone]
        sizes = {to: operands[0].sizes[d] for to, d in enumerate(kept) if d in operands[0].sizes}
        if sizes and not self.shapes[i].is_array:
            raise _UnsupportedError
        return _Value(self.same(i, [*masked, *inits]), sizes)

    def identity(self, i: Instruction) -> list[Instruction] | None:
        """The identity of the reducer; None where it is unknown (XLA takes the init values for it)."""
        if not i.shape.is_array:
            return None
        name, element_type = monoid(i.called_by("to_apply")), self.shapes[i].type
        if name is None or element_type.is_complex:
            return None
        return [self.write.scalar(element_type, identity(name, element_type))]

    def broadcast(self, i: Instruction, operands: list[_Value]) -> _Value:
        to = i.ints("dimensions")
        return _Value(self.same(i, [operands[0].data]), {to[d]: size for d, size in operands[0].sizes.items()})

    def transpose(self, i: Instruction, operands: list[_Value]) -> _Value:
        order, sizes = i.ints("dimensions"), operands[0].sizes
        return _Value(self.same(i, [operands[0].data]), {to: sizes[d] for to, d in enumerate(order) if d in sizes})

    def reshape(self, i: Instruction, operands: list[_Value]) -> _Value:
        shape, w = _static(self.shapes[i]), self.write
        opened = _open(self.shapes[i])
        if len(opened) != 1:
            raise _UnsupportedError
        total = w.number(1)
        for d in range(operands[0].data.shape.rank):
            total = w.binary("multiply", total, self.used(operands[0], d))
        rest = math.prod(size for d, size in enumerate(shape.dimensions) if d not in opened)
        size = w.binary("divide", total, w.number(max(1, rest)))
        return self.unpacked(self.packed(operands[0]), shape, {opened[0]: size})

    def dynamic_reshape(self, i: Instruction, operands: list[_Value]) -> _Value:
        opened = _open(self.shapes[i])
        sizes = {d: self.write.convert(operands[1 + d].data, S32) for d in opened}
        return self.unpacked(self.packed(operands[0]), _static(self.shapes[i]), sizes)

    def pad(self, i: Instruction, operands: list[_Value]) -> _Value:
        value, filler = operands
        w, sizes = self.write, {}
        for d, part in enumerate(padding_dimensions(i)):
            if d in value.sizes:
                gaps = w.binary("maximum", w.binary("subtract", self.used(value, d), w.number(1)), w.number(0))
                spread = w.binary("add", self.used(value, d), w.binary("multiply", gaps, w.number(part.interior)))
                sizes[d] = w.binary("add", spread, w.number(part.low + part.high))
        return _Value(self.same(i, [self.masked(value, sorted(value.sizes), filler.data), filler.data]), sizes)

    def gather(self, i: Instruction, operands: list[_Value]) -> _Value:
        """Gather whole lines along dynamic dimensions; only some of the indices may be in use."""
        g = gather_dimensions(i)
        source, indices = operands
        lengths = i.ints("slice_sizes")
        kept = [d for d in range(source.data.shape.rank) if d not in g.removed]
        sizes: dict[int, Instruction] = {}
        for d, size in source.sizes.items():
            if d not in kept or lengths[d] != source.data.shape.dimensions[d]:
                raise _UnsupportedError
            sizes[g.offset_dims[kept.index(d)]] = size
        outer = [d for d in range(self.shapes[i].rank) if d not in g.offset_dims]
        along = [d for d in range(indices.data.shape.rank) if d != g.index_vector_dim]
        for to, d in zip(outer, along, strict=True):
            if d in indices.sizes:
                sizes[to] = indices.sizes[d]
        return _Value(self.same(i, [source.data, indices.data]), sizes)

    def scatter(self, i: Instruction, operands: list[_Value]) -> _Value:
        """Updates that are not in use get indices outside of the operand, so that they write nothing."""
        if len(operands) != 3 or operands[0].sizes:
            raise _UnsupportedError
        s = scatter_dimensions(i)
        source, indices, updates = operands
        along = [d for d in range(indices.data.shape.rank) if d != s.index_vector_dim]
        outer = [d for d in range(updates.data.shape.rank) if d not in s.offset_dims]
        sizes = {d: updates.sizes[at] for d, at in zip(along, outer, strict=True) if at in updates.sizes}
        if any(d in s.offset_dims for d in updates.sizes) or s.index_vector_dim in indices.sizes:
            raise _UnsupportedError
        outside = self.write.outside(indices.data.shape.type)
        masked = _Value(self.masked(indices, along, outside), sizes)
        return _Value(self.same(i, [source.data, self.masked(masked, along, outside), updates.data]))


_MAKERS = frozenset({"dynamic-reshape", "set-dimension-size"})
"""Operations that say what is in use."""
_OPERATIONS: Mapping[str, Callable[[_Rewriter, Instruction, list[_Value]], _Value]] = {
    "broadcast": _Rewriter.broadcast,
    "concatenate": _Rewriter.concatenate,
    "dot": _Rewriter.dot,
    "dynamic-reshape": _Rewriter.dynamic_reshape,
    "dynamic-slice": _Rewriter.dynamic_slice,
    "dynamic-update-slice": _Rewriter.dynamic_update_slice,
    "gather": _Rewriter.gather,
    "get-dimension-size": _Rewriter.get_size,
    "pad": _Rewriter.pad,
    "reduce": _Rewriter.reduce,
    "reduce-window": _Rewriter.reduce_window,
    "reshape": _Rewriter.reshape,
    "reverse": _Rewriter.reverse,
    "scatter": _Rewriter.scatter,
    "set-dimension-size": _Rewriter.set_size,
    "slice": _Rewriter.slice,
    "sort": _Rewriter.sort,
    "transpose": _Rewriter.transpose,
}


def _used_first(comparator: Computation) -> Computation:
    """A comparator of two values and of two marks: what is marked comes first, and in the order of `comparator`."""
    own = edit.clone_computation(comparator)
    mark = Shape(PRED, ())
    left, right = (edit.create_parameter(own, name, mark, 2 + k) for k, name in enumerate(("left", "right")))
    gone = edit.create(own, "gone", "not", mark, [right])
    before = edit.create(own, "before", "or", mark, [gone, own.root])
    edit.set_root(own, edit.create(own, "used", "and", mark, [left, before]))
    return own


def _is_pure(i: Instruction) -> bool:
    spec = find(i.opcode)
    return spec is not None and not spec.side_effects and spec.kind not in (OpKind.CONTROL, OpKind.OPAQUE)
