"""Who owns each buffer's memory, how long it is needed, and what follows: placement and peak memory, which is known
before anything is built or allocated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hlo_opt.evaluate.memory import Peak, refuse_more, scratch_bytes
from hlo_opt.ir import Shape
from hlo_opt.ir.walk import needed_first
from hlo_opt.runtime.schedule.ops import (
    AliasOp,
    BranchOp,
    Buffers,
    CallOp,
    ConstantOp,
    Free,
    LoopOp,
    Op,
    Routine,
    RoutineKey,
    callees,
    outputs_of,
)

if TYPE_CHECKING:
    from hlo_opt.runtime.schedule.lowering import Schedule


ALIGNMENT = 64
"""Every offset is a multiple of this, in bytes: a cache line, and at least the widest vector."""


@dataclass
class Arena:
    """A first-fit allocator of offsets. `size` is the most bytes ever taken, `alive` the bytes taken now."""

    size: int = 0
    alive: int = 0
    _taken: list[tuple[int, int]] = field(default_factory=list)

    def take(self, count: int) -> int:
        """The offset of a free range of `count` bytes."""
        wanted = max(ALIGNMENT, -(-count // ALIGNMENT) * ALIGNMENT)
        offset = position = 0
        for first, last in self._taken:
            if first - offset >= wanted:
                break
            offset = last
            position += 1
        self._taken.insert(position, (offset, offset + wanted))
        self.alive += wanted
        self.size = max(self.size, offset + wanted)
        return offset

    def give_back(self, offset: int) -> None:
        """Free a range."""
        for position, (first, last) in enumerate(self._taken):
            if first == offset:
                del self._taken[position]
                self.alive -= last - first
                return
        raise KeyError(offset)


@dataclass(frozen=True)
class Lifetimes:
    """The lifetimes of buffers over consecutive operations of a routine; outside buffers and constants are not owned.

    root  for each buffer, the buffer whose memory it uses, as far as these operations show
    born  for each operation, the buffers that get memory of their own
    dead  for each operation, the buffers of these whose memory is dead from here on, under any alias
    """

    root: Sequence[int]
    born: Sequence[Buffers]
    dead: Sequence[Buffers]


def lifetimes(ops: Sequence[Op], shapes: Sequence[Shape], *, shares_unchanged: bool = True) -> Lifetimes:
    """The lifetimes of the buffers of some operations. `shares_unchanged`: loop state that the body returns unchanged
    stays in place."""
    root = list(range(len(shapes)))
    names: dict[int, int] = {}  # the live aliases of each memory
    every: list[Buffers] = []
    dead: list[Buffers] = []
    for op in ops:
        aliases = _aliases(op, shares_unchanged)
        born, freed = [], []
        for b in outputs_of(op):
            memory = root[b] = root[aliases[b]] if b in aliases else b
            if memory in names:
                names[memory] += 1
            elif memory == b and not isinstance(op, ConstantOp):
                names[b] = 1
                born.append(b)
        for b in op.inputs if isinstance(op, Free) else ():
            if root[b] in names:
                names[root[b]] -= 1
                if not names[root[b]]:
                    freed.append(root[b])
        every.append(tuple(born))
        dead.append(tuple(freed))
    return Lifetimes(root, every, dead)


def _aliases(op: Op, shares_unchanged: bool) -> Mapping[int, int]:
    """By output, the input whose memory it uses."""
    if isinstance(op, AliasOp):
        return {op.outputs[0]: op.inputs[0]}
    if isinstance(op, LoopOp):
        return {op.outputs[k]: op.inputs[k] for k in (*(op.unchanged if shares_unchanged else ()), *op.owned)}
    if isinstance(op, BranchOp):
        return {op.outputs[number]: b for number, b in op.held}
    return {}


def with_frees(ops: Sequence[Op], results: Buffers) -> tuple[Op, ...]:
    """The operations, with each buffer freed after its last use."""
    last = {b: position for position, op in enumerate(ops) for b in (*op.outputs, *op.inputs)}
    frees: dict[int, list[int]] = defaultdict(list)
    for b in sorted(last.keys() - set(results)):
        frees[last[b]].append(b)
    freed: list[Op] = []
    for position, op in enumerate(ops):
        freed.append(op)
        if position in frees:
            freed.append(Free(op.instruction, tuple(frees[position]), ()))
    return tuple(freed)


def callees_first(routines: Mapping[RoutineKey, Routine]) -> list[RoutineKey]:
    """All routines, callees before callers; the entry, the first of `routines`, comes last."""
    return needed_first([next(iter(routines))], lambda key: [k for op in routines[key].ops for k in callees(op)])


def buffer_bytes(shape: Shape) -> int:
    """Bytes of a buffer; 0 for a token."""
    return max(0, shape.stored_bytes) if shape.is_array else 0


_NOTHING = Peak(0, None)


def check_schedule(schedule: Schedule, limit: int | None, *, devices: int = 1) -> None:
    """Raises EvaluationError (HLO402) if running the schedule on `devices` devices at once would exceed the limit in
    bytes (None: unlimited)."""
    if limit is not None:
        peak = peak_of(schedule)
        at = peak.at or schedule.entry.computation.root
        refuse_more(Peak(devices * peak.bytes, at), limit, devices=devices)


def peak_of(schedule: Schedule) -> Peak:
    """The peak memory of a run: inputs, copies of those that it overwrites (a caller may keep them), constants (which
    are kept) and buffers; finally the outputs twice, because the caller gets copies."""
    peaks: dict[RoutineKey, Peak] = {}
    for key in callees_first(schedule.routines):
        peaks[key] = _peak(schedule.routines[key], peaks)
    entry = schedule.entry
    kept = sum(buffer_bytes(entry.shapes[b]) * (1 if entry.shapes[b].is_row_major else 2) for b in entry.inputs)
    kept += sum(
        buffer_bytes(r.shapes[b])
        for r in schedule.routines.values()
        for op in r.ops
        if isinstance(op, ConstantOp)
        for b in op.outputs
    )
    kept += sum(buffer_bytes(entry.shapes[entry.inputs[k]]) for k, _ in entry.donated)
    in_inputs = {result for _, result in entry.donated}
    own = [b for k, b in enumerate(entry.results) if b not in entry.inputs and k not in in_inputs]
    at_the_end = sum(buffer_bytes(entry.shapes[b]) for b in (*own, *entry.results))
    inner = peaks[next(iter(schedule.routines))]
    if at_the_end > inner.bytes:
        return Peak(kept + at_the_end, entry.computation.root)
    return Peak(kept + inner.bytes, inner.at)


def _peak(routine: Routine, known: Mapping[RoutineKey, Peak]) -> Peak:
    """The peak of one routine and its callees, without its caller's memory.

    Unchanged loop state counts twice: backends place loop state differently, and the estimate must not be below any.
    """
    sizes = [buffer_bytes(shape) for shape in routine.shapes]
    lives = lifetimes(routine.ops, routine.shapes, shares_unchanged=False)
    alive, best = 0, _NOTHING
    for op, born, dead in zip(routine.ops, lives.born, lives.dead, strict=True):
        own = sum(sizes[b] for b in born)
        inner = max((known[k] for k in callees(op)), key=lambda p: p.bytes, default=_NOTHING)
        more = max(own, inner.bytes) if isinstance(op, BranchOp) else own + inner.bytes + _besides(op, own)
        if alive + more > best.bytes:
            best = Peak(alive + more, inner.at if inner.bytes > own and inner.at else op.instruction)
        alive += own - sum(sizes[b] for b in dead)
    return best


def _besides(op: Op, own: int) -> int:
    """Bytes that a call holds until its results are in place."""
    return own + scratch_bytes(op.instruction, 0) if isinstance(op, CallOp) else 0
