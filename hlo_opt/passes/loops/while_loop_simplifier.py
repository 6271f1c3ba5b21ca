"""Loops without superfluous values: values that nothing reads, that no round changes or that equal another value,
nested tuples, and loops of no round or of one.

Source: xla/service/while_loop_simplifier.cc (TryRemoveDeadWhileParams, TryRemoveConstantParams,
TryRemoveRepeatedWhileTupleIndices, TryFlattenNestedTuples, TryRemoveWhileLoop) and while_loop_constant_sinking.cc. A
value that no round changes but that rounds read stays in the tuple: rounds can read nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar
from typing import Literal as OneOf

from hlo_opt.analysis.graph.inlining import remove_uncalled
from hlo_opt.analysis.graph.loops import derived_trip_count, known_trip_count, lies_alike
from hlo_opt.analysis.graph.structure import Members, Structures
from hlo_opt.analysis.properties import effectful_computations
from hlo_opt.ir import Attribute, Called, Computation, Instruction, Module, Raw, Shape, edit
from hlo_opt.ir.walk import executed_computations, needed_first, operands_first
from hlo_opt.ops.sets import tuple_elements, tuple_index
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.dce import sweep
from hlo_opt.passes.loops.numbers import is_called_once, renewed
from hlo_opt.text.aliases import TuplePath


@dataclass(frozen=True)
class WhileLoopSimplifier(RewritingPass):
    """Remove unused and constant values from the state of loops. The values that are read stay the same."""

    name: ClassVar[str] = "while-loop-simplifier"
    preserves: ClassVar[OneOf["graph", "meaning"]] = "meaning"
    simplifies: ClassVar[bool] = True

    def computations(self, module: Module) -> list[Computation]:
        """Inner loops first: an outer loop is copied with its inner loops."""
        return list(executed_computations(module))[::-1]

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        waited_for = {p for i in computation.instructions for p in i.control_predecessors}
        module = computation.module
        assert module is not None
        effects = effectful_computations(list(module.computations))
        for loop in [i for i in computation.instructions if i.opcode == "while"]:
            called = list(loop.called())
            waits = any(i.control_predecessors for i in (loop, *(i for c in called for i in c.instructions)))
            waits |= "sharding" in loop.attributes  # which speaks of each element
            if waits or loop in waited_for or not effects.isdisjoint(called) or not lies_alike(loop):
                continue
            simpler = _Simpler(loop)
            if simpler.changes_something:
                yield simpler.put

    def tidy(self, module: Module) -> None:
        remove_uncalled(module)


class _Simpler:
    """A loop by the arrays of its tuple, at any depth."""

    def __init__(self, loop: Instruction) -> None:
        self.loop = loop
        self.paths = list(_leaves(loop.shape))
        self.place = {path: n for n, path in enumerate(self.paths)}
        self._inside: dict[TuplePath, list[int]] = {}
        for n, path in enumerate(self.paths):
            for length in range(len(path) + 1):
                self._inside.setdefault(path[:length], []).append(n)
        self.body, self.condition = loop.called_by("body"), loop.called_by("condition")
        self.starts = [_source(loop.operands[0], path) for path in self.paths]
        self.ends = [_source(self.body.root, path) for path in self.paths]
        self.rounds = derived_trip_count(loop)
        self.unchanged = {n for n, end in enumerate(self.ends) if end == (self.body.parameters[0], self.paths[n])}
        self.alike = self._alike()
        self.read_after = self._read_after()
        self.numbers = {n for n in self.unchanged if _is_number(self.starts[n][0])}
        self.kept = self._kept()

    @property
    def changes_something(self) -> bool:
        if self.rounds in (0, 1) or len(self.kept) < len(self.paths) or any(len(path) != 1 for path in self.paths):
            return True
        return not self.unchanged.isdisjoint(self.read_after)

    def _read_after(self) -> set[int]:
        """The numbers of the arrays that are read after the loop."""
        numbers: set[int] = set()
        stack: list[tuple[Instruction, TuplePath]] = [(self.loop, ())]
        while stack:
            value, path = stack.pop()
            users = list(value.users)
            if value.is_root or any(tuple_index(user) is None for user in users):
                numbers.update(self._below(path))
            stack += [(user, (*path, n)) for user in users if (n := tuple_index(user)) is not None]
            if path in self.place and (users or value.is_root):
                numbers.add(self.place[path])
        return numbers

    def _below(self, path: TuplePath) -> Sequence[int]:
        """The numbers of the arrays in an element, in order."""
        return self._inside.get(path, ())

    def _kept(self) -> list[int]:
        """The arrays that the simpler loop carries: those that the condition reads, those that change and are read
        afterwards, and those that these depend on."""
        needed = self._needed([(self.condition.root, ())], self.condition)
        needed |= {self.alike[n] for n in self.read_after - self.unchanged}
        todo = list(needed)
        while todo:
            more = self._needed([self.ends[todo.pop()]], self.body) - needed
            needed |= more
            todo += more
        return [n for n in range(len(self.paths)) if n in needed]

    def _needed(self, ends: Sequence[tuple[Instruction, TuplePath]], inside: Computation) -> set[int]:
        """The arrays that values of a round depend on."""
        state, needed = inside.parameters[0], set[int]()
        seen: set[Instruction] = set()
        stack = list(ends)
        while stack:
            value, path = _source(*stack.pop())
            if value is state:
                needed |= {self.alike[n] for n in self._below(path)} - self.numbers
            elif value not in seen:
                seen.add(value)
                stack += [(o, ()) for o in value.operands]
        return needed

    def _alike(self) -> list[int]:
        """For each array the first one that equals it after any number of rounds: both start equal, and a round
        computes the same for both if they were equal before."""
        members, state = Members(Structures()), self.body.parameters[0]
        numbers: dict[Hashable, int] = {}

        def number(key: Hashable) -> int:
            return numbers.setdefault(key, len(numbers))

        order = operands_first([self.body.root])
        classes = [number(start) for start in self.starts]
        while True:
            values: dict[Instruction, int] = {}

            def value(
                i: Instruction,
                path: TuplePath,
                classes: Sequence[int] = classes,
                values: Mapping[Instruction, int] = values,
            ) -> int:
                source, path = _source(i, path)
                if source is not state:
                    return number(("element", values[source], path)) if path else values[source]
                return number(("state", *[classes[n] for n in self._below(path)]))

            for i in order:
                if i is not state:
                    is_part = tuple_elements(i) is not None or tuple_index(i) is not None
                    operands = [value(o, ()) for o in i.operands]
                    values[i] = number(i) if is_part else number((members.of(i), *operands))
            refined = [number((c, value(*end))) for c, end in zip(classes, self.ends, strict=True)]
            if len(set(refined)) == len(set(classes)):
                return [refined.index(m) for m in refined]
            classes = refined

    def put(self) -> None:
        """Replace the loop by the simpler loop, or by its one round."""
        computation = self.loop.computation
        starts = [_element_of(computation, *start) for start in self.starts]
        if self.rounds == 0:
            values = dict(enumerate(starts))
        elif self.rounds == 1:
            round_ = _Round(self, self.body, computation, dict(enumerate(starts)))
            values = {n: round_.value(*self.ends[n]) for n in self.read_after}
        else:
            values = {**{n: starts[n] for n in self.unchanged}, **self._again(starts)}
        for path, user in self._readers():
            below = self._below(path)
            edit.redirect_users(
                user, _tuple_of(computation, self.loop.shape, path, {self.paths[n]: values[n] for n in below})
            )
        assert computation.module is not None
        edit.sort(computation)
        sweep(computation, effectful_computations(list(computation.module.computations)))

    def _readers(self) -> list[tuple[TuplePath, Instruction]]:
        """The readers of the loop's elements, with their paths; the loop itself where something reads it whole."""
        readers: list[tuple[TuplePath, Instruction]] = []
        stack: list[tuple[TuplePath, Instruction]] = [((), self.loop)]
        while stack:
            path, value = stack.pop()
            if value.is_root or any(tuple_index(user) is None for user in value.users) or path in self.place:
                readers.append((path, value))
            else:
                stack += [((*path, n), user) for user in value.users if (n := tuple_index(user)) is not None]
        return readers

    def _again(self, starts: Sequence[Instruction]) -> dict[int, Instruction]:
        """Create the simpler loop. Returns its results."""
        loop, computation = self.loop, self.loop.computation
        assert computation.module is not None
        shape = Shape.tuple_of(*(starts[n].shape for n in self.kept))
        called = {}
        for name, inside in (("condition", self.condition), ("body", self.body)):
            new = edit.new_computation(computation.module, inside.name)
            state = edit.create_parameter(new, "state", shape, 0)
            values = {n: edit.create_element(state, place) for place, n in enumerate(self.kept)}
            round_ = _Round(self, inside, new, values)
            if inside is self.body:
                edit.create_tuple(new, [round_.value(*self.ends[n]) for n in self.kept], root=True)
            else:
                edit.set_root(new, round_.value(inside.root, ()))
            called[name] = Called(new)
        attributes = {name: value for name, value in loop.attributes.items() if name != "backend_config"}
        count = known_trip_count(loop)
        if count is not None:
            attributes["backend_config"] = Attribute.of(Raw(f'{{"known_trip_count":{{"n":"{count}"}}}}'))
        start = edit.create_tuple(computation, [starts[n] for n in self.kept])
        again = edit.create(computation, loop.name, loop.opcode, shape, [start], {**attributes, **called})
        results = {n: edit.create_element(again, place) for place, n in enumerate(self.kept)}
        return {n: results[self.alike[n]] for n in self.read_after - self.unchanged}


class _Round:
    """The body or the condition of a loop, copied into another computation: `values` are the arrays of the loop
    there."""

    def __init__(
        self, simpler: _Simpler, inside: Computation, into: Computation, values: dict[int, Instruction]
    ) -> None:
        self.simpler, self.state, self.into = simpler, inside.parameters[0], into
        self.values = values
        self._copy = renewed if is_called_once(inside) else edit.clone_into
        self.copies: dict[Instruction, Instruction] = {}

    def value(self, i: Instruction, path: TuplePath) -> Instruction:
        """The copy of an element of a value."""
        source, path = _source(i, path)
        for needed in needed_first([source], self._sources):
            if needed is not self.state and needed not in self.copies:
                self.copies[needed] = self._copy(self.into, needed, [self._operand(o, ()) for o in needed.operands])
        return self._operand(source, path)

    def _sources(self, i: Instruction) -> list[Instruction]:
        """The operations that an operation depends on, looked up through tuples."""
        sources: list[Instruction] = []
        stack = list(i.operands) if i is not self.state else []
        while stack:
            source, _ = _source(stack.pop(), ())
            parts = tuple_elements(source)
            if parts is None:
                sources.append(source)
            else:
                stack += parts
        return sources

    def _operand(self, i: Instruction, path: TuplePath) -> Instruction:
        source, path = _source(i, path)
        if source is self.state:
            simpler = self.simpler
            below = {simpler.paths[n]: self._array(n) for n in simpler._below(path)}
            return _tuple_of(self.into, simpler.loop.shape, path, below)
        parts = tuple_elements(source)
        if parts is not None and not path:
            return edit.create_tuple(self.into, [self._operand(o, ()) for o in parts])
        return _element_of(self.into, self.copies[source], path)

    def _array(self, n: int) -> Instruction:
        """An array of the loop; a number is created anew."""
        place = self.simpler.alike[n]
        if place not in self.values:
            self.values[place] = edit.clone_into(self.into, self.simpler.starts[n][0], ())
        return self.values[place]


def _leaves(shape: Shape, path: TuplePath = ()) -> Iterator[TuplePath]:
    """The paths to the arrays of a tuple."""
    if shape.elements is None:
        yield path
    else:
        for n, element in enumerate(shape.elements):
            yield from _leaves(element, (*path, n))


def _source(i: Instruction, path: TuplePath) -> tuple[Instruction, TuplePath]:
    """The operation that computes an element of a value, and the number of the element. Elements of `tuple`
    instructions are looked up in them."""
    while True:
        number, parts = tuple_index(i), tuple_elements(i)
        if number is not None:
            i, path = i.operands[0], (number, *path)
        elif parts is not None and path:
            i, path = parts[path[0]], path[1:]
        else:
            return i, path


def _element_of(computation: Computation, value: Instruction, path: TuplePath) -> Instruction:
    """An element of a value."""
    for number in path:
        value = edit.create_element(value, number)
    assert value.parent is computation
    return value


def _tuple_of(
    computation: Computation, shape: Shape, path: TuplePath, arrays: Mapping[TuplePath, Instruction]
) -> Instruction:
    """An element of the loop's tuple, built from its arrays."""
    for number in path:
        assert shape.elements is not None
        shape = shape.elements[number]
    return _part(computation, shape, path, arrays)


def _part(
    computation: Computation, shape: Shape, path: TuplePath, arrays: Mapping[TuplePath, Instruction]
) -> Instruction:
    if shape.elements is None:
        return arrays[path]
    return edit.create_tuple(
        computation, [_part(computation, e, (*path, n), arrays) for n, e in enumerate(shape.elements)]
    )


def _is_number(i: Instruction) -> bool:
    """Whether it is a constant of one number."""
    return i.literal is not None and not i.literal.is_elided and i.shape.is_array and not i.shape.rank
