"""The result shape of an instruction whose text leaves it out, as XLA's parser infers it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from hlo_opt.ir import ELEMENT_TYPES, Instruction, Layout, Shape

_NEED_A_SHAPE = frozenset(
    {
        "bitcast",
        "bitcast-convert",
        "broadcast",
        "constant",
        "convert",
        "custom-call",
        "fusion",
        "iota",
        "parameter",
        "reshape",
        "rng",
        "rng-bit-generator",
        "rng-get-and-update-state",
        "stochastic-convert",
    }
)
"""Opcodes whose result is not implied by their operands; XLA's parser refuses them without a shape."""


def inferred_shape(instruction: Instruction) -> Shape:
    """The shape that operands and attributes imply, from the op table. Raises ValueError, with a message for the user, where they do not.

    Leaves the instruction's own shape as it was.
    """
    from hlo_opt.ops import OpKind, ShapeError, find

    spec = find(instruction.opcode)
    refusal = f"the shape of {instruction.opcode} cannot be inferred"
    if spec is None or spec.infer is None or instruction.opcode in _NEED_A_SHAPE:
        raise ValueError(f"{refusal}; write it before the opcode")
    before = instruction.shape
    try:
        # Some faces read the result's element type from the declared shape (dot, convolution): without one it is the widest operand's.
        if instruction.operands:
            instruction.shape = max((o.shape for o in instruction.operands), key=_width)
        if instruction.opcode == "scan":
            instruction.shape = instruction.called_by("to_apply").root.shape  # as many arrays
        return _with_layout(instruction, spec.infer(instruction), spec.kind is OpKind.ELEMENTWISE)
    except ShapeError as error:
        raise ValueError(f"{refusal}: {error}") from None
    except (TypeError, KeyError, IndexError, AttributeError):
        raise ValueError(f"{refusal}; write it before the opcode") from None
    finally:
        instruction.shape = before


def _width(shape: Shape) -> tuple[bool, int]:
    return (False, 0) if shape.element_type is None else (shape.element_type.is_float, shape.element_type.bits)


_KEEP_LAYOUT = {
    "add-dependency": 0,
    "batch-norm-grad": 0,
    "batch-norm-inference": 0,
    "batch-norm-training": 0,
    "cholesky": 0,
    "clamp": 1,
    "copy": 0,
    "domain": 0,
    "fft": 0,
    "reverse": 0,
    "scatter": 0,
    "select-and-scatter": 0,
    "set-dimension-size": 0,
    "sort": 0,
    "triangular-solve": 1,
}
"""Opcodes whose result, or its first array, lies as this operand does. Further arrays of a sort and a scatter lie as the operands behind it."""

_CHANGE_TYPE = frozenset({"abs", "compare", "complex", "imag", "is-finite", "real"})
"""Opcodes that give the first operand's shape another element type, as all with two operands do: only elements of less than a byte may be packed then."""

_LIE_ANEW = frozenset({"map"})


def _with_layout(instruction: Instruction, shape: Shape, is_elementwise: bool) -> Shape:
    """The inferred shape with the layout that XLA's inference gives it (xla/service/shape_inference.cc): mostly an operand's."""
    opcode, operands = instruction.opcode, instruction.operands
    if opcode == "tuple":
        return Shape.tuple_of(*(o.shape for o in operands))
    if opcode == "get-tuple-element" and operands[0].shape.elements is not None:
        index = instruction.value("index", 0)
        return operands[0].shape.elements[index] if isinstance(index, int) else shape
    if opcode == "while":
        return operands[0].shape
    if opcode in ("call", "conditional"):
        return next(instruction.called()).root.shape
    if not operands:
        return shape
    if shape.elements is not None:
        count = len(shape.elements) if opcode in ("sort", "scatter") else 1 if opcode in _KEEP_LAYOUT else 0
        kept = [_lying_as(e, o.shape) for e, o in zip(shape.elements[:count], operands, strict=False)]
        return Shape.tuple_of(*kept, *shape.elements[count:])
    if opcode == "reduce-window" and len(operands) == 2:
        return shape.with_type(operands[1].shape.type)  # the initial value's type, whatever the reducer computes in
    if opcode == "set-dimension-size":
        (dimension,) = instruction.ints("dimensions")
        dynamic = shape.dynamic or (False,) * shape.rank
        shape = replace(shape, dynamic=(*dynamic[:dimension], True, *dynamic[dimension + 1 :]))
    first = operands[_KEEP_LAYOUT.get(opcode, 0)].shape
    if opcode == "select":
        return _selected(shape, *(o.shape for o in operands[:2]))
    if opcode == "transpose":
        permutation = instruction.ints("dimensions")
        order = tuple(permutation.index(d) for d in first.minor_to_major)
        return replace(shape, layout=Layout(order, first.layout.tail if first.layout else "") if order else None)
    if opcode in _KEEP_LAYOUT:
        return _lying_as(shape, first)
    if is_elementwise and opcode not in _LIE_ANEW and first.dimensions == shape.dimensions:
        if len(operands) == 2 or (opcode in _CHANGE_TYPE and first.type != shape.type):
            return _lying_as(shape, first, _packed(first) if 1 < shape.type.bits < 8 else "")
        return _lying_as(shape, first)
    return shape


_PACKED = re.compile(r"E\(\d+\)")
_BEHIND_PACKED = re.compile(r"D\(|S\(|SC\(|M|$")


def _selected(shape: Shape, choice: Shape, value: Shape) -> Shape:
    """A select lies as its choices do, packed as its values are; with one choice for all as its values do."""
    return _lying_as(shape, choice, _packed(value)) if choice.rank else _lying_as(shape, value)


def _lying_as(shape: Shape, other: Shape, packed: str | None = None) -> Shape:
    """The shape with another one's layout; `packed` stands in the place of what that says about the size of elements, such as `E(4)`."""
    if other.rank != shape.rank or not (shape.rank or other.layout):
        return shape
    layout = other.layout
    if packed is not None and (layout is not None or packed):
        tail = _PACKED.sub("", "" if layout is None else layout.tail)
        if packed:
            at = _BEHIND_PACKED.search(tail)
            assert at is not None
            tail = tail[: at.start()] + packed + tail[at.start() :]
        layout = Layout(other.minor_to_major, tail)
    return replace(shape, layout=layout)


def _packed(shape: Shape) -> str:
    found = _PACKED.search(shape.layout.tail) if shape.layout is not None else None
    return "" if found is None else found[0]


def _of_send(instruction: Instruction) -> Shape:
    token, u32 = Shape(ELEMENT_TYPES["token"]), Shape(ELEMENT_TYPES["u32"])
    return Shape.tuple_of(instruction.operands[0].shape, u32, token) if instruction.operands else instruction.shape


def _of_token(instruction: Instruction) -> Shape:
    return Shape(ELEMENT_TYPES["token"])


def _of_first(instruction: Instruction) -> Shape:
    return instruction.operands[0].shape if instruction.operands else instruction.shape


def _of_recv_done(instruction: Instruction) -> Shape:
    elements = instruction.operands[0].shape.elements if instruction.operands else None
    token = Shape(ELEMENT_TYPES["token"])
    return Shape.tuple_of(elements[0], token) if elements else instruction.shape


GIVEN_BY_OPERAND: dict[str, Callable[[Instruction], Shape]] = {
    "add-dependency": _of_first,
    "after-all": _of_token,
    "outfeed": _of_token,
    "recv-done": _of_recv_done,
    "send": _of_send,
    "send-done": _of_token,
}
"""Opcodes whose shape XLA takes from the operands, whatever the text says (HloInstruction::CreateSend, CreateRecvDone, ...)."""
