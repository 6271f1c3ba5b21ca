"""Long statements of lanes in several loops over them. A processor looks ahead over some hundred instructions. In a
loop as long as that, these are of one or two vectors, whose operations wait for each other; in short ones they are of
many. What the parts hand on goes through arrays in the first cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from hlo_opt.codegen.tree import Assign, DeclaredArray, Let, Statement, functions_in, names_in
from hlo_opt.ops.code import Name

PART, NEAR = 20, 6
"""Statements of a part, and how many further it may end where fewer values are handed on."""
MANY = 160
"""Statements whose values no registers hold."""
ABREAST = 3.5
"""Statements for each that waits for another, of which a processor finds enough in one vector."""
ROUNDING = {"hlo_round_f16": 10} | dict.fromkeys(
    ("hlo_round_bf16", "hlo_add_bf16", "hlo_subtract_bf16", "hlo_multiply_bf16"), 3
)
"""Statements that a rounding stands for: each of its steps waits for the one before."""


def parts_of(items: Sequence[Statement]) -> list[list[Statement]]:
    """The statements in parts of about the same length. One part where there are few, or where they have an array of a
    lane."""
    count = round(sum(map(_weight, items)) / PART)
    is_wide = len(items) > ABREAST * _longest(items) and len(items) < MANY
    if count < 2 or is_wide or any(isinstance(s, DeclaredArray) for s in items):
        return [list(items)]
    handed = _handed(items)
    ends = [0]
    reach = min(NEAR, max(1, len(items) // (2 * count)))
    for number in range(1, count):
        middle = number * len(items) // count
        near = range(max(middle - reach, ends[-1] + 1), min(middle + reach, len(items) - 1))
        if near:
            ends.append(min(near, key=lambda end: (handed[end], abs(end - middle))))
    return [list(items[first:end]) for first, end in zip(ends, [*ends[1:], len(items)], strict=True)]


def reads_apart(part: list[Statement], read_by: Callable[[Statement], Name | None]) -> list[list[Statement]]:
    """The part, behind those of its statements that read an array in steps, each alone, where several read one array.
    GCC makes one access of them, a row with gaps, and has no vectors for rows of most lengths. `read_by` gives the
    array that a statement reads in steps, and does nothing else."""
    arrays = [read_by(item) for item in part]
    times = Counter(arrays)
    alone = [array is not None and times[array] > 1 for array in arrays]
    rest = [item for item, is_alone in zip(part, alone, strict=True) if not is_alone]
    reads = [[item] for item, is_alone in zip(part, alone, strict=True) if is_alone]
    return [*reads, rest] if rest else reads


FUNCTIONS = frozenset(
    {"acosf", "acoshf", "asinf", "asinhf", "atanf", "atan2f", "atanhf", "cbrtf", "coshf",
     "erff", "expf", "expm1f", "logf", "log1pf", "powf", "sinhf", "tanhf"}
)  # fmt: skip
"""Functions of `host_math.h`, which stand in the loop that calls them."""
FUNCTION, WEIGHT = 30, 90
"""Statements that a function stands for, and those of a part of what is done once and is no chain."""
SLOW = WEIGHT / PART
"""What a rounding counts more there, where parts are longer: none of them may be longer than a processor looks
ahead."""


def parts_by_weight(items: Sequence[Statement]) -> list[list[Statement]]:
    """Statements that are done once in parts with as much to do, functions and all: what waits for a function's end
    could not start otherwise. Parts of long chains (rounds of a loop that was unrolled) are as short as those of a
    round: only other vectors fill the time. One part where there is little to do, or where they have an array of a
    lane."""
    done = _weights(items)
    is_chain = len(items) <= ABREAST * _longest(items) and done[-1] > WEIGHT
    if not is_chain:
        done = _weights(items, SLOW)
    count = round(done[-1] / (PART if is_chain else WEIGHT))
    if count < 2 or any(isinstance(s, DeclaredArray) for s in items):
        return [list(items)]
    handed, ends = _handed(items), [0]
    for number in range(1, count):
        middle = number * done[-1] / count
        near = [end for end in range(ends[-1] + 1, len(items)) if abs(done[end] - middle) <= FUNCTION]
        if near:
            ends.append(min(near, key=lambda end: (handed[end], abs(done[end] - middle))))
    return [list(items[first:end]) for first, end in zip(ends, [*ends[1:], len(items)], strict=True)]


def _weights(items: Sequence[Statement], of_rounding: float = 1) -> list[float]:
    """What there is to do before each statement and behind the last one, functions and all."""
    done = [0.0]
    for item in items:
        called = sum(name in FUNCTIONS for name in functions_in([item]))
        done.append(done[-1] + _weight(item, of_rounding) + FUNCTION * called)
    return done


def _weight(item: Statement, of_rounding: float = 1) -> float:
    """A statement, and what its roundings stand for."""
    rounded = sum(ROUNDING.get(name, 0) for name in functions_in([item]))
    return isinstance(item, Let | Assign) + of_rounding * rounded


def _longest(items: Sequence[Statement]) -> int:
    """How many statements wait for each other."""
    depths: dict[str, int] = {}
    for item in items:
        steps = 1 + max((depths.get(name.text, 0) for name in names_in([item])), default=0)
        if isinstance(item, Let):
            depths[item.name.text] = steps
    return max(depths.values(), default=0)


def _handed(items: Sequence[Statement]) -> list[int]:
    """By position: how many values that are declared before it are mentioned from there on."""
    last = {name.text: at for at, item in enumerate(items) for name in names_in([item])}
    changes = [0] * (len(items) + 1)
    for at, item in enumerate(items):
        if isinstance(item, Let) and last.get(item.name.text, at) > at:
            changes[at + 1] += 1
            changes[last[item.name.text] + 1] -= 1
    handed, alive = [], 0
    for change in changes:
        alive += change
        handed.append(alive)
    return handed
