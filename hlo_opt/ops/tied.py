"""Which dimensions of an operation's operands and result have the same size whatever that size is, and which parts of
an instruction say a size.

A dimension is a `Place`. Rules give pairs of places that are always equal, and `Derived` places, whose size follows
from others. What no rule ties keeps the size that the text says.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from hlo_opt.ir import Attribute, IndexMap, Instruction, SliceDimension
from hlo_opt.ir.attribute import Window, WindowDimension
from hlo_opt.ir.index_map import Variable, groups
from hlo_opt.ops.contraction.table import convolution_dimensions
from hlo_opt.ops.control.table import branches
from hlo_opt.ops.custom_calls.targets import find_custom_call
from hlo_opt.ops.indexing.gather_dimensions import Batching, gather_dimensions, scatter_dimensions
from hlo_opt.ops.movement.table import padding_dimensions, slice_dimensions
from hlo_opt.ops.shapes import window
from hlo_opt.ops.spec import OpKind, find


class Extent(NamedTuple):
    """A size `(a * n + b) / c` at the sizes n where that is whole, with `c` as small as can be."""

    a: int
    b: int
    c: int = 1

    @classmethod
    def of(cls, a: int, b: int, c: int = 1) -> Self:
        """In lowest terms."""
        common = math.gcd(a, b, c)
        return cls(a // common, b // common, c // common)

    def plus(self, other: Extent, sign: int = 1) -> Extent:
        """The sum, or with sign -1 the difference."""
        return Extent.of(
            self.a * other.c + sign * other.a * self.c, self.b * other.c + sign * other.b * self.c, self.c * other.c
        )

    def times(self, factor: int, divisor: int = 1) -> Extent:
        """The extent times `factor`, divided by `divisor`."""
        return Extent.of(self.a * factor, self.b * factor, self.c * divisor)

    def at(self, size: int) -> int:
        """The size itself, which may be one of a range."""
        return (self.a * size + self.b) // self.c

    def is_whole(self, size: int) -> bool:
        """Whether there is such a size."""
        return (self.a * size + self.b) % self.c == 0

    def __str__(self) -> str:
        if not self.a:
            return f"{self.b}" if self.c == 1 else f"{self.b} / {self.c}"
        text = "n" if self.a == 1 else f"{self.a} * n"
        text += f" + {self.b}" if self.b > 0 else f" - {-self.b}" if self.b < 0 else ""
        return text if self.c == 1 else f"({text}) / {self.c}" if self.b else f"{text} / {self.c}"


SIZE = Extent(1, 0)
"""The size that changes, itself."""


@dataclass(frozen=True, slots=True)
class Place:
    """A dimension of an array leaf of an instruction's value."""

    instruction: Instruction
    leaf: int
    dimension: int


@dataclass(frozen=True, slots=True, eq=False)
class Derived:
    """Places whose sizes are a function of those of others: one for each, None where it does not follow."""

    places: tuple[Place, ...]
    sources: tuple[Place, ...]
    sizes: Callable[[Sequence[Extent | None]], Sequence[Extent | None]]
    is_backward: bool = False
    """Whether it says an operand by the result, which waits until nothing follows forwards."""


Tie = tuple[Place, Place] | Derived


def is_known(instruction: Instruction) -> bool:
    """Whether there are rules for an instruction, so that what they leave untied is not tied."""
    spec = find(instruction.opcode)
    if instruction.opcode == "custom-call":
        return _is_elementwise_call(instruction)
    return instruction.opcode in (*_RULES, *_AS_FIRST, *_AS_ALL, "get-dimension-size") or (
        spec is not None and (spec.kind is OpKind.ELEMENTWISE or spec.index is not None or not instruction.operands)
    )


def ties(instruction: Instruction) -> Iterator[Tie]:
    """What an instruction ties. Places of size 1 tie nothing where only an index map could say which they are."""
    opcode = instruction.opcode
    if opcode in _RULES:
        yield from _RULES[opcode](instruction)
        return
    spec = find(opcode)
    by_element = (spec is not None and spec.kind is OpKind.ELEMENTWISE) or _is_elementwise_call(instruction)
    if opcode in _AS_FIRST or by_element or opcode in _AS_ALL:
        count = 1 if opcode in _AS_FIRST else len(instruction.operands)
        for number in range(count):
            yield from _alike(instruction, number)
    elif spec is not None and spec.index is not None:
        yield from _by_index(instruction, spec.index)


_AS_FIRST = frozenset(
    "scatter dynamic-update-slice reverse optimization-barrier copy-start select-and-scatter cholesky bitcast-convert "
    "cumsum cumprod batch-norm-training batch-norm-inference batch-norm-grad reduce-precision all-reduce".split()
)
"""Their result has the dimensions of their first operand."""
_AS_ALL = frozenset({"sort", "map", "copy"})


def _is_elementwise_call(i: Instruction) -> bool:
    spec = find_custom_call(i.word("custom_call_target")) if i.opcode == "custom-call" else None
    shapes = {o.shape.dimensions for o in i.operands if o.shape.rank} | {s.dimensions for s in i.shape.leaves()}
    return spec is not None and spec.elementwise and len(shapes) == 1


def _alike(i: Instruction, number: int) -> Iterator[Tie]:
    """The operand's dimensions are those of every result of its rank."""
    operand = i.operands[number].shape
    if not operand.is_array or operand.rank == 0:
        return
    for leaf, shape in enumerate(i.shape.leaves()):
        if shape.dimensions == operand.dimensions:
            yield from ((Place(i.operands[number], 0, d), Place(i, leaf, d)) for d in range(operand.rank))


def _by_index(i: Instruction, index: Callable[..., object]) -> Iterator[Tie]:
    """Dimensions whose index an index map passes on unchanged; and those over which a fold or a product runs."""
    symbols: dict[str, Place] = {}
    leaves = list(i.shape.leaves())
    for number, operand in enumerate(i.operands):
        mapped = index(i, number) if operand.shape.is_array else None
        if not isinstance(mapped, IndexMap):
            continue
        for d, expression in enumerate(mapped.results):
            if not isinstance(expression, Variable):
                continue
            place = Place(operand, 0, d)
            if expression.name.startswith("s"):
                if expression.name in symbols:
                    yield symbols[expression.name], place
                symbols.setdefault(expression.name, place)
            elif expression.name.startswith("d"):
                to = int(expression.name[1:])
                for leaf, shape in enumerate(leaves):
                    if to < shape.rank and shape.dimensions[to] == operand.shape.dimensions[d]:
                        yield place, Place(i, leaf, to)


def _reshape(i: Instruction) -> Iterator[Tie]:
    """Group by group: what one dimension of the operand's becomes one of the result's, what several become together,
    and what one is split into."""
    source, shape = i.operands[0].shape, i.shape
    if not source.element_count or source.element_count != shape.element_count:
        return
    if i.opcode == "bitcast" and not (source.is_row_major and shape.is_row_major):
        spec = find(i.opcode)
        if spec is not None and spec.index is not None:
            yield from _by_index(i, spec.index)
        return
    for left, left_end, right, right_end in groups(source.dimensions, shape.dimensions):
        mine = [Place(i.operands[0], 0, d) for d in range(left, left_end) if source.dimensions[d] != 1]
        other = [Place(i, 0, d) for d in range(right, right_end) if shape.dimensions[d] != 1]
        if len(mine) == len(other) == 1:
            yield mine[0], other[0]
        elif mine and other:
            yield from (_regrouped(number, other, mine) for number in range(len(other)))
            yield from (_regrouped(number, mine, other, is_backward=True) for number in range(len(mine)))


def size_of(place: Place) -> int:
    """The size that the text says."""
    return list(place.instruction.shape.leaves())[place.leaf].dimensions[place.dimension]


def _regrouped(number: int, to: Sequence[Place], source: Sequence[Place], is_backward: bool = False) -> Derived:
    """One of the dimensions that others become together, while none of the rest follows: see `split`."""
    sizes, own = [size_of(p) for p in source], [size_of(p) for p in to]

    def size(known: Sequence[Extent | None]) -> Sequence[Extent | None]:
        product = Extent(0, 1)
        for extent, plain in zip(known[: len(sizes)], sizes, strict=True):
            if extent is None:
                product = product.times(plain)
            elif product.a:
                return (None,)
            else:
                product = extent.times(product.b)
        if not product.a or any(known[len(sizes) :]):
            return (None,)
        follows, extent = split(product, own)
        return (extent if follows == number else None,)

    return Derived((to[number],), (*source, *to[:number], *to[number + 1 :]), size, is_backward)


def split(product: Extent, sizes: Sequence[int]) -> tuple[int, Extent]:
    """Which of several dimensions follows when their product does, and how: one that is the size itself, else one that
    is whole at every size; the first of several, so that rows stay rows."""
    total = math.prod(sizes)
    extents = [product.times(size, total) for size in sizes]
    number = min(range(len(sizes)), key=lambda k: (extents[k] != SIZE, extents[k].c > 1, k))
    return number, extents[number]


def _slice(i: Instruction) -> Iterator[Tie]:
    source = i.operands[0]
    for d, part in enumerate(slice_dimensions(i)):
        whole, own = Place(source, 0, d), Place(i, 0, d)
        if part.start == 0 and part.limit == size_of(whole) and part.stride == 1:
            yield own, whole
        elif part.stride != 1:
            if part.limit == size_of(whole):
                yield _strided(own, whole, part)
        elif row := _row(i, d):
            if i is row[0]:
                yield from _shared(whole, [Place(one, 0, d) for one in row], is_cut=True)
        elif not _from_end(part.start, size_of(whole)) and _from_end(part.limit, size_of(whole)):
            cut = size_of(whole) - size_of(own)
            yield _shifted(own, whole, -cut)
            yield _shifted(whole, own, cut, is_backward=True)


def _from_end(bound: int, whole: int) -> bool:
    """Whether a bound of a slice counts from the end: the nearer one is what a program says (`x[-1:]`, `x[:3]`)."""
    return whole - bound < bound


def _row(i: Instruction, d: int) -> list[Instruction]:
    """The slices of one size that together are a dimension, one behind the other; none where this one is not such."""
    source, own = i.operands[0], slice_dimensions(i)[d]
    size, whole = own.limit - own.start, source.shape.dimensions[d]
    if own.stride != 1 or not size or whole % size or own.start % size or size == 1:
        return []
    by_start: dict[int, Instruction] = {}
    for one in source.users:
        if one.opcode == "slice":
            part = slice_dimensions(one)[d]
            if part.stride == 1 and part.limit - part.start == size:
                by_start.setdefault(part.start, one)
    return [by_start[start] for start in range(0, whole, size)] if set(range(0, whole, size)) <= set(by_start) else []


def _shared(whole: Place, parts: Sequence[Place], is_cut: bool = False) -> Iterator[Tie]:
    """A dimension and the parts that it consists of, or is cut into. Parts of one size share what follows; else it is
    the largest that does, the last of several."""
    sizes = [size_of(part) for part in parts]

    def total(known: Sequence[Extent | None]) -> Sequence[Extent | None]:
        if not any(known):
            return (None,)
        extents = [extent or Extent(0, plain) for extent, plain in zip(known, sizes, strict=True)]
        return (functools.reduce(Extent.plus, extents),)

    def shares(known: Sequence[Extent | None]) -> Sequence[Extent | None]:
        whole_size, others = known[0], known[1:]
        free = [k for k, extent in enumerate(others) if extent is None]
        if whole_size is None or not free:
            return [None] * len(parts)
        rest = functools.reduce(lambda one, other: one.plus(other, -1), filter(None, others), whole_size)
        if len({sizes[k] for k in free}) == 1:
            return [rest.times(1, len(free)) if k in free else None for k in range(len(parts))]
        largest = max(free, key=lambda k: (sizes[k], k))
        fixed = Extent(0, sum(sizes[k] for k in free if k != largest))
        return [rest.plus(fixed, -1) if k == largest else None for k in range(len(parts))]

    yield Derived((whole,), tuple(parts), total, is_backward=is_cut)
    yield Derived(tuple(parts), (whole, *parts), shares, is_backward=not is_cut)


def _strided(to: Place, source: Place, part: SliceDimension) -> Derived:
    """Every `part.stride`-th element up to the end, at sizes at which as many elements follow the last one as in the
    text."""
    behind = part.limit - part.start - size_of(to) * part.stride

    def size(known: Sequence[Extent | None]) -> Sequence[Extent | None]:
        return (None if known[0] is None else known[0].plus(Extent(0, -part.start - behind)).times(1, part.stride),)

    return Derived((to,), (source,), size)


def _shifted(to: Place, source: Place, by: int, is_backward: bool = False) -> Derived:
    def size(known: Sequence[Extent | None]) -> Sequence[Extent | None]:
        return (None if known[0] is None else known[0].plus(Extent(0, by)),)

    return Derived((to,), (source,), size, is_backward)


def _pad(i: Instruction) -> Iterator[Tie]:
    for d, part in enumerate(padding_dimensions(i)):
        if not part.interior:
            yield _shifted(Place(i, 0, d), Place(i.operands[0], 0, d), part.low + part.high)
            yield _shifted(Place(i.operands[0], 0, d), Place(i, 0, d), -part.low - part.high, is_backward=True)


def _concatenate(i: Instruction) -> Iterator[Tie]:
    (along,) = i.ints("dimensions")
    for operand in i.operands:
        yield from ((Place(operand, 0, d), Place(i, 0, d)) for d in range(i.shape.rank) if d != along)
    yield from _shared(Place(i, 0, along), [Place(operand, 0, along) for operand in i.operands])


def _tuple(i: Instruction) -> Iterator[Tie]:
    leaf = 0
    for operand in i.operands:
        for number, shape in enumerate(operand.shape.leaves()):
            yield from ((Place(operand, number, d), Place(i, leaf, d)) for d in range(shape.rank))
            leaf += 1


def _element(i: Instruction) -> Iterator[Tie]:
    index = i.attribute("index", int)
    elements = i.operands[0].shape.elements or ()
    first = sum(len(list(s.leaves())) for s in elements[:index])
    yield from _same(i.operands[0], i, first)


def _same(one: Instruction, other: Instruction, first: int = 0) -> Iterator[Tie]:
    """All leaves of `other` have the dimensions of those of `one` from number `first` on."""
    for number, shape in enumerate(other.shape.leaves()):
        yield from ((Place(one, first + number, d), Place(other, number, d)) for d in range(shape.rank))


def _call(i: Instruction) -> Iterator[Tie]:
    for computation in i.called():
        for operand, parameter in zip(i.operands, computation.parameters, strict=False):
            yield from _same(operand, parameter)
        yield from _same(computation.root, i)


def _while(i: Instruction) -> Iterator[Tie]:
    condition, body = i.called_by("condition"), i.called_by("body")
    for one in (condition.parameters[0], body.parameters[0], body.root, i):
        yield from _same(i.operands[0], one)


def _conditional(i: Instruction) -> Iterator[Tie]:
    computations = [c for value in branches(i) for c in value.computations]
    for operand, computation in zip(i.operands[1:], computations, strict=True):
        yield from _same(operand, computation.parameters[0])
        yield from _same(computation.root, i)


def _gather(i: Instruction) -> Iterator[Tie]:
    dims, source, indices = gather_dimensions(i), i.operands[0], i.operands[1]
    batch = [d for d in range(i.shape.rank) if d not in dims.offset_dims]
    yield from _batches(i, indices, dims.index_vector_dim, batch)
    yield from ((Place(source, 0, a), Place(indices, 0, b)) for a, b in _batched(dims.batching))
    window = [d for d in range(source.shape.rank) if d not in dims.removed]
    for d, to in zip(window, dims.offset_dims, strict=True):
        if dims.slice_sizes[d] == source.shape.dimensions[d]:
            yield Place(source, 0, d), Place(i, 0, to)


def _scatter(i: Instruction) -> Iterator[Tie]:
    count = len(i.operands) // 2
    indices = i.operands[count]
    dims = scatter_dimensions(i)
    for number in range(count):
        source, updates = i.operands[number], i.operands[count + 1 + number]
        leaf = number if i.shape.is_tuple else 0
        yield from ((Place(source, 0, d), Place(i, leaf, d)) for d in range(source.shape.rank))
        batch = [d for d in range(updates.shape.rank) if d not in dims.offset_dims]
        yield from _batches(updates, indices, dims.index_vector_dim, batch)
        yield from ((Place(source, 0, a), Place(indices, 0, b)) for a, b in _batched(dims.batching))
        window = [d for d in range(source.shape.rank) if d not in dims.removed]
        for d, to in zip(window, dims.offset_dims, strict=True):
            if updates.shape.dimensions[to] == source.shape.dimensions[d]:
                yield Place(source, 0, d), Place(updates, 0, to)


def _batched(batching: Batching) -> Iterator[tuple[int, int]]:
    return zip(batching.operand_dims, batching.indices_dims, strict=True)


def _batches(value: Instruction, indices: Instruction, vector: int, batch: Sequence[int]) -> Iterator[Tie]:
    own = [d for d in range(indices.shape.rank) if d != vector]
    yield from ((Place(indices, 0, a), Place(value, 0, b)) for a, b in zip(own, batch, strict=True))


def _part(update: int) -> Callable[[Instruction], Iterator[Tie]]:
    """A slice at a dynamic place: what spans a whole dimension does so at every size."""

    def rule(i: Instruction) -> Iterator[Tie]:
        source, part = i.operands[0], i.operands[update] if update else i
        if update:
            yield from _alike(i, 0)
        for d, (size, other) in enumerate(zip(source.shape.dimensions, part.shape.dimensions, strict=True)):
            if size == other:
                yield Place(source, 0, d), Place(part, 0, d)

    return rule


def _convolution(i: Instruction) -> Iterator[Tie]:
    dims = convolution_dimensions(i)
    if dims.batch_groups == 1:
        yield Place(i.operands[0], 0, dims.lhs[0]), Place(i, 0, dims.output[0])
    yield Place(i.operands[1], 0, dims.rhs[0]), Place(i, 0, dims.output[1])
    if dims.feature_groups == 1:
        yield Place(i.operands[0], 0, dims.lhs[1]), Place(i.operands[1], 0, dims.rhs[1])


def _spatial(i: Instruction) -> Iterator[Tie]:
    yield from _convolution(i)
    dims = convolution_dimensions(i)
    for of, to, w in zip(dims.lhs[2], dims.output[2], dims.window, strict=True):
        yield from _windows(Place(i, 0, to), Place(i.operands[0], 0, of), w)


def _reduce_window(i: Instruction) -> Iterator[Tie]:
    arrays = i.operands[: len(i.operands) // 2]
    for d, w in enumerate(window(i, arrays[0].shape.rank)):
        yield from ((Place(arrays[0], 0, d), Place(one, 0, d)) for one in arrays[1:])
        for leaf, _ in enumerate(i.shape.leaves()):
            yield from _windows(Place(i, leaf, d), Place(arrays[0], 0, d), w)


def _windows(to: Place, source: Place, w: WindowDimension) -> Iterator[Tie]:
    """How many windows there are: one for each element, or one for each stride."""
    if size_of(to) == size_of(source) and (w.size == 1 or _is_whole(w, size_of(source))):
        yield source, to
    elif w.lhs_dilate == 1 and not _is_whole(w, size_of(source)):
        lost = (w.size - 1) * w.rhs_dilate + 1 - w.pad_low - w.pad_high
        behind = size_of(source) - lost - (size_of(to) - 1) * w.stride

        def size(known: Sequence[Extent | None]) -> Sequence[Extent | None]:
            begun = None if known[0] is None else known[0].plus(Extent(0, w.stride - lost - behind))
            return (None if begun is None else begun.times(1, w.stride),)

        yield Derived((to,), (source,), size)


def _is_whole(w: WindowDimension, size: int) -> bool:
    """Whether a window is as large as what it slides over, as that of a cumulative sum, or of a maximum of all."""
    return w.size == size > 1 and w.stride == 1 and (w.pad_low, w.pad_high) in ((0, 0), (size - 1, 0), (0, size - 1))


def _window_at(w: WindowDimension, whole: int, whole_now: int) -> WindowDimension:
    """A window at another size of what it slides over."""
    if not _is_whole(w, whole):
        return w
    low, high = (whole_now - 1 if pad == whole - 1 else pad for pad in (w.pad_low, w.pad_high))
    return replace(w, size=whole_now, pad_low=low, pad_high=high)


def _solve(i: Instruction) -> Iterator[Tie]:
    yield from _alike(i, 1)


_RULES: dict[str, Callable[[Instruction], Iterator[Tie]]] = {
    "reshape": _reshape,
    "bitcast": _reshape,
    "slice": _slice,
    "pad": _pad,
    "concatenate": _concatenate,
    "tuple": _tuple,
    "get-tuple-element": _element,
    "call": _call,
    "fusion": _call,
    "while": _while,
    "conditional": _conditional,
    "gather": _gather,
    "scatter": _scatter,
    "dynamic-slice": _part(0),
    "dynamic-update-slice": _part(1),
    "convolution": _spatial,
    "reduce-window": _reduce_window,
    "triangular-solve": _solve,
}


def with_sizes(instruction: Instruction, sizes: Callable[[Place], int]) -> dict[str, Attribute]:
    """The attributes of an instruction that say sizes, at other sizes of its operands and of itself."""
    if not instruction.operands:
        return {}
    source, own = instruction.operands[0], range(instruction.shape.rank if instruction.shape.is_array else 0)
    if instruction.opcode == "slice":
        parts = [
            _part_at(part, source.shape.dimensions[d], sizes(Place(source, 0, d)), sizes(Place(instruction, 0, d)))
            for d, part in enumerate(slice_dimensions(instruction))
        ]
        for d, part in enumerate(slice_dimensions(instruction)):
            if _row(instruction, d):
                size = parts[d].limit - parts[d].start
                start = part.start // (part.limit - part.start) * size
                parts[d] = SliceDimension(start, start + size, 1)
        return {"slice": Attribute.of(tuple(parts))}
    if instruction.opcode == "dynamic-slice":
        return {"dynamic_slice_sizes": Attribute.of(tuple(sizes(Place(instruction, 0, d)) for d in own))}
    if instruction.opcode == "reduce-window":
        windows = enumerate(window(instruction, source.shape.rank))
        windows_at = (_window_at(w, source.shape.dimensions[d], sizes(Place(source, 0, d))) for d, w in windows)
        return {"window": Attribute.of(Window(tuple(windows_at)))}
    if instruction.opcode == "gather":
        dims = gather_dimensions(instruction)
        kept = [d for d in range(source.shape.rank) if d not in dims.removed]
        taken = list(dims.slice_sizes)
        for d, to in zip(kept, dims.offset_dims, strict=True):
            taken[d] = sizes(Place(instruction, 0, to))
        return {"slice_sizes": Attribute.of(tuple(taken))}
    return {}


def _part_at(part: SliceDimension, whole: int, whole_now: int, size: int) -> SliceDimension:
    """A part of another size, whose bounds count from the end where they did."""
    if part.stride != 1:
        return SliceDimension(part.start, whole_now if part.limit == whole else part.limit, part.stride)
    if part.start and _from_end(part.start, whole):
        limit = whole_now - (whole - part.limit)
        return SliceDimension(limit - size, limit, 1)
    return SliceDimension(part.start, part.start + size, 1)
