"""Trip counts of loops: from the backend config, or from a counted loop's condition and step.

Source of the config: xla/service/while_loop_trip_count_annotator.cc; of the pattern:
xla/service/while_loop_analysis.cc.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from hlo_opt.diag import UsageError, did_you_mean
from hlo_opt.ir import Computation, Instruction, Module, Shape
from hlo_opt.ops.call_config import field
from hlo_opt.ops.sets import COPIES, SIGNS, body_of, keeps_bytes, looped, tuple_elements, tuple_index


@dataclass(frozen=True, slots=True)
class Traced:
    """A value traced to its origin: an instruction, the arguments of its inlined computation, and the tuple elements
    still to be taken from it (the last one first)."""

    instruction: Instruction
    arguments: tuple[Traced, ...] | None = None
    elements: tuple[int, ...] = ()


def known_trip_count(loop: Instruction) -> int | None:
    """The trip count in a while's backend config; None where it has none."""
    text = field(loop, "known_trip_count", "n")
    return int(text) if text is not None and text.isdecimal() else None


TripCounts = Mapping[str, int]
"""Trip counts that the user supplies, by loop name."""
NO_TRIP_COUNTS: TripCounts = MappingProxyType({})


def trip_count(loop: Instruction, supplied: TripCounts = NO_TRIP_COUNTS) -> int | None:
    """The trip count of a while; None where it is unknown before the run. `supplied` has the user's trip counts for
    loops whose count the text does not determine."""
    stated = known_trip_count(loop)
    count = derived_trip_count(loop) if stated is None else stated
    return supplied.get(loop.name) if count is None else count


def has_open_loop(module: Module) -> bool:
    """Whether the trip count of one of a module's loops is unknown before the run."""
    every = (i for computation in module.computations for i in computation.instructions)
    return any(looped(i) is not None and trip_count(i) is None for i in every)


def check_trip_counts(module: Module, supplied: TripCounts) -> None:
    """Raises UsageError for a name that is not a loop's, and for a loop with a known trip count."""
    loops = {i.name: i for c in module.computations for i in c.instructions if looped(i) is not None}
    for name in supplied:
        if name not in loops:
            uncounted = [loop.name for loop in loops.values() if trip_count(loop) is None]
            hint = (
                did_you_mean(name, list(loops)) or f"loops of an unknown trip count: {', '.join(uncounted) or 'none'}"
            )
            raise UsageError(f"there is no loop {name!r}", hint=hint)
        count = trip_count(loops[name])
        if count is not None:
            raise UsageError(f"the loop {name!r} has the known trip count {count}")


@dataclass(frozen=True, slots=True)
class Counted:
    """A counted loop: the tuple path to its counter (last index first), start, step and number of iterations."""

    counter: tuple[int, ...]
    start: int
    step: int
    rounds: int


def derived_trip_count(loop: Instruction) -> int | None:
    """The trip count of a loop whose counter has constant start, step and limit and does not overflow before the
    end."""
    counter = counted(loop)
    return None if counter is None else counter.rounds


def counted(loop: Instruction) -> Counted | None:
    """The counter of a counted loop; None for other loops."""
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
    """The shape of a tuple element, by its path with the last index first."""
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
    """Follow a value through copies, tuples, fusions and calls to the instruction that computes it. Bitcasts to other
    types stop it."""
    while True:
        i, arguments, elements = value.instruction, value.arguments, value.elements
        if i.parameter_number is not None and arguments is not None:
            argument = arguments[i.parameter_number]
            value = Traced(argument.instruction, argument.arguments, argument.elements + elements)
        elif (number := tuple_index(i)) is not None:
            value = Traced(i.operands[0], arguments, (*elements, number))
        elif elements and (parts := tuple_elements(i)) is not None:
            value = Traced(parts[elements[-1]], arguments, elements[:-1])
        elif (i.opcode in COPIES or keeps_bytes(i.opcode)) and _is_alike(i.shape, i.operands[0].shape):
            value = Traced(i.operands[0], arguments, elements)
        elif (body := body_of(i)) is not None:
            value = Traced(body.root, tuple(Traced(o, arguments) for o in i.operands), elements)
        else:
            return value


def _is_alike(shape: Shape, other: Shape) -> bool:
    """Whether equal bytes represent equal numbers."""
    return shape.is_tuple or other.is_tuple or shape.type == other.type


def _operands(value: Traced) -> tuple[Traced, Traced]:
    left, right = value.instruction.operands
    return trace(Traced(left, value.arguments)), trace(Traced(right, value.arguments))


def _loop_element(value: Traced, computation: Computation) -> tuple[int, ...] | None:
    """The element of a loop's state that a value is; None where it is not one."""
    i = value.instruction
    return value.elements if i.parameter_number is not None and i.parent is computation else None


def _integer(value: Traced, loop: Instruction | None = None, computation: Computation | None = None) -> int | None:
    """The value of an integer scalar constant; given a loop, also of a state element that the body does not change."""
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
    literal: Any = constant.literal.value
    return int(literal.reshape(-1)[0])


def _step(body: Computation, counter: tuple[int, ...]) -> int | None:
    """The change of the counter per iteration; None where it is not constant."""
    updated = trace(Traced(body.root, None, counter))
    sign = SIGNS.get(updated.instruction.opcode)
    if updated.elements or sign is None:
        return None
    left, right = _operands(updated)
    for state, other in ((left, right), (right, left))[: 2 if sign > 0 else 1]:
        step = _integer(other)
        if step is not None and _loop_element(state, body) == counter:
            return sign * step
    return None


def lies_alike(loop: Instruction) -> bool:
    """Whether all layouts of a loop's state agree: of its operand, in the computations, and of its result."""
    body, condition = loop.called_by("body"), loop.called_by("condition")
    values = [loop.operands[0], body.root, body.parameters[0], condition.parameters[0]]
    shapes = [value.shape for value in values]
    shapes += [Shape.tuple_of(*(p.shape for p in parts)) for parts in map(tuple_elements, values) if parts is not None]
    return all(shape.same_bytes(loop.shape) for shape in shapes)
