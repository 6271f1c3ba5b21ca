"""Writes computations over floats: what library calls mean, as HLO."""

from __future__ import annotations

from hlo_opt.ir import ELEMENT_TYPES, ElementType, Instruction, Literal, Shape, array, edit
from hlo_opt.ops.random.expand import Writer


class FloatWriter(Writer):
    """A writer whose constants may be any number."""

    def number(self, element_type: ElementType, value: float) -> Instruction:
        """A scalar constant."""
        import numpy as np

        shape = array(element_type)
        literal = Literal(shape, value=np.array(value).astype(element_type.dtype))
        self._count += 1
        return edit.create(self.computation, f"constant.{self._count}", "constant", shape, literal=literal)

    def scaled(self, value: Instruction, factor: float) -> Instruction:
        """A multiple; the value itself for a factor of 1."""
        return value if factor == 1.0 else self.binary("multiply", value, self.number(value.shape.type, factor))

    def unary(self, opcode: str, value: Instruction) -> Instruction:
        """An operation that keeps shape and type."""
        return self.emit(opcode, value.shape, value)

    def transpose(self, value: Instruction, order: tuple[int, ...]) -> Instruction:
        """Dimension d of the result is dimension order[d] of the value."""
        shape = array(value.shape.type, *(value.shape.dimensions[d] for d in order))
        return self.emit("transpose", shape, value, dimensions=order)

    def along(self, vector: Instruction, shape: Shape, dimension: int) -> Instruction:
        """A vector repeated along all dimensions but one."""
        return self.emit("broadcast", array(vector.shape.type, *shape.dimensions), vector, dimensions=(dimension,))

    def where_positive(self, value: Instruction, positive: Instruction, other: Instruction) -> Instruction:
        """`positive` where the value is above zero, elsewhere (and for NaN) `other`."""
        zero = self.spread(self.number(value.shape.type, 0.0), value.shape.dimensions)
        shape = array(ELEMENT_TYPES["pred"], *value.shape.dimensions)
        above = self.emit("compare", shape, value, zero, direction="GT")
        return self.emit("select", value.shape, above, positive, other)

    def saturated(self, value: Instruction, element_type: ElementType) -> Instruction:
        """The value in another type; what an integer type cannot hold becomes its extreme."""
        bits = element_type.bits
        if element_type.is_integer and not value.shape.type.is_integer and bits < 32:
            signed = element_type.kind == "signed"
            low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
            limits = (self.number(value.shape.type, limit) for limit in (low, high))
            least, most = limits
            value = self.emit("clamp", value.shape, least, value, most)
        return self.convert(value, element_type)

    def zeros(self, shape: Shape) -> Instruction:
        """An array of zeros."""
        zero = self.number(shape.type, 0)
        return self.emit("broadcast", array(shape.type, *shape.dimensions), zero, dimensions=()) if shape.rank else zero
