"""Several rounds of a loop as one: values that a round leaves in memory for the next stay in a kernel, and a launch
does the work of several.

Source: xla/service/while_loop_unroller.cc, which unrolls wholly, and
xla/service/gpu/transforms/double_buffer_loop_unrolling.cc, by a factor and with the remaining rounds outside of the
loop. *Operator Fusion in XLA* unrolls its scan by 10. Loops that are one launch already gain nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar
from typing import Literal as OneOf

import numpy as np

from hlo_opt.analysis.graph.inlining import remove_uncalled
from hlo_opt.analysis.graph.loops import Counted, counted, lies_alike
from hlo_opt.analysis.properties import effectful_computations
from hlo_opt.diag import UsageError
from hlo_opt.fusion import outline
from hlo_opt.fusion.summary import module_summary
from hlo_opt.ir import Called, Computation, Instruction, Literal, Module, Shape, edit
from hlo_opt.ops.sets import launches, tuple_elements, tuple_index
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.expansion import BroadcastingWriter
from hlo_opt.passes.loops.numbers import copied_into
from hlo_opt.passes.pipeline import parse_pipeline
from hlo_opt.passes.while_fusion import one_launch

FACTORS = (2, 4, 8)
"""The factors that `auto` tries."""
MOST_OPERATIONS = 512
"""The most operations of a joined round that `auto` writes: more take long to fuse and to compile."""
GAIN = 0.9
"""`auto` joins rounds if they then take at most this share of their time."""
ALONE = "priority-fusion,cse,dce"
"""The pipeline that fuses rounds, to estimate them."""


@dataclass(frozen=True)
class WhileUnroll(RewritingPass):
    """Unroll counted loops by a factor; remaining iterations follow the loop. The values stay the same.

    factor  the number of iterations that become one; `auto`: the number that is estimated to take least time, for loops
            that are not a single launch. Joined iterations compute values that several threads need once for each, so a
            device with slow arithmetic loses, and no preset unrolls
    """

    name: ClassVar[str] = "while-unroll"
    preserves: ClassVar[OneOf["graph", "meaning"]] = "meaning"

    factor: int | str = "auto"

    def run(self, module: Module, context: PassContext) -> bool:
        if self.factor != "auto" and (isinstance(self.factor, str) or self.factor < 2):
            raise UsageError(f"while-unroll: factor must be auto or a number from 2 on, not {self.factor}")
        return super().run(module, context)

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        for loop in [i for i in computation.instructions if i.opcode == "while"]:
            rounds = UnrolledLoop.of(loop)
            if rounds is None:
                continue
            factor = self.factor if isinstance(self.factor, int) else rounds.best(context)
            if 1 < factor <= rounds.count.rounds:
                yield partial(rounds.join, factor)

    def tidy(self, module: Module) -> None:
        remove_uncalled(module)


@dataclass(frozen=True)
class UnrolledLoop:
    """A counted loop. `counter` is the number of the element of its state that counts."""

    loop: Instruction
    count: Counted
    counter: int

    @classmethod
    def of(cls, loop: Instruction) -> UnrolledLoop | None:
        """The rounds of a loop; None where it is not counted, where it or an operation in it has control predecessors,
        where others wait for it, or where something else sees that it runs."""
        count, body = counted(loop), loop.called_by("body")
        module = loop.computation.module
        assert module is not None
        if count is None or len(count.counter) != 1 or count.rounds < 2 or loop.control_predecessors:
            return None
        if tuple_elements(body.root) is None or not _takes_elements(body) or not lies_alike(loop):
            return None
        if any(i.control_predecessors for c in loop.called() for i in c.instructions):
            return None
        if any(loop in i.control_predecessors for i in loop.computation.instructions):
            return None
        if not effectful_computations(list(module.computations)).isdisjoint(loop.called()):
            return None
        return cls(loop, count, count.counter[0])

    def best(self, context: PassContext) -> int:
        """The best factor; 1 where none pays."""
        if one_launch(self.loop, context) is not None:
            return 1
        operations = sum(map(launches, self.loop.called_by("body").instructions))
        alone = self._us(1, context)
        costs = {1: alone * self.count.rounds}
        for factor in FACTORS:
            if factor <= self.count.rounds and factor * operations <= MOST_OPERATIONS:
                times, rest = divmod(self.count.rounds, factor)
                costs[factor] = self._us(factor, context) * times + alone * rest
        quickest = min(costs, key=lambda factor: (costs[factor], factor))
        return quickest if costs[quickest] < GAIN * costs[1] else 1

    def _us(self, factor: int, context: PassContext) -> float:
        """The time of `factor` rounds, fused."""
        assert self.loop.computation.module is not None
        module = edit.clone_module(self.loop.computation.module)
        computation = next(c for c in module.computations if c.name == self.loop.computation.name)
        loop = next(i for i in computation.instructions if i.name == self.loop.name)
        alone = edit.add_computation(module, Computation(module.unique_name("rounds")), entry=True)
        state = [outline.parameter_for(alone, n, i) for n, i in enumerate(tuple_elements(loop.operands[0]) or [])]
        if not state:
            state = [edit.create_parameter(alone, f"p{n}", s, n) for n, s in enumerate(loop.shape.elements or ())]
        results = UnrolledLoop(loop, self.count, self.counter).written(alone, state, state[self.counter], factor)
        edit.create_tuple(alone, results, root=True)
        remove_uncalled(module)
        parse_pipeline(ALONE).run(module, PassContext(context.options))
        return module_summary(module, context.options.target).est_us

    def written(
        self, into: Computation, state: Sequence[Instruction], first: Instruction, factor: int
    ) -> list[Instruction]:
        """Write `factor` rounds one after another. `first` is the counter before them. Returns the state after them."""
        body, values = self.loop.called_by("body"), list(state)
        shared: dict[Instruction, Instruction] = {}
        for round_ in range(factor):
            copies = {i: values[n] for i in body.parameters[0].users if (n := tuple_index(i)) is not None}
            copies.update(shared)
            copied_into(
                into, [i for i in body.instructions if i is not body.root and i.parameter_number is None], copies
            )
            shared.update({i: copy for i, copy in copies.items() if i.literal is not None})
            values = [copies[end] for end in tuple_elements(body.root) or ()]
            values[self.counter] = self._counter(into, first, round_ + 1)
        return values

    def _counter(self, into: Computation, first: Instruction, rounds: int) -> Instruction:
        """The counter some rounds later."""
        distance = rounds * self.count.step
        if first.literal is not None:
            return _constant(into, first.shape, int(np.asarray(first.literal.value)) + distance)
        step = _constant(into, first.shape, distance)
        return edit.create(into, "add", "add", first.shape, [first, step])

    def join(self, factor: int) -> None:
        """Replace the loop by one of `factor` rounds at a time, with the remaining rounds after it."""
        loop, computation, count = self.loop, self.loop.computation, self.count
        module, body = computation.module, self.loop.called_by("body")
        assert module is not None
        times, rest = divmod(count.rounds, factor)
        many = edit.new_computation(module, body.name)
        parameter = edit.create_parameter(many, "state", loop.shape, 0)
        state = [edit.create_element(parameter, n) for n in range(len(loop.shape.elements or ()))]
        edit.create_tuple(many, self.written(many, state, state[self.counter], factor), root=True)
        condition = edit.new_computation(module, loop.called_by("condition").name)
        counter = edit.create_element(edit.create_parameter(condition, "state", loop.shape, 0), self.counter)
        end = count.start + times * factor * count.step
        limit = _constant(condition, counter.shape, end)
        edit.set_root(
            condition, BroadcastingWriter(condition).compare("LT" if count.step > 0 else "GT", counter, limit)
        )
        attributes = {name: value for name, value in loop.attributes.items() if name != "backend_config"}
        called = {"condition": Called(condition), "body": Called(many)}
        replacement = edit.create(
            computation, loop.name, loop.opcode, loop.shape, loop.operands, {**attributes, **called}
        )
        if rest:
            after = [edit.create_element(replacement, n) for n in range(len(state))]
            last = _constant(computation, counter.shape, end)
            replacement = edit.create_tuple(computation, self.written(computation, after, last, rest))
        for user in list(loop.users):
            number, parts = tuple_index(user), tuple_elements(replacement)
            if number is not None and parts is not None:
                edit.redirect_users(user, parts[number])
        edit.redirect_users(loop, replacement)
        edit.remove(loop)


def _takes_elements(body: Computation) -> bool:
    """Whether the body reads its state by get-tuple-elements only."""
    return all(tuple_index(user) is not None for user in body.parameters[0].users)


def _constant(computation: Computation, shape: Shape, value: int) -> Instruction:
    literal = Literal(shape, value=np.asarray(value).astype(shape.type.dtype))
    return edit.create(computation, "constant", "constant", shape, literal=literal)
