"""Whose memory each buffer is, and from where to where that memory is needed: the one walk from which places, the footprint and donation are told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hlo_opt.ir import Shape
from hlo_opt.runtime.schedule.ops import (
    Alias,
    Buffers,
    Constant,
    Free,
    Loop,
    Op,
    Routine,
    RoutineKey,
    callees,
    made_by,
)


@dataclass(frozen=True)
class Lifetimes:
    """Of consecutive operations of a routine. What comes from outside, and constants, have memory of others.

    root  for each buffer the one whose memory it is, as far as these operations tell
    made  for each operation, the buffers that get memory of their own
    dead  for each operation, the buffers of these whose memory nothing uses any more, under any name
    """

    root: Sequence[int]
    made: Sequence[Buffers]
    dead: Sequence[Buffers]


def lifetimes(ops: Sequence[Op], shapes: Sequence[Shape], *, shares_unchanged: bool = True) -> Lifetimes:
    """The lifetimes of the buffers of some operations of a routine. `shares_unchanged`: what a loop's body hands on as it got it stays where it is."""
    root = list(range(len(shapes)))
    names: dict[int, int] = {}  # how many of a memory are in use
    every: list[Buffers] = []
    dead: list[Buffers] = []
    for op in ops:
        aliases = _aliases(op, shares_unchanged)
        made, freed = [], []
        for b in made_by(op):
            memory = root[b] = root[aliases[b]] if b in aliases else b
            if memory in names:
                names[memory] += 1
            elif memory == b and not isinstance(op, Constant):
                names[b] = 1
                made.append(b)
        for b in op.inputs if isinstance(op, Free) else ():
            if root[b] in names:
                names[root[b]] -= 1
                if not names[root[b]]:
                    freed.append(root[b])
        every.append(tuple(made))
        dead.append(tuple(freed))
    return Lifetimes(root, every, dead)


def _aliases(op: Op, shares_unchanged: bool) -> Mapping[int, int]:
    """The inputs, by output, whose memory outputs are."""
    if isinstance(op, Alias):
        return {op.outputs[0]: op.inputs[0]}
    if isinstance(op, Loop):
        return {op.outputs[k]: op.inputs[k] for k in (*(op.unchanged if shares_unchanged else ()), *op.owned)}
    return {}


def with_frees(ops: Sequence[Op], results: Buffers) -> tuple[Op, ...]:
    """The operations, each buffer freed after its last use."""
    last = {b: position for position, op in enumerate(ops) for b in (*op.outputs, *op.inputs)}
    frees: dict[int, list[int]] = defaultdict(list)
    for b in sorted(last.keys() - set(results)):
        frees[last[b]].append(b)
    found: list[Op] = []
    for position, op in enumerate(ops):
        found.append(op)
        if position in frees:
            found.append(Free(op.instruction, tuple(frees[position]), ()))
    return tuple(found)


def callees_first(routines: Mapping[RoutineKey, Routine]) -> list[RoutineKey]:
    """Each routine after those that it runs; the entry, which comes first in `routines`, last."""
    order: list[RoutineKey] = []
    seen: set[RoutineKey] = set()
    todo = [(next(iter(routines)), False)]
    while todo:
        key, is_done = todo.pop()
        if is_done:
            order.append(key)
        elif key not in seen:
            seen.add(key)
            todo.append((key, True))
            todo.extend((k, False) for op in reversed(routines[key].ops) for k in reversed(callees(op)))
    return order


def buffer_bytes(shape: Shape) -> int:
    """Bytes of a buffer; 0 for a token."""
    return max(0, shape.stored_bytes) if shape.is_array else 0
