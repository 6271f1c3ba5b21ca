"""Values that every round of a loop computes again from what no round changes, computed once before the loop.

A round that converts its weights for a convolution moves them once more in each round. Taken out is what launches work
and is no larger than what it is made of; a larger value, such as a broadcast, is cheaper made where it is read. Of
loops that call no library only functions and sums leave: such a loop may become one kernel, which computes these once
for each lane or block, and what takes a few instructions where it is read.

Source: xla/service/while_loop_invariant_code_motion.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from hlo_opt.analysis.graph.loops import lies_alike, trip_count
from hlo_opt.ir import Computation, Instruction, Module, Shape, edit
from hlo_opt.ir.walk import executed_computations, needed_first, post_order
from hlo_opt.ops.sets import launches, looped, tuple_elements, tuple_index
from hlo_opt.ops.spec import OpKind, find
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.loops.numbers import copied_into, is_bound, is_called_once
from hlo_opt.plans.choose import is_left_to_library
from hlo_opt.plans.instructions import is_long

SMALLEST = 1 << 16
"""Bytes of the values that a round reads less, at the least: fewer take less time than a launch has in any case."""
_PURE = frozenset({OpKind.ELEMENTWISE, OpKind.MOVEMENT, OpKind.REDUCTION, OpKind.CONTRACTION})


@dataclass(frozen=True)
class WhileInvariants(RewritingPass):
    """Move what is the same in every iteration out of the loop. The values stay the same."""

    name: ClassVar[str] = "while-loop-invariant-code-motion"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"
    simplifies: ClassVar[bool] = True

    def computations(self, module: Module) -> list[Computation]:
        """Loops within loops first: what leaves an inner one may leave the outer one, too."""
        return list(executed_computations(module))[::-1]

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        for loop in [i for i in computation.instructions if looped(i) is not None]:
            if _is_open(loop):
                invariants = _worth_taking(loop.called_by("body"))
                if invariants:
                    yield partial(_take, loop, invariants)


def _is_open(loop: Instruction) -> bool:
    """Whether a loop may carry more: a flat tuple that only the loop's own computations take apart, nothing that
    waits, and at least two rounds as far as is known."""
    called = list(loop.called())
    if is_bound(loop) or loop.control_predecessors or "sharding" in loop.attributes or not lies_alike(loop):
        return False
    if not all(is_called_once(c) and not any(i.control_predecessors for i in c.instructions) for c in called):
        return False
    if tuple_elements(loop.called_by("body").root) is None or not all(e.is_array for e in loop.shape.elements or ()):
        return False
    if not all(tuple_index(user) is not None for c in called for p in c.parameters for user in p.users):
        return False
    return trip_count(loop) not in (0, 1)


def _calls_library(body: Computation) -> bool:
    """Whether rounds call a library, those of loops within them included."""
    return any(
        is_left_to_library(i) or ((inner := looped(i)) is not None and _calls_library(inner)) for i in body.instructions
    )


def _worth_taking(body: Computation) -> list[Instruction]:
    """What a body makes of what no round changes, and is worth making before the loop: of values that are made of each
    other the last."""
    state, parts = body.parameters[0], tuple_elements(body.root) or []
    unchanged = {n for n, part in enumerate(parts) if tuple_index(part) == n and part.operands[0] is state}
    sources: dict[Instruction, frozenset[int]] = {}
    """For each invariant value, the elements of the state that it is computed from."""
    for i in post_order(body):
        number = tuple_index(i)
        if number in unchanged and i.operands[0] is state:
            sources[i] = frozenset((number,))
        elif i is not state and all(o in sources for o in i.operands) and _is_pure(i):
            sources[i] = frozenset[int]().union(*(sources[o] for o in i.operands))
    calls = _calls_library(body)
    worth: dict[Instruction, None] = {}
    seen: set[Instruction] = set()
    todo = [o for i in body.instructions if i not in sources for o in i.operands if o in sources]
    while todo:
        value = todo.pop()
        if value in seen or tuple_index(value) is not None:
            continue
        seen.add(value)
        read = sum(_bytes(state.shape, n) for n in sources[value])
        if (calls and _pays(value, read)) or _takes_longer(value, read):
            worth[value] = None
        else:
            todo += value.operands
    return list(worth)


def _is_pure(i: Instruction) -> bool:
    """Whether an operation computes an array from its operands alone, however often it runs."""
    spec = find(i.opcode)
    if spec is None or not i.shape.is_array or any(i.shape.dynamic) or i.parameter_number is not None:
        return False
    return i.literal is not None or (spec.kind in _PURE and not spec.side_effects)


def _bytes(state: Shape, number: int) -> int:
    assert state.elements is not None
    return state.elements[number].byte_size


def _pays(value: Instruction, operand_bytes: int) -> bool:
    """Whether rounds that read a value take less time than rounds that compute it from operands of `operand_bytes`
    bytes: they read less, or have a kernel less, since a library computes it or reads it as it lies, or a loop
    carries it."""
    if not launches(value) or operand_bytes < SMALLEST or value.shape.byte_size > operand_bytes:
        return False
    return (
        value.shape.byte_size < operand_bytes
        or is_left_to_library(value)
        or any(is_left_to_library(user) or tuple_elements(user) is not None for user in value.users)
    )


def _takes_longer(value: Instruction, operand_bytes: int) -> bool:
    """Whether rounds that compute a value from operands of `operand_bytes` bytes take longer than rounds that read it:
    it is no larger than what it is made of, and something that a body computes for it is long."""
    made_of = max((o.shape.byte_size for o in value.operands), default=0)
    if value.shape.byte_size > min(operand_bytes, made_of):
        return False
    needed = needed_first([value], lambda i: i.operands if tuple_index(i) is None else ())
    return any(is_long(i) for i in needed if tuple_index(i) is None)


def _take(loop: Instruction, values: Sequence[Instruction]) -> None:
    """Make values of a loop's body in front of it, and let it carry them."""
    computation, start = loop.computation, loop.operands[0]
    body, condition = loop.called_by("body"), loop.called_by("condition")
    state, parts, count = body.parameters[0], tuple_elements(body.root) or [], len(loop.shape.elements or ())
    order = needed_first(values, lambda i: i.operands if tuple_index(i) is None else ())
    starts = tuple_elements(start) or [edit.create_element(start, n) for n in range(count)]
    copies = {i: starts[n] for i in order if (n := tuple_index(i)) is not None}
    copied_into(computation, order, copies)
    carried = edit.create_tuple(computation, [*starts, *(copies[value] for value in values)])
    edit.set_operands(loop, [carried])
    shape = carried.shape
    others = [user for user in loop.users if tuple_index(user) is None]
    is_root = loop.is_root
    for wider in (loop, state, condition.parameters[0]):
        edit.set_shape(wider, shape)
    if others or is_root:
        whole = edit.create_tuple(computation, [edit.create_element(loop, n) for n in range(count)])
        for user in others:
            edit.set_operands(user, [whole if o is loop else o for o in user.operands])
        if is_root:
            edit.set_root(computation, whole)
    elements = [edit.create_element(state, count + n) for n in range(len(values))]
    for value, element in zip(values, elements, strict=True):
        edit.redirect_users(value, element)
    edit.create_tuple(body, [*parts, *elements], root=True)
    edit.sort(body)
