"""Cuts of a loop to one array of its state, which then also says whether there is another round.

A loop that counts needs fifteen instructions, most of them for the counter and the tuple. One whose state is one array
of floats needs seven, with the condition that the sum of its squares is finite.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hlo_opt.cutting.changes import InstructionChange, clear, fill, take
from hlo_opt.cutting.loop_state import State
from hlo_opt.ir import Instruction, array, edit
from hlo_opt.ops.writer import Writer

LEAST = 3
"""Instructions of a condition that asks whether the sum of an array's squares is finite."""


def leaf_changes(loop: Instruction) -> Iterator[InstructionChange]:
    """What can be tried with a loop; each array of its state by itself."""
    if loop.shape.elements is None:
        if _may_be_state(loop):
            yield partial(ask_state, grows=False)
            yield partial(ask_state, grows=True)
        return
    for number, shape in enumerate(loop.shape.elements):
        if shape.is_array and shape.type.is_float:
            yield partial(one_leaf, number=number, is_made=True, grows=True)
            yield partial(one_leaf, number=number, is_made=False, grows=False)


def _may_be_state(loop: Instruction) -> bool:
    return loop.shape.is_array and loop.shape.type.is_float


def one_leaf(loop: Instruction, number: int, *, is_made: bool, grows: bool) -> None:
    """One element of the state as the state. Rounds that read another element read a constant, its start or 0, or with
    `is_made` a number that is made of the state; then indices still vary. The condition is `ask_state`'s."""
    state = State.of(loop, fewest=1)
    clear(state.condition)
    others = [n for n in range(len(state.end)) if n != number]
    made = _Made(edit.create_element(state.body.parameters[0], number))
    for other in others:
        start = None if state.start is None else state.start[other]
        for user in list(state.takers(other, state.readers)):
            if user.operands[0] is loop and start is not None:
                take(user, start)
            elif user.operands[0] is loop or not is_made:
                _fill(user, start)
            else:
                take(user, made.of(user))
            edit.remove(user)
    for other in reversed(others):
        State.of(loop, fewest=1).without(other)
    State.of(loop, fewest=1).bare()
    ask_state(loop, grows=grows)


def ask_state(loop: Instruction, *, grows: bool) -> None:
    """The condition of a loop whose state is one array: the sum of its squares is finite. `grows`: a round takes the
    exponential of what it took, so that there is a last one."""
    body, condition = loop.called_by("body"), loop.called_by("condition")
    state = condition.parameters[0]
    if len(condition.instructions) <= LEAST and not grows and condition.root is not state and state.users:
        raise ValueError("the condition is as small")
    clear(condition)
    writer = Writer("asked", condition)
    edit.set_root(condition, writer.is_finite(_sum(writer, state)))
    if grows:
        edit.set_root(body, Writer("grown", body).exponential(body.root))


def _sum(writer: Writer, state: Instruction) -> Instruction:
    """A number of the state: the sum of its squares, or itself."""
    if not state.shape.rank:
        return state
    return writer.sum_of_products(state, state, range(state.shape.rank), array(state.shape.type))


def _fill(i: Instruction, start: Instruction | None) -> None:
    if start is not None and start.literal is not None:
        edit.replace_all_uses(i, edit.clone_into(i.computation, start, []))
    elif i.users or i.is_root:
        fill(i, 0)


class _Made:
    """Values of any shape, made of an array of the state: the sum of its squares in every element, converted."""

    def __init__(self, state: Instruction) -> None:
        self._state = state
        self._writer = Writer("made", state.computation)
        self._sum: Instruction | None = None

    def of(self, i: Instruction) -> Instruction:
        """A value of the shape of `i`. Raises ValueError where it is no array."""
        shape = i.shape
        if not shape.is_array:
            raise ValueError("the element is no array")
        if shape.same_values(self._state.shape):
            return self._state
        if self._sum is None:
            self._sum = _sum(self._writer, self._state)
        if shape.type.kind == "pred":
            number = self._writer.is_finite(self._sum)
        else:
            number = self._writer.convert(self._sum, shape.type)
        return self._writer.spread(number, shape.dimensions)
