"""Who owns each buffer's memory, how long it is needed, and what follows: placement, peak memory, donation.

Peak memory is known before anything is built or allocated. Donation decides which operations write their outputs into
the memory of dead inputs: kernels that update an operand in place, and loops their state. Such a kernel is lowered to
a copy of the operand and a launch on the copy; where the memory may be reused, the copy becomes an alias. Within a
routine the memory must be its own, or an input's that the module's header donates (`input_output_alias`). A loop owns
its state (copied before, if necessary), so that the body may write a result leaf into the memory of the same leaf.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hlo_opt.evaluate.memory import Peak, refuse_more, scratch_bytes
from hlo_opt.ir import Shape
from hlo_opt.ops import OpKind, find
from hlo_opt.runtime.schedule.ops import (
    Alias,
    Branch,
    Buffers,
    Call,
    Constant,
    Copy,
    Free,
    Launch,
    Loop,
    Op,
    Routine,
    RoutineKey,
    callees,
    made_by,
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
    made  for each operation, the buffers that get memory of their own
    dead  for each operation, the buffers of these whose memory is dead from here on, under any alias
    """

    root: Sequence[int]
    made: Sequence[Buffers]
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
    """By output, the input whose memory it uses."""
    if isinstance(op, Alias):
        return {op.outputs[0]: op.inputs[0]}
    if isinstance(op, Loop):
        return {op.outputs[k]: op.inputs[k] for k in (*(op.unchanged if shares_unchanged else ()), *op.owned)}
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


_NOTHING = Peak(0, None)


def check_schedule(schedule: Schedule, limit: int | None, *, devices: int = 1) -> None:
    """Raises EvaluationError (HLO402) if running the schedule on `devices` devices at once would exceed the limit in
    bytes (None: unlimited)."""
    if limit is not None:
        peak = peak_of(schedule)
        at = peak.at or schedule.entry.computation.root
        refuse_more(Peak(devices * peak.bytes, at), limit, devices=devices)


def peak_of(schedule: Schedule) -> Peak:
    """The peak memory of a run: inputs, constants (which are kept) and buffers; finally the outputs twice, because the
    caller gets copies."""
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
    """The peak of one routine and its callees, without its caller's memory.

    Unchanged loop state counts twice: backends place loop state differently, and the estimate must not be below any.
    """
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
    """Bytes that a call holds until its results are in place."""
    return own + scratch_bytes(op.instruction, 0) if isinstance(op, Call) else 0


def with_donations(routines: Mapping[RoutineKey, Routine], given: Mapping[int, int]) -> dict[RoutineKey, Routine]:
    """The routines with donation decided, in the same order. `given`: the results, by number of an entry input, that
    may use the input's memory."""
    done: dict[RoutineKey, Routine] = {}
    shared, entry = _run_otherwise(routines), next(iter(routines))
    for key in callees_first(routines):
        owner = _owning(_with_loops(routines[key], done))
        leaves = dict(given) if key == entry else {} if key in shared else {k: k for k in range(len(owner.inputs))}
        done[key] = _donating(owner, leaves)
    return {key: done[key] for key in routines}


def _run_otherwise(routines: Mapping[RoutineKey, Routine]) -> set[RoutineKey]:
    """The routines that are not, or not only, loop bodies."""
    keys = {next(iter(routines))}
    for routine in routines.values():
        for op in routine.ops:
            if isinstance(op, Loop):
                keys.add(op.condition)
            elif isinstance(op, Branch):
                keys.update(op.branches)
    return keys


def _with_loops(routine: Routine, done: Mapping[RoutineKey, Routine]) -> Routine:
    """The routine, with each loop's `unchanged` and `updated` set from its body."""
    ops = [
        replace(op, unchanged=_unchanged(done[op.body]), updated=tuple(k for k, _ in done[op.body].donated))
        if isinstance(op, Loop)
        else op
        for op in routine.ops
    ]
    return replace(routine, ops=tuple(ops))


def _unchanged(routine: Routine) -> tuple[int, ...]:
    """The leaves that a routine, as a loop body, returns unchanged."""
    root = lifetimes(routine.ops, routine.shapes).root
    leaves = enumerate(zip(routine.inputs, routine.results, strict=False))
    return tuple(k for k, (i, r) in leaves if root[r] == i and (k, k) not in routine.donated)


@dataclass(frozen=True)
class _Wish:
    """A reuse of memory that an operation could make.

    reader          position of the launch or loop that would update the memory
    source, output  buffers: the memory's current name, and the next one
    at, leaf        position of the copy that becomes unnecessary; for loops the loop's position, and the leaf's number
    """

    reader: int
    source: int
    output: int
    at: int
    leaf: int = -1


def _wishes(ops: Sequence[Op]) -> list[_Wish]:
    launches = {b: position for position, op in enumerate(ops) if isinstance(op, Launch) for b in op.outputs}
    wishes: list[_Wish] = []
    for position, op in enumerate(ops):
        if isinstance(op, Copy):
            (source,), (output,) = op.inputs, op.outputs
            launch = ops[launches[output]]
            assert isinstance(launch, Launch)
            if launch.outputs.index(output) in launch.kernel.own:
                wishes.append(_Wish(launches[output], source, output, position))
        elif isinstance(op, Loop):
            leaves = enumerate(zip(op.inputs, op.outputs, strict=True))
            wishes += [_Wish(position, i, o, position, k) for k, (i, o) in leaves if k not in op.unchanged]
    return wishes


def _granted(routine: Routine, wishes: Sequence[_Wish]) -> Routine:
    """The routine with some reuses made."""
    ops = list(routine.ops)
    for wish in wishes:
        op = ops[wish.at]
        if isinstance(op, Loop):
            ops[wish.at] = replace(op, owned=(*op.owned, wish.leaf))
        else:
            ops[wish.at] = Alias(op.instruction, op.inputs, op.outputs, is_view=False)
    return replace(routine, ops=tuple(ops))


def _reads_only(op: Op) -> bool:
    """Whether no result can be a view of what the operation reads. Results of other library calls may be."""
    if isinstance(op, Call):
        spec = find(op.instruction.opcode)
        return spec is not None and spec.kind is OpKind.CONTRACTION
    return isinstance(op, Launch | Alias | Copy)


def _is_free(memory: int, wish: _Wish, ops: Sequence[Op], root: Sequence[int]) -> bool:
    """Whether the reader of a wish reads a memory once, and nothing else needs it then or later. Results of control
    flow and library calls may share the memory of their inputs."""
    for position, op in enumerate(ops):
        if position == wish.at != wish.reader:
            continue  # the copy itself
        count = [root[b] for b in op.inputs].count(memory)
        if count and (position > wish.reader or (position == wish.reader and count > 1)):
            return False
        if count and position < wish.reader and not _reads_only(op):
            return False
    return True


def _owning(routine: Routine) -> Routine:
    """Decide reuse of the memory of kernel outputs."""
    ops = routine.ops
    root = lifetimes(ops, routine.shapes).root
    made = {b for op in ops if isinstance(op, Launch) for b in op.outputs}
    kept = {root[b] for b in routine.results}
    granted: list[_Wish] = []
    for wish in _wishes(ops):
        memory = root[wish.source]
        if memory in made and memory not in kept and _is_free(memory, wish, ops, root):
            granted.append(wish)
            loop = ops[wish.at]
            if isinstance(loop, Loop) and wish.leaf in loop.updated:
                made.add(wish.output)  # memory owned by the loop, not passed through by its body
    return _granted(routine, granted)


def _donating(routine: Routine, leaves: Mapping[int, int]) -> Routine:
    """Decide reuse of the memory of inputs, each only for the result whose number `leaves` gives."""
    ops = routine.ops
    root = lifetimes(ops, routine.shapes).root
    returned = [root[b] for b in routine.results]
    numbers = {b: k for k, b in enumerate(routine.inputs)}
    granted: dict[int, _Wish] = {}
    for wish in _wishes(ops):
        memory, made = root[wish.source], root[wish.output]
        k = numbers.get(memory, -1)
        if k not in leaves or k in granted or memory in returned:
            continue
        if made != returned[leaves[k]] or returned.count(made) > 1:
            continue
        if _is_free(memory, wish, ops, root):
            granted[k] = wish
    return replace(_granted(routine, list(granted.values())), donated=tuple((k, leaves[k]) for k in sorted(granted)))
