"""Cuts that keep the operations and make them plainer: smaller dimensions, usual types and layouts, the constants 0 and
1, and no attributes that a module is valid without."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from hlo_opt.cutting.cuts import Cut
from hlo_opt.cutting.parts import tidied
from hlo_opt.diag import HloOptError
from hlo_opt.ir import ELEMENT_TYPES, Attribute, ElementType, Instruction, Layout, Literal, Module, Shape, Window, edit
from hlo_opt.ir.attribute import SliceDimension
from hlo_opt.ir.values import Array
from hlo_opt.ops import OpKind, ShapeError, find
from hlo_opt.ops.sets import cut_out, looped

OPTIONAL = (
    *("metadata", "frontend_attributes", "backend_config", "sharding", "statistics", "result_accuracy", "origin"),
    *("is_stable", "indices_are_sorted", "unique_indices", "operand_precision", "precision"),
)
"""Attributes that a module is valid without."""
PLAINER = {
    "f64": "f32",
    "bf16": "f32",
    "f16": "f32",
    "c128": "c64",
    "c64": "f32",
    "s64": "s32",
    "u64": "u32",
    "u32": "s32",
    "s16": "s32",
    "u16": "s32",
    "s8": "s32",
    "u8": "s32",
}
"""The type to try in place of each other one."""
GROWN = (256, 128, 64)
"""The sizes that dimensions may get again, which came down to less: a fault may be in a kernel that is made only of so
many elements."""
SHORT = 9
"""The least dimensions that may get them where shorter ones go."""
MOST_GROWN = 1 << 20
"""Elements of all arrays together, with such dimensions."""
_PLACES_OF_OPERAND = {"lhs_batch_dims": 0, "lhs_contracting_dims": 0, "rhs_batch_dims": 1, "rhs_contracting_dims": 1}
"""Attributes with places of dimensions of an operand, by the operand's number."""


def bare(module: Module) -> Module:
    """Without all optional attributes."""
    for computation in module.computations:
        for i in computation.instructions:
            for name in OPTIONAL:
                i.attributes.pop(name, None)
    module.tables = ""
    module.attributes.clear()
    return tidied(module)


def nameless(module: Module) -> Module:
    """`bare`, and with names that say nothing: what is looked for in the text is not there for a name's sake. Constants
    that the text leaves out keep theirs, which stand for their values."""
    module = bare(module)
    computations = list(module.computations)
    module.name = "m"
    for number, computation in enumerate(computations):
        computation.name = f"c{number}"
    numbers = itertools.count()
    for i in (i for c in computations for i in c.instructions):
        if i.literal is None or not i.literal.is_elided:
            i.name = f"{'v' if i.parameter_number is None else 'p'}{next(numbers)}"
    return module


def barer(module: Module) -> list[Cut]:
    """Cuts that remove an optional attribute: from all instructions, then from one."""
    every = [i for c in module.computations for i in c.instructions]
    names = dict.fromkeys(n for i in every for n in i.attributes if n in OPTIONAL)
    cuts: list[Cut] = [partial(_without_header, name=name) for name in module.attributes]
    cuts += [_without_tables] if module.tables else []
    cuts += [partial(_without, name=name, numbers=None) for name in names]
    cuts += [
        partial(_without, name=name, numbers=frozenset({n}))
        for n, i in enumerate(every)
        for name in names
        if name in i.attributes
    ]
    return cuts


def _without(module: Module, name: str, numbers: frozenset[int] | None) -> Module:
    for n, i in enumerate([i for c in module.computations for i in c.instructions]):
        if numbers is None or n in numbers:
            i.attributes.pop(name, None)
    return module


def _without_header(module: Module, name: str) -> Module:
    module.attributes.pop(name)
    return module


def _without_tables(module: Module) -> Module:
    module.tables = ""
    return module


# ---- types, layouts and constants


def plainer(module: Module) -> list[Cut]:
    """Cuts to plainer types and layouts, in the whole module at once, and to plainer constants, one by one."""
    every = [i for c in module.computations for i in c.instructions]
    leaves = {leaf for i in every for leaf in i.shape.leaves() if leaf.is_array}
    names = dict.fromkeys(leaf.type.name for leaf in leaves)
    cuts: list[Cut] = [
        partial(retyped, old=name, new=PLAINER[name]) for name in ELEMENT_TYPES if name in names and name in PLAINER
    ]
    if "f32" in names and "s32" in names:  # arrays of one type can stand for each other
        cuts.append(partial(retyped, old="s32", new="f32"))
        if all(looped(i) is None for i in every):  # a loop without a counter asks whether a float is finite
            cuts.append(partial(retyped, old="f32", new="s32"))
    if any(not leaf.is_row_major or (leaf.layout and leaf.layout.tail) for leaf in leaves):
        cuts.append(_row_major)
    if any(any(leaf.dynamic) for leaf in leaves):
        cuts.append(_static)
    for n, i in enumerate(every):
        if i.literal is not None and i.shape.is_array and i.shape.type.numpy_name:
            # a condition that is always true ends no loop
            values = (0,) if i.shape.type.name == "pred" else (0, 1)
            cuts += [partial(_constant, number=n, value=value) for value in values]
    return cuts


def retyped(module: Module, old: str, new: str, kept: Collection[Instruction] = ()) -> Module:
    """One type in place of another, in the whole module but for some instructions."""
    target = ELEMENT_TYPES[new]

    def leaf(shape: Shape) -> Shape:
        return shape.with_type(target) if shape.type.name == old else shape

    return _mapped(module, leaf, lambda value, shape: _cast(value, shape.type), kept)


def _cast(value: Array, kind: ElementType) -> Array:
    with np.errstate(all="ignore"):
        real = value.real if np.iscomplexobj(value) and not kind.is_complex else value
        return np.asarray(real).astype(kind.dtype)


def _row_major(module: Module) -> Module:
    def leaf(shape: Shape) -> Shape:
        order = tuple(range(shape.rank - 1, -1, -1))
        return replace(shape, layout=Layout(order) if shape.rank and shape.layout is not None else None)

    return _mapped(module, leaf, lambda value, shape: value)


def _static(module: Module) -> Module:
    return _mapped(module, lambda shape: replace(shape, dynamic=()), lambda value, shape: value)


def _constant(module: Module, number: int, value: int) -> Module:
    i = [i for c in module.computations for i in c.instructions][number]
    edit.set_literal(i, Literal(i.shape, value=np.full(i.shape.dimensions, value, i.shape.type.dtype)))
    return module


def _mapped(
    module: Module,
    leaf: Callable[[Shape], Shape],
    value: Callable[[Array, Shape], Array],
    kept: Collection[Instruction] = (),
) -> Module:
    """The module with `leaf` of every array shape and `value` of every constant. An operation whose shape follows from
    its operands has that shape. Those that are kept stay as they are."""

    def whole(shape: Shape) -> Shape:
        if shape.elements is not None:
            return Shape.tuple_of(*map(whole, shape.elements))
        return leaf(shape) if shape.is_array else shape

    for computation in module.computations:
        for i in computation.instructions:
            if i in kept:
                continue
            shape = whole(i.shape)
            if i.literal is not None and i.shape.is_array and not i.literal.is_elided:
                array = i.literal.value
                assert isinstance(array, np.ndarray)
                edit.set_literal(i, Literal(shape, value=value(array, shape)))
                continue
            edit.set_shape(i, shape)
            if i.literal is None and i.parameter_number is None:
                edit.set_shape(i, _inferred(i))
    return tidied(module)


def _inferred(i: Instruction) -> Shape:
    """The shape that follows from an operation's operands, with the operation's own layout; its own shape where none
    follows."""
    spec = find(i.opcode)
    if spec is None or spec.infer is None:
        return i.shape
    try:
        inferred = spec.infer(i)
    except (ShapeError, HloOptError, KeyError, TypeError, ValueError, IndexError):
        return i.shape
    return _laid_out(inferred, i.shape)


def _laid_out(shape: Shape, like: Shape) -> Shape:
    if shape.elements is not None:
        likes = like.elements or ()
        if len(likes) != len(shape.elements):
            return shape
        return Shape.tuple_of(*(_laid_out(s, o) for s, o in zip(shape.elements, likes, strict=True)))
    return replace(shape, layout=like.layout) if like.rank == shape.rank else shape


# ---- dimensions


def smaller(module: Module) -> Iterator[Cut]:
    """Cuts to smaller dimensions, in the whole module: one size in place of another, alone and with its multiples, the
    largest first. A large size comes down by no less than an eighth: smaller steps would take too many tries."""
    sizes = _sizes(module)
    for size in sorted((s for s in sizes if s > 1), reverse=True):
        for less in _less(size):
            if 0 < less < size:
                yield partial(resized, sizes={size: less})
                multiples = {s: s // size * less for s in sizes if s > size and s % size == 0}
                if multiples:
                    yield partial(resized, sizes={size: less} | multiples)


def all_smaller(module: Module, least: int = 1) -> list[Cut]:
    """Cuts of all dimensions at once: to a 64th, an eighth, a half, and to no less than a size."""
    large = [s for s in _sizes(module) if s > least]
    parts = (64, 8, 2) if large else ()
    cuts: list[Cut] = [partial(resized, sizes={s: max(least, s // part) for s in large}) for part in parts]
    return [*cuts, squeezed] if 1 in _sizes(module) else cuts


def larger(module: Module) -> list[Cut]:
    """Changes of all dimensions to one size, as far as the arrays stay quick to compute; the same without short
    dimensions, such as those of a batch."""
    sizes = [s for s in _sizes(module) if s > 1]
    shapes = [leaf for c in module.computations for i in c.instructions for leaf in i.shape.leaves() if leaf.is_array]
    changes: list[Cut] = []
    for least in dict.fromkeys((2, SHORT)):
        long = [s for s in sizes if s >= least]
        for size in dict.fromkeys((max(long), *GROWN)) if long else ():
            elements = sum(size ** sum(s >= least for s in shape.dimensions) for shape in shapes)
            if elements <= MOST_GROWN and any(s != size for s in sizes):
                change = as_matrices if len(long) < len(sizes) else resized
                changes.append(partial(change, sizes=dict.fromkeys(sizes, 1) | dict.fromkeys(long, size)))
    return list({repr(change): change for change in changes}.values())


def as_matrices(module: Module, sizes: Mapping[int, int]) -> Module:
    """Other sizes in place of these, and no dimensions of size 1."""
    return squeezed(resized(module, sizes))


def squeezed(module: Module) -> Module:
    """Without all dimensions of size 1. What only adds, removes or moves such dimensions goes."""
    computations = list(module.computations)
    before = {i: [i.shape, *(o.shape for o in i.operands)] for c in computations for i in c.instructions}
    for computation in computations:
        for i in list(computation.instructions):
            shape, *operands = before[i]
            spec = find(i.opcode)
            moves = spec is not None and spec.kind is OpKind.MOVEMENT and len(operands) == 1 and shape.is_array
            if moves and (shape.element_type, _long(shape)) == (operands[0].element_type, _long(operands[0])):
                edit.replace_all_uses(i, i.operands[0])
            elif "dimensions" in i.attributes:
                _squeeze_places(i, "dimensions", shape if i.shape.rank > operands[0].rank else operands[0])
            for name, number in _PLACES_OF_OPERAND.items():
                if name in i.attributes:
                    _squeeze_places(i, name, operands[number])
        edit.sort(computation)

    def leaf(shape: Shape) -> Shape:
        layout = shape.layout
        if layout is not None and layout.minor_to_major is not None:
            kept = [n for n in layout.minor_to_major if shape.dimensions[n] > 1]
            layout = Layout(tuple(sorted(kept).index(n) for n in kept)) if kept else None
        return replace(shape, dimensions=_long(shape), layout=layout, dynamic=())

    return _mapped(module, leaf, lambda value, shape: value.reshape(shape.dimensions))


def _squeeze_places(i: Instruction, name: str, of: Shape) -> None:
    """An attribute with places of a shape's dimensions, without those of size 1."""
    kept = [n for n in i.ints(name) if of.dimensions[n] > 1]
    places = [sum(size > 1 for size in of.dimensions[:n]) for n in kept]
    edit.set_attribute(i, name, Attribute.of(tuple(places)))


def _long(shape: Shape) -> tuple[int, ...]:
    return tuple(size for size in shape.dimensions if size > 1)


def _sizes(module: Module) -> dict[int, None]:
    """The dimensions of all arrays, each once."""
    shapes = (i.shape for computation in module.computations for i in computation.instructions)
    return dict.fromkeys(size for shape in shapes for leaf in shape.leaves() for size in leaf.dimensions)


def _less(size: int) -> Iterable[int]:
    """The sizes to try in place of one: 1, 2, 4, 8, parts of it, and a little less."""
    little = (size - size // 4, size - size // 8) if size > 64 else (size - size // 4, size - 1)
    return dict.fromkeys((1, 2, 4, 8, size // 8, size // 2, *little))


def resized(module: Module, sizes: Mapping[int, int]) -> Module:
    """Other sizes in place of these, in the whole module: in shapes, in constants, which keep their first elements and
    repeat the last ones, and in the attributes that hold sizes."""
    before = {i: (i.shape, [o.shape for o in i.operands]) for c in module.computations for i in c.instructions}
    for i, (shape, operands) in before.items():
        _resize_attributes(i, shape, operands, sizes)

    def leaf(shape: Shape) -> Shape:
        return replace(shape, dimensions=tuple(sizes.get(n, n) for n in shape.dimensions))

    return _mapped(module, leaf, _resized_value)


def _resized_value(value: Array, shape: Shape) -> Array:
    """The first elements of a constant, or all of them and the last ones again."""
    more = [(0, max(0, new - old)) for new, old in zip(shape.dimensions, value.shape, strict=True)]
    padded = np.pad(value, more, mode="edge") if value.size and any(more) else value
    return np.asarray(padded[tuple(map(slice, shape.dimensions))])


def _resize_attributes(i: Instruction, shape: Shape, operands: list[Shape], sizes: Mapping[int, int]) -> None:
    ranges = cut_out(i)
    if ranges is not None:
        resized_ranges = [_range(r, n, sizes) for r, n in zip(ranges, operands[0].dimensions, strict=True)]
        (name,) = (n for n, value in i.attributes.items() if isinstance(value, Attribute) and value.value == ranges)
        edit.set_attribute(i, name, Attribute.of(tuple(resized_ranges)))
    for name in ("dynamic_slice_sizes", "slice_sizes"):
        if name in i.attributes:
            edit.set_attribute(i, name, Attribute.of(tuple(sizes.get(n, n) for n in i.ints(name))))
    window = i.value("window", 0)
    if isinstance(window, Window):
        new = []
        for w in window.dimensions:
            size = sizes.get(w.size, w.size)
            low, high = (size - 1 if pad == w.size - 1 and pad else pad for pad in (w.pad_low, w.pad_high))
            new.append(replace(w, size=size, pad_low=low, pad_high=high))
        edit.set_attribute(i, "window", Attribute.of(Window(tuple(new))))


def _range(cut: SliceDimension, size: int, sizes: Mapping[int, int]) -> SliceDimension:
    """A range of another size in a dimension of another size. A range at the end of its dimension stays at the end;
    another one keeps its start if there is room."""
    count = -(-(cut.limit - cut.start) // cut.stride)
    room, wanted = sizes.get(size, size), sizes.get(count, count)
    wanted = max(0, min(wanted, -(-room // cut.stride)))
    span = (wanted - 1) * cut.stride + 1 if wanted else 0
    start = room - span if cut.limit == size else min(cut.start, room - span)
    return SliceDimension(start, start + span, cut.stride)
