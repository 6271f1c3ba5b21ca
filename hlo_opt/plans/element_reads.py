"""From an element of a result down to the elements that it is computed from, by index maps: what plans ask to see which
threads need what.

Everything is in the order of operands: plans must not differ from run to run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import constant
from hlo_opt.ops.lowering import Index
from hlo_opt.ops.spec import find
from hlo_opt.plans.limits import HEAVIEST, weight
from hlo_opt.plans.plan import above

Element = tuple[Instruction, Index]

_MOST_STEPS = 20_000


def depending_on(instructions: Iterable[Instruction], wanted: Iterable[Instruction]) -> set[Instruction]:
    """The wanted, and those of the instructions, operands first, that need one of them."""
    found = set(wanted)
    for instruction in instructions:
        if not found.isdisjoint(instruction.operands):
            found.add(instruction)
    return found


def depending_below(root: Instruction, wanted: set[Instruction]) -> set[Instruction]:
    """What the root needs, or is, of the wanted and of what needs one of them."""
    inside = above([root])
    found = inside & wanted
    stack = list(found)
    while stack:
        for user in stack.pop().users:
            if user in inside and user not in found:
                found.add(user)
                stack.append(user)
    return found


def ends_needed(
    starts: Iterable[Element], over: Collection[Instruction], is_end: Callable[[Instruction, Index], bool]
) -> Iterator[Element | None]:
    """The first elements, on each way down from the starts through the instructions `over`, that are an end; None for
    each way that is lost: data say where it leads, a loop goes over it, or its index grows without end."""
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
            if operand not in over or is_elsewhere(instruction, number, index):
                continue
            there = read_at(instruction, number, index)
            if there is None:
                yield None
            elif (operand, there) not in seen:
                seen.add((operand, there))
                stack.append((operand, there))


def heroes_read(
    starts: Iterable[Element], over: Collection[Instruction], own: Mapping[Instruction, Index | None]
) -> list[Instruction] | None:
    """The heroes (keys of `own`) that the starts need first, each once. None where one is needed at another index than
    its own, or where the way to one is lost."""
    found: dict[Instruction, None] = {}
    for end in ends_needed(starts, over, lambda instruction, _: instruction in own):
        if end is None or own[end[0]] != end[1]:
            return None
        found[end[0]] = None
    return list(found)


def is_elsewhere(instruction: Instruction, number: int, index: Index) -> bool:
    """Whether an element certainly comes from another operand, as those of a concatenate do."""
    spec = find(instruction.opcode)
    read = None if spec is None or spec.index is None else spec.index(instruction, number)
    if read is None or not read.conditions or read.symbols or read.runtime:
        return False
    return any(condition.never for condition in read.conditions_at(index))


def is_under_condition(instruction: Instruction, number: int, index: Index) -> bool:
    """Whether an operand is read for some elements alone: its value is computed where the condition holds, and nobody
    else finds it there."""
    spec = find(instruction.opcode)
    read = None if spec is None or spec.index is None else spec.index(instruction, number)
    return read is not None and bool(read.conditions) and bool(read.conditions_at(index))


def read_at(instruction: Instruction, number: int, index: Index) -> Index | None:
    """Where an operand is read for an element; the elements of a tuple have the tuple's index."""
    if instruction.opcode in ("tuple", "get-tuple-element"):
        return index
    spec = find(instruction.opcode)
    read = None if spec is None or spec.index is None else spec.index(instruction, number)
    if read is None or read.runtime or any(size > 1 for size in read.symbols):
        return None
    return read.apply(index, [constant(0)] * len(read.symbols))
