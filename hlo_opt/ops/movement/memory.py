"""Where elements lie in memory, and the bits there read as elements of another type."""

from __future__ import annotations

import functools

from hlo_opt.diag import BackendError
from hlo_opt.ir import ELEMENT_TYPES, ElementType, Instruction, Shape
from hlo_opt.ir.index_map import Expression, add, constant, delinearize, divide, linearize, modulo, multiply
from hlo_opt.ops.code import Code, code
from hlo_opt.ops.elementwise.convert import joined_bits, split_bits
from hlo_opt.ops.lowering import Index, KernelBuilder, compute_type


def physical_index(shape: Shape, position: Expression) -> tuple[Expression, ...]:
    """The logical index of the element at a position in memory."""
    return _index_at(position, shape.dimensions, shape.minor_to_major)


@functools.lru_cache(maxsize=4096)
def _index_at(position: Expression, sizes: tuple[int, ...], minor_to_major: tuple[int, ...]) -> tuple[Expression, ...]:
    order = minor_to_major[::-1]
    parts = dict(zip(order, delinearize(position, [sizes[d] for d in order]), strict=True))
    return tuple([parts[d] for d in range(len(sizes))])


def position_in_memory(shape: Shape, index: Index) -> Expression:
    """The position in memory of the element at a logical index."""
    order = shape.minor_to_major[::-1]
    return linearize([index[d] for d in order], [shape.dimensions[d] for d in order])


def bits_at(builder: KernelBuilder, instruction: Instruction, index: Index) -> Code:
    """The element at `index` of a bitcast whose operand has elements of another width: parts of one element, or several
    side by side, the first in the lowest bits. A complex number is two floats."""
    operand, target = instruction.operands[0], instruction.shape.type
    parts = _real(operand.shape.type)
    place = position_in_memory(instruction.shape, index)
    if not target.is_complex:
        return _real_at(builder, operand, parts, target, place)
    half = _real(target)
    first = multiply(place, 2)
    sides = [_real_at(builder, operand, parts, half, add(first, constant(k))) for k in range(2)]
    return code(f"{compute_type(target)}({{}}, {{}})", *sides)


def _real(element_type: ElementType) -> ElementType:
    return ELEMENT_TYPES[f"f{element_type.bits // 2}"] if element_type.is_complex else element_type


def _real_at(
    builder: KernelBuilder, operand: Instruction, parts: ElementType, target: ElementType, place: Expression
) -> Code:
    """The element of type `target` at a place in memory that is counted in such elements."""

    def part(position: Expression) -> Code:
        if not operand.shape.type.is_complex:
            return builder.value(operand, physical_index(operand.shape, position))
        whole = builder.value(operand, physical_index(operand.shape, divide(position, 2)))
        number = builder.variable(operand.shape.type, whole)
        return code("({} ? {}.im : {}.re)", builder.text(modulo(position, 2)), number, number)

    if parts == target:
        return part(place)
    if max(parts.bits, target.bits) % min(parts.bits, target.bits):
        raise BackendError(f"no CUDA lowering for a bitcast from {parts} to {target}", code="HLO503")
    if parts.bits > target.bits:
        count = parts.bits // target.bits
        return split_bits(parts, target, part(divide(place, count)), builder.text(modulo(place, count)))
    count = target.bits // parts.bits
    first = multiply(place, count)
    return joined_bits(parts, target, [part(add(first, constant(k))) for k in range(count)])
