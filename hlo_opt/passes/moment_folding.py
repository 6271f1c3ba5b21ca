"""Sums of columns or long rows that wait for their means, without the waiting: mean, sum of squared deviations and sums
of deviations by something else are folded in one reading.

A batch norm sums its input, then the squares of what deviates from the mean; its gradient has three such levels.
Columns are too many for registers, and some rows too long (a channel of all images, or everything), so that each level
is another reading. In one reading, sums of squares less the square of the sum would cancel: of a column far from 0, all
digits. Two folds lose none:

wide    sums, in f64, of what lies between each element and the first one of its column. The square of the distance d
        from the first element to the mean is itself one of the squared deviations, whose sum S is so at least d*d; the
        sum of the squares of n distances, S + n*d*d, is at most (n + 1) * S. What cancels are log2(n) of the 29 bits
        that f64 has more than f32. It takes one or two operations more than the sums apart.
moments count, sum, mean and sums of deviations from it, where two parts of a column are brought together by formulas
        that hold whatever their means are. It takes three times the operations: for devices of slow f64, and for f64
        itself.
        Source: T. Chan, G. Golub and R. LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample
        Variances", 1979.

What is the same for all elements of a column is taken out of its sums first. An infinite factor beside deviations gives
NaN where the sum by itself might be infinite.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import ClassVar, Literal

import numpy as np

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.analysis.targets.rates import products_per_cycle
from hlo_opt.ir import Attribute, Called, Computation, Instruction, Layout, Shape, edit
from hlo_opt.ir.attribute import SliceDimension
from hlo_opt.ir.element_type import F64, PRED
from hlo_opt.ir.walk import reached
from hlo_opt.ops.sets import keeps_values
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.expansion import BroadcastingWriter
from hlo_opt.passes.reduction_splitter import longest_run
from hlo_opt.passes.sum_factoring import Term, is_plain_sum, spreads, term_of
from hlo_opt.plans import column_reduction, row_reduction
from hlo_opt.plans.columns import MOST_THREADS

MOST_BESIDE = 2
"""What deviations of one array are multiplied by in one fold: each takes two registers more for every column of a
thread."""
HELD = 0.5
"""The share of the cache up to which it holds an array until it is read again: each half of it keeps what its own
multiprocessors read."""
_F64_PAYS = 0.25
"""The least share of the rate of f32 at which f64 is calculated for the sums to wait for memory, not for arithmetic."""
Parts = tuple[list[Instruction], list[Instruction]]
_MOVES = frozenset({"broadcast", "reshape", "bitcast", "copy"})


@dataclass(frozen=True)
class MomentFolding(RewritingPass):
    """Fold sums of deviations from the means of long columns and rows together with the means. The values stay the same
    up to rounding."""

    name: ClassVar[str] = "moment-folding"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"
    simplifies: ClassVar[bool] = True

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        groups: dict[tuple[Shape, tuple[int, ...]], list[Instruction]] = {}
        for i in computation.instructions:
            if i.opcode == "reduce" and _is_long_sum(i, context.options.target):
                groups.setdefault((i.operands[0].shape, i.ints("dimensions")), []).append(i)
        for sums in groups.values():
            for moments in _Group(computation, sums).moments():
                yield functools.partial(moments.rewrite, context.options.target)


def _is_long_sum(reduce: Instruction, target: DeviceTarget) -> bool:
    """Whether an instruction sums columns, or rows that registers do not keep, of an array that the cache does not hold
    until it is read again."""
    if not is_plain_sum(reduce) or reduce.operands[0].shape.byte_size <= HELD * target.l2_cache_size:
        return False
    row = row_reduction.space_of(reduce)
    if row is not None:
        return row.reduced > MOST_THREADS * 2 * row_reduction.MOST_KEPT
    return column_reduction.space_of(reduce) is not None or _columns_first(reduce) is not None


def _columns_first(reduce: Instruction) -> tuple[int, ...] | None:
    """The dimensions of the columns that a sum is split into where its dimensions lie apart (`reduction-splitter`);
    None for other sums, and where the first part has rows."""
    run, value = longest_run(reduce), reduce.operands[0].shape
    minor = next((d for d in value.minor_to_major if value.dimensions[d] != 1), None)
    return run if run is not None and minor not in run else None


def _has_f64(target: DeviceTarget) -> bool:
    """Whether a device calculates in f64 as fast as it reads."""
    f32, f64 = (products_per_cycle(target, name, tensor_cores=False) for name in ("f32", "f64"))
    return f64 >= _F64_PAYS * f32


@dataclass
class _Moments:
    """The sums that one fold gives: of `x`, of deviations by themselves (squared) and by other arrays, and of these
    arrays."""

    x: Instruction
    total: Instruction
    squares: list[tuple[Instruction, Term]] = field(default_factory=list)
    alone: list[tuple[Instruction, Term]] = field(default_factory=list)
    beside: dict[Instruction, list[tuple[Instruction, Term]]] = field(default_factory=dict)
    sums: dict[Instruction, list[tuple[Instruction, Term]]] = field(default_factory=dict)

    def olds(self) -> Iterator[Instruction]:
        """The sums that the fold gives."""
        yield self.total
        for pairs in (self.squares, self.alone, *self.beside.values(), *self.sums.values()):
            yield from (s for s, _ in pairs)

    def rewrite(self, target: DeviceTarget) -> None:
        """Write the fold, and what it gives in the place of the sums."""
        first = self.total
        writer, kind = BroadcastingWriter(first.computation), self.x.shape.type
        leaf, kept = first.shape, tuple(d for d in range(self.x.shape.rank) if d not in first.ints("dimensions"))
        size = math.prod(self.x.shape.dimensions[d] for d in first.ints("dimensions"))
        near = _first_of(writer, self.x, leaf, kept)
        fold = self._wide if kind.bits < F64.bits and _has_f64(target) else self._joined
        found = fold(writer, near, kept, size)
        new: list[tuple[Instruction, Instruction]] = [(first, found.total)]
        nothing = writer.emit("subtract", leaf, found.total, found.total)  # no number where it is infinite or none
        if found.squares is not None:
            squares = writer.emit("add", leaf, found.squares, nothing)
            new += [(s, t.times(writer, squares)) for s, t in self.squares]
        new += [(s, t.times(writer, nothing)) for s, t in self.alone]
        for (h, sums), (total, product) in zip(self.beside.items(), found.beside, strict=True):
            deviations = writer.emit("add", leaf, product, nothing)
            new += [(s, t.times(writer, deviations)) for s, t in sums]
            new += [(s, t.times(writer, total)) for s, t in self.sums.get(h, ())]
        for old, value in new:
            edit.replace_all_uses(old, value)
        for old, _ in new:
            if not old.users and not old.is_root:
                edit.remove(old)

    def _wide(self, writer: BroadcastingWriter, near: Instruction, kept: tuple[int, ...], size: int) -> _Found:
        """Sums in f64 of distances from the first element of each column, of their squares and of their products."""
        leaf, many = self.total.shape.with_type(F64), self.x.shape.with_type(F64)
        near = writer.emit("convert", leaf, near)
        start = writer.emit("broadcast", many, near, dimensions=kept)
        away = writer.emit("subtract", many, writer.emit("convert", many, self.x), start)
        values = [away, *([writer.emit("multiply", many, away, away)] if self.squares else [])]
        for h in self.beside:
            h = writer.emit("convert", many, h)
            values += [h, writer.emit("multiply", many, h, away)]
        moved, *sums = _folded(writer, values, writer.scalar(F64, 0), self.total, _adder)
        parts = writer.emit("broadcast", leaf, writer.scalar(F64, 1 / size), dimensions=())
        share = writer.emit("multiply", leaf, moved, parts)

        def less(of: Instruction, total: Instruction) -> Instruction:
            """A sum of products of distances from the first element, as one of deviations from the mean."""
            deviations = writer.emit("subtract", leaf, of, writer.emit("multiply", leaf, total, share))
            return writer.emit("convert", self.total.shape, deviations)

        squares = less(sums.pop(0), moved) if self.squares else None
        beside = [
            (writer.emit("convert", self.total.shape, total), less(product, total))
            for total, product in zip(sums[::2], sums[1::2], strict=True)
        ]
        sizes = writer.emit("broadcast", leaf, writer.scalar(F64, size), dimensions=())
        total = writer.emit("add", leaf, writer.emit("multiply", leaf, near, sizes), moved)
        return _Found(writer.emit("convert", self.total.shape, total), squares, beside)

    def _joined(self, writer: BroadcastingWriter, near: Instruction, kept: tuple[int, ...], size: int) -> _Found:
        """Count, mean and sums of deviations of parts of each column, joined. The sum is another: the first element,
        from which the mean is measured, may be far greater than it."""
        kind = self.x.shape.type
        zero, one = writer.scalar(kind, 0), writer.scalar(kind, 1)
        zeros, ones = (writer.emit("broadcast", self.x.shape, s, dimensions=()) for s in (zero, one))
        moved = writer.emit("broadcast", self.x.shape, near, dimensions=kept)
        moved = writer.emit("subtract", self.x.shape, self.x, moved)
        values = [ones, moved, zeros, self.x, *(v for h in self.beside for v in (h, zeros))]
        _, _, squares, total, *beside = _folded(writer, values, zero, self.total, _joiner)
        return _Found(total, squares, list(zip(beside[::2], beside[1::2], strict=True)))


@dataclass(frozen=True)
class _Found:
    """What a fold gives: sums, sums of squared deviations, and for each array beside these its sums, and its sums by
    deviations. Of the shape of the sums."""

    total: Instruction
    squares: Instruction | None
    beside: Sequence[tuple[Instruction, ...]]


class _Group:
    """Sums over the same columns of arrays that lie alike."""

    def __init__(self, computation: Computation, sums: Sequence[Instruction]) -> None:
        self.computation, self.sums = computation, list(sums)
        self.result = sums[0].shape
        self.means: dict[Instruction, Instruction] = {}
        """Means, by what they are the means of."""
        self.totals: dict[Instruction, Instruction] = {}
        size = math.prod(sums[0].operands[0].shape.dimensions[d] for d in sums[0].ints("dimensions"))
        for total in sums:
            for mean in _users(total) if total.shape == self.result else ():
                if _divides(mean, total, size):
                    self.means[mean] = total.operands[0]
                    self.totals.setdefault(total.operands[0], total)

    def moments(self) -> Iterator[_Moments]:
        """What can be folded together, for one array after the other. Each is written before the next is asked for."""
        folded: set[Instruction] = set()
        for x, total in self.totals.items():
            if total not in folded:
                moments = self._of(x, total, [s for s in self.sums if s not in folded and s.shape == self.result])
                if moments.squares or moments.beside:
                    folded.update(moments.olds())
                    yield moments

    def _of(self, x: Instruction, total: Instruction, sums: Sequence[Instruction]) -> _Moments:
        """What waits for the means of an array, and does not feed what it waits for."""
        moments = _Moments(x, total)
        late, plain = _depending_on([total]), list[tuple[Instruction, Term]]()
        for s, t in [(s, term_of(s, self._deviates)) for s in sums if s is not total]:
            if not late.isdisjoint(t.rest):
                continue
            if t.deviations == [x, x] and not t.rest:
                moments.squares.append((s, t))
            elif t.deviations == [x] and not t.rest:
                moments.alone.append((s, t))
            elif (
                t.deviations == [x]
                and len(t.rest) == 1
                and (t.rest[0] in moments.beside or len(moments.beside) < MOST_BESIDE)
            ):
                moments.beside.setdefault(t.rest[0], []).append((s, t))
            elif not t.deviations and len(t.rest) == 1 and t.rest[0] is not x:
                plain.append((s, t))
        for s, t in plain:
            if t.rest[0] in moments.beside and _depending_on([s]).isdisjoint((x, *moments.beside)):
                moments.sums.setdefault(t.rest[0], []).append((s, t))
        return moments

    def _deviates(self, value: Instruction) -> bool:
        """Whether a difference is of an array and its means."""
        x, means = value.operands
        if means.opcode != "broadcast" or not spreads(means, self.sums[0]):
            return False
        return self.means.get(_stripped(means.operands[0])) is x


def _depending_on(values: Sequence[Instruction]) -> set[Instruction]:
    """The values, and what depends on one of them."""
    return reached(values, attrgetter("users"))


def _divides(user: Instruction, total: Instruction, size: int) -> bool:
    """Whether a value is a sum over `size` elements, divided by their number."""
    if user.opcode not in ("divide", "multiply") or _stripped(user.operands[0]) is not total:
        return False
    number = user.operands[1]
    while keeps_values(number, _MOVES):
        number = number.operands[0]
    if number.literal is None or number.literal.is_elided:
        return False
    values = np.asarray(number.literal.value).reshape(-1)
    wanted = size if user.opcode == "divide" else 1 / size
    return bool(np.all(values == np.asarray(wanted).astype(values.dtype)))


def _users(value: Instruction) -> Iterator[Instruction]:
    """The users of an array, also behind moves that leave every element where it is (a mean with `keepdims`)."""
    todo = [value]
    while todo:
        for user in todo.pop().users:
            if _stays(user):
                todo.append(user)
            else:
                yield user


def _stripped(value: Instruction) -> Instruction:
    """The array behind moves that leave every element where it is but for dimensions of size 1."""
    while _stays(value):
        value = value.operands[0]
    return value


def _stays(move: Instruction) -> bool:
    """Whether an instruction leaves every element where it is but for dimensions of size 1."""

    def sizes(i: Instruction) -> list[int]:
        return [n for n in i.shape.dimensions if n != 1]

    if not keeps_values(move, _MOVES) or sizes(move.operands[0]) != sizes(move):
        return False
    return move.opcode != "broadcast" or list(move.ints("dimensions")) == sorted(move.ints("dimensions"))


def _first_of(writer: BroadcastingWriter, x: Instruction, leaf: Shape, kept: tuple[int, ...]) -> Instruction:
    """The first element of each column, 0 where it is not finite. Less it, a column far from 0 has small numbers, and
    its mean all the digits that it can have."""
    sizes = tuple(size if d in kept else 1 for d, size in enumerate(x.shape.dimensions))
    whole = tuple(SliceDimension(0, size) for size in sizes)
    first = writer.emit("slice", replace(x.shape, dimensions=sizes), x, slice=whole)
    flat = writer.reshape(first, leaf)
    finite = writer.emit("is-finite", leaf.with_type(PRED), flat)
    zeros = writer.emit("broadcast", leaf, writer.scalar(leaf.type, 0), dimensions=())
    return writer.emit("select", leaf, finite, flat, zeros)


def _folded(
    writer: BroadcastingWriter,
    values: Sequence[Instruction],
    zero: Instruction,
    total: Instruction,
    reducer: Callable[[Computation, Shape, int], Computation],
) -> list[Instruction]:
    """The folds of arrays over the dimensions of a sum: in two parts where these lie apart. `reducer` writes what joins
    so many values."""
    folded, kept = total.ints("dimensions"), tuple(range(values[0].shape.rank))
    to_apply = Called(reducer(total.computation, zero.shape, len(values)))
    first = _columns_first(total) or folded
    for part in (first, tuple(d for d in folded if d not in first)):
        if part:
            dimensions = tuple(kept.index(d) for d in part)
            kept = tuple(d for d in kept if d not in part)
            leaf = _without(values[0].shape, dimensions) if len(kept) > total.shape.rank else total.shape
            leaf = leaf.with_type(zero.shape.type)
            attributes: dict[str, Attribute | Called] = {"dimensions": Attribute.of(dimensions), "to_apply": to_apply}
            operands, shape = (*values, *[zero] * len(values)), Shape.tuple_of(*[leaf] * len(values))
            fold = edit.create(total.computation, "moments", "reduce", shape, operands, attributes)
            values = [writer.element(fold, n) for n in range(len(values))]
    return list(values)


def _without(shape: Shape, dimensions: Sequence[int]) -> Shape:
    """The shape without some dimensions; the others lie as they did."""
    kept = [d for d in range(shape.rank) if d not in dimensions]
    order = tuple(kept.index(d) for d in shape.minor_to_major if d in kept)
    return replace(shape, dimensions=tuple(shape.dimensions[d] for d in kept), layout=Layout(order))


def _reducer(beside: Computation, name: str, scalar: Shape, size: int) -> tuple[BroadcastingWriter, Parts]:
    """A reducer without a root, and its parameters: the values of one part of a column, and of the other."""
    module = beside.module
    assert module is not None
    reducer = edit.new_computation(module, name)
    parameters = [edit.create(reducer, f"p{k}", "parameter", scalar, parameter_number=k) for k in range(2 * size)]
    return BroadcastingWriter(reducer), (parameters[:size], parameters[size:])


def _adder(beside: Computation, scalar: Shape, size: int) -> Computation:
    """A reducer that adds each value."""
    writer, (one, other) = _reducer(beside, "sums", scalar, size)
    sums = [writer.emit("add", scalar, a, b) for a, b in zip(one, other, strict=True)]
    edit.create_tuple(writer.computation, sums, root=True)
    return writer.computation


def _joiner(beside: Computation, scalar: Shape, size: int) -> Computation:
    """A reducer that joins the moments of two parts of a column: count, mean, sum of squared deviations, sum, and for
    each array beside it the sum and the sum by deviations."""
    writer, (one, other) = _reducer(beside, "moments", scalar, size)
    emit = functools.partial(_operation, writer, scalar)
    zero = writer.scalar(scalar.type, 0)
    whole = emit("add", one[0], other[0])
    share = writer.select(writer.compare("EQ", whole, zero), zero, emit("divide", other[0], whole))
    apart = emit("subtract", other[1], one[1])
    shift = emit("multiply", apart, share)
    left = emit("subtract", writer.scalar(scalar.type, 1), share)
    mean = emit("add", emit("multiply", one[1], left), emit("multiply", other[1], share))  # infinite where one is
    results = [whole, mean]
    spread = emit("multiply", emit("multiply", apart, one[0]), shift)
    results += [emit("add", emit("add", one[2], other[2]), spread), emit("add", one[3], other[3])]
    for a, b in zip(range(4, size, 2), range(5, size, 2), strict=True):
        results.append(emit("add", one[a], other[a]))
        moved = emit("subtract", emit("multiply", apart, other[a]), emit("multiply", shift, results[-1]))
        results.append(emit("add", emit("add", one[b], other[b]), moved))
    edit.create_tuple(writer.computation, results, root=True)
    return writer.computation


def _operation(
    writer: BroadcastingWriter, shape: Shape, opcode: str, left: Instruction, right: Instruction
) -> Instruction:
    return writer.emit(opcode, shape, left, right)
