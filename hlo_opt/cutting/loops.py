"""Cuts of loops: fewer rounds, a shorter condition, and fewer elements of the state.

The state of a loop is its tuple. Its start is the tuple that is the loop's operand, and its end is the tuple that the
body returns.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hlo_opt.cutting.changes import InstructionChange, clear, fill, put_in_place, take
from hlo_opt.cutting.leaves import leaf_changes
from hlo_opt.cutting.loop_state import FLAG, State
from hlo_opt.cutting.parts import callers, can_be_parameter, tidied
from hlo_opt.ir import Attribute, Called, Instruction, Module, edit
from hlo_opt.ir.element_type import PRED
from hlo_opt.ops.sets import looped, tuple_elements, tuple_index
from hlo_opt.ops.writer import Writer


def loop_changes(loop: Instruction) -> Iterator[InstructionChange]:
    """What can be tried with a loop; nothing for any other instruction."""
    if looped(loop) is None:
        return
    yield take_start
    yield run_once
    yield stop_at_once
    yield from leaf_changes(loop)
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
    yield be_flag


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
    state = State.of(loop)
    for user in list(state.takers(number, state.readers)):
        if user.users or user.is_root:
            fill(user, 0)
        edit.remove(user)
    state.flag(number)


def count_to_two(loop: Instruction, number: int) -> None:
    """The same with a second flag behind the last element, which is the first one's next value: two rounds, for what
    shows only where a round reads what another wrote."""
    state = State.of(loop)
    for user in list(state.takers(number, state.readers)):
        if user.users or user.is_root:
            fill(user, 0)
        edit.remove(user)
    state.flag(number, is_twice=True)


def go_round_once(loop: Instruction) -> None:
    """A flag like that as one more element: the condition reads nothing else."""
    state = State.of(loop, fewest=1)
    if tuple_index(state.condition.root) is not None:
        raise ValueError("the condition is an element")
    state.flag(len(state.end))


def bare_state(loop: Instruction) -> None:
    """The only element of the state as the state."""
    state = State.of(loop, fewest=1)
    if len(state.end) > 1:
        raise ValueError("the state has several elements")
    state.bare()


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
    state = State.of(loop)
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
    state = State.of(loop)
    for user in list(state.takers(number, state.readers)):
        edit.set_attribute(user, "index", Attribute.of(other))
    state.without(number)


def be_flag(loop: Instruction) -> None:
    """A flag as the whole state, and one computation for condition and body, which returns it: a loop of which nothing
    matters but that it is there."""
    entry, body = loop.computation, loop.called_by("body")
    if entry.module is None or entry is not entry.module.entry or not loop.is_root or loop.users:
        raise ValueError("it is not the module's result")
    if len(callers(entry.module)[body]) > 1:
        raise ValueError("something else calls the body")
    clear(body)
    edit.set_shape(body.parameters[0], FLAG)
    edit.set_shape(loop, FLAG)
    start = loop.operands[0]
    flag = edit.create_parameter(entry, start.name, FLAG, len(entry.parameters))
    edit.set_operands(loop, [flag])
    if not start.users:
        edit.remove(start)
        flag.name = start.name
    edit.set_attribute(loop, "condition", Called(body))
    edit.sort(entry)


def all_once(module: Module) -> Module:
    """The body of every loop in place of it: one round."""
    loops = [i for c in module.computations for i in c.instructions if looped(i) is not None]
    if not loops:
        raise ValueError("there is no loop")
    for loop in loops:
        run_once(loop)
    return tidied(module)
