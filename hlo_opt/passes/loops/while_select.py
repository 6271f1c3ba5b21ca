"""Conditionals in the rounds of loops: if all branches take little time, each round computes them all, and selects pick
the results.

A conditional keeps a loop from being one kernel, and makes a backend wait for the host in each round
(xla/backends/gpu/runtime/conditional_thunk.cc). Source of the rewrite: xla/service/conditional_to_select.cc, which does
it inside `map`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from hlo_opt.analysis.graph.inlining import remove_uncalled
from hlo_opt.ir import Computation, Instruction, Module, Shape, array, edit
from hlo_opt.ir.element_type import PRED
from hlo_opt.ir.walk import executed_computations
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.control.table import branches
from hlo_opt.ops.sets import looped, tuple_elements, tuple_index
from hlo_opt.ops.writer import Writer
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.loops.numbers import is_called_once
from hlo_opt.plans.instructions import of_value

MOST_WORK = 1 << 17
"""The most instructions of all branches, over all elements: about the time of a launch on one processor."""


@dataclass(frozen=True)
class WhileSelect(RewritingPass):
    """Replace conditionals in loops by selects, where the branches take little time."""

    name: ClassVar[str] = "while-select"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"

    def computations(self, module: Module) -> list[Computation]:
        loops = [i for c in executed_computations(module) for i in c.instructions if looped(i) is not None]
        return list(dict.fromkeys(loop.called_by("body") for loop in loops))

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        awaited = {before for i in computation.instructions for before in i.control_predecessors}
        for i in list(computation.instructions):
            if branches(i) and i not in awaited and _is_short(i):
                yield partial(_put, i)

    def tidy(self, module: Module) -> None:
        remove_uncalled(module)


def _callees(conditional: Instruction) -> list[Computation]:
    return [c for value in branches(conditional) for c in value.computations]


def _is_short(conditional: Instruction) -> bool:
    """Whether branches only move and compute elements, few in all, and return arrays."""
    callees, arguments = _callees(conditional), conditional.operands[1:]
    shapes = conditional.shape.elements if conditional.shape.is_tuple else (conditional.shape,)
    if conditional.control_predecessors or not all(s.is_array for s in shapes or ()):
        return False
    work = 0.0
    for callee, argument in zip(callees, arguments, strict=True):
        lies_alike = callee.root.shape.same_bytes(conditional.shape)
        if not lies_alike or not argument.shape.same_bytes(callee.parameters[0].shape):
            return False
        for i in callee.instructions:
            if i.control_predecessors or next(iter(i.called()), None) is not None:
                return False
            if i.parameter_number is not None or tuple_elements(i) is not None or tuple_index(i) is not None:
                continue
            spec = find(i.opcode)
            is_plain = spec is not None and spec.kind in (OpKind.ELEMENTWISE, OpKind.MOVEMENT) and not spec.side_effects
            if not i.shape.is_array or (i.literal is None and not is_plain):
                return False
            work += of_value(i).slots * i.shape.element_count
    return work <= MOST_WORK


def _put(conditional: Instruction) -> None:
    """Compute all branches, and select."""
    computation = conditional.computation
    choice, *arguments = conditional.operands
    own = [c if is_called_once(c) else edit.clone_computation(c) for c in _callees(conditional)]
    roots = [edit.splice(c, computation, [a]) for c, a in zip(own, arguments, strict=True)]
    ways = [_parts(root, conditional.shape) for root in roots]
    for argument in dict.fromkeys(arguments):
        for user in list(argument.users):
            edit.redirect_users(user, _source(user))
    picks = _Picks(conditional)
    if choice.shape.type == PRED:
        picked = [picks.pick(choice, yes, no) for yes, no in zip(*ways, strict=True)]
    else:
        picked = ways[-1]  # a number that names no branch takes the last
        for number in range(len(ways) - 2, -1, -1):
            is_this = picks.compare(choice, number)
            picked = [picks.pick(is_this, this, other) for this, other in zip(ways[number], picked, strict=True)]
    whole = edit.create_tuple(computation, picked) if conditional.shape.is_tuple else picked[0]
    for user in list(conditional.users):
        element = tuple_index(user)
        if element is not None and not user.control_predecessors:
            edit.redirect_users(user, picked[element])
    edit.replace_all_uses(conditional, whole)
    edit.remove(conditional)


def _parts(root: Instruction, shape: Shape) -> list[Instruction]:
    """The arrays that a branch returns."""
    if not shape.is_tuple:
        return [_source(root)]
    parts = tuple_elements(root)
    elements = range(len(shape.elements or ()))
    return [edit.create_element(root, n) for n in elements] if parts is None else [_source(part) for part in parts]


def _source(value: Instruction) -> Instruction:
    """The value itself, or for an element of a `tuple` its operand."""
    number = tuple_index(value)
    parts = None if number is None else tuple_elements(value.operands[0])
    return value if parts is None or number is None else parts[number]


class _Picks(Writer):
    """Writes the selects, with the conditional's metadata."""

    def __init__(self, conditional: Instruction) -> None:
        super().__init__("", conditional.computation)
        metadata = conditional.attributes.get("metadata")
        self._told = {} if metadata is None else {"metadata": metadata}

    def compare(self, choice: Instruction, number: int) -> Instruction:
        """Whether the branch is this one."""
        return self.emit("compare", array(PRED), choice, self.constant(choice.shape.type, number), direction="EQ")

    def pick(self, where: Instruction, yes: Instruction, no: Instruction) -> Instruction:
        """One of two arrays."""
        if yes is no:
            return yes
        mask = self.spread(where, yes.shape.dimensions)
        return edit.create(self.computation, "select", "select", yes.shape, [mask, yes, no], dict(self._told))
