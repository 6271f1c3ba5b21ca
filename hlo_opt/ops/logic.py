"""Truth values of predicates: what operations imply for case splits."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.ir import Instruction
from hlo_opt.ops.reduction.reducers import monoid

Truths = Sequence[bool | None]
"""The truth value of each operand, None where unknown."""


def conjuncts(value: Instruction) -> list[Instruction]:
    """The predicates whose conjunction is `value`."""
    if value.opcode != "and" or value.shape.type.kind != "pred":
        return [value]
    return [c for operand in value.operands for c in conjuncts(operand)]


def asked_of_all(value: Instruction) -> tuple[Instruction, bool] | None:
    """(array, b) for a predicate that is true iff some element of the array is b: `any`, or `not all`; None for
    others."""
    is_turned = value.opcode == "not"
    fold = value.operands[0] if is_turned else value
    if fold.opcode != "reduce" or len(fold.operands) != 2 or not fold.shape.is_array or fold.shape.rank:
        return None
    whole, init = fold.operands
    wanted, start = ("and", True) if is_turned else ("or", False)
    is_alone = whole.shape.type.kind == "pred" and monoid(fold.called_by("to_apply")) == wanted and known(init) == start
    return (whole, not is_turned) if is_alone else None


def known(value: Instruction) -> bool | None:
    """The value of a constant predicate; None for anything else."""
    literal = value.literal
    is_predicate = value.shape.is_array and not value.shape.rank and value.shape.type.kind == "pred"
    if literal is None or literal.is_elided or not is_predicate:
        return None
    return bool(literal.value)


def truth_of(value: Instruction, truths: Truths) -> bool | None:
    """The value of a predicate, given the known values of its operands; None where unknown."""
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
    """The value that a predicate's truth implies for every operand; None where it implies nothing."""
    if value.opcode == "not":
        return not truth
    return truth if value.opcode == ("and" if truth else "or") else None


def passed_on(value: Instruction, truths: Truths, zeros: Sequence[bool]) -> int | None:
    """The operand that equals the value: the chosen one of a `select`, or of an integer `add` of zero the other.

    `zeros` says which operands are zero. None where no operand is known to be equal.
    """
    if value.opcode == "select" and truths[0] is not None:
        return 1 if truths[0] else 2
    if value.opcode == "add" and value.shape.type.is_integer and any(zeros):
        return 1 if zeros[0] else 0
    return None


def is_zero(value: Instruction, truths: Truths) -> bool:
    """Whether a value is the integer 0: a constant, or the conversion of a false predicate."""
    kind = value.shape.type
    if not kind.is_integer:
        return False
    if value.literal is not None:
        is_number = value.shape.is_array and not value.shape.rank and not value.literal.is_elided
        return is_number and int(value.literal.value) == 0  # type: ignore[arg-type]
    return value.opcode == "convert" and list(truths) == [False]
