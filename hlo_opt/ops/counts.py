"""Values that count: 0, 1, 2, ... along one dimension, and the same along all others."""

from __future__ import annotations

from hlo_opt.ir import Instruction


def counted_along(value: Instruction) -> int | None:
    """The dimension along which a value counts; None for a value that does not, as far as its operations tell. JAX
    turns negative indices into positive ones, which changes nothing here."""
    if not value.shape.is_array or not value.shape.type.is_integer:
        return None
    match value.opcode:
        case "iota":
            dimension = value.value("iota_dimension", 0)
            if not isinstance(dimension, int) or value.shape.dimensions[dimension] - 1 > value.shape.type.limits[1]:
                return None
            return dimension
        case "broadcast":
            along = counted_along(value.operands[0])
            return None if along is None else value.ints("dimensions")[along]
        case "reshape":
            return _reshaped(value)
        case "select":
            test, _, other = value.operands
            return counted_along(other) if _is_never(test) else None
    return None


def _reshaped(value: Instruction) -> int | None:
    """Only dimensions of one element may come or go."""
    before = value.operands[0].shape.dimensions
    along, after = counted_along(value.operands[0]), value.shape.dimensions
    if along is None or before[along] == 1 or [n for n in before if n != 1] != [n for n in after if n != 1]:
        return None
    wide = [d for d, n in enumerate(after) if n != 1]
    return wide[sum(n != 1 for n in before[:along])]


def _is_never(test: Instruction) -> bool:
    """Whether a test asks for counts below 0."""
    if test.opcode != "compare" or test.word("direction") != "LT" or counted_along(test.operands[0]) is None:
        return False
    zero = test.operands[1]
    literal = (zero.operands[0] if zero.opcode == "broadcast" else zero).literal
    return literal is not None and not literal.is_elided and not literal.shape.rank and literal.value == 0
