"""Loops that were unrolled when the program was traced, as loops again: a chain of copies of one graph becomes a
`while` whose body is one copy.

A traced Python loop leaves its rounds one after another, and so does `lax.scan(unroll=10)` within its body. Kernels for
such a program are long and many; the loop itself can be one launch, and is a tenth of the text. Source of the idea:
LLVM's LoopRerollPass.cpp; XLA has no such pass.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar
from typing import Literal as OneOf

import numpy as np

from hlo_opt.analysis.graph.chains import CopyChain, Row, chain_of, source
from hlo_opt.analysis.graph.inlining import remove_uncalled
from hlo_opt.analysis.graph.loops import trip_count
from hlo_opt.analysis.properties import effectful_computations
from hlo_opt.fusion import outline
from hlo_opt.fusion.summary import module_summary
from hlo_opt.ir import Computation, Instruction, Literal, Module, Shape, SliceDimension, array, edit
from hlo_opt.ops.sets import COPIES, cut_out, is_elementwise, launches, looped
from hlo_opt.ops.spec import OpKind, find
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.dce import sweep
from hlo_opt.passes.expansion import BroadcastingWriter, CountedLoop
from hlo_opt.passes.loops.numbers import copied_into, from_numbers, renewed
from hlo_opt.passes.loops.while_flatten import flatten
from hlo_opt.passes.pipeline import parse_pipeline
from hlo_opt.passes.while_fusion import one_launch
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.plans.price import price
from hlo_opt.plans.sketch import candidate_of

FEW_OPERATIONS = 16
"""The fewest copies that are worth a loop if they are not elementwise together."""
ALONE = "priority-fusion,cse,dce"
"""The pipeline that fuses one copy, to estimate it by itself."""
MOST_NUMBERS = 1 << 14
"""The most elements of a constant in all copies: the loop looks them up in a table."""


@dataclass(frozen=True)
class WhileReroll(RewritingPass):
    """Turn a chain of copies of one graph, as from an unrolled loop, into a loop. The copies may differ in constants,
    and in slices of one array at equal distances.

    min_copies      the fewest copies that become a loop
    min_operations  the fewest operations of all copies: one kernel can hold fewer. It does not apply in the body of a
                    loop, where the copies become more iterations of that loop
    one_launch      only where all iterations then are one launch
    """

    name: ClassVar[str] = "while-reroll"
    preserves: ClassVar[OneOf["graph", "meaning"]] = "meaning"
    simplifies: ClassVar[bool] = True

    min_copies: int = 4
    min_operations: int = 1024
    one_launch: bool = True

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        while computation.module is not None:
            chain, added = _completed(computation, max(2, self.min_copies))
            rolled = None if chain is None else _Rolled.of(computation, chain)
            if rolled is None or not self._pays(rolled, context):
                for i in reversed(added):  # nothing was changed
                    edit.unmake(i)
                return
            yield partial(_put, rolled)

    def _pays(self, rolled: _Rolled, context: PassContext) -> bool:
        """Whether a chain is long enough, and, if that is asked for, whether the loop is one launch that takes less
        time than the copies; tried on a copy of the module."""
        is_long = rolled.chain.size >= (
            self.min_operations if rolled.is_elementwise else min(self.min_operations, FEW_OPERATIONS)
        )
        if is_long and not self.one_launch:
            return True
        loop, is_whole = _put(rolled.on_copy())
        if not is_whole and (not is_long or rolled.is_in_one_launch(context)):
            return False
        if not self.one_launch:
            return True
        us = one_launch(loop, context)
        return us is not None and rolled.takes_longer(us, context)

    def tidy(self, module: Module) -> None:
        remove_uncalled(module)


def _completed(computation: Computation, fewest: int) -> tuple[CopyChain | None, list[Instruction]]:
    """The largest chain of a computation. A last copy may lack operations that nothing needs there; they are added.
    Returns the chain and these operations, operands first."""
    chain = chain_of(computation, fewest)
    if chain is None or chain.short is None:
        return chain, []
    copies = dict(chain.short.there)
    for i, operands in chain.short.missing.items():
        copies[i] = edit.clone_into(computation, i, [copies.get(o, o) for o in operands])
    edit.sort(computation)
    return chain_of(computation, fewest), [copies[i] for i in chain.short.missing]


def _put(rolled: _Rolled) -> tuple[Instruction, bool]:
    """Replace the copies by the loop. If the copies are the whole body of a loop, both become one loop. Returns the
    loop, and whether that was so."""
    computation = rolled.computation
    assert computation.module is not None
    loop = rolled.put()
    edit.sort(computation)
    sweep(computation, effectful_computations(list(computation.module.computations)))
    around = _callers(computation)
    outer = flatten(around[0]) if len(around) == 1 else None
    return outer or loop, outer is not None


def _callers(computation: Computation) -> list[Instruction]:
    assert computation.module is not None
    return [i for c in computation.module.computations for i in c.instructions if computation in i.called()]


def _spreads(i: Instruction) -> bool:
    """Whether an operation broadcasts a number, or returns its operand in other dimensions."""
    spec = find(i.opcode)
    return (
        spec is not None
        and spec.kind is OpKind.MOVEMENT
        and (i.opcode in COPIES or not any(o.shape.rank for o in i.operands))
    )


@dataclass
class _Rolled:
    """A chain and its results that are read afterwards. `after` are values of the state, by the operation that computes
    them last; `last` are rows of which only the last copy's is read, `joined` rows that a concatenate joins, `stacked`
    rows of which others are read one by one, and `kept` rows of constants in other dimensions, which stay."""

    computation: Computation
    chain: CopyChain
    after: dict[Instruction, int] = field(default_factory=dict)
    last: list[Row] = field(default_factory=list)
    joined: list[tuple[Row, Instruction]] = field(default_factory=list)
    stacked: list[Row] = field(default_factory=list)
    kept: list[Row] = field(default_factory=list)

    @classmethod
    def of(cls, computation: Computation, chain: CopyChain) -> _Rolled | None:
        """The rolled chain; None where constants that differ are too large, or results that are read are not
        row-major."""
        rolled = cls(computation, chain)
        members = {i for row in chain.nodes for i in row}
        for row in chain.leaves:
            if row[0].literal is not None and row[0].shape.element_count * chain.copies > MOST_NUMBERS:
                return None
        if any(not state[0].shape.same_bytes(state[-1].shape) for state in chain.state):
            return None
        rolled.after = {state[-1]: n for n, state in reversed([*enumerate(chain.state)]) if state[-1] in members}
        for row in chain.nodes:
            readers = [[u for u in i.users if u not in members] for i in row]
            for user in list(dict.fromkeys(readers[0])):
                if user.opcode == "concatenate" and tuple(user.operands) == row and user.shape.is_row_major:
                    rolled.joined.append((row, user))
                    readers = [[u for u in users if u is not user] for users in readers]
            read = [bool(users) or i.is_root for users, i in zip(readers, row, strict=True)]
            read = [is_read and i not in rolled.after for is_read, i in zip(read, row, strict=True)]
            if not any(read):
                continue
            if all(i.opcode == "broadcast" and i.operands[0].literal is not None for i in row):
                rolled.kept.append(row)
                continue
            if not row[0].shape.is_array or not row[0].shape.is_row_major or any(row[0].shape.dynamic):
                return None
            (rolled.stacked if any(read[:-1]) else rolled.last).append(row)
        return rolled

    @property
    def is_elementwise(self) -> bool:
        """Whether one kernel may hold all copies: each value depends on values at the same place only, and no two
        copies write one array."""
        rows = self.chain.nodes
        return not self.joined and not self.stacked and all(is_elementwise(row[0]) or _spreads(row[0]) for row in rows)

    @property
    def times(self) -> int:
        """How often the copies run, if known: once for each round of the loop whose body they are."""
        around = _callers(self.computation)
        return 1 if len(around) != 1 or looped(around[0]) is None else trip_count(around[0]) or 1

    def is_in_one_launch(self, context: PassContext) -> bool:
        """Whether the copies are the body of a loop that is one launch already. A loop within would end that."""
        around = _callers(self.computation)
        if len(around) != 1 or looped(around[0]) is None:
            return False
        return one_launch(around[0], context) is not None

    def on_copy(self) -> _Rolled:
        """The same chain in a copy of the module."""
        assert self.computation.module is not None
        module = edit.clone_module(self.computation.module)
        computation = next(c for c in module.computations if c.name == self.computation.name)
        named = {i.name: i for i in computation.instructions}
        chain = self.chain.mapped(lambda i: named[i.name])
        rolled = _Rolled.of(computation, chain)
        assert rolled is not None
        return rolled

    def takes_longer(self, us: float, context: PassContext) -> bool:
        """Whether the copies take longer than `us`: as one kernel if one may hold them, else fused one by one. Their
        launches alone may take longer; then nothing has to be fused."""
        together = self._us_together(context) if self.is_elementwise else None
        if together is not None:
            return us < self.times * together
        often = self.times * self.chain.copies
        return us < often * context.options.target.kernel_launch_us or self._takes_longer_apart(us / often, context)

    def _us_together(self, context: PassContext) -> float | None:
        """The time of one kernel of all copies; None where no kernel can hold them."""
        module, rows = self.computation.module, self.chain.nodes
        assert module is not None
        inside = Computation("copies")
        copies: dict[Instruction, Instruction] = {}
        members = [row[n] for n in range(self.chain.copies) for row in (*self.chain.leaves, *rows)]
        inner = set(members)
        operands = list(dict.fromkeys(o for i in members for o in i.operands if o not in inner))
        for operand in operands:
            copies[operand] = outline.parameter_for(inside, len(copies), operand)
        copied_into(inside, members, copies)
        ends = [copies[row[-1]] for row in self.last] + [copies[i] for i in self.after if i in copies]
        edit.create_tuple(inside, ends, root=True)
        kernel_plan = plan(region_of(module, candidate_of(inside, operands)), context.options.target)
        return price(kernel_plan, context.options.target).us if isinstance(kernel_plan, Plan) else None

    def _takes_longer_apart(self, us: float, context: PassContext) -> bool:
        """Whether one copy, fused by itself, takes longer than `us`. It may be one kernel, which has a price, or
        several kernels whose launches take longer; else it has to be fused."""
        copied, target = self.on_copy(), context.options.target
        module = copied.computation.module
        assert module is not None
        alone = edit.add_computation(module, Computation(module.unique_name("copy")), entry=True)
        nodes = dict.fromkeys(row[0] for row in copied.chain.nodes)
        operands = list(dict.fromkeys(o for i in nodes for o in i.operands if o not in nodes))
        copies = {o: outline.parameter_for(alone, number, o) for number, o in enumerate(operands)}
        copied_into(alone, list(nodes), copies)
        ends = [i for i in nodes if not nodes.keys() >= set(i.users)]
        edit.create_tuple(alone, [copies[end] for end in ends], root=True)
        if sum(map(launches, nodes)) > 1 and us < 2 * target.kernel_launch_us:
            together = plan(region_of(module, candidate_of(alone, operands)), target)
            if not isinstance(together, Plan) or us < price(together, target).us:
                return True
        remove_uncalled(module)
        parse_pipeline(ALONE).run(module, PassContext(context.options))
        return us < module_summary(module, target).est_us

    def put(self) -> Instruction:
        """Replace the copies by the loop, which is returned."""
        chain, outside = self.chain, _Outside(self.computation, self.chain.copies)
        start_values = [state[0] for state in chain.state]
        start_values += [outside.zeros(row[0].shape) for row in self.last]
        start_values += [outside.zeros(c.shape) for _, c in self.joined]
        start_values += [outside.zeros(outside.stack_of(row[0].shape)) for row in self.stacked]
        count = len(start_values)
        shared = [i for i in self._shared() if from_numbers(i) is None]
        looked_up = [row for row in chain.leaves if row[0].literal is not None and _numbers(row) is None]
        start_values += [*shared, *map(outside.table, looked_up)]
        loop = CountedLoop(self.computation, chain.copies, start_values)
        inside = iter(loop.values[count:])
        round_ = _Round(chain, loop, {i: next(inside) for i in shared}, {row[0]: next(inside) for row in looked_up})
        round_.write()
        values, ends, at = loop.values, [], len(chain.state)
        ends += [round_.value(state[1:]) for state in chain.state]
        ends += [round_.copies[row[0]] for row in self.last]
        at += len(self.last)
        for row, concatenate in self.joined:
            (along,) = concatenate.ints("dimensions")
            ends.append(round_.written(values[at], round_.copies[row[0]], along))
            at += 1
        for row in self.stacked:
            value = round_.copies[row[0]]
            thin = loop.inside.reshape(value, array(value.shape.type, 1, *value.shape.dimensions))
            ends.append(round_.written(values[at], thin, 0))
            at += 1
        results = loop.run(ends)
        self._read(results, outside)
        return results[0].operands[0]

    def _shared(self) -> list[Instruction]:
        """The values that are the same for all copies, and the arrays of which they read different slices."""
        values: dict[Instruction, None] = {}
        for row in self.chain.nodes:
            for position in range(len(row[0].operands)):
                operands = tuple(i.operands[position] for i in row)
                if all(o is operands[0] for o in operands):
                    values[operands[0]] = None
        values.update({o: None for row in self.chain.leaves for o in row[0].operands})
        return list(values)

    def _read(self, results: Sequence[Instruction], outside: _Outside) -> None:
        """Let the readers of the copies read the loop, and remove the copies."""
        chain, at = self.chain, len(self.chain.state)
        for row in self.last:
            edit.redirect_users(row[-1], results[at])
            at += 1
        for _, concatenate in self.joined:
            edit.redirect_users(concatenate, results[at])
            edit.remove(concatenate)
            at += 1
        for row in self.stacked:
            for number, i in enumerate(row):
                if i not in self.after:
                    edit.redirect_users(i, outside.taken(results[at], number, i.shape))
            at += 1
        for i, number in self.after.items():
            edit.redirect_users(i, results[number])
        gone = (i for row in chain.nodes if row not in self.kept for i in row)
        for i in sorted(gone, key=self._place().__getitem__, reverse=True):
            edit.remove(i)

    def _place(self) -> dict[Instruction, int]:
        return {i: n for n, i in enumerate(self.computation.instructions)}


class _Outside:
    """The computation around the loop: arrays for the results of the rounds, and parts of them."""

    def __init__(self, computation: Computation, copies: int) -> None:
        self.writer, self.copies = BroadcastingWriter(computation), copies

    def zeros(self, shape: Shape) -> Instruction:
        """An array of zeros, which the rounds overwrite."""
        zero = self.writer.scalar(shape.type, 0)
        return self.writer.emit("broadcast", shape, zero, dimensions=()) if shape.rank else zero

    def stack_of(self, shape: Shape) -> Shape:
        return array(shape.type, self.copies, *shape.dimensions)

    def table(self, row: Row) -> Instruction:
        """The constants of the copies, one after another."""
        values = [np.asarray(i.literal.value) for i in row if i.literal is not None]
        shape = self.stack_of(row[0].shape)
        literal = Literal(shape, value=np.stack(values))
        return edit.create(self.writer.computation, "table", "constant", shape, literal=literal)

    def taken(self, stack: Instruction, number: int, shape: Shape) -> Instruction:
        """The value of a copy, read from the loop's result."""
        cut = (SliceDimension(number, number + 1), *(SliceDimension(0, size) for size in shape.dimensions))
        thin = self.writer.emit("slice", array(shape.type, 1, *shape.dimensions), stack, slice=cut)
        return self.writer.reshape(thin, shape)


def _numbers(row: Row) -> list[int] | None:
    """The values of integer constants in equal distances that fit into s32; None for other constants."""
    shape = row[0].shape
    if shape.rank or not shape.type.is_integer:
        return None
    values = [int(np.asarray(i.literal.value)) for i in row if i.literal is not None]
    is_regular = len({b - a for a, b in itertools.pairwise(values)}) == 1
    return values if is_regular and all(abs(v) < 1 << 31 for v in values) else None


class _Round:
    """The copy that the rounds of the loop run. `shared` are values from outside, as the rounds read them; `tables`
    have the constants that differ between copies, by the first."""

    def __init__(
        self,
        chain: CopyChain,
        loop: CountedLoop,
        shared: dict[Instruction, Instruction],
        tables: dict[Instruction, Instruction],
    ) -> None:
        self.chain, self.loop, self._tables = chain, loop, tables
        self.copies: dict[Instruction, Instruction] = {}
        self._numbers = dict(shared)
        self._leaves: dict[Instruction, Instruction] = {}

    def write(self) -> None:
        for row in self.chain.nodes:
            operands = [self.value(tuple(i.operands[n] for i in row)) for n in range(len(row[0].operands))]
            self.copies[row[0]] = renewed(self.loop.body, row[0], operands)

    def value(self, operands: Row) -> Instruction:
        """The value in the round for a value of the copies."""
        first = operands[0]
        if all(o is first for o in operands):
            if first not in self._numbers:
                copied_into(self.loop.body, from_numbers(first) or (), self._numbers)
            return self._numbers[first]
        origin = source(self.chain, operands)
        if isinstance(origin, int):
            return self.loop.values[origin]
        if first in self.copies:
            return self.copies[first]
        if first not in self._leaves:
            self._leaves[first] = self._leaf(operands)
        return self._leaves[first]

    def written(self, into: Instruction, part: Instruction, along: int) -> Instruction:
        """An array with the part that this round writes along a dimension."""
        writer = self.loop.inside
        places = [writer.number(0)] * into.shape.rank
        places[along] = self._place(0, part.shape.dimensions[along])
        return writer.emit("dynamic-update-slice", into.shape, into, part, *places)

    def _place(self, first: int, step: int) -> Instruction:
        """The number first + round * step."""
        writer, place = self.loop.inside, self.loop.counter
        if not step:
            return writer.number(first)
        place = place if step == 1 else writer.binary("multiply", place, writer.number(step))
        return place if first == 0 else writer.binary("add", place, writer.number(first))

    def _leaf(self, row: Row) -> Instruction:
        """The constant, or the part of an array, of this round."""
        first, writer = row[0], self.loop.inside
        ranges = [cut_out(i) for i in row[:2]]
        if ranges[0] is not None and ranges[1] is not None:
            places = [self._place(a.start, b.start - a.start) for a, b in zip(ranges[0], ranges[1], strict=True)]
            source_ = self.value(tuple(i.operands[0] for i in row))
            return writer.emit(
                "dynamic-slice", first.shape, source_, *places, dynamic_slice_sizes=first.shape.dimensions
            )
        numbers = _numbers(row)
        if numbers is not None:
            return writer.convert(self._place(numbers[0], numbers[1] - numbers[0]), first.shape.type)
        table = self._tables[first]
        thin = array(first.shape.type, 1, *first.shape.dimensions)
        places = [self.loop.counter, *[writer.number(0)] * first.shape.rank]
        row_of_table = writer.emit("dynamic-slice", thin, table, *places, dynamic_slice_sizes=thin.dimensions)
        return writer.reshape(row_of_table, first.shape)
