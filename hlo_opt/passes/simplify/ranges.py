"""Between which values the integers of an array lie."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.ir import Computation, Instruction
from hlo_opt.ops.reduction.reducers import EXTREMES, monoid
from hlo_opt.ops.sets import keeps_values, tuple_elements, tuple_index
from hlo_opt.passes.simplify.reading import MOVES, is_a, known, uniform

Range = tuple[int, int]
"""The least and the greatest value."""

_MOVERS = MOVES | {"gather"}
_MOST_READ = 1 << 16
"""The most elements of a constant that are read."""
_DEEPEST = 4
"""The most operations that are followed before nothing is known."""


def bounds(value: Instruction, deepest: int = _DEEPEST) -> Range | None:
    """The least and the greatest value of integers, where they are narrower than their type; else None."""
    if not value.shape.is_array or not value.shape.type.is_integer or not deepest:
        return None
    while keeps_values(value, _MOVERS):
        value = value.operands[0]
    kind, elements = value.shape.type, known(value)
    if elements is not None:
        return (int(elements.min()), int(elements.max())) if 0 < elements.size <= _MOST_READ else None
    if is_a(value, "iota"):
        last = value.shape.dimensions[value.attribute("iota_dimension", int)] - 1
        return (0, last) if 0 <= last <= kind.limits[1] else None
    if is_a(value, "remainder", "and"):
        return _of_rest(value, deepest)
    if is_a(value, "convert"):
        return _of_convert(value, deepest)
    chosen = _choices(value)
    if chosen:
        return _hull([bounds(o, deepest - 1) for o in chosen])
    if is_a(value, "get-tuple-element"):
        return _of_places(value)
    return _of_sides(value, deepest)


def _hull(ranges: Sequence[Range | None]) -> Range | None:
    least = [r[0] for r in ranges if r is not None]
    most = [r[1] for r in ranges if r is not None]
    return (min(least), max(most)) if len(least) == len(ranges) else None


def _choices(value: Instruction) -> Sequence[Instruction]:
    """The values of which each element is one; nothing where it may be another. An argmax returns one of the places, or
    the one that it begins with."""
    if is_a(value, "concatenate"):
        return value.operands
    if is_a(value, "select"):
        return value.operands[1:]
    if is_a(value, "pad", "dynamic-update-slice"):
        return value.operands[:2]
    if is_a(value, "sort"):
        return value.operands
    if is_a(value, "reduce"):
        return value.operands if monoid(value.called_by("to_apply")) in EXTREMES else ()
    number = tuple_index(value)
    if number is None:
        return ()
    of = value.operands[0]
    if is_a(of, "sort"):
        return of.operands[number : number + 1]
    if is_a(of, "reduce") and _returns_one(of.called_by("to_apply"), number):
        return (of.operands[number], of.operands[number + len(of.operands) // 2])
    return ()


def _returns_one(reducer: Computation, number: int) -> bool:
    """Whether a result of a reducer of several arrays is always one of both elements of that array."""
    results = tuple_elements(reducer.root)
    if results is None:
        return False
    todo, seen = [results[number]], set[Instruction]()
    while todo:
        value = todo.pop()
        if value.parameter_number is not None:
            if value.parameter_number % len(results) != number:
                return False
        elif value not in seen:
            seen.add(value)
            if value.opcode not in EXTREMES | {"select"}:
                return False
            todo += value.operands[is_a(value, "select") :]
    return True


def _of_places(value: Instruction) -> Range | None:
    """The places that a search for the greatest elements returns."""
    of = value.operands[0]
    if not is_a(of, "topk") or tuple_index(value) != 1:
        return None
    size = of.operands[0].shape.dimensions[-1]
    return (0, size - 1) if size else None


def _of_convert(value: Instruction, deepest: int) -> Range | None:
    """Those of integers that the new type holds; all that a narrower type has."""
    source, kind = value.operands[0].shape.type, value.shape.type
    if source.kind == "pred":
        return 0, 1
    if not source.is_integer:
        return None
    inner = bounds(value.operands[0], deepest - 1) or source.limits
    least, most = kind.limits
    return inner if least <= inner[0] and inner[1] <= most and inner != (least, most) else None


def _of_sides(value: Instruction, deepest: int) -> Range | None:
    """Those of arithmetic that does not overflow."""
    if not is_a(value, "add", "subtract", "multiply", "maximum", "minimum", "clamp", "divide"):
        return None
    sides = [bounds(o, deepest - 1) for o in value.operands]
    if is_a(value, "clamp"):
        low, _, high = sides
        return (low[0], high[1]) if low is not None and high is not None and low[1] <= high[0] else None
    if sides[0] is None or sides[1] is None:
        return None
    (a, b), (c, d) = sides[0], sides[1]
    if is_a(value, "divide"):  # towards 0, which only one sign needs
        return (a // d, b // c) if a >= 0 and c > 0 else None
    ends = {
        "add": (a + c, b + d),
        "subtract": (a - d, b - c),
        "multiply": (min(a * c, a * d, b * c, b * d), max(a * c, a * d, b * c, b * d)),
        "maximum": (max(a, c), max(b, d)),
        "minimum": (min(a, c), min(b, d)),
    }[value.opcode]
    least, most = value.shape.type.limits
    return ends if least <= ends[0] and ends[1] <= most else None


def _of_rest(value: Instruction, deepest: int) -> Range | None:
    """Those of x % n and x & n for a known n > 0; a remainder has the sign of x."""
    number = uniform(value.operands[1])
    if number is None or int(number) <= 0:
        return None
    most = int(number) - is_a(value, "remainder")
    if is_a(value, "and") or value.shape.type.kind == "unsigned":
        return 0, most
    inner = bounds(value.operands[0], deepest - 1)
    return (0 if inner is not None and inner[0] >= 0 else -most, most)
