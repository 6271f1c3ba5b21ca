"""How many bytes a schedule holds at once, told before anything is built or allocated: buffers with their lifetimes, and what library calls take besides."""

from __future__ import annotations

from collections.abc import Mapping

from hlo_opt.evaluate.memory import Peak, refuse_more
from hlo_opt.evaluate.scratch import scratch_bytes
from hlo_opt.runtime.schedule.lifetimes import buffer_bytes, callees_first, lifetimes
from hlo_opt.runtime.schedule.lowering import Schedule
from hlo_opt.runtime.schedule.ops import Branch, Call, Constant, Op, Routine, RoutineKey, callees

_NOTHING = Peak(0, None)


def check_schedule(schedule: Schedule, limit: int | None, *, devices: int = 1) -> None:
    """Raises EvaluationError (HLO402) where a run of the schedule, on so many devices at once, would hold more bytes than the limit (None: any number)."""
    if limit is not None:
        found = peak_of(schedule)
        at = found.at or schedule.entry.computation.root
        refuse_more(Peak(devices * found.bytes, at), limit, devices=devices)


def peak_of(schedule: Schedule) -> Peak:
    """Inputs, constants (which are kept) and buffers; at the end the outputs once more, as the caller gets them."""
    peaks: dict[RoutineKey, Peak] = {}
    for key in callees_first(schedule.routines):
        peaks[key] = _peak(schedule.routines[key], peaks)
    entry = schedule.entry
    kept = sum(buffer_bytes(entry.shapes[b]) * (1 if entry.shapes[b].is_row_major else 2) for b in entry.inputs)
    kept += sum(
        buffer_bytes(r.shapes[b])
        for r in schedule.routines.values()
        for op in r.ops
        if isinstance(op, Constant)
        for b in op.outputs
    )
    own = [b for b in entry.results if b not in entry.inputs]
    at_the_end = sum(buffer_bytes(entry.shapes[b]) for b in (*own, *entry.results))
    inner = peaks[next(iter(schedule.routines))]
    if at_the_end > inner.bytes:
        return Peak(kept + at_the_end, entry.computation.root)
    return Peak(kept + inner.bytes, inner.at)


def _peak(routine: Routine, known: Mapping[RoutineKey, Peak]) -> Peak:
    """The peak of one routine, and of what it runs, without the memory of its caller. What a loop hands on unchanged counts once more: backends find places for a state in ways of their
    own, and the estimate should not be below any."""
    sizes = [buffer_bytes(shape) for shape in routine.shapes]
    lives = lifetimes(routine.ops, routine.shapes, shares_unchanged=False)
    alive, best = 0, _NOTHING
    for op, made, dead in zip(routine.ops, lives.made, lives.dead, strict=True):
        own = sum(sizes[b] for b in made)
        inner = max((known[k] for k in callees(op)), key=lambda p: p.bytes, default=_NOTHING)
        more = max(own, inner.bytes) if isinstance(op, Branch) else own + inner.bytes + _besides(op, own)
        if alive + more > best.bytes:
            best = Peak(alive + more, inner.at if inner.bytes > own and inner.at else op.instruction)
        alive += own - sum(sizes[b] for b in dead)
    return best


def _besides(op: Op, own: int) -> int:
    """What a call holds until its results are where they belong."""
    return own + scratch_bytes(op.instruction, 0) if isinstance(op, Call) else 0
