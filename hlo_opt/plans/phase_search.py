"""The search for the phases of a loop whose threads run all rounds together.

An operation that reads many elements for one of its own is a cell. So is a value whose elements would be computed more
than once. Reads are counted from the results of a round upwards.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from dataclasses import replace

from hlo_opt.ir import IndexMap, Instruction, Module, edit
from hlo_opt.ops.sets import combines_updates, looped, tuple_elements, tuple_index, written_window
from hlo_opt.ops.spec import OpKind, find
from hlo_opt.plans.instructions import NOTHING, Work, of_fold, of_value, takes_long
from hlo_opt.plans.lane_loop import CarriedValue, Results
from hlo_opt.plans.lane_search import Search
from hlo_opt.plans.limits import LARGEST, values_computed
from hlo_opt.plans.opened_loop import Opened, by_itself, opened_of
from hlo_opt.plans.phases import Phases, StoredValue, below
from hlo_opt.plans.plan import Region
from hlo_opt.plans.products import terms_of
from hlo_opt.plans.walks import AHEAD

MOST_CELLS = 64
MOST_PAIRS = 1 << 16
"""Limit of pairs of an element and an update of a scatter, above which elements do not look at all updates."""
NEAR = 4
"""The most instructions for an index or an update of a scatter that its thread computes: updates that follow each other
wait for them."""
ANSWER = 8
"""The latency of shared memory and L1, in dependent instructions."""


def of_region(region: Region, pulls: int = MOST_PAIRS, *, scatters: bool = False) -> Search | None:
    """The search for a region that is one loop; None for any other region. `pulls` and `scatters`: see `Round`."""
    loops = [i for i in region.computation.instructions if looped(i) is not None]
    if len(loops) != 1:
        return None
    positions = [tuple_index(root) if loops[0] in root.operands else None for root in region.roots]
    numbers = [number for number in positions if number is not None]
    if len(numbers) != len(positions) or len(set(numbers)) != len(numbers):
        return None
    opened = opened_of(loops[0], written_out=False, pulls=pulls, scatters=scatters, keeps=takes_long)
    return None if opened is None else Search(opened, numbers, region.parameters)


def of_loop(module: Module, loop: Instruction, *, scatters: bool = False) -> Search | None:
    """The search for a loop of a module; None if it cannot be opened."""
    opened = opened_of(by_itself(module, loop), written_out=False, pulls=MOST_PAIRS, scatters=scatters)
    return None if opened is None else Search(opened, opened.read_of(loop))


def cut(
    search: Search,
    longest: float = math.inf,
    *,
    largest: float = math.inf,
    in_place: bool = False,
    repeated: float = 0.0,
) -> Phases | None:
    """The phases of a loop; None where it cannot be cut. Changes the round of `search.opened`, so that it can be called
    only once for a search. `longest`: the most dependent instructions that are computed again for another cell.
    `largest`: the most elements of a carried value. `in_place`: of carried values of which a round writes windows, only
    these are written. `repeated`: the most instructions that an element computes of a value that others compute, too,
    instead of reading it from a cell."""
    opened, trips = search.opened, search.trips
    if any(n not in opened.parameters for n in search.numbers) or any(
        i.shape.is_tuple and tuple_elements(i) is None for i in opened.round.instructions
    ):
        return None
    written = {n: update for n, update in opened.results.items() if search.is_written_only(n)}
    aliases = search.aliases_of(written)
    results = tuple(
        Results(n, update, (), search.before(n, update, aliases))
        for n, update in written.items()
        if n in search.numbers
    )
    values = [
        CarriedValue(
            n, opened.initial[n], parameter, opened.results[n], (), None if trips is None else search.counts(n)
        )
        for n, parameter in opened.parameters.items()
        if n not in written
    ]
    state = [v for v in values if v.counts is None]
    if not state or any(v.parameter.shape.element_count > largest for v in state):
        return None
    asked = [opened.test] if trips is None else []
    updates = {v.number: _windows(opened, v) for v in state} if in_place else {}
    written_in = tuple(Results(n, update, (), None) for n, windows in updates.items() for update in windows)
    ends = [v.result for v in state if not updates.get(v.number)] + _read_late(opened, state, written_in)
    cells = _cells(opened, [*ends, *asked], [*results, *written_in], longest, repeated)
    if cells is None:
        return None
    phases, stands = _phased(opened, cells)
    for update in written_in:  # one that reads a carried value as it is: another update may have written there
        for position, operand in enumerate(update.update.operands[1:], 1):
            if operand.parent is opened.round:
                edit.replace_operand(update.update, position, stands.get(operand, operand))
    carried = tuple(replace(v, result=stands.get(v.result, v.result)) if v.counts is None else v for v in values)
    operands = {o for i in opened.round.instructions for o in i.operands}
    used = {*operands, *(c.value for phase in phases for c in phase)}
    kept = tuple(
        StoredValue(opened.initial[n], stand, NOTHING, 0, 1) for n, stand in opened.kept.items() if stand in used
    )
    read = {o for o in operands if o.parent is not opened.round and o.shape.rank and o.literal is None}
    shapes = [v.parameter.shape for v in state] + [c.value.shape for cells in (kept, *phases) for c in cells]
    moved = [*shapes, *(r.window for r in (*results, *written_in)), *(o.shape for o in read)]
    if any(s.type.per_byte > 1 for s in shapes) or not all(s.element_count for s in moved):
        return None
    ends = [c.value for phase in phases for c in phase]
    ends += [o for r in (*results, *written_in) for o in r.update.operands[1:]]
    number = values_computed(Region(opened.loop, opened.round, tuple(opened.round.parameters), tuple(ends)), LARGEST)
    if number > LARGEST:
        return None
    return Phases(
        hero=opened.loop,
        roots=tuple(range(len(search.numbers))),
        numbers=tuple(search.numbers),
        values=carried,
        results=results,
        phases=phases,
        round=opened.round,
        read=tuple(o for o in opened.initial if o in read),
        kept=kept,
        trips=trips,
        rounds=search.rounds,
        test=stands[opened.test] if trips is None else None,
        aliases=aliases,
        origins=opened.origins,
        updates=written_in,
    )


def _windows(opened: Opened, value: CarriedValue) -> list[Instruction]:
    """The operations by which a round writes windows into a carried value, in order, if it does nothing else with it,
    and nothing reads the value between them or after."""
    results = [*opened.results.values(), opened.test]
    windows: list[Instruction] = []
    there = value.result
    while written_window(there) is not None and there.parent is opened.round and there.shape == value.parameter.shape:
        readers = [o for i in opened.round.instructions for o in i.operands if o is there]
        if len(readers) != len(windows[:1]) or results.count(there) != (not windows):
            return []
        windows.insert(0, there)
        there = there.operands[0]
    return windows if there is value.parameter and there not in results else []


def _read_late(opened: Opened, state: Sequence[CarriedValue], updates: Sequence[Results]) -> list[Instruction]:
    """What updates read that depends on the state: it must be there before the first of them writes."""
    changing = {v.parameter for v in state}
    operands = dict.fromkeys(o for update in updates for o in update.update.operands[1:] if o.parent is opened.round)
    return [o for o in operands if not changing.isdisjoint(below(o, opened.round))]


def _is_movement(i: Instruction) -> bool:
    spec = find(i.opcode)
    return spec is not None and spec.kind in (OpKind.MOVEMENT, OpKind.INDEXING)


def _cells(
    opened: Opened, ends: Sequence[Instruction], results: Sequence[Results], longest: float, repeated: float
) -> list[Instruction] | None:
    """The values of a round that are cells, operands first; None where an operation has no index map."""
    inside = opened.round
    shared = _shared(opened, ends, longest)
    cells = set(ends)
    times: dict[Instruction, float] = dict.fromkeys(ends, 0.0)
    for result in results:
        for operand in result.update.operands[1:]:
            times[operand] = times.get(operand, 0.0) + 1.0
    updates = {result.update for result in results}
    for i in reversed(list(inside.instructions)):
        if (
            i in updates
            or i.parameter_number is not None
            or i.literal is not None
            or (i not in times and i not in cells)
        ):
            continue
        spec = find(i.opcode)
        if spec is None or (spec.index is None and spec.kind is not OpKind.ELEMENTWISE and i.operands):
            return None
        is_near = spec.kind is OpKind.ELEMENTWISE
        is_again = times[i] > 1.01 or i in shared
        if terms_of(i) > 1 or combines_updates(i):
            cells.add(i)
            cells.update(_needed_by(opened, i) if combines_updates(i) else ())
        elif is_again and i.shape.element_count > 1 and not _is_movement(i) and i.operands:
            widest = max((cell.shape.element_count for cell in cells), default=0)
            if _weight(opened, i, repeated) * times[i] * i.shape.element_count > repeated * widest:
                cells.add(i)
        for number, operand in enumerate(i.operands):
            if operand.parent is not inside:
                continue
            read = None if spec.index is None else spec.index(i, number)
            here = i.shape.element_count * (1.0 if read is None else math.prod(read.symbols) * _share(read))
            if combines_updates(i) and number:
                here = i.operands[-1].shape.element_count
            reads = here / max(1, operand.shape.element_count) * (1.0 if i in cells else max(1.0, times[i]))
            before = times.get(operand, 0.0)
            times[operand] = max(before, reads) if is_near else before + reads
    return (
        [i for i in inside.instructions if i in cells] + [e for e in dict.fromkeys(ends) if e.parent is not inside]
        if len(cells) <= MOST_CELLS
        else None
    )


def _needed_by(opened: Opened, scatter: Instruction) -> list[Instruction]:
    """The operands of a scatter that are there before its first update: what it changes, and what takes long."""
    start, *others = scatter.operands
    within = [o for o in others if o.parent is opened.round and o.parameter_number is None and o.literal is None]
    return [start, *(o for o in within if _weight(opened, o, NEAR) > NEAR)]


def _share(read: IndexMap) -> float:
    """The share of a result's elements that read an operand: each operand of a concatenate is read by a part of them,
    that of a pad not by what lies around it."""
    return math.prod(
        max(0, min(c.high, c.expression.high) - max(c.low, c.expression.low) + 1)
        / (c.expression.high - c.expression.low + 1)
        for c in read.conditions
    )


def _weight(opened: Opened, value: Instruction, most: float) -> float:
    """The instructions for an element of a value, down to folds and carried values; no more are counted once there are
    more than `most`."""
    values, stack, weight = {value}, [value], 0.0
    while stack and weight <= most:
        i = stack.pop()
        weight += of_value(opened.origins.get(i, i)).slots
        for operand in i.operands:
            is_inside = operand.parent is opened.round and operand.parameter_number is None
            if is_inside and operand not in values and terms_of(operand) == 1:
                values.add(operand)
                stack.append(operand)
    return weight


def _shared(opened: Opened, ends: Sequence[Instruction], longest: float) -> set[Instruction]:
    """The values that several cells would compute, each once for an element, with more than `longest` dependent
    instructions in all but the first. Of a chain that several cells need, only the last values are meant: those with a
    reader that fewer cells need."""
    if longest == math.inf:
        return set()
    order = list(opened.round.instructions)
    number = {i: n for n, i in enumerate(dict.fromkeys([*ends, *(i for i in order if terms_of(i) > 1)]))}
    serial: dict[Instruction, float] = {}
    for i in order:
        below = max((serial.get(o, 0.0) for o in i.operands), default=0.0)
        serial[i] = 0.0 if terms_of(i) > 1 else below + of_value(opened.origins.get(i, i)).slots
    readers: dict[Instruction, set[int]] = {}  # for each reader, a bit for each cell that needs it
    shared = set()
    for i in reversed(order):
        own = readers.get(i, set())
        needed_by = functools.reduce(operator.or_, own, 0)
        times = needed_by.bit_count() + (i in number)
        if serial[i] * (times - 1) > longest and own != {needed_by}:
            shared.add(i)
        for operand in i.operands:
            readers.setdefault(operand, set()).add(1 << number[i] if i in number else needed_by)
    return shared


def _phased(
    opened: Opened, cells: Sequence[Instruction]
) -> tuple[tuple[tuple[StoredValue, ...], ...], dict[Instruction, Instruction]]:
    """The cells by phase, and the round's parameter for each."""
    inside = opened.round
    phases: list[list[StoredValue]] = []
    stands: dict[Instruction, Instruction] = {}
    phase: dict[Instruction, int] = {}
    for value in cells:
        under, first = below(value, inside), 0
        for i in under:
            first = max(first, phase.get(i, -1) + 1)
        stand = edit.create_parameter(inside, f"c{len(stands)}", value.shape, len(inside.parameters))
        if value.parent is inside and value.parameter_number is None:
            for user in inside.instructions:
                for position, operand in enumerate(user.operands):
                    if operand is value:
                        edit.replace_operand(user, position, stand)
        stands[value] = stand
        phase[stand] = first
        work, serial = _work(value, [opened.origins.get(i, i) for i in under[1:]], opened.origins.get(value, value))
        while len(phases) <= first:
            phases.append([])
        phases[first].append(StoredValue(value, stand, work, serial, terms_of(value)))
    return tuple(tuple(f) for f in phases), stands


def _work(value: Instruction, under: Sequence[Instruction], origin: Instruction) -> tuple[Work, int]:
    """The work of an element of a cell, and its longest path in instructions. The operands of a fold or product count
    once per term. `under` and `origin` are operations of the module."""
    terms = terms_of(value)
    own = of_fold(origin) if terms > 1 else of_value(origin)
    total = sum(map(of_value, under), own)
    return total * terms, math.ceil(
        total.slots if terms == 1 else own.slots * terms + total.slots + ANSWER * terms / AHEAD
    )
