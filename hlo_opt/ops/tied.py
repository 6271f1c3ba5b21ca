"""Which dimensions of an operation's operands and result have the same size whatever that size is, and which parts of
an instruction say a size.

A dimension is a `Place`. Rules give pairs of places that are always equal, and `Derived` places, whose size follows
from others. What no rule ties keeps the size that the text says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from hlo_opt.ir import Attribute, IndexMap, Instruction
from hlo_opt.ir.index_map import Variable, groups
from hlo_opt.ops.contraction.table import convolution_dimensions
from hlo_opt.ops.control.table import branches
from hlo_opt.ops.indexing.gather_dimensions import Batching, gather_dimensions, scatter_dimensions
from hlo_opt.ops.movement.table import padding_dimensions, slice_dimensions
from hlo_opt.ops.spec import OpKind, find

Affine = tuple[int, int]
"""A size `a * n + b`, as (a, b)."""


@dataclass(frozen=True, slots=True)
class Place:
    """A dimension of an array leaf of an instruction's value."""

    instruction: Instruction
    leaf: int
    dimension: int


@dataclass(frozen=True, slots=True, eq=False)
class Derived:
    """A place whose size is a function of those of others; None where it does not follow."""

    place: Place
    sources: tuple[Place, ...]
    size: Callable[[Sequence[Affine | None]], Affine | None]


Tie = tuple[Place, Place] | Derived


def is_known(instruction: Instruction) -> bool:
    """Whether there are rules for an instruction, so that what they leave untied is not tied."""
    spec = find(instruction.opcode)
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
    if opcode in _AS_FIRST or (spec is not None and spec.kind is OpKind.ELEMENTWISE) or opcode in _AS_ALL:
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
        found = index(i, number) if operand.shape.is_array else None
        if not isinstance(found, IndexMap):
            continue
        for d, expression in enumerate(found.results):
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
    """Group by group: what one dimension of the operand's becomes one of the result's; where several are joined or
    one is split, the size goes to the first, so that rows stay rows."""
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
            yield _regrouped(other, mine)
            yield _regrouped(mine, other)


def _size(place: Place) -> int:
    return list(place.instruction.shape.leaves())[place.leaf].dimensions[place.dimension]


def _regrouped(to: Sequence[Place], source: Sequence[Place]) -> Derived:
    sizes, first, rest = [_size(p) for p in source], to[0], 1
    for place in to[1:]:
        rest *= _size(place)

    def size(known: Sequence[Affine | None]) -> Affine | None:
        product = (0, 1)
        for extent, plain in zip(known, sizes, strict=True):
            a, b = extent or (0, plain)
            if a and product[0]:
                return None
            product = (product[0] * b + a * product[1], product[1] * b)
        if not product[0] or product[0] % rest or product[1] % rest:
            return None
        return product[0] // rest, product[1] // rest

    return Derived(first, tuple(source), size)


def _slice(i: Instruction) -> Iterator[Tie]:
    for d, part in enumerate(slice_dimensions(i)):
        source, to = Place(i.operands[0], 0, d), Place(i, 0, d)
        if part.limit == i.operands[0].shape.dimensions[d] and part.stride == 1:
            yield _shifted(to, source, -part.start)
            yield _shifted(source, to, part.start)


def _shifted(to: Place, source: Place, by: int) -> Derived:
    def size(known: Sequence[Affine | None]) -> Affine | None:
        return None if known[0] is None else (known[0][0], known[0][1] + by)

    return Derived(to, (source,), size)


def _pad(i: Instruction) -> Iterator[Tie]:
    for d, part in enumerate(padding_dimensions(i)):
        if not part.interior:
            yield _shifted(Place(i, 0, d), Place(i.operands[0], 0, d), part.low + part.high)
            yield _shifted(Place(i.operands[0], 0, d), Place(i, 0, d), -part.low - part.high)


def _concatenate(i: Instruction) -> Iterator[Tie]:
    (along,) = i.ints("dimensions")
    for operand in i.operands:
        yield from ((Place(operand, 0, d), Place(i, 0, d)) for d in range(i.shape.rank) if d != along)
    sizes = [o.shape.dimensions[along] for o in i.operands]

    def size(known: Sequence[Affine | None]) -> Affine | None:
        if not any(known):
            return None
        both = [extent or (0, plain) for extent, plain in zip(known, sizes, strict=True)]
        return sum(a for a, _ in both), sum(b for _, b in both)

    yield Derived(Place(i, 0, along), tuple(Place(o, 0, along) for o in i.operands), size)


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
    "convolution": _convolution,
    "triangular-solve": _solve,
}


def with_sizes(instruction: Instruction, sizes: Callable[[Place], int]) -> dict[str, Attribute]:
    """The attributes of an instruction that say sizes of its operands, at other sizes of these."""
    source = instruction.operands[0]
    if instruction.opcode == "slice":
        parts = [
            replace(part, limit=sizes(Place(source, 0, d)))
            if part.limit == source.shape.dimensions[d] and part.stride == 1
            else part
            for d, part in enumerate(slice_dimensions(instruction))
        ]
        return {"slice": Attribute.of(tuple(parts))}
    name = {"gather": "slice_sizes", "dynamic-slice": "dynamic_slice_sizes"}.get(instruction.opcode, "")
    taken = instruction.ints(name)
    if not taken:
        return {}
    whole = [
        sizes(Place(source, 0, d)) if size == source.shape.dimensions[d] and size != 1 else size
        for d, size in enumerate(taken)
    ]
    return {name: Attribute.of(tuple(whole))}
