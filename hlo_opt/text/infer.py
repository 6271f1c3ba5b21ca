"""The result shape of an instruction whose text leaves it out, as XLA's parser infers it."""

from __future__ import annotations

from collections.abc import Callable

from hlo_opt.ir import Instruction, Shape


def inferred_shape(instruction: Instruction) -> Shape:
    """The shape that operands and attributes imply, from the op table. Raises ValueError, with a message for the user, where they do not.

    Leaves the instruction's own shape as it was.
    """
    from hlo_opt.ops import ShapeError, find

    spec = find(instruction.opcode)
    refusal = f"the shape of {instruction.opcode} cannot be inferred"
    if spec is None or spec.infer is None or spec.omitted is None:
        raise ValueError(f"{refusal}; write it before the opcode")
    before = instruction.shape
    try:
        # Some faces read the result's element type from the declared shape (dot, convolution): without one it is the widest operand's.
        if instruction.operands:
            instruction.shape = max((o.shape for o in instruction.operands), key=_width)
        if instruction.opcode == "scan":
            instruction.shape = instruction.called_by("to_apply").root.shape  # as many arrays
        return spec.omitted(instruction, spec.infer(instruction))
    except ShapeError as error:
        raise ValueError(f"{refusal}: {error}") from None
    except (TypeError, KeyError, IndexError, AttributeError):
        raise ValueError(f"{refusal}; write it before the opcode") from None
    finally:
        instruction.shape = before


def _width(shape: Shape) -> tuple[bool, int]:
    return (False, 0) if shape.element_type is None else (shape.element_type.is_float, shape.element_type.bits)


def given_by_operand() -> dict[str, Callable[[Instruction], Shape]]:
    """By opcode, the shapes that XLA takes from the operands, whatever the text says (HloInstruction::CreateSend, CreateRecvDone, ...)."""
    from hlo_opt.ops import table

    return {spec.opcode: spec.given for spec in table() if spec.given is not None}
