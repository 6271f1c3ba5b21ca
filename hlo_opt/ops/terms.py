"""Small dot products and reductions, unrolled into their terms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from hlo_opt.ir import ElementType, Instruction, Shape, SliceDimension, array, edit
from hlo_opt.ir.attribute import PaddingDimension
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
            copies = dict(zip(body.parameters, [*totals, *terms], strict=True))
            for i in body.instructions:
                if i.literal is not None:
                    copies[i] = self.spread(edit.clone_into(self.computation, i, []), sizes)
                elif i.parameter_number is None and tuple_elements(i) is None:
                    shape, attributes = array(i.shape.type, *sizes), dict(i.attributes)
                    copied = [copies[o] for o in i.operands]
                    copies[i] = edit.create(self.computation, i.name, i.opcode, shape, copied, attributes)
            totals = [copies[end] for end in tuple_elements(body.root) or [body.root]]
        return totals[0] if len(arrays) == 1 else edit.create_tuple(self.computation, totals)

    def cumulated(
        self, value: Instruction, neutral: Instruction, step: str, axis: int, *, from_end: bool
    ) -> Instruction:
        """The folds of all elements up to each one along a dimension, or from each one on. In each step an element
        folds as many as the one that is so far away has folded before: twice as many as in the step before."""
        reach = 1
        while reach < value.shape.dimensions[axis]:
            moved = PaddingDimension(-reach, reach) if from_end else PaddingDimension(reach, -reach)
            padding = tuple(moved if d == axis else PaddingDimension(0, 0) for d in range(value.shape.rank))
            shape = array(value.shape.type, *value.shape.dimensions)
            value = self.emit(step, shape, value, self.emit("pad", shape, value, neutral, padding=padding))
            reach *= 2
        return value

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


def _steps(reduce: Instruction) -> int:
    """The operations that a reduce does for a term; more than are written out where they are not all of numbers."""
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
