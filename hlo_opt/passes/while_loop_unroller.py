"""Short loops whose rounds work on each element independently, written out round by round: one kernel then runs all of
them, and nothing goes through memory in between. And short loops in rounds of a loop, where that loop then becomes one
kernel: the rows of a table, cell by cell.

Source: xla/service/while_loop_unroller.cc (full unrolling, with its bound on trip counts), and its constant folding of
counters and of tables that they index. Threefry's five groups of rounds are such a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from typing import Literal as OneOf

import numpy as np

from hlo_opt.analysis.graph.inlining import remove_uncalled
from hlo_opt.analysis.graph.loops import derived_trip_count
from hlo_opt.analysis.properties import has_side_effect
from hlo_opt.ir import Computation, Instruction, Literal, Module, Shape, edit
from hlo_opt.ir.walk import executed_computations
from hlo_opt.ops.dynamic import takes_dynamic
from hlo_opt.ops.sets import is_elementwise, looped, tuple_elements, tuple_index
from hlo_opt.ops.spec import OpKind, find
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.expansion import BroadcastingWriter
from hlo_opt.passes.loops.known_windows import KnownWindows
from hlo_opt.passes.loops.numbers import is_bound
from hlo_opt.plans import block_search
from hlo_opt.plans.lane_obstacle import obstacle
from hlo_opt.plans.lane_rounds import has_text

MOST_ROUNDS = 64
"""The most rounds, as in XLA."""
MOST_OPERATIONS = 1024
"""The most operations of all rounds: one kernel that compiles in a second or two."""
MOST_INSIDE = 512
"""The most operations of all rounds of the loops in a round of another: one kernel has them all, with what is around
them."""
COMPLEX = 8
"""The number of real operations that one on complex numbers counts as."""
NARROW = 8
"""The number of f32 operations that one counts as whose result is a narrower float: it takes several to round it."""


@dataclass(frozen=True)
class WhileLoopUnroller(RewritingPass):
    """Unroll short elementwise loops completely. The values stay the same; the graph does not.

    inner  unroll the loops in a round of another loop instead, whatever they compute, where one kernel can then run all
           rounds of the other loop
    """

    name: ClassVar[str] = "while-loop-unroller"
    preserves: ClassVar[OneOf["graph", "meaning"]] = "meaning"
    simplifies: ClassVar[bool] = True

    inner: bool = False

    def computations(self, module: Module) -> Iterable[Computation]:
        """Those that launch kernels, the innermost rounds first."""
        return reversed(list(executed_computations(module))) if self.inner else super().computations(module)

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        if self.inner:
            for loop, count in _inside(computation):
                yield _Unrolled(loop, count).put
            return
        for loop in [i for i in computation.instructions if looped(i) is not None]:
            rounds = None if is_bound(loop) else rounds_of(loop)
            if rounds is not None:
                yield _Unrolled(loop, rounds).put

    def tidy(self, module: Module) -> None:
        remove_uncalled(module)


def rounds_of(loop: Instruction) -> int | None:
    """The number of rounds that replace the loop; None where it stays. Trip counts are derived, not read from a
    header."""
    body = loop.called_by("body")
    if loop.control_predecessors or not _by_element(body) or any(map(has_side_effect, _test(loop).instructions)):
        return None
    rounds = derived_trip_count(loop)
    if rounds is None or not 0 < rounds <= MOST_ROUNDS:
        return None
    return rounds if rounds * sum(map(_weight, body.instructions)) <= MOST_OPERATIONS else None


def _inside(body: Computation) -> list[tuple[Instruction, int]]:
    """The loops of the body of a loop, with their rounds, if one kernel can run the outer loop once they are written
    out."""
    loops, module = [i for i in body.instructions if looped(i) is not None], body.module
    outer = [i for i in _callers(body) if looped(i) is not None and i.called_by("body") is body] if loops else []
    counts = [None if is_bound(loop) else derived_trip_count(loop) for loop in loops]
    if len(outer) != 1 or module is None or not all(map(_may_be_written_out, loops)):
        return []
    found = [(loop, count) for loop, count in zip(loops, counts, strict=True) if count and count <= MOST_ROUNDS]
    total = sum(count * sum(map(_weight, loop.called_by("body").instructions)) for loop, count in found)
    if len(found) < len(loops) or total > MOST_INSIDE:
        return []
    return found if _is_one_kernel(edit.clone_module(module), body.name, outer[0].name) else []


def _is_one_kernel(module: Module, body: str, outer: str) -> bool:
    """Whether one kernel can run a loop of a module, once the loops in its body are written out."""
    inside = next(c for c in module.computations if c.name == body)
    for loop in [i for i in inside.instructions if looped(i) is not None]:
        _Unrolled(loop, derived_trip_count(loop) or 0).put()
    edit.sort(inside)
    (loop,) = (i for i in _callers(inside) if i.name == outer)
    return obstacle(module, loop).has_plan or block_search.fits(module, loop)


def _callers(called: Computation) -> list[Instruction]:
    assert called.module is not None
    return [i for c in called.module.computations if called in c.called for i in c.instructions if called in i.called()]


def _may_be_written_out(loop: Instruction) -> bool:
    """Whether its rounds compute arrays of their state by operations that kernels have, without effects."""
    (state,), root = loop.called_by("body").parameters, loop.called_by("body").root
    if loop.control_predecessors or any(map(has_side_effect, _test(loop).instructions)) or tuple_elements(root) is None:
        return False
    inside = [i for i in loop.called_by("body").instructions if i is not state and i is not root]
    return all(map(_is_plain, inside)) and all(tuple_index(user) is not None or user is root for user in state.users)


def _is_plain(i: Instruction) -> bool:
    unusual = i.control_predecessors or has_side_effect(i) or takes_dynamic(i)
    return not unusual and i.shape.is_array and has_text(i)


def _weight(i: Instruction) -> int:
    """The operations of an element."""
    moves = i.parameter_number is not None or _kind(i) in (OpKind.MOVEMENT, OpKind.INDEXING, None)
    if moves or i.literal is not None or i.shape.is_tuple:
        return 0
    if _is_complex(i):
        return COMPLEX
    return NARROW if i.shape.is_array and i.shape.type.is_narrow_float else 1


def _is_complex(i: Instruction) -> bool:
    return any(value.shape.is_array and value.shape.type.is_complex for value in (i, *i.operands))


def _test(loop: Instruction) -> Computation:
    return loop.called_by("condition")


def _kind(i: Instruction) -> OpKind | None:
    spec = find(i.opcode)
    return None if spec is None else spec.kind


def _by_element(body: Computation) -> bool:
    """Whether each element of a round's result depends on the same element of the round before only: its operations are
    elementwise, and only scalars and values that no round changes are moved."""
    (state,) = body.parameters
    results = tuple_elements(body.root)
    if results is None or any(not shape.is_array for shape in state.shape.elements or ()):
        return False
    kept = _handed_on(results, state)
    varies: set[Instruction] = set()
    for i in body.instructions:
        if i is state or i is body.root:
            continue
        element = tuple_index(i)
        if element is not None and i.operands == [state]:
            if element not in kept and i.shape.element_count > 1:
                varies.add(i)
            continue
        if i.control_predecessors or has_side_effect(i) or takes_dynamic(i) or next(iter(i.called()), None) is not None:
            return False
        if any(o is state or o is body.root for o in i.operands):
            return False
        if varies.isdisjoint(i.operands):
            if _kind(i) not in (OpKind.ELEMENTWISE, OpKind.MOVEMENT) and i.opcode not in ("constant", "iota"):
                return False
        elif is_elementwise(i):
            varies.add(i)
        else:
            return False
    return True


def _handed_on(results: Sequence[Instruction], state: Instruction) -> set[int]:
    """The elements of the state that no round computes: each keeps its value, or takes that of another such element."""
    sources = {k: tuple_index(v) for k, v in enumerate(results) if v.operands == [state]}
    unchanged = set(sources)
    while True:
        lost = {k for k in unchanged if sources[k] not in unchanged}
        if not lost:
            return unchanged
        unchanged -= lost


class _Unrolled:
    """The rounds of a loop in the loop's computation. Values that are equal in several rounds exist once, and scalars
    computed from constants are constants."""

    def __init__(self, loop: Instruction, rounds: int) -> None:
        self.loop, self.rounds = loop, rounds
        self.computation = loop.computation
        self._made: dict[tuple[Instruction, ...], Instruction] = {}
        self._scalars: dict[tuple[Shape, bytes], Instruction] = {}
        from hlo_opt.evaluate import Interpreter  # most modules have no loop to unroll, and it takes long to import

        self._interpreter = Interpreter()
        self._windows = KnownWindows(BroadcastingWriter(self.computation))

    def put(self) -> None:
        """Replace the loop by its rounds."""
        start = self.loop.operands[0]
        values = tuple_elements(start)
        count = len(self.loop.shape.elements or ())
        state = list(values) if values is not None else [edit.create_element(start, k) for k in range(count)]
        for _ in range(self.rounds):
            state = self._round(state)
        self.computation.index_users()
        for user in list(self.loop.users):
            element = tuple_index(user)
            if element is not None:
                edit.redirect_users(user, state[element])
                edit.remove(user)
        if self.loop.users or self.loop.is_root:
            edit.redirect_users(self.loop, edit.create_tuple(self.computation, state))
        edit.remove(self.loop)
        if values is not None and not start.users and not start.is_root:
            edit.remove(start)

    def _round(self, state: Sequence[Instruction]) -> list[Instruction]:
        body = self.loop.called_by("body")
        (parameter,) = body.parameters
        copies: dict[Instruction, Instruction] = {}
        for i in body.instructions:
            if i is parameter or i is body.root:
                continue
            element = tuple_index(i)
            if element is not None:
                copies[i] = state[element]
                continue
            operands = [copies[o] for o in i.operands]
            key = (i, *operands)
            if key not in self._made:
                known = self._folded(i, operands) or self._windows.written(i, operands)
                self._made[key] = known or edit.clone_into(self.computation, i, operands)
            copies[i] = self._made[key]
        return [copies[value] for value in tuple_elements(body.root) or ()]

    def _folded(self, i: Instruction, operands: Sequence[Instruction]) -> Instruction | None:
        """The constant for a scalar that is computed from constants, if every backend computes the same."""
        spec, literals = find(i.opcode), [o.literal for o in operands]
        known = [literal.value for literal in literals if literal is not None and literal.is_known]
        if spec is None or spec.evaluate is None or spec.tolerance is None or spec.tolerance(i.shape.type):
            return None
        if not operands or len(known) < len(operands) or i.shape.element_count != 1:
            return None
        value: Any = np.asarray(spec.evaluate(self._interpreter, i, known))
        key = (i.shape, value.tobytes())
        if key not in self._scalars:
            literal = Literal(i.shape, value=value)
            self._scalars[key] = edit.create(self.computation, i.name, "constant", i.shape, literal=literal)
        return self._scalars[key]
