"""Which operations make their outputs in the memory of inputs that nothing needs any more: kernels that update an operand in place, and loops their state.

Such a kernel begins as a copy of the operand and a launch on the copy; where the memory may be taken, the copy becomes an alias. Within a routine the memory must be its own. The state
of a loop belongs to the loop: it has been copied before, where that was needed, so that the body may make a leaf of its result in the memory in which it got that leaf.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hlo_opt.ops import OpKind, find
from hlo_opt.runtime.schedule.lifetimes import callees_first, lifetimes
from hlo_opt.runtime.schedule.ops import Alias, Branch, Call, Copy, Launch, Loop, Op, Routine, RoutineKey


def with_donations(routines: Mapping[RoutineKey, Routine]) -> dict[RoutineKey, Routine]:
    """The routines, the operations of which say what memory they take, in the same order."""
    done: dict[RoutineKey, Routine] = {}
    shared = _run_otherwise(routines)
    for key in callees_first(routines):
        owner = _owning(_with_loops(routines[key], done))
        done[key] = owner if key in shared else _donating(owner)
    return {key: done[key] for key in routines}


def _run_otherwise(routines: Mapping[RoutineKey, Routine]) -> set[RoutineKey]:
    """The routines that are not, or not only, bodies of loops."""
    found = {next(iter(routines))}
    for routine in routines.values():
        for op in routine.ops:
            if isinstance(op, Loop):
                found.add(op.condition)
            elif isinstance(op, Branch):
                found.update(op.branches)
    return found


def _with_loops(routine: Routine, done: Mapping[RoutineKey, Routine]) -> Routine:
    """The routine, whose loops say what their bodies do to the state."""
    ops = [
        replace(op, unchanged=_unchanged(done[op.body]), updated=done[op.body].donated) if isinstance(op, Loop) else op
        for op in routine.ops
    ]
    return replace(routine, ops=tuple(ops))


def _unchanged(routine: Routine) -> tuple[int, ...]:
    """The leaves that a routine, as the body of a loop, returns as it got them."""
    root = lifetimes(routine.ops, routine.shapes).root
    leaves = enumerate(zip(routine.inputs, routine.results, strict=False))
    return tuple(k for k, (i, r) in leaves if root[r] == i and k not in routine.donated)


@dataclass(frozen=True)
class _Wish:
    """A memory that an operation may take.

    reader          position of the launch or loop that would update it
    source, output  buffers: the memory's name so far, and its next one
    at, leaf        position of the copy that is then left out; of a loop its own, and the number of the leaf
    """

    reader: int
    source: int
    output: int
    at: int
    leaf: int = -1


def _wishes(ops: Sequence[Op]) -> list[_Wish]:
    launches = {b: position for position, op in enumerate(ops) if isinstance(op, Launch) for b in op.outputs}
    found: list[_Wish] = []
    for position, op in enumerate(ops):
        if isinstance(op, Copy):
            (source,), (output,) = op.inputs, op.outputs
            launch = ops[launches[output]]
            assert isinstance(launch, Launch)
            if launch.outputs.index(output) in launch.kernel.own:
                found.append(_Wish(launches[output], source, output, position))
        elif isinstance(op, Loop):
            leaves = enumerate(zip(op.inputs, op.outputs, strict=True))
            found += [_Wish(position, i, o, position, k) for k, (i, o) in leaves if k not in op.unchanged]
    return found


def _granted(routine: Routine, wishes: Sequence[_Wish]) -> Routine:
    """The routine in which wishes come true."""
    ops = list(routine.ops)
    for wish in wishes:
        op = ops[wish.at]
        if isinstance(op, Loop):
            ops[wish.at] = replace(op, owned=(*op.owned, wish.leaf))
        else:
            ops[wish.at] = Alias(op.instruction, op.inputs, op.outputs, is_view=False)
    return replace(routine, ops=tuple(ops))


def _reads_only(op: Op) -> bool:
    """Whether no result is a view of what the operation reads. Those of other library calls may be."""
    if isinstance(op, Call):
        spec = find(op.instruction.opcode)
        return spec is not None and spec.kind is OpKind.CONTRACTION
    return isinstance(op, Launch | Alias | Copy)


def _is_free(memory: int, wish: _Wish, ops: Sequence[Op], root: Sequence[int]) -> bool:
    """Whether the reader of a wish reads a memory once, and nothing else can see it then or later. What other control flow and libraries read may live on as their results."""
    for position, op in enumerate(ops):
        if position == wish.at != wish.reader:
            continue  # the copy
        count = [root[b] for b in op.inputs].count(memory)
        if count and (position > wish.reader or (position == wish.reader and count > 1)):
            return False
        if count and position < wish.reader and not _reads_only(op):
            return False
    return True


def _owning(routine: Routine) -> Routine:
    """What may be made in the memory of another kernel's output."""
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
                made.add(wish.output)  # the loop's own memory, not something that its body got from elsewhere
    return _granted(routine, granted)


def _donating(routine: Routine) -> Routine:
    """And what a body of loops may make in the memory in which it gets a leaf of the state: it is that leaf of the result, and of no other."""
    ops = routine.ops
    root = lifetimes(ops, routine.shapes).root
    returned = [root[b] for b in routine.results]
    numbers = {b: k for k, b in enumerate(routine.inputs)}
    granted: dict[int, _Wish] = {}
    for wish in _wishes(ops):
        memory, made = root[wish.source], root[wish.output]
        k = numbers.get(memory, -1)
        if k < 0 or k in granted or memory in returned or made != returned[k] or returned.count(made) > 1:
            continue
        if _is_free(memory, wish, ops, root):
            granted[k] = wish
    return replace(_granted(routine, list(granted.values())), donated=tuple(sorted(granted)))
