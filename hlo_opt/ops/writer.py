"""Builds a computation of simpler operations for an operation: random generators and library calls."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.ir import Attribute, Computation, ElementType, Instruction, Literal, Shape, SliceDimension, array, edit
from hlo_opt.ir.attribute import AttributeValue
from hlo_opt.ir.element_type import PRED, U32, U64


class Writer:
    """Appends operations to a computation: to a new one outside any module, unless one is passed. Operands of an
    operation have equal dimensions; scalars are broadcast."""

    def __init__(self, name: str, computation: Computation | None = None) -> None:
        self.computation = Computation(name) if computation is None else computation
        self._count = 0
        self._spread: dict[tuple[Instruction, tuple[int, ...]], Instruction] = {}
        self._constants: dict[tuple[ElementType, int], Instruction] = {}

    def emit(self, opcode: str, shape: Shape, *operands: Instruction, **attributes: AttributeValue) -> Instruction:
        """Append an operation."""
        values = {name: Attribute.of(value) for name, value in attributes.items()}
        self._count += 1
        return edit.create(self.computation, f"{opcode}.{self._count}", opcode, shape, operands, values)

    def parameter(self, number: int, shape: Shape) -> Instruction:
        """Append a parameter."""
        return edit.create(self.computation, f"p{number}", "parameter", shape, parameter_number=number)

    def constant(self, element_type: ElementType, value: int) -> Instruction:
        """A scalar integer constant; equal ones are shared."""
        key = (element_type, value)
        if key not in self._constants:
            self._constants[key] = self.number(element_type, value)
        return self._constants[key]

    def spread(self, value: Instruction, dimensions: tuple[int, ...]) -> Instruction:
        """A scalar broadcast to these dimensions; an array of these dimensions unchanged."""
        if value.shape.dimensions == dimensions:
            return value
        key = (value, dimensions)
        if key not in self._spread:
            shape = array(value.shape.type, *dimensions)
            self._spread[key] = self.emit("broadcast", shape, value, dimensions=())
        return self._spread[key]

    def binary(self, opcode: str, left: Instruction, right: Instruction | int) -> Instruction:
        """left op right. An int becomes a constant of the left operand's type."""
        if isinstance(right, int):
            right = self.constant(left.shape.type, right)
        dimensions = left.shape.dimensions or right.shape.dimensions
        shape = array(left.shape.type, *dimensions)
        return self.emit(opcode, shape, self.spread(left, dimensions), self.spread(right, dimensions))

    def convert(self, value: Instruction, element_type: ElementType) -> Instruction:
        """The value in another integer type."""
        if value.shape.type == element_type:
            return value
        return self.emit("convert", array(element_type, *value.shape.dimensions), value)

    def low(self, value: Instruction) -> Instruction:
        """The low word of a u64."""
        return self.convert(value, U32)

    def high(self, value: Instruction) -> Instruction:
        """The high word of a u64."""
        return self.convert(self.binary("shift-right-logical", value, 32), U32)

    def join(self, low: Instruction, high: Instruction) -> Instruction:
        """A u64 from its words."""
        shifted = self.binary("shift-left", self.convert(high, U64), 32)
        return self.binary("or", self.convert(low, U64), shifted)

    def sum_of_products(
        self, left: Instruction, right: Instruction, dimensions: Sequence[int], shape: Shape
    ) -> Instruction:
        """The products of two arrays of the same dimensions, element by element, summed over some of them."""
        kept = tuple(d for d in range(left.shape.rank) if d not in dimensions)
        summed = tuple(dimensions)
        names = {"lhs_batch_dims": kept, "rhs_batch_dims": kept} if kept else {}
        return self.emit("dot", shape, left, right, **names, lhs_contracting_dims=summed, rhs_contracting_dims=summed)

    def turned(self, value: Instruction) -> Instruction:
        """The elements in the other direction along the last dimension."""
        return self.emit("reverse", value.shape, value, dimensions=(value.shape.rank - 1,))

    def reshape(self, value: Instruction, *dimensions: int) -> Instruction:
        """The same elements, row-major, in other dimensions."""
        if value.shape.dimensions == dimensions:
            return value
        return self.emit("reshape", array(value.shape.type, *dimensions), value)

    def element(self, vector: Instruction, position: int) -> Instruction:
        """One element of a vector, as a scalar."""
        piece = array(vector.shape.type, 1)
        return self.reshape(self.emit("slice", piece, vector, slice=(SliceDimension(position, position + 1),)))

    def iota(self, count: int) -> Instruction:
        """The u64 numbers 0, 1, .., count - 1."""
        return self.emit("iota", array(U64, count), iota_dimension=0)

    def number(self, element_type: ElementType, value: float) -> Instruction:
        """A scalar constant."""
        import numpy as np

        shape = array(element_type)
        literal = Literal(shape, value=np.array(value).astype(element_type.dtype))
        self._count += 1
        return edit.create(self.computation, f"constant.{self._count}", "constant", shape, literal=literal)

    def scaled(self, value: Instruction, factor: float) -> Instruction:
        """The value times a factor; the value itself for 1."""
        return value if factor == 1.0 else self.binary("multiply", value, self.number(value.shape.type, factor))

    def unary(self, opcode: str, value: Instruction) -> Instruction:
        """An operation that keeps shape and type."""
        return self.emit(opcode, value.shape, value)

    def exponential(self, value: Instruction) -> Instruction:
        """e to the value, which must be a float."""
        return self.unary("exponential", value)

    def is_finite(self, value: Instruction) -> Instruction:
        """A flag for each element: whether it is finite. The value must be a float."""
        return self.emit("is-finite", array(PRED, *value.shape.dimensions), value)

    def transpose(self, value: Instruction, order: tuple[int, ...]) -> Instruction:
        """Dimension d of the result is dimension order[d] of the value."""
        shape = array(value.shape.type, *(value.shape.dimensions[d] for d in order))
        return self.emit("transpose", shape, value, dimensions=order)

    def along(self, vector: Instruction, shape: Shape, dimension: int) -> Instruction:
        """A vector broadcast along all dimensions but one."""
        return self.emit("broadcast", array(vector.shape.type, *shape.dimensions), vector, dimensions=(dimension,))

    def where_positive(self, value: Instruction, positive: Instruction, other: Instruction) -> Instruction:
        """`positive` where the value is above zero, `other` elsewhere, also for NaN."""
        zero = self.spread(self.number(value.shape.type, 0.0), value.shape.dimensions)
        shape = array(PRED, *value.shape.dimensions)
        above = self.emit("compare", shape, value, zero, direction="GT")
        return self.emit("select", value.shape, above, positive, other)

    def saturated(self, value: Instruction, element_type: ElementType) -> Instruction:
        """The value in another type, clamped to the range of a narrow integer type."""
        if element_type.is_integer and not value.shape.type.is_integer and element_type.bits < 32:
            least, most = (self.number(value.shape.type, limit) for limit in element_type.limits)
            value = self.emit("clamp", value.shape, least, value, most)
        return self.convert(value, element_type)

    def zeros(self, shape: Shape) -> Instruction:
        """An array of zeros."""
        zero = self.number(shape.type, 0)
        return self.emit("broadcast", array(shape.type, *shape.dimensions), zero, dimensions=()) if shape.rank else zero

    def finish(self, roots: Sequence[Instruction], shapes: Sequence[Shape]) -> Computation:
        """Set the root: a tuple of `roots` (or the only one), each copied where shape or layout differs from the wanted
        one."""
        placed = []
        for root, shape in zip(roots, shapes, strict=True):
            as_it_is = root.shape.same_values(shape) and shape.is_row_major
            placed.append(root if as_it_is else self.emit("copy", shape, root))
        whole = Shape.tuple_of(*(root.shape for root in placed))
        root = placed[0] if len(placed) == 1 else self.emit("tuple", whole, *placed)
        edit.set_root(self.computation, root)
        return self.computation
