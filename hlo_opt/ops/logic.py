"""What follows from the truth of predicates: questions that whoever splits cases asks of operations."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.ir import Instruction
from hlo_opt.ops.reduction.reducers import monoid

Truths = Sequence[bool | None]
"""Of each operand, where it is known."""


def conjuncts(value: Instruction) -> list[Instruction]:
    """The predicates which all have to hold for one."""
    if value.opcode != "and" or value.shape.type.kind != "pred":
        return [value]
    return [c for operand in value.operands for c in conjuncts(operand)]


def asked_of_all(value: Instruction) -> tuple[Instruction, bool] | None:
    """(array, b) of a predicate that holds as long as an element of the array is b: `any` of it, or `not all`; None of any other."""
    is_turned = value.opcode == "not"
    fold = value.operands[0] if is_turned else value
    if fold.opcode != "reduce" or len(fold.operands) != 2 or not fold.shape.is_array or fold.shape.rank:
        return None
    whole, init = fold.operands
    wanted, start = ("and", True) if is_turned else ("or", False)
    is_alone = whole.shape.type.kind == "pred" and monoid(fold.called_by("to_apply")) == wanted and known(init) == start
    return (whole, not is_turned) if is_alone else None


def known(value: Instruction) -> bool | None:
    """The value of a constant predicate."""
    literal = value.literal
    if literal is None or literal.is_elided or not value.shape.is_array or value.shape.rank or value.shape.type.kind != "pred":  # fmt: skip
        return None
    return bool(literal.value)


def truth_of(value: Instruction, truths: Truths) -> bool | None:
    """What a predicate is, given what is known of its operands' elements."""
    match value.opcode:
        case "not":
            return None if truths[0] is None else not truths[0]
        case "and":
            return False if False in truths else (True if all(truths) else None)
        case "or":
            return True if True in truths else (None if None in truths else False)
        case "select":
            return truths[1 if truths[0] else 2] if truths[0] is not None else None
    return None


def implied(value: Instruction, truth: bool) -> bool | None:
    """What each operand's element is, all alike, where a predicate is known; None where that says nothing of them."""
    if value.opcode == "not":
        return not truth
    return truth if value.opcode == ("and" if truth else "or") else None


def passed_on(value: Instruction, truths: Truths, zeros: Sequence[bool]) -> int | None:
    """The operand whose element a value's element is: what a `select` takes, and, of whole numbers, that to which zero is added. `zeros` says which operands' elements are zero."""
    if value.opcode == "select" and truths[0] is not None:
        return 1 if truths[0] else 2
    if value.opcode == "add" and value.shape.type.is_integer and any(zeros):
        return 1 if zeros[0] else 0
    return None


def is_zero(value: Instruction, truths: Truths) -> bool:
    """Whether an element is the integer 0: a constant, or a predicate that does not hold as a number."""
    kind = value.shape.type
    if not kind.is_integer:
        return False
    if value.literal is not None:
        is_number = value.shape.is_array and not value.shape.rank and not value.literal.is_elided
        return is_number and int(value.literal.value) == 0  # type: ignore[arg-type]
    return value.opcode == "convert" and list(truths) == [False]
