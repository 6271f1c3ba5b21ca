"""The elements that an element of a result depends on, by index maps. Plans use them to see which threads need which
elements.

All results are in the order of operands, so that plans do not differ from run to run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from hlo_opt.ir import IndexMap, Instruction
from hlo_opt.ir.index_map import Condition, constant
from hlo_opt.ir.walk import reached
from hlo_opt.ops.lowering import Element, Index
from hlo_opt.ops.spec import find
from hlo_opt.plans.limits import HEAVIEST, weight
from hlo_opt.plans.plan import above

Read = tuple[Instruction, Index | None]
"""An operand, and where it is read; None where that is lost."""

_MOST_STEPS = 20_000


def depending_on(instructions: Iterable[Instruction], wanted: Iterable[Instruction]) -> set[Instruction]:
    """The wanted instructions, and those of `instructions` (operands first) that depend on one of them."""
    depending = set(wanted)
    for instruction in instructions:
        if not depending.isdisjoint(instruction.operands):
            depending.add(instruction)
    return depending


def depending_below(root: Instruction, wanted: set[Instruction]) -> set[Instruction]:
    """Those of the wanted instructions, and of the instructions that depend on one of them, that the root needs or
    is."""
    inside = above([root])
    return reached(inside & wanted, lambda i: (user for user in i.users if user in inside))


def ends_needed(
    starts: Iterable[Element], over: Collection[Instruction], is_end: Callable[[Instruction, Index], bool]
) -> Iterator[Element | None]:
    """The first elements that satisfy `is_end` on each path from the starts through the instructions `over`.

    None for a path with unknown indices: these come from data, from a loop over the operand, or grow too large.
    """
    stack = [(instruction, index) for instruction, index in starts if instruction in over]
    seen = set(stack)
    while stack:
        instruction, index = stack.pop()
        if is_end(instruction, index):
            yield instruction, index
            continue
        if len(seen) > _MOST_STEPS or any(weight(e, HEAVIEST) >= HEAVIEST for e in index):
            yield None
            continue
        for number, operand in enumerate(instruction.operands):
            if operand not in over:
                continue
            read = _map_of(instruction, number)
            if _is_never(read, index):
                continue
            there = _read_by(instruction, read, index)
            if there is None:
                yield None
            elif (operand, there) not in seen:
                seen.add((operand, there))
                stack.append((operand, there))


def conditions_met(starts: Iterable[Element], known: Collection[Instruction]) -> Iterator[Condition]:
    """The conditions under which the starts, or what they are computed from, read an operand, as far as indices are
    known. Nothing above the instructions `known` counts."""
    stack = list(starts)
    seen = set(stack)
    while stack and len(seen) <= _MOST_STEPS:
        instruction, index = stack.pop()
        for number, operand in enumerate(instruction.operands):
            read = _map_of(instruction, number)
            if operand.literal is not None or operand in known or read is None or _is_never(read, index):
                continue
            if read.conditions and not read.symbols:
                yield from read.conditions_at(index)
            there = _read_by(instruction, read, index)
            if there is not None and (operand, there) not in seen:
                seen.add((operand, there))
                stack.append((operand, there))


def heroes_read(
    starts: Iterable[Element], over: Collection[Instruction], own: Mapping[Instruction, Index | None]
) -> list[Instruction] | None:
    """The heroes (keys of `own`) that the starts need first, each once. None if one is needed at another index than its
    own, or if an index is unknown."""
    heroes: dict[Instruction, None] = {}
    for end in ends_needed(starts, over, lambda instruction, _: instruction in own):
        if end is None or own[end[0]] != end[1]:
            return None
        heroes[end[0]] = None
    return list(heroes)


class Reads:
    """Where instructions read their operands; the index maps of each are asked for once. The instructions stay as they
    are meanwhile."""

    def __init__(self) -> None:
        self._maps: dict[Instruction, list[IndexMap | None]] = {}

    def below(self, instruction: Instruction, index: Index) -> list[Read]:
        """The operands that an element is computed from, and where; None where that is lost. Those that are certainly
        elsewhere are left out; tuples have the index of their elements."""
        reads: list[Read] = []
        for operand, read in zip(instruction.operands, self._maps_of(instruction), strict=True):
            if read is not None and not (read.symbols or read.conditions or read.runtime):
                reads.append((operand, index if operand.shape.is_tuple else read.apply(index)))
            elif not _is_never(read, index):
                reads.append((operand, index if operand.shape.is_tuple else _read_by(instruction, read, index)))
        return reads

    def are_always(self, instruction: Instruction) -> bool:
        """Whether every element is computed from one known element of each operand."""
        maps = self._maps_of(instruction)
        return all(read is not None and not (read.symbols or read.conditions or read.runtime) for read in maps)

    def _maps_of(self, instruction: Instruction) -> list[IndexMap | None]:
        maps = self._maps.get(instruction)
        if maps is None:
            maps = self._maps[instruction] = [_map_of(instruction, n) for n in range(len(instruction.operands))]
        return maps


def is_elsewhere(instruction: Instruction, number: int, index: Index) -> bool:
    """Whether an element certainly does not depend on an operand, as in a concatenate."""
    return _is_never(_map_of(instruction, number), index)


def _map_of(instruction: Instruction, number: int) -> IndexMap | None:
    spec = find(instruction.opcode)
    return None if spec is None or spec.index is None else spec.index(instruction, number)


def _is_never(read: IndexMap | None, index: Index) -> bool:
    """Whether an element certainly reads nothing by a map."""
    if read is None or not read.conditions or read.symbols or read.runtime:
        return False
    return any(condition.never for condition in read.conditions_at(index))


def is_under_condition(instruction: Instruction, number: int, index: Index) -> bool:
    """Whether an operand is read under a condition. Its value is then computed inside the condition, where no other
    reader can use it."""
    read = _map_of(instruction, number)
    return read is not None and bool(read.conditions) and bool(read.conditions_at(index))


def read_at(instruction: Instruction, number: int, index: Index) -> Index | None:
    """The index at which an operand is read for an element; None if it is unknown, or there are several. Elements of a
    tuple have the tuple's index."""
    return _read_by(instruction, _map_of(instruction, number), index)


def _read_by(instruction: Instruction, read: IndexMap | None, index: Index) -> Index | None:
    if instruction.opcode in ("tuple", "get-tuple-element"):
        return index
    if read is None or read.runtime or any(size > 1 for size in read.symbols):
        return None
    return read.apply(index, [constant(0)] * len(read.symbols))


def is_at_hand(value: Instruction, known: frozenset[Instruction]) -> bool:
    """Whether a value depends on what is known alone, such as a counter of rounds."""
    if not known:
        return False
    stack, seen = [value], {value}
    while stack:
        value = stack.pop()
        if value in known:
            continue
        if value.parameter_number is not None:
            return False
        fresh = [o for o in value.operands if o not in seen]
        seen.update(fresh)
        stack += fresh
    return True
