"""The result shape of an instruction whose text leaves it out, as XLA's parser infers it."""

from __future__ import annotations

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
        return _with_layout(instruction, spec.infer(instruction), spec.kind is OpKind.ELEMENTWISE)
    except ShapeError as error:
        raise ValueError(f"{refusal}: {error}") from None
    except (TypeError, KeyError, IndexError, AttributeError):
        raise ValueError(f"{refusal}; write it before the opcode") from None
    finally:
        instruction.shape = before


def _width(shape: Shape) -> tuple[bool, int]:
    return (False, 0) if shape.element_type is None else (shape.element_type.is_float, shape.element_type.bits)


_KEEP_LAYOUT = frozenset({"add-dependency", "copy", "reverse", "sort"})
_VALUE_OPERAND = {"clamp": 1}


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
    if shape.elements is not None or not operands:
        return shape
    if opcode == "reduce-window" and len(operands) == 2:
        return shape.with_type(operands[1].shape.type)  # the initial value's type, whatever the reducer computes in
    first = operands[_VALUE_OPERAND.get(opcode, 0)].shape
    if opcode == "transpose":
        permutation = instruction.ints("dimensions")
        order = tuple(permutation.index(d) for d in first.minor_to_major)
        return replace(shape, layout=Layout(order, first.layout.tail if first.layout else "") if order else None)
    if (is_elementwise or opcode in _KEEP_LAYOUT) and first.dimensions == shape.dimensions:
        return replace(shape, layout=first.layout)
    return shape


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
