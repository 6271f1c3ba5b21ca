"""Library calls of `sort`, `topk`, and the custom calls TopK and CUB's radix sort (ops/custom_calls/table.py); None
where CuPy has none.

CuPy sorts by integer keys. A comparator has keys where it compares an exact elementwise function of its elements.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hlo_opt.ir import Computation, Instruction
from hlo_opt.ops.call_config import descends, is_true
from hlo_opt.ops.calls.call import described, is_ordered
from hlo_opt.ops.calls.steps import steps_of
from hlo_opt.ops.ordering.meaning import comparisons, mirrored
from hlo_opt.ops.ordering.table import sorted_dimension
from hlo_opt.ops.shapes import flag, integer
from hlo_opt.ops.spec import LibraryCall

_LONGEST = 64  # the most operations of a key
_SUMS = frozenset({"add", "subtract", "multiply"})
_EXACT = frozenset({"abs", "negate", "not", "and", "or", "xor", "compare", "select", "constant", "copy", "bitcast"})
_EXACT |= {"bitcast-convert"}

OrderKey = tuple[tuple[Any, int], bool, bool]
"""((steps, number of their result), whether floats compare in total order, whether the order is descending)"""


def sort_keys(comparator: Computation) -> tuple[OrderKey, ...] | None:
    """The keys of a comparator, most significant first; None for another comparison, or a type that CuPy does not
    sort."""
    keys: list[OrderKey] = []
    parameters = {p: (p.parameter_number or 0) // 2 for p in comparator.parameters}
    for compare in comparisons(comparator):
        side = mirrored(*compare.operands, bitcasts=True)
        direction, left = compare.word("direction"), compare.operands[0]
        if side is None or direction not in ("LT", "GT") or not is_ordered(left.shape.type):
            return None
        computed = steps_of([left], parameters, len(parameters) // 2, _is_exact)
        if computed is None or len(computed[0]) > _LONGEST:
            return None
        steps, (number,) = computed
        keys.append(((steps, number), compare.word("type") == "TOTALORDER", (direction == "GT") != bool(side)))
    return tuple(keys) or None


def _is_exact(i: Instruction) -> bool:
    t = i.shape.type
    if not is_ordered(t):
        return False
    if i.opcode == "convert":
        source = i.operands[0].shape.type
        return t == source or (source.name, t.name) == ("bf16", "f32")
    return i.opcode in _EXACT or (i.opcode in _SUMS and not t.is_narrow_float and t.kind != "pred")


def sort(instruction: Instruction) -> LibraryCall | None:
    keys = sort_keys(instruction.called_by("to_apply"))
    if keys is None or not all(o.shape.is_array for o in instruction.operands):  # not all types are compared
        return None
    return "sort_call", (sorted_dimension(instruction), keys), "cupy.argsort"


Plain = tuple[int, bool, bool, bool]
"""(operand that is compared, whether the order is descending, whether all NaN are equal and the largest, whether zeros
of both signs are equal); apart from that floats compare in total order"""


def plain_keys(comparator: Computation) -> tuple[Plain, ...] | None:
    """The keys of a comparator, most significant first, where each is an integer or a float as it is, or a float as JAX
    compares it; None for other comparators."""
    keys: list[Plain] = []
    for compare in comparisons(comparator):
        left, right = compare.operands
        side, direction = mirrored(left, right), compare.word("direction")
        is_total = compare.word("type") == "TOTALORDER" or not left.shape.type.is_float
        if side is None or direction not in ("LT", "GT") or not is_total:
            return None
        joins_nan, joins_zeros, compared = _joined(left)
        if compared.parameter_number is None:
            return None
        falls = (direction == "GT") != bool(side)
        keys.append((compared.parameter_number // 2, falls, joins_nan, joins_zeros))
    return tuple(keys) or None


def _joined(value: Instruction) -> tuple[bool, bool, Instruction]:
    """Whether selections make all NaN one, and all zeros, and of what they select: `x != x ? nan : x == 0 ? 0 : x`."""
    tests = set[str]()
    while value.opcode == "select":
        condition, chosen, rest = value.operands
        number = _number(chosen)
        if condition.opcode != "compare" or condition.word("type", "FLOAT") != "FLOAT" or number is None:
            break
        one, other = condition.operands
        direction = condition.word("direction")
        is_nan = direction == "NE" and one is other and math.isnan(number) and not np.signbit(number)
        is_zero = direction == "EQ" and _number(other) == 0 and number == 0
        if not (is_nan or is_zero) or one.parameter_number is None or one is not _selected(rest):
            break
        tests.add(direction)
        value = rest
    return "NE" in tests, "EQ" in tests, value


def _selected(value: Instruction) -> Instruction:
    """What is selected where no condition holds."""
    while value.opcode == "select":
        value = value.operands[2]
    return value


def _number(constant: Instruction) -> np.float64 | None:
    """A scalar constant of floats."""
    if constant.literal is None or not constant.shape.type.is_float:
        return None
    return np.float64(np.asarray(constant.literal.value).item())


def sort_fusion(instruction: Instruction) -> LibraryCall | None:
    """A fusion that sorts its parameters and iotas: XLA's form of a sort that also returns positions."""
    root = instruction.called_by("calls").root
    call = sort(root) if root.opcode == "sort" else None
    sources: list[Any] = []
    for o in root.operands:
        if o.parameter_number is not None:
            sources.append(o.parameter_number)
        elif o.opcode == "iota" and not o.shape.type.is_narrow_float:
            sources.append((integer(o, "iota_dimension"), described(o.shape)))
        else:
            return None
    return None if call is None else ("sort_fusion_call", (tuple(sources), *call[1]), call[2])


def plain_sort(instruction: Instruction) -> tuple[int, tuple[int | None, ...], tuple[Plain, ...]] | None:
    """The dimension of a sort, or of a fusion that sorts its parameters and iotas; of each operand the number of the
    parameter, None where it is the place along that dimension; and the keys. None for others."""
    root = instruction.called_by("calls").root if instruction.opcode == "fusion" else instruction
    keys = plain_keys(root.called_by("to_apply")) if root.opcode == "sort" else None
    if keys is None:
        return None
    along, sources = sorted_dimension(root), list[int | None]()
    for number, o in enumerate(root.operands):
        if root is instruction:
            sources.append(number)
        elif o.parameter_number is not None:
            sources.append(o.parameter_number)
        elif o.opcode == "iota" and o.shape.type.is_integer and integer(o, "iota_dimension") == along:
            sources.append(None)
        else:
            return None
    return along, tuple(sources), keys


def topk(instruction: Instruction) -> LibraryCall | None:
    return _top(instruction, integer(instruction, "k"), flag(instruction, "largest", True))


def top_k(instruction: Instruction) -> LibraryCall | None:
    results = list(instruction.shape.leaves())
    if len(instruction.operands) != 1 or len(results) != 2:
        return None
    return _top(instruction, results[0].dimensions[-1], descends(instruction))


def _top(instruction: Instruction, count: int, is_largest: bool) -> LibraryCall | None:
    return ("top_call", (count, is_largest), "cupy.argsort") if _is_ordered(instruction) else None


def radix_sort(instruction: Instruction) -> LibraryCall | None:
    fits = len(list(instruction.shape.leaves())) >= len(instruction.operands) and _is_ordered(instruction)
    return ("radix_sort_call", (is_true(instruction, "descending"),), "cupy.argsort") if fits else None


def _is_ordered(instruction: Instruction) -> bool:
    """Whether all operands are arrays and CuPy sorts the first."""
    shapes = [o.shape for o in instruction.operands]
    return all(s.is_array for s in shapes) and shapes[0].rank > 0 and is_ordered(shapes[0].type)
