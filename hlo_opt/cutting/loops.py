"""Cuts of loops: fewer rounds, a shorter condition, and fewer elements of the state.

The state of a loop is its tuple. Its start is the tuple that is the loop's operand, and its end is the tuple that the
body returns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from hlo_opt.cutting.changes import InstructionChange, fill, put_in_place, take
from hlo_opt.cutting.parts import callers, can_be_parameter, tidied
from hlo_opt.ir import Attribute, Computation, Instruction, Module, Shape, array, edit
from hlo_opt.ir.element_type import PRED
from hlo_opt.ops.sets import looped, tuple_elements, tuple_index
from hlo_opt.ops.writer import Writer

FLAG = array(PRED)
"""The shape of a flag: a scalar that says whether there is another round."""


def loop_changes(loop: Instruction) -> Iterator[InstructionChange]:
    """What can be tried with a loop; nothing for any other instruction."""
    if looped(loop) is None:
        return
    yield take_start
    yield run_once
    yield stop_at_once
    elements = loop.shape.elements or ()
    counters = [n for n, shape in enumerate(elements) if shape.is_array and not shape.rank and shape.type.is_integer]
    for number in counters:
        yield partial(count_to_one, number=number)
    yield go_round_once
    for number in counters:
        yield partial(count_to_two, number=number)
    for number in range(len(elements)):
        if number not in counters:
            yield partial(count_to_one, number=number)
    yield bare_state
    yield start_with_input
    for number, shape in enumerate(elements):
        yield partial(drop_element, number=number)
        first = next(n for n, other in enumerate(elements) if other == shape)
        if first != number:
            yield partial(merge_element, number=number, other=first)


def take_start(loop: Instruction) -> None:
    """No round: the state as it starts."""
    take(loop, loop.operands[0])


def run_once(loop: Instruction) -> None:
    """The body in place of the loop: one round, whatever the condition says."""
    put_in_place(loop, loop.called_by("body"), loop.operands)


def stop_at_once(loop: Instruction) -> None:
    """A condition that is false: the loop stays, with no round."""
    condition = loop.called_by("condition")
    if condition.root.literal is not None:
        raise ValueError("the condition is a constant")
    edit.set_root(condition, Writer("stop", condition).number(PRED, 0))


def count_to_one(loop: Instruction, number: int) -> None:
    """A flag in place of an element, such as a counter: true at the start, false after the first round, and the
    condition reads it. What else reads the element reads 0."""
    state = _State.of(loop)
    for user in list(state.takers(number, state.readers)):
        if user.users or user.is_root:
            fill(user, 0)
        edit.remove(user)
    state.flag(number)


def count_to_two(loop: Instruction, number: int) -> None:
    """The same with a second flag behind the last element, which is the first one's next value: two rounds, for what
    shows only where a round reads what another wrote."""
    state = _State.of(loop)
    for user in list(state.takers(number, state.readers)):
        if user.users or user.is_root:
            fill(user, 0)
        edit.remove(user)
    state.flag(number, is_twice=True)


def go_round_once(loop: Instruction) -> None:
    """A flag like that as one more element: the condition reads nothing else."""
    state = _State.of(loop, fewest=1)
    if tuple_index(state.condition.root) is not None:
        raise ValueError("the condition is an element")
    state.flag(len(state.end))


def bare_state(loop: Instruction) -> None:
    """The only element of the state as the state."""
    state = _State.of(loop, fewest=1)
    if len(state.end) > 1:
        raise ValueError("the state has several elements")
    users = list(state.takers(0, state.readers))
    (shape,), before, start = state.shapes, state.body.root, loop.operands[0]
    edit.set_root(state.body, state.end[0])
    edit.remove(before)
    for reader in state.readers:
        edit.set_shape(reader, shape)
    if state.start is None:
        edit.set_shape(start, shape)
    else:
        edit.set_operands(loop, state.start)
    for user in users:
        edit.replace_all_uses(user, user.operands[0])
        edit.remove(user)
    state.sort()


def start_with_input(loop: Instruction) -> None:
    """The state at the start as one parameter of the entry, in place of the tuple and its elements."""
    start, entry = loop.operands[0], loop.computation
    if tuple_elements(start) is None or entry.module is None or entry is not entry.module.entry:
        raise ValueError("the state does not start as a tuple of the entry")
    if not can_be_parameter(start.shape):
        raise ValueError("a parameter cannot have this shape")
    edit.set_operands(loop, [edit.create_parameter(entry, start.name, start.shape, len(entry.parameters))])
    edit.sort(entry)


def drop_element(loop: Instruction, number: int) -> None:
    """One element less in the state. Rounds that read it read a constant: its start, or 0."""
    state = _State.of(loop)
    start = None if state.start is None else state.start[number]
    for user in list(state.takers(number, state.readers)):
        is_after = user.operands[0] is loop
        if start is not None and is_after:
            edit.replace_all_uses(user, start)
        elif start is not None and start.literal is not None:
            edit.replace_all_uses(user, edit.clone_into(user.computation, start, []))
        elif user.users or user.is_root:
            fill(user, 0)
        edit.remove(user)
    state.without(number)


def merge_element(loop: Instruction, number: int, other: int) -> None:
    """One element less in the state. What reads it reads another element of its shape."""
    state = _State.of(loop)
    for user in list(state.takers(number, state.readers)):
        edit.set_attribute(user, "index", Attribute.of(other))
    state.without(number)


@dataclass
class _State:
    """The state of a loop that nothing else runs.

    start    what the tuple at the start holds; None where the start is a parameter of the entry
    end      what the tuple that the body returns holds
    readers  the loop, and the parameters of its computations: the instructions whose shape is the state's
    """

    loop: Instruction
    start: list[Instruction] | None
    end: list[Instruction]

    @classmethod
    def of(cls, loop: Instruction, fewest: int = 2) -> _State:
        """Raises ValueError where the state has fewer elements or is read as a whole, or where another loop has the
        same computations."""
        module, start = loop.computation.module, loop.operands[0]
        assert module is not None
        end, elements = tuple_elements(loop.called_by("body").root), tuple_elements(start)
        is_input = start.parameter_number is not None and loop.computation is module.entry and len(start.users) == 1
        if end is None or len(end) < fewest or (elements is None and not is_input):
            raise ValueError("the state is not a tuple of several elements")
        state = cls(loop, None if elements is None else list(elements), list(end))
        by = callers(module)
        if state.body is state.condition or any(len(by[c]) > 1 for c in (state.body, state.condition)):
            raise ValueError("another loop has the same computations")
        if any(tuple_index(user) is None for reader in state.readers for user in reader.users):
            raise ValueError("the state is read as a whole")
        if loop.is_root and loop.computation is not module.entry:
            raise ValueError("the state is the result of a computation")
        return state

    @property
    def body(self) -> Computation:
        return self.loop.called_by("body")

    @property
    def condition(self) -> Computation:
        return self.loop.called_by("condition")

    @property
    def shapes(self) -> tuple[Shape, ...]:
        return self.loop.shape.elements or ()

    @property
    def readers(self) -> list[Instruction]:
        return [self.loop, *self.body.parameters, *self.condition.parameters]

    @staticmethod
    def takers(number: int, readers: list[Instruction]) -> Iterator[Instruction]:
        """The instructions that take an element out of the state."""
        return (user for reader in readers for user in reader.users if tuple_index(user) == number)

    def without(self, number: int) -> None:
        """Remove an element that nothing takes out any more."""
        for reader in self.readers:
            for user in reader.users:
                index = tuple_index(user)
                assert index is not None
                if index > number:
                    edit.set_attribute(user, "index", Attribute.of(index - 1))
        self.put(
            Shape.tuple_of(*(s for n, s in enumerate(self.shapes) if n != number)),
            None if self.start is None else [o for n, o in enumerate(self.start) if n != number],
            [o for n, o in enumerate(self.end) if n != number],
        )
        self.sort()

    def flag(self, number: int, *, is_twice: bool = False) -> None:
        """A flag in place of an element that nothing takes out any more, or behind the last one: true at the start,
        false after a round; the condition is the flag. `is_twice`: after two rounds, with another flag behind."""
        start = Writer("start", self.loop.computation).number(PRED, 1)
        end = Writer("end", self.body).number(PRED, 0)
        rest = slice(number + 1, None)
        more = int(is_twice)
        last = len(self.end)
        self.put(
            Shape.tuple_of(*self.shapes[:number], FLAG, *self.shapes[rest], *[FLAG] * more),
            None if self.start is None else [*self.start[:number], start, *self.start[rest], *[start] * more],
            [*self.end[:number], end, *self.end[rest], *[end] * more],
        )
        if is_twice:
            first = edit.create_element(self.body.parameters[0], last)
            edit.set_operands(
                self.body.root, [first if n == number else o for n, o in enumerate(self.body.root.operands)]
            )
        edit.set_root(self.condition, edit.create_element(self.condition.parameters[0], number))
        self.sort()

    def put(self, shape: Shape, start: list[Instruction] | None, end: list[Instruction]) -> None:
        """Another shape, start and end."""
        before = self.body.root
        edit.create_tuple(self.body, end, root=True)
        edit.remove(before)
        for reader in self.readers:
            edit.set_shape(reader, shape)
        if start is None:
            edit.set_shape(self.loop.operands[0], shape)
        else:
            edit.set_operands(self.loop, [edit.create_tuple(self.loop.computation, start)])

    def sort(self) -> None:
        for computation in (self.body, self.condition, self.loop.computation):
            edit.sort(computation)


def all_once(module: Module) -> Module:
    """The body of every loop in place of it: one round."""
    loops = [i for c in module.computations for i in c.instructions if looped(i) is not None]
    if not loops:
        raise ValueError("there is no loop")
    for loop in loops:
        run_once(loop)
    return tidied(module)
