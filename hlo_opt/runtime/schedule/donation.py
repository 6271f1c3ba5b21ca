"""Which operations write their outputs into the memory of inputs that nothing needs any more. Backends, drivers and
reports read what is decided here.

Within a routine the memory must be its own, or an input's that the module's header donates (`input_output_alias`). A
loop owns its state (copied before, if necessary), so that the body may write a result leaf into the memory of the same
leaf. There are three ways:

- A kernel that updates an operand in place is lowered to a copy of the operand and a launch on the copy; where the
  memory may be reused, the copy becomes an alias.
- A kernel whose threads read an operand only where they write (`hlo_opt.plans.in_place`) is emitted again for one
  memory of both.
- A kernel that runs after the last reader of an input writes there.

The last two spare memory, and no copy. So they serve memory without other owners: donated inputs, and state that a loop
owns where it begins.

Before that operations are put in an order that lets more of them do so (`hlo_opt.runtime.schedule.order`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.ir import Shape
from hlo_opt.ops import OpKind, find
from hlo_opt.plans.in_place import Sharing
from hlo_opt.runtime.schedule.lifetimes import buffer_bytes, callees_first, lifetimes
from hlo_opt.runtime.schedule.ops import (
    AliasOp,
    Allocate,
    BranchOp,
    CallOp,
    Copy,
    Free,
    LaunchOp,
    LoopOp,
    Op,
    Routine,
    RoutineKey,
    callees,
)
from hlo_opt.runtime.schedule.order import Wanted, rearranged, with_effects


class Kernels(Protocol):
    """Kernels, and the same kernels with outputs in the memory of operands."""

    def sharing(self, kernel: Kernel) -> Sharing: ...

    def in_place(self, kernel: Kernel, pairs: Sequence[tuple[int, int]]) -> Kernel: ...


def with_donations(
    routines: Mapping[RoutineKey, Routine], donated: Mapping[int, int], kernels: Kernels
) -> dict[RoutineKey, Routine]:
    """The routines with donation decided, in the same order. `donated`: the results, by number of an entry input, that
    may use the input's memory."""
    done: dict[RoutineKey, Routine] = {}
    owners: dict[RoutineKey, Routine] = {}
    shared, entry, acting = _run_otherwise(routines), next(iter(routines)), with_effects(routines)
    order = callees_first(routines)
    for key in order:
        routine = _with_callees(routines[key], done, owners)
        leaves = {} if key in shared else {k: k for k in range(len(routine.inputs))}
        into = donated if key == entry else leaves or _leading(routine)
        owner = owners[key] = _owning(rearranged(routine, _wanted(routine, into, kernels), acting))
        done[key] = _sharing(owner, donated, kernels) if key == entry else _donating(owner, leaves)
    for key in reversed(order):  # callers first: which state loops own is known
        owned = {} if key in shared else {k: k for k in _owned_by_all(key, done)}
        if owned:
            done[key] = _sharing(done[key], owned, kernels)
    done = {key: _with_callees(routine, done, owners) for key, routine in done.items()}
    return _with_variants({key: done[key] for key in routines}, owners)


def _owned_by_all(body: RoutineKey, done: Mapping[RoutineKey, Routine]) -> set[int]:
    """The leaves of the state that every loop with this body owns, and that the body neither hands on nor updates in
    place."""
    loops = [op for routine in done.values() for op in routine.ops if isinstance(op, LoopOp) and op.body == body]
    owned = [set(op.owned) - set(op.unchanged) - set(op.updated) for op in loops]
    return set.intersection(*owned) if owned else set()


def _run_otherwise(routines: Mapping[RoutineKey, Routine]) -> set[RoutineKey]:
    """The routines that are not, or not only, loop bodies."""
    keys = {next(iter(routines))}
    for routine in routines.values():
        for op in routine.ops:
            if isinstance(op, LoopOp):
                keys.add(op.condition)
            elif isinstance(op, BranchOp):
                keys.update(op.branches)
    return keys


def _with_callees(
    routine: Routine, done: Mapping[RoutineKey, Routine], owners: Mapping[RoutineKey, Routine]
) -> Routine:
    """The routine, with each loop's `unchanged` and `updated` set from its body, and `able` of conditionals from their
    branches, which `owners` has before anything is given away."""
    ops: list[Op] = []
    for op in routine.ops:
        if isinstance(op, LoopOp):
            body = done[op.body]
            op = replace(op, unchanged=_unchanged(body), updated=tuple(k for k, _ in body.donated))
        elif isinstance(op, BranchOp) and not op.held:
            op = replace(op, able=_able(op, [_given_away(owners[key]) for key in op.branches]))
        ops.append(op)
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
    at, leaf        position of the copy that becomes unnecessary, or where memory would be reused; for loops and
                    conditionals their position, and the number of the leaf
    pair            numbers of the output and the operand for which the kernel is emitted again; None: it stays as it is
    """

    reader: int
    source: int
    output: int
    at: int
    leaf: int = -1
    pair: tuple[int, int] | None = None


def _wishes(ops: Sequence[Op]) -> list[_Wish]:
    """The reuses that spare a copy."""
    launches = {b: position for position, op in enumerate(ops) if isinstance(op, LaunchOp) for b in op.outputs}
    wishes: list[_Wish] = []
    for position, op in enumerate(ops):
        if isinstance(op, Copy):
            (source,), (output,) = op.inputs, op.outputs
            launch = ops[launches[output]]
            assert isinstance(launch, LaunchOp)
            if launch.outputs.index(output) in launch.kernel.own:
                wishes.append(_Wish(launches[output], source, output, position))
        elif isinstance(op, LoopOp):
            leaves = enumerate(zip(op.inputs, op.outputs, strict=True))
            wishes += [_Wish(position, i, o, position, k) for k, (i, o) in leaves if k not in op.unchanged]
        elif isinstance(op, BranchOp) and not op.held:
            wishes += [_Wish(position, b, op.outputs[k], position, k) for k, b in op.able]
    return wishes


def _granted(routine: Routine, wishes: Sequence[_Wish], kernels: Kernels | None = None) -> Routine:
    """The routine with some reuses."""
    ops = list(routine.ops)
    allocated_again: dict[int, list[tuple[int, int]]] = {}
    for wish in wishes:
        op = ops[wish.at]
        if isinstance(op, LoopOp):
            ops[wish.at] = replace(op, owned=(*op.owned, wish.leaf))
        elif isinstance(op, BranchOp):
            ops[wish.at] = replace(op, held=(*op.held, (wish.leaf, wish.source)))
        else:
            ops[wish.at] = AliasOp(op.instruction, (wish.source,), op.outputs, is_view=False)
        if wish.pair is not None:
            allocated_again.setdefault(wish.reader, []).append(wish.pair)
    for position, pairs in allocated_again.items():
        launch = ops[position]
        assert isinstance(launch, LaunchOp) and kernels is not None
        ops[position] = replace(launch, kernel=kernels.in_place(launch.kernel, pairs))
    return replace(routine, ops=tuple(ops))


def _reads_only(op: Op) -> bool:
    """Whether no result can be a view of what the operation reads. Results of other library calls may be."""
    if isinstance(op, CallOp):
        spec = find(op.instruction.opcode)
        return spec is not None and spec.kind is OpKind.CONTRACTION
    return isinstance(op, LaunchOp | AliasOp | Copy)


def _needs(memory: int, wish: _Wish, ops: Sequence[Op], root: Sequence[int]) -> Op | None:
    """The operation that keeps a memory from the reader of a wish: it reads it later, or together with the reader, or
    its results may share it, as those of control flow and library calls may. None: the reader may have it."""
    for position, op in enumerate(ops):
        if position == wish.at != wish.reader:
            continue  # the copy itself
        count = [root[b] for b in op.inputs].count(memory)
        if count and position > wish.reader:
            return op
        if count > 1 and position == wish.reader and not _others_are_copied(wish, op, memory, root):
            return op
        if count and position < wish.reader and not _reads_only(op):
            return op
    return None


def _others_are_copied(wish: _Wish, op: Op, memory: int, root: Sequence[int]) -> bool:
    """Whether an operation is a loop that begins with copies of a memory for all leaves of its state but the wish's:
    one of the leaves may have the memory itself."""
    if not isinstance(op, LoopOp):
        return False
    return all(k == wish.leaf or k in op.copied for k, b in enumerate(op.inputs) if root[b] == memory)


def _owning(routine: Routine) -> Routine:
    """Decide reuse of the memory of kernel outputs."""
    ops = routine.ops
    root = lifetimes(ops, routine.shapes).root
    written = {b for op in ops if isinstance(op, LaunchOp) for b in op.outputs}
    kept = {root[b] for b in routine.results}
    granted: list[_Wish] = []
    given: set[tuple[int, int]] = set()
    for wish in _wishes(ops):
        memory = root[wish.source]
        if (memory, wish.reader) in given or memory not in written or memory in kept:
            continue
        if _needs(memory, wish, ops, root) is None:
            granted.append(wish)
            given.add((memory, wish.reader))
            at = ops[wish.at]
            if isinstance(at, BranchOp) or (isinstance(at, LoopOp) and wish.leaf in at.updated):
                written.add(wish.output)  # memory that the loop owns and its body does not pass through, or a branch's
    return _granted(routine, granted)


def _donating(routine: Routine, leaves: Mapping[int, int]) -> Routine:
    """Decide reuse of the memory of inputs that spares a copy, each only for the result whose number `leaves` gives."""
    ops = routine.ops
    root = lifetimes(ops, routine.shapes).root
    returned = [root[b] for b in routine.results]
    into = {root[wish.output]: wish for wish in _wishes(ops) if root[wish.output] != root[wish.source]}
    granted: dict[int, list[_Wish]] = {}
    for k, result in leaves.items():
        memory = routine.inputs[k]
        updates = _updates(memory, returned[result], into, root)
        if memory in returned or returned.count(returned[result]) > 1 or not updates:
            continue
        if any(root[wish.source] in returned or not _hands_on(wish, ops) for wish in updates[1:]):
            continue
        if all(_needs(root[wish.source], wish, ops, root) is None for wish in updates):
            granted[k] = updates
    donated = {**dict(routine.donated), **{k: leaves[k] for k in granted}}
    every = [wish for updates in granted.values() for wish in updates]
    return replace(_granted(routine, every), donated=tuple(sorted(donated.items())))


def _updates(memory: int, result: int, into: Mapping[int, _Wish], root: Sequence[int]) -> list[_Wish]:
    """The updates that lead from an input to a result, the last first; none where they do not. `into`: by the memory
    that they make."""
    updates: list[_Wish] = []
    while result != memory and result in into:
        wish = into[result]
        updates.append(wish)
        result = root[wish.source]
    return updates if result == memory else []


def _hands_on(wish: _Wish, ops: Sequence[Op]) -> bool:
    """Whether what is updated lies in the memory of the wish's source afterwards: not where a loop moves its state to
    and fro."""
    op = ops[wish.at]
    return not isinstance(op, LoopOp) or wish.leaf in op.updated


def _sharing(routine: Routine, leaves: Mapping[int, int], kernels: Kernels) -> Routine:
    """As `_donating`, and where no copy is spared: kernels write into the memory of inputs. Says of the inputs that are
    left why."""
    routine = _donating(routine, leaves)
    root = lifetimes(routine.ops, routine.shapes).root
    granted: dict[int, _Wish] = {}
    apart: dict[int, str] = {}
    for k, result in sorted(leaves.items()):
        if k in dict(routine.donated):
            continue
        wish = _wish_for(routine, root, k, result, kernels)
        if isinstance(wish, str):
            apart[k] = wish
        elif any(leaves[other] == result for other in granted):  # a header that is not verified
            apart[k] = "another input holds the result"
        else:
            granted[k] = wish
    donated = {**dict(routine.donated), **{k: leaves[k] for k in granted}}
    shared = _granted(routine, list(granted.values()), kernels)
    return replace(shared, donated=tuple(sorted(donated.items())), apart=tuple(apart.items()))


def _wish_for(routine: Routine, root: Sequence[int], k: int, result: int, kernels: Kernels) -> _Wish | str:
    """How a result uses the memory of an input, or why it does not, in words."""
    ops, shapes = routine.ops, routine.shapes
    memory, returned = routine.inputs[k], [root[b] for b in routine.results]
    output = returned[result]
    if output == memory:
        return "it is the result itself"
    if memory in returned:
        return f"it is result {returned.index(memory)} as it stands"
    if returned.count(output) > 1:
        return "the result is another one, too"
    at = next((n for n, op in enumerate(ops) if output in op.outputs and not isinstance(op, LaunchOp)), -1)
    reader = next((n for n, op in enumerate(ops) if output in op.outputs and isinstance(op, LaunchOp)), -1)
    if at < 0 or reader < 0 or not isinstance(ops[at], Allocate):
        maker = next((op.instruction.name for op in ops if output in op.outputs), "")
        return f"`{maker}`, which makes the result, is no kernel" if maker else "the result is a value that was there"
    launch, shape, source = ops[reader], shapes[output], shapes[memory]
    assert isinstance(launch, LaunchOp)
    name = launch.instruction.name
    if not _of_one_size(shape, source):
        return f"the result is {shape.without_layout()}, the input {source.without_layout()}"
    needed_by = _needs(memory, _Wish(reader, memory, output, at), ops, root)
    if needed_by is launch:
        return f"`{name}`, which makes the result, reads it as two operands"
    if needed_by is not None:
        return f"`{needed_by.instruction.name}` needs it after `{name}` has made the result"
    read = [number for number, b in enumerate(launch.inputs) if root[b] == memory]
    if not read:
        return _Wish(reader, memory, output, at)
    pair = (launch.outputs.index(output), read[0])
    if pair not in kernels.sharing(launch.kernel):
        return f"`{name}`, which makes the result, reads it at other elements than it writes"
    return _Wish(reader, memory, output, at, pair=pair)


def _wanted(routine: Routine, leaves: Mapping[int, int], kernels: Kernels) -> list[Wanted]:
    """The orders that would let memory be reused: of kernel outputs, and of inputs for the results whose numbers
    `leaves` gives."""
    ops, shapes = routine.ops, routine.shapes
    root = lifetimes(ops, shapes).root
    readers: dict[int, list[int]] = defaultdict(list)
    for position, op in enumerate(ops):
        for b in op.inputs:
            readers[root[b]].append(position)
    returned = Counter(root[b] for b in routine.results)
    wishes = _wishes(ops)
    given, left = _given(routine, leaves, root, wishes)
    own = {b for op in ops if isinstance(op, LaunchOp) for b in op.outputs}
    wanted: list[Wanted] = []
    for wish in wishes:
        memory, op = root[wish.source], ops[wish.at]
        if isinstance(op, BranchOp) or (isinstance(op, LoopOp) and wish.leaf in op.updated):
            own.add(wish.output)
        if (memory in own and not returned[memory]) or given.get(memory) == wish.output:
            spares = not isinstance(op, LoopOp) or wish.leaf in op.updated
            wanted += _order_for(wish, readers[memory], memory, routine, spares_copy=spares)
    for k, result in left.items():
        memory, output = routine.inputs[k], root[routine.results[result]]
        at = next((n for n, op in enumerate(ops) if isinstance(op, Allocate) and output in op.outputs), -1)
        reader = next((n for n, op in enumerate(ops) if isinstance(op, LaunchOp) and output in op.outputs), -1)
        if at < 0 or not _of_one_size(shapes[output], shapes[memory]):
            continue
        for order in _order_for(_Wish(reader, memory, output, at), readers[memory], memory, routine, spares_copy=False):
            launch = ops[reader]
            assert isinstance(launch, LaunchOp)
            read = [number for number, b in enumerate(launch.inputs) if root[b] == memory]
            if order.is_so or not read or (launch.outputs.index(output), read[0]) in kernels.sharing(launch.kernel):
                wanted.append(order)
    return wanted


def _leading(routine: Routine) -> dict[int, int]:
    """By the number of an input, the result that updates in place lead to from it, or that is the input itself."""
    root = lifetimes(routine.ops, routine.shapes).root
    made_in = {wish.output: root[wish.source] for wish in _wishes(routine.ops)}
    numbers = {b: k for k, b in enumerate(routine.inputs)}
    leading: dict[int, int] = {}
    for result, b in enumerate(routine.results):
        memory = root[b]
        while memory in made_in:
            memory = made_in[memory]
        if memory in numbers:
            leading.setdefault(numbers[memory], result)
    return leading


def _given_away(branch: Routine, pairs: Mapping[int, int] | None = None) -> Routine:
    """A branch whose caller gives inputs away for results: these pairs, or all that can be."""
    root = lifetimes(branch.ops, branch.shapes).root
    returned = [root[b] for b in branch.results]
    leading = _leading(branch) if pairs is None else pairs
    as_they_are = {
        k: r for k, r in leading.items() if returned[r] == branch.inputs[k] and returned.count(returned[r]) == 1
    }
    donating = _donating(branch, leading)
    return replace(donating, donated=tuple(sorted({**as_they_are, **dict(donating.donated)}.items())))


def _able(op: BranchOp, branches: Sequence[Routine]) -> tuple[tuple[int, int], ...]:
    """What all branches can make in the memory of the same argument."""
    able: set[tuple[int, int]] | None = None
    for branch, arguments in zip(branches, op.arguments, strict=True):
        pairs = {(r, arguments[k]) for k, r in branch.donated if arguments.count(arguments[k]) == 1}
        able = pairs if able is None else able & pairs
    return tuple(sorted(able or ()))


def _with_variants(
    done: Mapping[RoutineKey, Routine], owners: Mapping[RoutineKey, Routine]
) -> dict[RoutineKey, Routine]:
    """The routines that run, with branches in the form in which their callers give arguments away."""
    finished: dict[RoutineKey, Routine] = {}
    todo = [next(iter(done))]
    while todo:
        key = todo.pop()
        if key in finished:
            continue
        routine = done.get(key)
        if routine is None:
            plain = replace(key, donated=())
            given = _given_away(owners[plain], dict(key.donated))
            assert given.donated == key.donated, plain.computation.name
            routine = _with_callees(given, done, owners)
        routine = replace(routine, ops=tuple(_of_variants(op) for op in routine.ops))
        finished[key] = routine
        todo += [callee for op in reversed(routine.ops) for callee in reversed(callees(op))]
    return finished


def _of_variants(op: Op) -> Op:
    """A conditional with the keys of its branches as `held` says."""
    if not isinstance(op, BranchOp) or not op.held:
        return op
    keys = [
        replace(key, donated=tuple(sorted((arguments.index(b), number) for number, b in op.held)))
        for key, arguments in zip(op.branches, op.arguments, strict=True)
    ]
    return replace(op, branches=tuple(keys))


def _given(
    routine: Routine, leaves: Mapping[int, int], root: Sequence[int], wishes: Sequence[_Wish]
) -> tuple[dict[int, int], dict[int, int]]:
    """By the memory of an input, the first of the updates in place that lead to its result; and, of `leaves`, the
    inputs whose result no such updates lead to."""
    returned = Counter(root[b] for b in routine.results)
    source = {wish.output: root[wish.source] for wish in wishes}
    given: dict[int, int] = {}
    left: dict[int, int] = {}
    for k, result in leaves.items():
        memory, output = routine.inputs[k], root[routine.results[result]]
        if returned[memory] or returned[output] > 1:
            continue
        while source.get(output, memory) != memory:
            output = source[output]
        if output in source:
            given[memory] = output
        else:
            left[k] = result
    return given, left


def _order_for(
    wish: _Wish, readers: Sequence[int], memory: int, routine: Routine, *, spares_copy: bool
) -> Iterator[Wanted]:
    """The order that grants a wish, if one can."""
    others = tuple(dict.fromkeys(n for n in readers if n != wish.reader and not n == wish.at != wish.reader))
    is_single = readers.count(wish.reader) <= 1
    if is_single and all(_reads_only(routine.ops[n]) for n in others):
        held = buffer_bytes(routine.shapes[memory])
        yield Wanted(wish.reader, others, held if spares_copy else 0, held)


def _of_one_size(result: Shape, source: Shape) -> bool:
    """Whether a result may lie in the memory of an input: as many elements of one type, of whole bytes."""
    return result.type is source.type and result.element_count == source.element_count and source.type.per_byte <= 1


def without_donations(entry: Routine, apart: Mapping[Kernel, Kernel]) -> Routine:
    """The entry for a caller who keeps the inputs: results get memory of their own, with the input's elements in it
    only where a kernel or a loop updates them. `apart` is that of the schedule, if the kernels in it can be launched;
    else kernels for one memory run on copies."""
    if not entry.donated:
        return entry
    inputs = set(entry.inputs)
    root, updated, launched = list(range(len(entry.shapes))), set(), {}
    for launch in entry.ops:
        if isinstance(launch, LaunchOp):
            kernel = launched[launch] = apart.get(launch.kernel, launch.kernel)
            updated |= {launch.outputs[output] for output, _ in kernel.aliases}
    ops: list[Op] = []
    shapes, freed = list(entry.shapes), list[int]()
    for op in entry.ops:
        if isinstance(op, AliasOp):
            (source,), (output,) = op.inputs, op.outputs
            if op.is_view or root[source] not in inputs:
                root[output] = root[source]
            elif output in updated:
                op = Copy(op.instruction, op.inputs, op.outputs)
            else:
                op = Allocate(op.instruction, (), op.outputs)
        elif isinstance(op, LoopOp):
            op = replace(op, owned=tuple(k for k in op.owned if root[op.inputs[k]] not in inputs))
            for k in (*op.unchanged, *op.owned):
                root[op.outputs[k]] = root[op.inputs[k]]
        elif isinstance(op, BranchOp):
            for number, b in op.held:
                if root[b] in inputs:
                    copy = len(shapes)
                    shapes.append(shapes[b])
                    root.append(copy)
                    ops.append(Copy(op.instruction, (b,), (copy,)))
                    freed.append(copy)
                    op = op.with_argument(b, copy)
                    b = copy
                root[op.outputs[number]] = root[b]
        elif isinstance(op, LaunchOp):
            op = replace(op, kernel=launched[op])
        ops.append(op)
        if freed:
            ops.append(Free(op.instruction, tuple(freed), ()))
            freed = []
    return replace(entry, shapes=tuple(shapes), ops=tuple(ops), donated=())
