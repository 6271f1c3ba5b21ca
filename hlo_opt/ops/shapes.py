"""Helpers of `infer` faces: read attributes, check operands."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.ir import Called, Computation, ElementType, Instruction, Shape, Window
from hlo_opt.ir.attribute import WindowDimension
from hlo_opt.ops.spec import ShapeError, find


def need(condition: bool, message: str) -> None:
    """Raise ShapeError unless the condition holds."""
    if not condition:
        raise ShapeError(message)


def operand(instruction: Instruction, number: int) -> Shape:
    """The shape of an array operand. Raises ShapeError for another operand."""
    shape = instruction.operands[number].shape
    if not shape.is_array:
        raise ShapeError(f"operand {number} is not an array but {shape}")
    return shape


def element(shape: Shape, number: int, fault: str) -> Shape:
    """An element of a tuple, without layouts. Raises ShapeError(fault) where there is none."""
    if shape.elements is None or len(shape.elements) <= number:
        raise ShapeError(fault)
    return shape.elements[number].without_layout()


def declared(instruction: Instruction) -> Shape:
    """The declared shape, which must be an array. Raises ShapeError otherwise."""
    if not instruction.shape.is_array:
        raise ShapeError(f"the result is not an array but {instruction.shape}")
    return instruction.shape


def product_type(instruction: Instruction) -> ElementType:
    """The result type of a dot: the declared one, else the wider operand type (InferDotOpShape in
    xla/service/shape_inference.cc)."""
    if instruction.shape.is_array:
        return instruction.shape.type
    lhs, rhs = operand(instruction, 0).type, operand(instruction, 1).type
    if lhs.kind == rhs.kind:
        return max(lhs, rhs, key=lambda t: t.bits)
    rank = ("pred", "unsigned", "signed", "float", "complex")
    return max(lhs, rhs, key=lambda t: rank.index(t.kind))


def result(instruction: Instruction, element_type: ElementType, dimensions: Sequence[int]) -> Shape:
    """An array shape without layout. The declaration says which dimensions are dynamic; operands do not imply it."""
    return dynamic_as(instruction.shape, element_type, tuple(dimensions))


def dynamic_as(like: Shape, element_type: ElementType, dimensions: tuple[int, ...]) -> Shape:
    """An array shape, dynamic where a shape of the same sizes is."""
    if like.dynamic and like.dimensions == dimensions:
        return Shape(element_type, dimensions, dynamic=like.dynamic)
    return Shape(element_type, dimensions)


def results(instruction: Instruction, shapes: Sequence[tuple[ElementType, Sequence[int]]]) -> Shape:
    """One array, or a tuple where declared so (a variadic operation of one element may be declared either way)."""
    elements = instruction.shape.elements
    if elements is None and len(shapes) == 1:
        return result(instruction, *shapes[0])
    likes = (
        elements if elements is not None and len(elements) == len(shapes) else (Shape(None, elements=()),) * len(shapes)
    )
    return Shape.tuple_of(*(dynamic_as(like, t, tuple(d)) for like, (t, d) in zip(likes, shapes, strict=True)))


def integer(instruction: Instruction, name: str, default: int | None = None) -> int:
    """An integer attribute. Raises ShapeError when it is absent without a default, or not an integer."""
    value = instruction.value(name, default if default is not None else "")
    if isinstance(value, tuple) and len(value) == 1 and isinstance(value[0], int):
        value = value[0]
    if not isinstance(value, int) or isinstance(value, bool):
        raise ShapeError(f"{name} must be an integer" if name in instruction.attributes else f"{name} is missing")
    return value


def flag(instruction: Instruction, name: str, default: bool = False) -> bool:
    """A boolean attribute."""
    value = instruction.value(name, default)
    return value if isinstance(value, bool) else str(value) == "true"


def distinct(dimensions: Sequence[int], rank: int, name: str) -> tuple[int, ...]:
    """Dimension numbers that must be distinct and below the rank. Raises ShapeError."""
    numbers = tuple(dimensions)
    if len(set(numbers)) != len(numbers) or any(not 0 <= d < rank for d in numbers):
        raise ShapeError(f"{name}={{{','.join(map(str, numbers))}}} are not distinct dimensions of rank {rank}")
    return numbers


def window(instruction: Instruction, rank: int) -> tuple[WindowDimension, ...]:
    """The window's dimensions, one per operand dimension; an absent window has size 1 everywhere. Raises ShapeError."""
    value = instruction.value("window", Window(()))
    if not isinstance(value, Window):
        raise ShapeError("window is malformed")
    dimensions = value.dimensions or (WindowDimension(1),) * rank
    if len(dimensions) != rank:
        raise ShapeError(f"the window has {len(dimensions)} dimensions, its operand {rank}")
    for w in dimensions:
        if w.size < 1 or w.stride < 1 or w.lhs_dilate < 1 or w.rhs_dilate < 1:
            raise ShapeError("sizes, strides and dilations of a window must be positive")
    return dimensions


def windowed(size: int, w: WindowDimension) -> int:
    """The number of window positions along a dimension (xla/window_util.cc, StridedBound)."""
    base = (size - 1) * w.lhs_dilate + 1 if size > 0 else 0
    span = (w.size - 1) * w.rhs_dilate + 1
    room = base + w.pad_low + w.pad_high
    return 0 if room < span else (room - span) // w.stride + 1


def applied(instruction: Instruction, name: str = "to_apply") -> Computation:
    """The computation that an attribute names. Raises ShapeError when it is absent."""
    value = instruction.attributes.get(name)
    if not isinstance(value, Called) or not value.computations:
        raise ShapeError(f"{name} is missing")
    return value.computations[0]


def check_parameters(computation: Computation, shapes: Sequence[Shape], what: str) -> None:
    """Check that the computation has parameters of exactly these shapes. Raises ShapeError."""
    parameters = computation.parameters
    if len(parameters) != len(shapes):
        raise ShapeError(f"{what} {computation.name} takes {len(parameters)} parameters, expected {len(shapes)}")
    for number, (parameter, shape) in enumerate(zip(parameters, shapes, strict=True)):
        if not compatible(parameter.shape, shape, any_float=True):
            raise ShapeError(f"parameter {number} of {what} {computation.name} is {parameter.shape}, expected {shape}")


def similar(left: ElementType, right: ElementType) -> bool:
    """Whether types are equal, or both floats (SameElementTypeIgnoringFpPrecision in xla/shape_util.h)."""
    return left == right or (left.is_float and right.is_float)


def wider(left: ElementType, right: ElementType) -> ElementType:
    """The type with more bits of two similar ones (HigherPrecisionElementType in xla/shape_util.h)."""
    return right if right.bits > left.bits else left


def compatible(left: Shape, right: Shape, *, any_float: bool = False) -> bool:
    """Whether types and sizes are equal, ignoring layouts and which dimensions are dynamic (Shape::Compatible).

    With `any_float`, floats of different precision are compatible.
    """
    if left is right:
        return True
    if left.elements is not None or right.elements is not None:
        return (
            left.elements is not None
            and right.elements is not None
            and len(left.elements) == len(right.elements)
            and all(compatible(a, b, any_float=any_float) for a, b in zip(left.elements, right.elements, strict=True))
        )
    if left.dimensions != right.dimensions:
        return False
    return left.element_type == right.element_type or (any_float and similar(left.type, right.type))


def called_flops(computation: Computation) -> float:
    """The flops of one run of a computation."""
    return float(sum(flops_of(i) for i in computation.instructions))


def flops_of(instruction: Instruction) -> float:
    """The flops of an instruction; 0 where the table has no count."""
    spec = find(instruction.opcode)
    return 0.0 if spec is None or spec.flops is None else spec.flops(instruction)


def inferred_shape(instruction: Instruction) -> Shape:
    """The shape implied by operands and attributes. Does not change the instruction.

    Raises ValueError, with a message for the user, where nothing is implied.
    """
    spec = find(instruction.opcode)
    refusal = f"the shape of {instruction.opcode} cannot be inferred"
    if spec is None or spec.infer is None or spec.omitted is None:
        raise ValueError(f"{refusal}; write it before the opcode")
    before = instruction.shape
    try:
        # dot and convolution read the result's type from the declared shape: without one, it is the widest operand's
        if instruction.operands:
            instruction.shape = max((o.shape for o in instruction.operands), key=_width)
        if instruction.opcode == "scan":
            instruction.shape = instruction.called_by("to_apply").root.shape  # for the number of arrays
        return spec.omitted(instruction, spec.infer(instruction))
    except ShapeError as error:
        raise ValueError(f"{refusal}: {error}") from None
    except (TypeError, KeyError, IndexError, AttributeError):
        raise ValueError(f"{refusal}; write it before the opcode") from None
    finally:
        instruction.shape = before


def _width(shape: Shape) -> tuple[bool, int]:
    return (False, 0) if shape.element_type is None else (shape.element_type.is_float, shape.element_type.bits)
