"""The memory of a run, step by step: which buffers are alive at each operation of a schedule, and at which they are
most.

This is the memory of a device: inputs, constants, and the buffers that the program makes, its results among them. What
a library call needs inside is not known. Buffers that are not needed at the same time may share a place; how well they
can be laid out is not asked, so that an allocator may need more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlo_opt.ir import Instruction
from hlo_opt.runtime.schedule import Schedule
from hlo_opt.runtime.schedule.lifetimes import buffer_bytes, callees_first, lifetimes
from hlo_opt.runtime.schedule.ops import Allocate, BranchOp, ConstantOp, Free, Op, Routine, RoutineKey, callees


@dataclass(frozen=True)
class Holder:
    """A buffer that is alive at the peak.

    kind     `inputs`, `constants`, `results` or `temporaries`
    maker    the instruction that makes it: of an input the parameter
    readers  the instructions that still read it at the peak, or later
    number   of an input its place among all arrays of the parameters; of a result its place among the results; else -1
    """

    kind: str
    maker: Instruction
    bytes: int
    readers: tuple[Instruction, ...]
    number: int = -1


@dataclass(frozen=True)
class Moment:
    """The most bytes alive at once, at which instruction, after which other one, and what they are, the largest
    first."""

    bytes: int
    at: Instruction
    after: Instruction | None
    holders: tuple[Holder, ...]

    def of(self, kind: str) -> int:
        """Bytes of all buffers of a kind."""
        return sum(holder.bytes for holder in self.holders if holder.kind == kind)


def moment_of(schedule: Schedule) -> Moment:
    """The peak of a schedule."""
    peaks: dict[RoutineKey, Moment] = {}
    for key in callees_first(schedule.routines):
        peaks[key] = _peak(schedule.routines[key], peaks, is_entry=schedule.routines[key] is schedule.entry)
    peak = peaks[next(iter(schedule.routines))]
    constants = [
        Holder("constants", op.instruction, buffer_bytes(routine.shapes[b]), ())
        for routine in schedule.routines.values()
        for op in routine.ops
        if isinstance(op, ConstantOp)
        for b in op.outputs
    ]
    holders = sorted((*peak.holders, *constants), key=lambda h: (-h.bytes, h.kind, h.maker.name))
    return Moment(peak.bytes + sum(c.bytes for c in constants), peak.at, peak.after, tuple(holders))


def _peak(routine: Routine, known: dict[RoutineKey, Moment], *, is_entry: bool) -> Moment:
    """The peak of a routine and of what it runs. The inputs of the entry count, those of other routines belong to their
    callers."""
    sizes = [buffer_bytes(shape) for shape in routine.shapes]
    lives = lifetimes(routine.ops, routine.shapes)
    inputs = [b for b in routine.inputs if lives.root[b] == b] if is_entry else []
    alive: dict[int, Op | None] = dict.fromkeys(inputs)
    total = sum(sizes[b] for b in inputs)
    best, position, then, inner = -1, 0, dict(alive), None
    for number, (op, born, dead) in enumerate(zip(routine.ops, lives.born, lives.dead, strict=True)):
        alive.update(dict.fromkeys(born, op))
        total += sum(sizes[b] for b in born)
        within = max((known[k] for k in callees(op)), key=lambda m: m.bytes, default=None)
        beside, makers = 0 if within is None else within.bytes, dict(alive)
        if isinstance(op, BranchOp) and within is not None:  # its results are made in the branch
            own = sum(sizes[b] for b in born)
            if beside < own:
                beside, within = 0, None
            else:
                beside -= own
                makers = {b: maker for b, maker in makers.items() if b not in born}
        if total + beside > best:
            best, position, then, inner = total + beside, number, makers, within
        for b in dead:
            if b in alive and b not in inputs:
                del alive[b]
                total -= sizes[b]
    if not routine.ops:
        return Moment(total, routine.computation.root, None, _holders(routine, alive, 0, lives.root))
    at = next((o for o in routine.ops[position:] if not isinstance(o, Allocate | Free)), routine.ops[position])
    before = next(
        (o for o in reversed(routine.ops[:position]) if not isinstance(o, Allocate | Free | ConstantOp)), None
    )
    holders = _holders(routine, then, position, lives.root)
    if inner is not None:
        holders = (*holders, *inner.holders)
    where = inner.at if inner is not None and inner.bytes else at.instruction
    return Moment(max(best, total), where, None if before is None else before.instruction, holders)


def _holders(routine: Routine, alive: dict[int, Op | None], position: int, root: Sequence[int]) -> tuple[Holder, ...]:
    """What is alive, as buffers with their makers and readers."""
    parameters = [p for p in routine.computation.parameters for leaf in p.shape.leaves()]
    numbers = {b: n for n, b in enumerate(routine.inputs)}
    results = {root[b]: n for n, b in enumerate(routine.results)}
    holders = []
    readers_of: dict[int, dict[Instruction, None]] = {buffer: {} for buffer in alive}
    for reader in routine.ops[position:]:
        if not isinstance(reader, Free):
            for b in reader.inputs:
                if root[b] in readers_of:
                    readers_of[root[b]][reader.instruction] = None
    for buffer, op in alive.items():
        size, readers = buffer_bytes(routine.shapes[buffer]), readers_of[buffer]
        if not size:
            continue
        if op is None:
            holders.append(Holder("inputs", parameters[numbers[buffer]], size, tuple(readers), numbers[buffer]))
            continue
        kind = "results" if buffer in results else "temporaries"
        holders.append(Holder(kind, op.instruction, size, tuple(readers), results.get(buffer, -1)))
    return tuple(holders)
