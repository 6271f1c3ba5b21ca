"""Short loops whose rounds work on each element independently, written out round by round: one kernel then runs all of
them, and nothing goes through memory in between.

Source: xla/service/while_loop_unroller.cc (full unrolling, with its bound on trip counts), and its constant folding of
counters and of tables that they index. Threefry's five groups of rounds are such a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from typing import Literal as OneOf

import numpy as np

from hlo_opt.analysis.graph.inlining import remove_uncalled
from hlo_opt.analysis.graph.loops import derived_trip_count
from hlo_opt.analysis.properties import has_side_effect
from hlo_opt.evaluate import Interpreter
from hlo_opt.ir import Computation, Instruction, Literal, Module, Shape, edit
from hlo_opt.ops.dynamic import takes_dynamic
from hlo_opt.ops.sets import is_elementwise, tuple_elements, tuple_index
from hlo_opt.ops.spec import OpKind, find
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.loops.numbers import is_bound

MOST_ROUNDS = 64
"""The most rounds, as in XLA."""
MOST_OPERATIONS = 1024
"""The most operations of all rounds: one kernel that compiles in a second or two."""
COMPLEX = 8
"""The number of real operations that one on complex numbers counts as."""


@dataclass(frozen=True)
class WhileLoopUnroller(RewritingPass):
    """Unroll short elementwise loops completely. The values stay the same; the graph does not."""

    name: ClassVar[str] = "while-loop-unroller"
    preserves: ClassVar[OneOf["graph", "meaning"]] = "meaning"
    simplifies: ClassVar[bool] = True

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        for loop in [i for i in computation.instructions if i.opcode == "while"]:
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
    elementwise = [i for i in body.instructions if i.parameter_number is None and _kind(i) is OpKind.ELEMENTWISE]
    operations = sum(COMPLEX if _is_complex(i) else 1 for i in elementwise)
    return rounds if rounds * operations <= MOST_OPERATIONS else None


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
        self._interpreter = Interpreter()

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
                self._made[key] = self._folded(i, operands) or edit.clone_into(self.computation, i, operands)
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
