"""Neighbouring elements of one thread: read together, then computed one by one, then written together.

NVRTC joins accesses to neighbouring addresses, but not across an assembler statement or a branch, and conversions of narrow types and most functions have one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.scalars import loaded, memory_type, stored
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.index_map import Expression, Product, Quotient, Remainder, Sum, Variable, substitute, variables_of

MOST_BYTES = 256
"""Bytes of a thread's elements that are read ahead and written at the end, as many as 64 registers hold. With more, each moves by itself."""

_CALLS = re.compile(r"\b([A-Za-z_]\w*)(?:<[^<>]*>)?\(|\bif\b|\bfor\b")
_PLAIN = frozenset({"hlo_load_bf16", "fabsf", "fabs", "sqrtf", "sqrt"})
"""Functions without assembler statements and branches."""


@dataclass(frozen=True)
class Store:
    """One element of an output: where it goes, and the register value."""

    pointer: str
    shape: Shape
    index: tuple[Expression, ...]
    value: str

    def emit(self, builder: Builder) -> None:
        builder.store(self.pointer, self.shape, self.index, self.value)


Place = Callable[[Builder, Expression], Expression]
"""Declares the variable of an element's position, given that of its number in the vector."""
Compute = Callable[[Builder, Expression, Expression], Sequence[Store]]
"""Computes what belongs to a position with a number in the vector, and says what is to be stored."""


@dataclass(frozen=True)
class _Read:
    """An element of a parameter that is read at each position; `may_miss` where the index may lie outside the parameter, and the element is not needed then."""

    parameter: Instruction
    index: tuple[Expression, ...]
    may_miss: bool = False


@dataclass(frozen=True)
class _Foreseen:
    """What a trial has shown: the variable of the position in it, what is read, what is stored, whether NVRTC joins the accesses anyway, and whether all that is read under `likely` conditions
    is among what is read."""

    position: Variable
    reads: Sequence[_Read]
    stores: Sequence[Store]
    is_plain: bool
    has_likely: bool

    def at(self, index: Sequence[Expression], position: Expression) -> tuple[Expression, ...]:
        return tuple(substitute(e, {self.position.name: position}) for e in index)

    @property
    def element_bytes(self) -> int:
        shapes = [r.parameter.shape for r in self.reads] + [s.shape for s in self.stores]
        return sum(shape.type.bytes for shape in shapes)


def each_element(builder: Builder, vector: int, place: Place, compute: Compute, guard: str = "") -> None:
    """The statements for `vector` neighbouring elements. Nothing is stored unless the condition `guard` holds."""
    seen = _trial(builder, vector, place, compute)
    if seen.is_plain or seen.element_bytes * vector > MOST_BYTES:
        builder.pragma("unroll")
        with builder.loop(vector) as number:
            store_all(builder, compute(builder, place(builder, number), number), guard)
        return
    ahead = [builder.names.numbered("read") for _ in seen.reads]
    made = [builder.names.numbered("made") for _ in seen.stores]
    for name, read in zip(ahead, seen.reads, strict=True):
        builder.line(f"{memory_type(read.parameter.shape.type)} {name}[{vector}];")
    if ahead:
        builder.pragma("unroll")
        with builder.loop(vector) as number:
            position = place(builder, number)
            for name, read in zip(ahead, seen.reads, strict=True):
                index = seen.at(read.index, position)
                if read.may_miss:
                    index = builder.nearest(read.parameter.shape, index)
                where = builder.where(read.parameter, index)
                builder.assign(f"{name}[{builder.text(number)}]", where)
    for name, store in zip(made, seen.stores, strict=True):
        builder.line(f"{memory_type(store.shape.type)} {name}[{vector}];")
    builder.pragma("unroll")
    with builder.loop(vector) as number:
        position = place(builder, number)
        for name, read in zip(ahead, seen.reads, strict=True):
            parameter, element_type = read.parameter, read.parameter.shape.type
            builder.name_after(parameter)
            bound = builder.bind_exact(element_type, loaded(element_type, f"{name}[{builder.text(number)}]"))
            builder.provide(parameter, None, seen.at(read.index, position), bound)
        with builder.having_likely() if seen.has_likely else nullcontext():
            stores = compute(builder, position, number)
        for name, store in zip(made, stores, strict=True):
            builder.assign(f"{name}[{builder.text(number)}]", stored(store.shape.type, store.value))
    if not made:
        return
    with builder.branch(guard) if guard else nullcontext():
        builder.pragma("unroll")
        with builder.loop(vector) as number:
            position = place(builder, number)
            for name, store in zip(made, seen.stores, strict=True):
                address = builder.address(store.shape, seen.at(store.index, position))
                builder.assign(f"{store.pointer}[{address}]", f"{name}[{builder.text(number)}]")


def store_all(builder: Builder, stores: Sequence[Store], guard: str = "") -> None:
    """Store elements, if the condition `guard` holds."""
    if stores:
        with builder.branch(guard) if guard else nullcontext():
            for store in stores:
                store.emit(builder)


def _trial(builder: Builder, vector: int, place: Place, compute: Compute) -> _Foreseen:
    trial = builder.trial()
    with trial.loop(vector) as number:
        position = place(trial, number)
        assert isinstance(position, Variable)
        start = len(trial.lines)
        stores = compute(trial, position, number)
        loads, (likely, has_likely) = trial.loads(), trial.likely_loads()

    def is_outer(index: Sequence[Expression]) -> bool:
        return all(n == position.name or builder.names.is_taken(n) for e in index for n in variables_of(e))

    reads = [
        _Read(parameter, index)
        for parameter, index in loads
        if any(position.name in variables_of(e) for e in index) and is_outer(index)
    ]
    for parameter, index in [read for read in dict.fromkeys(likely) if read not in loads]:
        outside = [e for e, size in zip(index, parameter.shape.dimensions, strict=True) if e.low < 0 or e.high >= size]
        if is_outer(index) and all(_is_alike(e, position, vector) for e in outside):
            reads.append(_Read(parameter, index, True))
        else:
            has_likely = False
    lines = [*trial.lines[start:], *(stored(store.shape.type, store.value) for store in stores)]
    called = {found[1] for line in lines for found in _CALLS.finditer(line)}
    is_plain = called <= _PLAIN or not all(is_outer(store.index) for store in stores)
    return _Foreseen(position, reads, stores, is_plain, has_likely)


def _is_alike(expression: Expression, position: Variable, vector: int) -> bool:
    """Whether an expression is surely the same for all elements of a vector, `position` being that of one."""
    match expression:
        case Quotient(left=Variable() as number, divisor=divisor) if number == position:
            return divisor % vector == 0
        case Sum():
            return all(_is_alike(e, position, vector) for e in (expression.left, expression.right))
        case Product() | Quotient() | Remainder():
            return _is_alike(expression.left, position, vector)
    return expression != position
