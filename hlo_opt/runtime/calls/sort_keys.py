"""What CuPy sorts by: the comparator of a `sort` as integer keys, where it compares elementwise functions of its elements."""

from __future__ import annotations

from typing import Any

from hlo_opt.ir import Computation, ElementType, Instruction
from hlo_opt.ops.ordering.meaning import comparisons, mirrored

Recipe = tuple[tuple[str, Any, tuple[int, ...]], ...]
"""Operations in the order of evaluation: (name, argument, numbers of the earlier values that it takes). The last one is the value."""

_SAME = {"abs": "abs", "negate": "negative", "not": "logical_not", "and": "logical_and", "or": "logical_or"}
_BITS = {"and": "bitwise_and", "not": "invert", "or": "bitwise_or", "xor": "bitwise_xor"}
_EXACT = {"add": "add", "subtract": "subtract", "multiply": "multiply"}
_LONGEST = 64  # operations of a key

Key = tuple[Recipe, bool, bool]
"""(recipe, whether floats are in total order, whether the largest comes first)"""


def sort_keys(comparator: Computation) -> tuple[Key, ...] | None:
    """The keys that a comparator sorts by, the most important first; None for one that is no such comparison, or of a type that CuPy does not sort."""
    keys = []
    for compare in comparisons(comparator):
        side = mirrored(*compare.operands, bitcasts=True)
        direction, left = compare.word("direction"), compare.operands[0]
        if side is None or direction not in ("LT", "GT") or not _sorted_type(left.shape.type):
            return None
        made = recipe(left)
        if made is None:
            return None
        keys.append((made, compare.word("type") == "TOTALORDER", (direction == "GT") != bool(side)))
    return tuple(keys) or None


def _sorted_type(t: ElementType) -> bool:
    return t.kind == "pred" or (t.is_integer and t.bits >= 8) or t.name in ("bf16", "f16", "f32", "f64")


def recipe(root: Instruction) -> Recipe | None:
    """An elementwise function of the elements that are compared, as data; None where it needs more than comparing, choosing and exact arithmetic."""
    order: dict[Instruction, int] = {}
    todo = [(root, False)]
    steps: list[tuple[str, Any, tuple[int, ...]]] = []
    while todo:
        i, ready = todo.pop()
        if i in order:
            continue
        if not ready and i.parameter_number is None:
            todo.append((i, True))
            todo.extend((o, False) for o in reversed(i.operands))
            continue
        step = _step(i)
        if step is None or len(steps) >= _LONGEST:
            return None
        order[i] = len(steps)
        steps.append((*step, tuple(order[o] for o in i.operands)))
    return tuple(steps)


def _step(i: Instruction) -> tuple[str, Any] | None:
    t = i.shape.type
    if i.parameter_number is not None:
        return "parameter", i.parameter_number // 2
    if not _sorted_type(t):
        return None
    match i.opcode:
        case "constant":
            if i.literal is None or not i.literal.shape.is_array:
                return None
            value = i.literal.value
            assert not isinstance(value, tuple)
            plain = float(value[()]) if t.is_float else int(value[()])
            # a NaN or an infinity has no text that Python reads back as itself
            return "constant", (_numpy_name(t), str(plain) if t.is_float else plain)
        case "compare":
            return ("compare", i.word("direction")) if i.word("type") != "TOTALORDER" else None
        case "select":
            return "select", None
        case "bitcast" | "bitcast-convert":
            kinds = (i.operands[0].shape.type, t)
            fits = kinds[0].bits == t.bits and all(k.kind != "pred" and k.name not in ("bf16",) for k in kinds)
            return ("view", t.numpy_name) if fits else None
        case "xor" | "and" | "or" | "not" if t.is_integer:
            return _BITS[i.opcode], None
        case "copy":
            return "convert", _numpy_name(t)
        case "convert":
            source = i.operands[0].shape.type
            exact = t.name == source.name or (source.name == "bf16" and t.name == "f32")
            return ("convert", _numpy_name(t)) if exact else None
    if i.opcode in ("not", "and", "or") and t.kind != "pred":
        return None
    if i.opcode in _SAME:
        return _SAME[i.opcode], None
    return (_EXACT[i.opcode], None) if i.opcode in _EXACT and t.name not in ("bf16", "f16", "pred") else None


def _numpy_name(t: ElementType) -> str:
    """The type that CuPy computes with: bf16 is widened."""
    return "float32" if t.name == "bf16" else t.numpy_name
