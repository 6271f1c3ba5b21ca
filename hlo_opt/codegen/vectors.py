"""Neighbouring elements of one thread: read together, then computed one by one, then written together.

NVRTC joins accesses to neighbouring addresses, but not across inline assembly or branches, which most functions and
all conversions of narrow types contain. It also joins no more than two writes where an array gets two vectors at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.indices import moves_in_vectors
from hlo_opt.codegen.scalars import loaded, memory_type, stored
from hlo_opt.codegen.tree import Block, DeclaredArray, For, Neighbours, functions_in
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.index_map import (
    Constant,
    Expression,
    Product,
    Quotient,
    Remainder,
    Sum,
    Variable,
    constant,
    substitute,
    variable,
    variables_of,
)
from hlo_opt.ops.code import NOTHING, Code, Name, call, cell

MOST_BYTES = 256
"""The most bytes of a thread's elements to read ahead: 64 registers. With more, each element moves by itself."""

_PLAIN = frozenset({"hlo_load_bf16", "fabsf", "fabs", "sqrtf", "sqrt"})
"""Functions without inline assembly or branches."""


@dataclass(frozen=True)
class Store:
    """A store of one output element: its place, and the register value."""

    pointer: Name
    shape: Shape
    index: tuple[Expression, ...]
    value: Code

    def emit(self, builder: Builder) -> None:
        builder.store(self.pointer, self.shape, self.index, self.value)


OutputTarget = tuple[Name, Shape]
"""The pointer and shape of an output."""
Targets = Sequence[Sequence[OutputTarget]]
"""The outputs of each root of a region."""

PositionOf = Callable[[Builder, Expression], Expression]
"""Declares the variable of an element's position, given its number in the vector."""
Compute = Callable[[Builder, Expression, Expression], Sequence[Store]]
"""Computes everything at a position with a number in the vector, and returns the stores."""


@dataclass(frozen=True)
class _Read:
    """An element of a parameter that is read at each position.

    `may_miss`: the index may lie outside the parameter; the element is then not needed. `fills`: the elements of a
    vector fill whole bytes that hold several elements each.
    """

    parameter: Instruction
    index: tuple[Expression, ...]
    may_miss: bool = False
    fills: bool = False


@dataclass(frozen=True)
class _Trial:
    """The result of a trial emission.

    `position` is the trial's variable of the position. `is_plain`: NVRTC joins the accesses anyway. `has_likely`:
    `reads` includes everything that is read under `likely` conditions. `starts` are those of slices and of rows that
    are gathered (see `Builder.start`).
    """

    position: Variable
    reads: Sequence[_Read]
    stores: Sequence[Store]
    is_plain: bool
    has_likely: bool
    starts: Sequence[tuple[Instruction, tuple[Expression, ...], int]]
    fills: Sequence[bool]
    """Which of the stores fill whole bytes, together with those of the neighbours."""

    def at(self, index: Sequence[Expression], position: Expression) -> tuple[Expression, ...]:
        return tuple(substitute(e, {self.position.name: position}) for e in index)

    @property
    def element_bytes(self) -> int:
        shapes = [r.parameter.shape for r in self.reads] + [s.shape for s in self.stores]
        return sum(shape.type.bytes for shape in shapes)


def each_element(
    builder: Builder,
    vector: int,
    place: PositionOf,
    compute: Compute,
    guard: Code = NOTHING,
    most_bytes: int = MOST_BYTES,
) -> None:
    """The statements for `vector` neighbouring elements. Nothing is stored unless `guard` holds. Elements of more than
    `most_bytes` are not read ahead."""
    trial = _trial(builder, vector, place, compute)
    starts = [s for s in trial.starts if all(isinstance(e, Constant) for e in s[1])]
    if starts:  # one variable for all elements, so that what is read there can be read ahead
        for start in starts:
            builder.start(*start)
        trial = _trial(builder, vector, place, compute)
    counter = builder.numbered("s")
    number = variable(counter.text, vector)
    group = Neighbours(vector, counter)
    builder.add(group)
    if trial.is_plain or trial.element_bytes * vector > most_bytes:
        with builder.inside(group.making):
            store_all(builder, compute(builder, place(builder, number), number), guard)
        return
    group.guard = guard
    ahead = [builder.numbered("read") for _ in trial.reads]
    results = [builder.numbered("bits" if fills else "made") for fills in trial.fills]
    for name, store, fills in zip(results, trial.stores, trial.fills, strict=True):
        (group.bits if fills else group.arrays).append(DeclaredArray(memory_type(store.shape.type), name, vector))
    group.arrays[:0] = [
        DeclaredArray(memory_type(read.parameter.shape.type), name, vector)
        for name, read in zip(ahead, trial.reads, strict=True)
    ]
    alone = [(name, store) for name, store, fills in zip(results, trial.stores, trial.fills, strict=True) if not fills]
    if ahead:
        with builder.inside(group.reading):
            position = place(builder, number)
            for name, read in zip(ahead, trial.reads, strict=True):
                _read(builder, trial, vector, name, read, position, number)
    with builder.inside(group.making):
        position = place(builder, number)
        for name, read in zip(ahead, trial.reads, strict=True):
            parameter, element_type = read.parameter, read.parameter.shape.type
            builder.name_after(parameter)
            bound = builder.bind_exact(element_type, loaded(element_type, cell(name, counter)))
            builder.provide(parameter, None, trial.at(read.index, position), bound)
        with builder.having_likely() if trial.has_likely else nullcontext():
            stores = compute(builder, position, number)
        for name, store in zip(results, stores, strict=True):
            builder.assign(cell(name, counter), stored(store.shape.type, store.value))
    if alone:
        with builder.inside(group.writing):
            position = place(builder, number)
            for name, store in alone:
                builder.put(store.pointer, store.shape, trial.at(store.index, position), cell(name, counter))
    if any(trial.fills):
        with builder.inside(group.filling):
            first = place(builder, constant(0))
            for name, store, fills in zip(results, trial.stores, trial.fills, strict=True):
                if fills:
                    address = builder.address(store.shape, trial.at(store.index, first))
                    builder.do(call(f"hlo_fill<{store.shape.type.bits}>", store.pointer, address, name))


def _read(
    builder: Builder,
    trial: _Trial,
    vector: int,
    name: Name,
    read: _Read,
    position: Expression,
    number: Expression,
) -> None:
    """Read one element ahead."""
    index = trial.at(read.index, position)
    if read.may_miss:
        assert isinstance(position, Variable)
        index = builder.nearest(read.parameter.shape, index, position, vector, number)
    first = builder.first_of(position, vector) if read.fills else None
    if first is None:
        where = builder.where(read.parameter, index)
    else:
        where = builder.where(read.parameter, index, trial.at(read.index, first), builder.text(number))
    builder.assign(cell(name, builder.text(number)), where)


def store_all(builder: Builder, stores: Sequence[Store], guard: Code = NOTHING) -> None:
    """Store elements, if `guard` holds."""
    if stores:
        with builder.branch(guard):
            for store in stores:
                store.emit(builder)


def _trial(builder: Builder, vector: int, place: PositionOf, compute: Compute) -> _Trial:
    trial = builder.trial()
    with trial.loop(vector) as number:
        position = place(trial, number)
        assert isinstance(position, Variable)
        start = len(trial.statements)
        stores = compute(trial, position, number)
        body = trial.statements[start:]
        loads, (likely, has_likely) = trial.loads(), trial.likely_loads()

    def is_outer(index: Sequence[Expression]) -> bool:
        return all(n == position.name or builder.names.is_taken(n) for e in index for n in variables_of(e))

    reads = [
        _Read(parameter, index, fills=fills_bytes(trial, parameter.shape, index, position, vector))
        for parameter, index in loads
        if any(position.name in variables_of(e) for e in index) and is_outer(index)
    ]
    for parameter, index in [read for read in dict.fromkeys(likely) if read not in loads]:
        sizes = parameter.shape.dimensions
        outside = [(e, size) for e, size in zip(index, sizes, strict=True) if e.low < 0 or e.high >= size]
        if is_outer(index) and all(
            _is_alike(e, position, vector) or moves_in_vectors(e, position, vector, size) for e, size in outside
        ):
            reads.append(_Read(parameter, index, True))
        else:
            has_likely = False
    called = functions_in(body) | {f for s in stores for f in stored(s.shape.type, s.value).functions()}
    branches = any(isinstance(statement, Block | For | Neighbours) for statement in body)
    outer = all(is_outer(store.index) for store in stores)
    fills = [outer and fills_bytes(trial, store.shape, store.index, position, vector, True) for store in stores]
    apart = len({store.pointer for store in stores}) == len(stores)
    is_plain = not outer or (called <= _PLAIN and not branches and apart and not any(fills))
    return _Trial(position, reads, stores, is_plain, has_likely, trial.asked, fills)


def fills_bytes(
    builder: Builder, shape: Shape, index: Sequence[Expression], position: Variable, vector: int, in_rows: bool = False
) -> bool:
    """Whether the elements of a vector fill whole bytes of a sub-byte type.

    The position of the first is a multiple of the vector's size. `in_rows` allows rows that are apart in memory, as
    long as each is a whole number of vectors.
    """
    per_byte = shape.type.per_byte
    if per_byte == 1 or vector % per_byte:
        return False
    terms, counted = [builder.place(shape, tuple(index))], 0
    while terms:
        term = terms.pop()
        match term:
            case Sum():
                terms += [term.left, term.right]
            case Variable() if term == position:
                counted += 1
            case Remainder(left=Variable() as number, divisor=size) if number == position and size % vector == 0:
                counted += in_rows
            case Constant(value=value) if value % per_byte == 0:
                pass
            case Product(factor=factor) if factor % per_byte == 0 and _is_alike(term, position, vector):
                pass
            case _:
                return False
    return counted == 1


def _is_alike(expression: Expression, position: Variable, vector: int) -> bool:
    """Whether an expression certainly has one value for all elements of a vector. `position` is the variable of an
    element."""
    match expression:
        case Quotient(left=Variable() as number, divisor=divisor) if number == position:
            return divisor % vector == 0
        case Sum():
            return all(_is_alike(e, position, vector) for e in (expression.left, expression.right))
        case Product() | Quotient() | Remainder():
            return _is_alike(expression.left, position, vector)
    return expression != position
