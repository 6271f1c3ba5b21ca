"""The state of a loop, for the cuts that change it: its tuple. Its start is the tuple that is the loop's operand, and
its end is the tuple that the body returns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hlo_opt.cutting.parts import callers
from hlo_opt.ir import Attribute, Computation, Instruction, Shape, array, edit
from hlo_opt.ir.element_type import PRED
from hlo_opt.ops.sets import tuple_elements, tuple_index
from hlo_opt.ops.writer import Writer

FLAG = array(PRED)
"""The shape of a flag: a scalar that says whether there is another round."""


@dataclass
class State:
    """The state of a loop that nothing else runs.

    start    what the tuple at the start holds; None where the start is a parameter of the entry
    end      what the tuple that the body returns holds
    readers  the loop, and the parameters of its computations: the instructions whose shape is the state's
    """

    loop: Instruction
    start: list[Instruction] | None
    end: list[Instruction]

    @classmethod
    def of(cls, loop: Instruction, fewest: int = 2) -> State:
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

    def bare(self) -> None:
        """The only element as the state, in place of the tuple of one."""
        users = list(self.takers(0, self.readers))
        (shape,), before, start = self.shapes, self.body.root, self.loop.operands[0]
        edit.set_root(self.body, self.end[0])
        edit.remove(before)
        for reader in self.readers:
            edit.set_shape(reader, shape)
        if self.start is None:
            edit.set_shape(start, shape)
        else:
            edit.set_operands(self.loop, self.start)
        for user in users:
            edit.replace_all_uses(user, user.operands[0])
            edit.remove(user)
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
