"""Whose memory each buffer is, and from where to where that memory is needed: the one walk from which places, the footprint and donation are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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


@dataclass
class _Walk:
    root: list[int]
    shares_unchanged: bool
    names: dict[int, int] = field(default_factory=dict)
    """How many names of a memory are in use."""

    def make(self, op: Op) -> Buffers:
        aliases = self.aliases(op)
        made = []
        for b in made_by(op):
            root = self.root[b] = self.root[aliases[b]] if b in aliases else b
            if root in self.names:
                self.names[root] += 1
            elif root == b and not isinstance(op, Constant):
                self.names[b] = 1
                made.append(b)
        return tuple(made)

    def free(self, buffers: Buffers) -> Buffers:
        dead = []
        for b in buffers:
            root = self.root[b]
            if root in self.names:
                self.names[root] -= 1
                if not self.names[root]:
                    dead.append(root)
        return tuple(dead)

    def aliases(self, op: Op) -> Mapping[int, int]:
        """The inputs, by output, whose memory outputs are."""
        if isinstance(op, Alias):
            return {op.outputs[0]: op.inputs[0]}
        if isinstance(op, Loop):
            shared = (*op.unchanged, *op.owned) if self.shares_unchanged else op.owned
            return {op.outputs[k]: op.inputs[k] for k in shared}
        return {}


def lifetimes(ops: Sequence[Op], shapes: Sequence[Shape], *, shares_unchanged: bool = True) -> Lifetimes:
    """The lifetimes of the buffers of some operations of a routine. `shares_unchanged`: what a loop's body hands on as it got it stays where it is."""
    walk = _Walk(list(range(len(shapes))), shares_unchanged)
    made, dead = [], []
    for op in ops:
        made.append(walk.make(op))
        dead.append(walk.free(op.inputs) if isinstance(op, Free) else ())
    return Lifetimes(walk.root, made, dead)


def last_uses(ops: Sequence[Op], results: Buffers) -> list[Buffers]:
    """For each operation, the buffers that no later one reads and that are no results, in ascending order."""
    last: dict[int, int] = {}
    for position, op in enumerate(ops):
        for buffer in (*op.outputs, *op.inputs):
            last[buffer] = position
    frees: list[list[int]] = [[] for _ in ops]
    kept = set(results)
    for buffer in sorted(last):
        if buffer not in kept:
            frees[last[buffer]].append(buffer)
    return [tuple(f) for f in frees]


def with_frees(ops: Sequence[Op], results: Buffers) -> tuple[Op, ...]:
    """The operations, each buffer freed after its last use."""
    found: list[Op] = []
    for op, frees in zip(ops, last_uses(ops, results), strict=True):
        found.append(op)
        if frees:
            found.append(Free(op.instruction, frees, ()))
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
