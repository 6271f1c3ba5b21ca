"""How often a loop runs: what its backend config says, or what a counted loop's condition and step give.

Source of the config: xla/service/while_loop_trip_count_annotator.cc; of the pattern: xla/service/while_loop_analysis.cc.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from hlo_opt.diag import UsageError, did_you_mean
from hlo_opt.ir import Computation, Instruction, Module, Shape
from hlo_opt.ops.call_config import field
from hlo_opt.ops.sets import COPIES, SIGNS, body_of, held, keeps_bytes, looped, taken_element


@dataclass(frozen=True, slots=True)
class Traced:
    """Where a value comes from: an instruction, what the parameters of its inlined computation stand for, and the tuple elements that
    are still to be taken of it (the last one first)."""

    instruction: Instruction
    arguments: tuple[Traced, ...] | None = None
    elements: tuple[int, ...] = ()


def known_trip_count(loop: Instruction) -> int | None:
    """The count that a while's backend config states."""
    found = field(loop, "known_trip_count", "n")
    return int(found) if found is not None and found.isdecimal() else None


TripCounts = Mapping[str, int]
"""Rounds of loops, by their names, that only the user knows."""
NO_TRIP_COUNTS: TripCounts = MappingProxyType({})


def trip_count(loop: Instruction, told: TripCounts = NO_TRIP_COUNTS) -> int | None:
    """How often the body of a while runs, or None where that is not known before the run. `told` counts where the text does not say it."""
    stated = known_trip_count(loop)
    found = derived_trip_count(loop) if stated is None else stated
    return told.get(loop.name) if found is None else found


def check_trip_counts(module: Module, told: TripCounts) -> None:
    """Raises UsageError for a name that is no loop's, and for a count of a loop whose count is known."""
    loops = {i.name: i for c in module.computations for i in c.instructions if looped(i) is not None}
    for name in told:
        if name not in loops:
            uncounted = [loop.name for loop in loops.values() if trip_count(loop) is None]
            hint = (
                did_you_mean(name, list(loops)) or f"loops of an unknown trip count: {', '.join(uncounted) or 'none'}"
            )
            raise UsageError(f"there is no loop {name!r}", hint=hint)
        count = trip_count(loops[name])
        if count is not None:
            raise UsageError(f"the loop {name!r} is known to run {count} rounds")


@dataclass(frozen=True, slots=True)
class Counted:
    """A loop that counts its rounds: which element of its state does, the last number first, from where, by how much, and how many rounds there are."""

    counter: tuple[int, ...]
    start: int
    step: int
    rounds: int


def derived_trip_count(loop: Instruction) -> int | None:
    """The count of a loop whose counter starts at a constant, grows by a constant, is compared with a constant and does not leave its type before the end."""
    found = counted(loop)
    return None if found is None else found.rounds


def counted(loop: Instruction) -> Counted | None:
    """How a loop counts its rounds; None where it is no such loop."""
    condition = loop.called_by("condition")
    test = trace(Traced(condition.root))
    direction = test.instruction.word("direction")
    if not direction:
        return None
    left, right = _operands(test)
    counter, limit = _loop_element(left, condition), _integer(right, loop, condition)
    if counter is None:
        counter, limit = _loop_element(right, condition), _integer(left, loop, condition)
        direction = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}.get(direction, direction)
    if counter is None or limit is None:
        return None
    start = _integer(trace(Traced(loop.operands[0], None, counter)))
    step = _step(loop.called_by("body"), counter)
    if start is None or not step:
        return None
    rounds = _count(start, limit, step, direction)
    low, high = _within(loop.shape, counter).type.limits
    return (
        Counted(counter, start, step, rounds) if rounds is not None and low <= start + rounds * step <= high else None
    )


def _within(shape: Shape, elements: tuple[int, ...]) -> Shape:
    """The shape of a tuple's element, the last number first."""
    for number in reversed(elements):
        assert shape.elements is not None
        shape = shape.elements[number]
    return shape


def _count(start: int, limit: int, step: int, direction: str) -> int | None:
    if direction in ("LE", "GE"):
        limit += 1 if direction == "LE" else -1
        direction = {"LE": "LT", "GE": "GT"}[direction]
    distance = limit - start
    if direction == "LT" and step > 0:
        return max(0, -(-distance // step))
    if direction == "GT" and step < 0:
        return max(0, -(distance // -step))
    if direction == "NE" and distance % step == 0 and distance // step >= 0:
        return distance // step
    return None


def trace(value: Traced) -> Traced:
    """Follow a value through copies, tuples, fusions and calls to the instruction that makes it. A bitcast to another type is no copy."""
    while True:
        i, arguments, elements = value.instruction, value.arguments, value.elements
        if i.parameter_number is not None and arguments is not None:
            argument = arguments[i.parameter_number]
            value = Traced(argument.instruction, argument.arguments, argument.elements + elements)
        elif (number := taken_element(i)) is not None:
            value = Traced(i.operands[0], arguments, (*elements, number))
        elif elements and (parts := held(i)) is not None:
            value = Traced(parts[elements[-1]], arguments, elements[:-1])
        elif (i.opcode in COPIES or keeps_bytes(i.opcode)) and _is_alike(i.shape, i.operands[0].shape):
            value = Traced(i.operands[0], arguments, elements)
        elif (body := body_of(i)) is not None:
            value = Traced(body.root, tuple(Traced(o, arguments) for o in i.operands), elements)
        else:
            return value


def _is_alike(shape: Shape, other: Shape) -> bool:
    """Whether the same bytes mean the same numbers."""
    return shape.is_tuple or other.is_tuple or shape.type == other.type


def _operands(value: Traced) -> tuple[Traced, Traced]:
    left, right = value.instruction.operands
    return trace(Traced(left, value.arguments)), trace(Traced(right, value.arguments))


def _loop_element(value: Traced, computation: Computation) -> tuple[int, ...] | None:
    """Which element of a loop's state a value is."""
    i = value.instruction
    return value.elements if i.parameter_number is not None and i.parent is computation else None


def _integer(value: Traced, loop: Instruction | None = None, computation: Computation | None = None) -> int | None:
    """The value of an integer scalar constant; with a loop, also of an element of its state that the body hands on unchanged."""
    if loop is not None and computation is not None:
        element = _loop_element(value, computation)
        if element is not None:
            body = loop.called_by("body")
            if _loop_element(trace(Traced(body.root, None, element)), body) != element:
                return None
            value = trace(Traced(loop.operands[0], None, element))
    constant = value.instruction
    if constant.literal is None or constant.literal.is_elided:
        return None
    if not constant.shape.is_array or not constant.shape.type.is_integer or constant.shape.element_count != 1:
        return None
    found: Any = constant.literal.value
    return int(found.reshape(-1)[0])


def _step(body: Computation, counter: tuple[int, ...]) -> int | None:
    """By how much one run of the body changes the counter."""
    made = trace(Traced(body.root, None, counter))
    sign = SIGNS.get(made.instruction.opcode)
    if made.elements or sign is None:
        return None
    left, right = _operands(made)
    for state, other in ((left, right), (right, left))[: 2 if sign > 0 else 1]:
        step = _integer(other)
        if step is not None and _loop_element(state, body) == counter:
            return sign * step
    return None


def lies_alike(loop: Instruction) -> bool:
    """Whether all that a loop hands on lies in memory in one way throughout: as it is given, in the rounds and after them."""
    body, condition = loop.called_by("body"), loop.called_by("condition")
    values = [loop.operands[0], body.root, body.parameters[0], condition.parameters[0]]
    shapes = [value.shape for value in values]
    shapes += [Shape.tuple_of(*(p.shape for p in parts)) for parts in map(held, values) if parts is not None]
    return all(shape.same_bytes(loop.shape) for shape in shapes)
