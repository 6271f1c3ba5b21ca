"""Loops whose rounds are loops, as one loop over all rounds: a kernel may then run it in one launch instead of one per
inner loop. Source of the idea: LLVM's LoopFlatten.cpp.

A round of the outer loop reads and writes a row of an array, and the inner loop parts of the row. The one loop reads
and writes parts of the array; the number of its round says which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar
from typing import Literal as OneOf

import numpy as np

from hlo_opt.analysis.graph.inlining import remove_uncalled
from hlo_opt.analysis.graph.loops import counted, lies_alike
from hlo_opt.analysis.properties import has_side_effect
from hlo_opt.ir import Computation, Instruction, Module, Shape, array, edit
from hlo_opt.ir.element_type import S32
from hlo_opt.ir.walk import needed_first, operands_first
from hlo_opt.ops.sets import read_window, tuple_elements, tuple_index, written_window
from hlo_opt.ops.spec import OpKind, find
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.expansion import BroadcastingWriter, CountedLoop
from hlo_opt.passes.loops.numbers import copied_into, is_bound, is_called_once, renewed

MOST_ROUNDS = (1 << 31) - 1
"""The most rounds of both loops together: an s32 counts them."""


@dataclass(frozen=True)
class WhileFlatten(RewritingPass):
    """Join two nested counted loops into one, where the outer body only reads and writes rows of arrays besides the
    inner loop. The values stay the same."""

    name: ClassVar[str] = "while-flatten"
    preserves: ClassVar[OneOf["graph", "meaning"]] = "meaning"
    simplifies: ClassVar[bool] = True

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        while True:
            nest = next(filter(None, map(_Nest.of, computation.instructions)), None)
            if nest is None:
                return
            yield nest.put

    def tidy(self, module: Module) -> None:
        remove_uncalled(module)


def flatten(loop: Instruction) -> Instruction | None:
    """The one loop that replaced a loop and the loop within it; None where they stay."""
    nest = _Nest.of(loop)
    if nest is None:
        return None
    flat_loop = nest.put()
    edit.sort(flat_loop.computation)
    return flat_loop


@dataclass
class _Nest:
    """A loop and the loop within its rounds.

    rounds   of the outer loop, and of the inner one in each of them
    handed   elements of the outer loop by the elements of the inner one in which they are handed on from round to round
    written  the same for arrays of which each inner loop writes a row, part by part
    kept     what no round of the outer loop changes
    rows     elements of the inner loop that are rows of such arrays, and the elements of the outer loop that the arrays
             are
    """

    outer: Instruction
    inner: Instruction
    rounds: tuple[int, int]
    counters: tuple[int, int]
    handed: dict[int, int] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)
    kept: set[int] = field(default_factory=set)
    rows: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, outer: Instruction) -> _Nest | None:
        if outer.opcode != "while" or is_bound(outer):
            return None
        body = outer.called_by("body")
        loops = [i for i in body.instructions if i.opcode == "while"]
        if len(loops) != 1 or any(
            tuple_elements(v) is None for v in (outer.operands[0], body.root, loops[0].operands[0])
        ):
            return None
        if not lies_alike(outer) or not lies_alike(loops[0]):
            return None
        both = [counted(outer), counted(loops[0])]
        counts = [c for c in both if c is not None and (c.start, c.step) == (0, 1) and len(c.counter) == 1 and c.rounds]
        if len(counts) < 2 or counts[0].rounds * counts[1].rounds > MOST_ROUNDS:
            return None
        rounds, counters = (counts[0].rounds, counts[1].rounds), (counts[0].counter[0], counts[1].counter[0])
        nest = cls(outer, loops[0], rounds, counters)
        return nest if nest._fits() else None

    def _fits(self) -> bool:
        """Whether each element of the outer loop is of one of these kinds, and the inner loop reads nothing else that
        the outer rounds change."""
        body, inside = self.outer.called_by("body"), self.inner.called_by("body")
        results, ends = tuple_elements(body.root), tuple_elements(inside.root)
        members = [*body.instructions, *inside.instructions]
        if results is None or ends is None or any(i.control_predecessors or has_side_effect(i) for i in members):
            return False
        if any(not _is_array_of_s32(self.outer, n) for n in self.counters[:1]) or len(self.inner.operands[0].users) > 1:
            return False
        for number, result in enumerate(results):
            if number == self.counters[0]:
                continue
            if _takes(result, body.parameters[0], number):
                self.kept.add(number)
            elif not self._is_handed(number, result) and not self._is_written(number, result):
                return False
        changed = {n for n, end in enumerate(ends) if not _takes(end, inside.parameters[0], n)}
        if changed != {self.counters[1], *self.handed, *self.written}:
            return False
        if any(tuple_index(user) not in changed - {self.counters[1]} for user in self.inner.users):
            return False
        return all(self._is_given(n) for n in range(len(ends)) if n not in changed)

    def _is_handed(self, number: int, result: Instruction) -> bool:
        """Whether the inner loop carries an element from round to round, or computes it anew."""
        body, inside = self.outer.called_by("body"), self.inner.called_by("body")
        element = tuple_index(result)
        if element is None or result.operands != [self.inner] or element in self.handed or len(result.users) > 1:
            return False
        start = (tuple_elements(self.inner.operands[0]) or [])[element]
        readers = _readers(body.parameters[0], number)
        is_own = _takes(start, body.parameters[0], number) and self.inner.operands[0].operands.count(start) == 1
        if readers != ({self.inner.operands[0]} if is_own else set()):
            return False
        if not is_own and _readers(inside.parameters[0], element):
            return False
        if not start.shape.same_bytes(_element(self.outer, number)):
            return False
        self.handed[element] = number
        return (tuple_elements(body.root) or []).count(result) == 1

    def _is_written(self, number: int, result: Instruction) -> bool:
        """Whether an element is an array of which each outer round writes the next row, and an inner loop all of the
        row, part by part."""
        body, inside = self.outer.called_by("body"), self.inner.called_by("body")
        row = written_window(result)
        if row is None or not _takes(result.operands[0], body.parameters[0], number) or len(result.users) > 1:
            return False
        if _readers(body.parameters[0], number) != {result} or not self._is_row(result, self.outer, row.shape):
            return False
        while row.opcode == "reshape" and len(row.users) == 1:
            row = row.operands[0]
        element = tuple_index(row)
        if element is None or row.operands != [self.inner] or len(row.users) > 1 or element in self.written:
            return False
        end = (tuple_elements(inside.root) or [])[element]
        if written_window(end) is None or not _takes(end.operands[0], inside.parameters[0], element):
            return False
        if len(end.users) > 1 or _readers(inside.parameters[0], element) != {end}:
            return False
        if not self._is_row(end, self.inner, end.operands[1].shape):
            return False
        self.written[element] = number
        return True

    def _is_row(self, i: Instruction, loop: Instruction, part: Shape) -> bool:
        """Whether an operation reads or writes the part of an array of rows that the round's number gives, so that the
        rounds cover all of it."""
        whole = i.operands[0].shape
        first, *others = i.operands[1:] if written_window(i) is None else i.operands[2:]
        size, rounds = part.dimensions[0] if part.rank else 0, self.rounds[loop is self.inner]
        if part.dimensions[1:] != whole.dimensions[1:] or size * rounds != whole.dimensions[0]:
            return False
        if not (whole.is_row_major and part.is_row_major) or any(whole.dynamic):
            return False
        factors = {size: first} if size == 1 else {}
        if first.opcode == "multiply":
            factors = {n: o for o, other in (first.operands, first.operands[::-1]) if (n := _number(other)) is not None}
        count = factors.get(size)
        state = loop.called_by("body").parameters[0]
        is_counter = count is not None and _takes(count, state, self.counters[loop is self.inner])
        return is_counter and all(_number(o) == 0 for o in others)

    def _is_given(self, element: int) -> bool:
        """Whether a value that no inner round changes is a row of an array, or costs next to nothing to compute in each
        inner round."""
        body, inside = self.outer.called_by("body"), self.inner.called_by("body")
        value = (tuple_elements(self.inner.operands[0]) or [])[element]
        readers = _readers(inside.parameters[0], element) - {inside.root}
        row = value
        while row.opcode == "reshape":
            row = row.operands[0]
        array_ = read_window(row)
        if array_ is not None and self._is_row(row, self.outer, row.shape):
            number = tuple_index(array_)
            is_kept = array_.operands == body.parameters and number in self.kept
            parts = [u for u in readers if read_window(u) is not None and tuple_index(u.operands[0]) == element]
            are_parts = len(parts) == len(readers) and all(self._is_row(u, self.inner, u.shape) for u in parts)
            if is_kept and number is not None and are_parts:
                self.rows[element] = number
                return True
        return all(map(self._is_cheap, operands_first([value])))

    def _is_cheap(self, i: Instruction) -> bool:
        body = self.outer.called_by("body")
        if i.parameter_number is not None or i.literal is not None:
            return True
        element = tuple_index(i)
        if element is not None:
            return i.operands == body.parameters and element in self.kept | {self.counters[0]}
        spec = find(i.opcode)
        if spec is None or not i.shape.is_array:
            return False
        return (
            spec.kind is OpKind.MOVEMENT
            or read_window(i) is not None
            or (spec.kind is OpKind.ELEMENTWISE and not i.shape.rank)
        )

    def put(self) -> Instruction:
        """Replace both loops by the one loop."""
        start_values, writer = tuple_elements(self.outer.operands[0]) or [], BroadcastingWriter(self.outer.computation)
        body, inside = self.outer.called_by("body"), self.inner.called_by("body")
        flat = {n: self._flat(element) for element, n in self.written.items()}
        flat_rows = {element: self._flat(element) for element in self.rows}
        around_values = [
            v
            for n, v in enumerate(tuple_elements(self.inner.operands[0]) or [])
            if n not in {*self.handed, *self.written, *self.rows}
        ]
        needed = {tuple_index(i) for i in operands_first(around_values)}
        numbers = [*self.handed.values(), *self.written.values(), *sorted(self.kept & needed)]
        starts = [_under(writer, start_values[n], flat.get(n, start_values[n].shape)) for n in numbers]
        starts += [_under(writer, start_values[self.rows[e]], shape) for e, shape in flat_rows.items()]
        loop = CountedLoop(self.outer.computation, self.rounds[0] * self.rounds[1], starts)
        of_outer = dict(zip(numbers, loop.values, strict=False))
        of_rows = dict(zip(flat_rows, loop.values[len(numbers) :], strict=True))
        around = {i: of_outer[n] for i, n in _elements(body.parameters[0]) if n in of_outer}
        per = loop.inside.number(self.rounds[1])
        for i, n in _elements(body.parameters[0]):
            if n == self.counters[0]:
                around[i] = loop.inside.binary("divide", loop.counter, per)
        copies: dict[Instruction, Instruction] = {}
        for i, n in _elements(inside.parameters[0]):
            if n == self.counters[1]:
                copies[i] = loop.inside.binary("remainder", loop.counter, per)
            elif n in self.handed or n in self.written:
                copies[i] = of_outer[{**self.handed, **self.written}[n]]
            elif n in self.rows:
                copies[i] = of_rows[n]
            else:
                value = (tuple_elements(self.inner.operands[0]) or [])[n]
                copied_into(loop.body, needed_first([value], lambda i: () if i in around else i.operands), around)
                copies[i] = around[value]
        ends = tuple_elements(inside.root) or []
        parts = {i for e in self.rows for i in _readers(inside.parameters[0], e)} | {ends[e] for e in self.written}
        copy = renewed if is_called_once(inside) and is_called_once(body) else edit.clone_into
        for i in inside.instructions:
            if i in copies or i is inside.root or i.parameter_number is not None:
                continue
            operands = [copies[o] for o in i.operands]
            if i in parts:
                at = 1 if written_window(i) is None else 2
                size = i.shape.dimensions[0] if at == 1 else i.operands[1].shape.dimensions[0]
                place = (
                    loop.counter
                    if size == 1
                    else loop.inside.binary("multiply", loop.counter, loop.inside.number(size))
                )
                operands[at] = place
                shape = i.shape if at == 1 else operands[0].shape
                attributes = dict(i.attributes)
                copies[i] = edit.create(loop.body, i.name, i.opcode, shape, operands, attributes)
            else:
                copies[i] = copy(loop.body, i, operands)
        round_results = [copies[ends[e]] for e in (*self.handed, *self.written)]
        results = loop.run(round_results)
        self._read({**{n: start_values[n] for n in self.kept}, **dict(zip(numbers, results, strict=False))})
        return results[0].operands[0]

    def _flat(self, element: int) -> Shape:
        """The shape of an element of the inner loop over all rounds of the outer one."""
        shape = _element(self.inner, element)
        return array(shape.type, shape.dimensions[0] * self.rounds[0], *shape.dimensions[1:])

    def _read(self, results: dict[int, Instruction]) -> None:
        """Let the readers of the outer loop read the one loop."""
        writer, outer = BroadcastingWriter(self.outer.computation), self.outer
        results[self.counters[0]] = writer.number(self.rounds[0])
        values: dict[int, Instruction] = {}

        def value(number: int) -> Instruction:
            if number not in values:
                values[number] = _under(writer, results[number], _element(outer, number))
            return values[number]

        for user in list(outer.users):
            number = tuple_index(user)
            if number is None:
                continue
            for reader in list(user.users):
                if reader.opcode == "reshape" and reader.shape.same_bytes(results[number].shape):
                    edit.redirect_users(reader, results[number])
                    edit.remove(reader)
            if user.users or user.is_root:
                edit.redirect_users(user, value(number))
            edit.remove(user)
        if outer.users or outer.is_root:
            count = len(outer.shape.elements or ())
            edit.redirect_users(outer, edit.create_tuple(outer.computation, [value(n) for n in range(count)]))
        start = outer.operands[0]
        edit.remove(outer)
        if not start.users and not start.is_root:
            edit.remove(start)


def _under(writer: BroadcastingWriter, value: Instruction, shape: Shape) -> Instruction:
    """A row-major value under another shape, or the value that it is a reshape of, if that has the shape."""
    if value.shape.same_bytes(shape):
        return value
    if value.opcode == "reshape" and value.operands[0].shape.same_bytes(shape):
        return value.operands[0]
    return writer.emit("bitcast", shape, value)


def _takes(value: Instruction, state: Instruction, number: int) -> bool:
    """Whether a value is an element of the state."""
    return tuple_index(value) == number and value.operands == [state]


def _elements(state: Instruction) -> list[tuple[Instruction, int]]:
    """The get-tuple-elements of the state, with their numbers."""
    return [(user, number) for user in state.users if (number := tuple_index(user)) is not None]


def _readers(state: Instruction, number: int) -> set[Instruction]:
    """The readers of an element of the state."""
    return {reader for user, n in _elements(state) if n == number for reader in user.users}


def _element(loop: Instruction, number: int) -> Shape:
    assert loop.shape.elements is not None
    return loop.shape.elements[number]


def _is_array_of_s32(loop: Instruction, number: int) -> bool:
    return _element(loop, number).type == S32


def _number(value: Instruction) -> int | None:
    """The value of a whole number."""
    if value.literal is None or not value.literal.is_known or value.shape.rank or not value.shape.type.is_integer:
        return None
    return int(np.asarray(value.literal.value))
