"""Small dot products and reductions, unrolled into their terms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from hlo_opt.ir import Computation, ElementType, Instruction, Shape, SliceDimension, array, edit
from hlo_opt.ir.attribute import PaddingDimension
from hlo_opt.ir.element_type import PRED, S32
from hlo_opt.ops.contraction.table import sum_type
from hlo_opt.ops.reduction.reducers import is_wide, monoid, running_types
from hlo_opt.ops.sets import is_elementwise, tuple_elements
from hlo_opt.ops.writer import Writer

MOST_TERMS = 64
"""The most terms of a product or reduction that is unrolled."""
MOST_STEPS = 512
"""The most operations that a reduction of another kind is unrolled into."""


class Terms(Writer):
    """Writes dots and reductions term by term, in the order and types of kernels."""

    def written_out(self, instruction: Instruction, operands: Sequence[Instruction]) -> Instruction | None:
        """A small dot or reduce, unrolled; None for other operations."""
        if instruction.opcode == "dot":
            return self.product(instruction, operands)
        return self.fold(instruction, operands) if instruction.opcode == "reduce" else None

    def several(self, instruction: Instruction, operands: Sequence[Instruction]) -> Instruction | None:
        """A small reduce of several arrays at once, such as an argmax, unrolled; None for other operations."""
        is_fold = instruction.opcode == "reduce" and len(operands) > 2
        return self.fold(instruction, operands) if is_fold else None

    def product(self, dot: Instruction, operands: Sequence[Instruction]) -> Instruction | None:
        """A dot as a sum of products of slices."""
        left = operands[0]
        kind = dot.shape.type
        gone = dot.ints("lhs_contracting_dims"), dot.ints("rhs_contracting_dims")
        shared = dot.ints("lhs_batch_dims"), dot.ints("rhs_batch_dims")
        terms = math.prod(left.shape.dimensions[d] for d in gone[0])
        if not 0 < terms <= MOST_TERMS or not all(_is_kept(o.shape.type, kind) for o in operands):
            return None
        kept = [
            [d for d in range(o.shape.rank) if d not in gone[n] and d not in shared[n]] for n, o in enumerate(operands)
        ]
        places = []
        for n in range(2):
            first = len(shared[0]) + (len(kept[0]) if n else 0)
            places.append({**{d: k for k, d in enumerate(shared[n])}, **{d: first + k for k, d in enumerate(kept[n])}})
        wide, total = sum_type(kind), None
        for at in itertools.product(*(range(left.shape.dimensions[d]) for d in gone[0])):
            one, two = (
                self._laid(
                    self._at(o, dict(zip(gone[n], at, strict=True)), wide),
                    [places[n][d] for d in range(o.shape.rank) if d in places[n]],
                    dot.shape,
                )
                for n, o in enumerate(operands)
            )
            term = self.binary("multiply", one, two)
            total = term if total is None else self.binary("add", total, term)
        assert total is not None
        return self.convert(total, kind)

    def fold(self, reduce: Instruction, operands: Sequence[Instruction]) -> Instruction | None:
        """A reduce as a chain of steps from the init value; a tuple of such where it folds several arrays at once."""
        whole, init = operands[0], operands[-1]
        step, gone = monoid(reduce.called_by("to_apply")), reduce.ints("dimensions")
        terms = math.prod(whole.shape.dimensions[d] for d in gone)
        if not 0 < terms <= MOST_TERMS:
            return None
        if step is None or len(operands) > 2:
            return self.applied(reduce, operands) if terms * _steps(reduce) <= MOST_STEPS else None
        kind = running_types(reduce)[0] if is_wide(reduce) else reduce.shape.type
        total = self.spread(self.convert(init, kind), reduce.shape.dimensions)
        for at in itertools.product(*(range(whole.shape.dimensions[d]) for d in gone)):
            part = self._at(whole, dict(zip(gone, at, strict=True)), kind)
            total = self.emit(step, total.shape, total, part)
        return self.convert(total, reduce.shape.type)

    def applied(self, reduce: Instruction, operands: Sequence[Instruction]) -> Instruction:
        """A reduce of any computation, which is written out for each term, such as an argmax."""
        arrays, gone, body = operands[: len(operands) // 2], reduce.ints("dimensions"), reduce.called_by("to_apply")
        sizes = tuple(n for d, n in enumerate(arrays[0].shape.dimensions) if d not in gone)
        totals = [self.spread(init, sizes) for init in operands[len(arrays) :]]
        for at in itertools.product(*(range(arrays[0].shape.dimensions[d]) for d in gone)):
            terms = [self._at(whole, dict(zip(gone, at, strict=True)), whole.shape.type) for whole in arrays]
            totals = self._element_by_element(body, [*totals, *terms])
        return totals[0] if len(arrays) == 1 else edit.create_tuple(self.computation, totals)

    def cumulated(
        self, value: Instruction, neutral: Instruction, step: str, axis: int, *, from_end: bool
    ) -> Instruction:
        """The folds of all elements up to each one along a dimension, or from each one on. In each step an element
        folds as many as the one that is so far away has folded before: twice as many as in the step before."""
        for reach in _reaches(value.shape.dimensions[axis]):
            before = self._moved(value, neutral, -reach if from_end else reach, axis)
            value = self.emit(step, before.shape, value, before)
        return value

    def cumulated_together(
        self, window: Instruction, operands: Sequence[Instruction], axis: int, *, from_end: bool
    ) -> Instruction | None:
        """The same of several arrays that a cumulative window folds together by a computation of scalars, as a tuple;
        None where that is too long. Init values take part once, in the fold of the first element: they need not be
        neutral, and no element is lost in a product with zero."""
        values, inits = [*operands[: len(operands) // 2]], operands[len(operands) // 2 :]
        body, sizes = window.called_by("to_apply"), values[0].shape.dimensions
        reaches = _reaches(sizes[axis])
        if running_types(window) != tuple(v.shape.type for v in values):
            return None
        if _steps(window) * (len(reaches) + 1) > MOST_STEPS:
            return None
        place = self.emit("iota", array(S32, *sizes), iota_dimension=axis)
        last = self.spread(self.constant(S32, sizes[axis] - 1), sizes)
        place = self.emit("subtract", place.shape, last, place) if from_end else place
        for reach in (0, *reaches):
            before = [self.spread(init, sizes) for init in inits]
            if reach:
                way = -reach if from_end else reach
                before = [self._moved(v, init, way, axis) for v, init in zip(values, inits, strict=True)]
            edge = self.spread(self.constant(S32, reach), sizes)
            folds = self.emit("compare", array(PRED, *sizes), place, edge, direction="GE" if reach else "EQ")
            both = self._element_by_element(body, [*values, *before] if from_end else [*before, *values])
            values = [self.emit("select", v.shape, folds, b, v) for b, v in zip(both, values, strict=True)]
        return edit.create_tuple(self.computation, values)

    def _moved(self, value: Instruction, start: Instruction, by: int, axis: int) -> Instruction:
        """The value with its elements moved along a dimension; `start` where there are none."""
        padding = tuple(
            PaddingDimension(by, -by) if d == axis else PaddingDimension(0, 0) for d in range(value.shape.rank)
        )
        return self.emit("pad", array(value.shape.type, *value.shape.dimensions), value, start, padding=padding)

    def _element_by_element(self, body: Computation, arguments: Sequence[Instruction]) -> list[Instruction]:
        """The results of a computation of scalars for each element of arrays of the same dimensions."""
        sizes = arguments[0].shape.dimensions
        copies = dict(zip(body.parameters, arguments, strict=True))
        for i in body.instructions:
            if i.literal is not None:
                copies[i] = self.spread(edit.clone_into(self.computation, i, []), sizes)
            elif i.parameter_number is None and tuple_elements(i) is None:
                shape, attributes = array(i.shape.type, *sizes), dict(i.attributes)
                copied = [copies[o] for o in i.operands]
                copies[i] = edit.create(self.computation, i.name, i.opcode, shape, copied, attributes)
        return [copies[end] for end in tuple_elements(body.root) or [body.root]]

    def _at(self, value: Instruction, at: dict[int, int], kind: ElementType) -> Instruction:
        """A slice at fixed indices of some dimensions, which are removed."""
        sizes = value.shape.dimensions
        cut = tuple(SliceDimension(at[d], at[d] + 1) if d in at else SliceDimension(0, n) for d, n in enumerate(sizes))
        if at:
            thin = array(value.shape.type, *(1 if d in at else n for d, n in enumerate(sizes)))
            value = self.emit("slice", thin, value, slice=cut)
            value = self.reshape(value, *(n for d, n in enumerate(sizes) if d not in at))
        return self.convert(value, kind)

    def _laid(self, value: Instruction, places: Sequence[int], shape: Shape) -> Instruction:
        """Broadcast an array into the named dimensions of a larger one."""
        if list(places) == list(range(shape.rank)):
            return value
        return self.emit("broadcast", array(value.shape.type, *shape.dimensions), value, dimensions=tuple(places))


def _reaches(length: int) -> list[int]:
    """How far away the elements are that are folded, in each step of doubling, so that all of a line are."""
    return [1 << n for n in range((length - 1).bit_length())]


def _steps(reduce: Instruction) -> int:
    """The operations that a fold does for a term; more than are written out where they are not all of numbers."""
    body = reduce.called_by("to_apply")
    steps = [
        i for i in body.instructions if i.parameter_number is None and i.literal is None and tuple_elements(i) is None
    ]
    is_plain = all(is_elementwise(i) and not i.shape.rank and next(iter(i.called()), None) is None for i in steps)
    is_plain &= all(tuple_elements(i) is None or i is body.root for i in body.instructions)
    return len(steps) if is_plain else MOST_STEPS + 1


def _is_kept(operand: ElementType, kind: ElementType) -> bool:
    """Whether a product type represents all values of an operand type: it is the same, or a wider one of the same
    kind."""
    if kind.is_integer:
        return kind.bits >= 8 and operand.kind == kind.kind and operand.bits <= kind.bits
    is_wider = operand.is_float and kind.is_float and operand.bits < kind.bits
    return operand == kind if kind.is_complex else kind.is_float and (operand == kind or is_wider)
