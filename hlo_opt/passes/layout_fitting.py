"""Consistent layouts for loops and branches: frameworks write loops whose body returns an array in another
layout than the loop has, and loops whose initial value has another layout than the rounds use.

XLA assigns layouts itself (xla/service/layout_assignment.cc), so the layouts of a raw dump may be inconsistent; a
program that uses them as they are needs a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

from hlo_opt.ir import Computation, Instruction, Module, Shape, edit
from hlo_opt.ops import OpKind, find
from hlo_opt.ops.sets import (
    COPIES,
    fused,
    is_elementwise,
    keeps_bytes,
    keeps_values,
    reuses_elements,
    tuple_elements,
    tuple_index,
)
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.simplify.dots import changes_sides
from hlo_opt.plans.lane_obstacle import obstacle


@dataclass(frozen=True)
class LayoutFitting(RewritingPass):
    """Choose the layouts of a loop's state: values that no iteration changes keep the layout that they have, and others
    get the layout in which the body works on them. Copy what differs: into a loop, out of an iteration or out of a
    branch. What is made element by element of arrays in rows and others is in rows, too; then a transposed product that
    is read row by row is written row by row."""

    name: ClassVar[str] = "layout-fitting"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"
    idempotent: ClassVar[bool] = True

    def computations(self, module: Module) -> list[Computation]:
        return list(module.computations)

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        for i in list(computation.instructions):
            if _mixes_layouts(i):  # operands come first: what is made of this one sees its new layout
                yield partial(_write_in_rows, i)
        for i in list(computation.instructions):
            if i.opcode == "while":
                ends = [i.called_by("body")]
                if _takable(i):
                    yield partial(_take_layouts, i)
                # rounds by lanes keep what they hand on in registers, where it lies nowhere
                if _handed_on_otherwise(i) and not obstacle(_module(i), i).has_plan:
                    yield partial(_hand_on_as_rounds_do, i)
                if _differs(i.operands[0].shape, i.shape):
                    yield partial(_fit_operand, i)
            elif i.opcode == "conditional":
                ends = list(i.called())
            elif i.opcode == "transpose" and not i.shape.is_row_major and changes_sides(i) and _is_read_in_rows(i):
                yield partial(_write_in_rows, i)
                continue
            else:
                continue
            for end in ends:
                if _differs(end.root.shape, i.shape):
                    yield partial(_fit_root, end, i.shape)

    def tidy(self, module: Module) -> None:
        for computation in module.computations:  # roots that were changed stand in other computations
            edit.sort(computation)


def _differs(shape: Shape, wanted: Shape) -> bool:
    """Whether two shapes have the same values in different layouts."""
    return shape.same_values(wanted) and not shape.same_bytes(wanted)


def _write_in_rows(value: Instruction) -> None:
    edit.set_shape(value, replace(value.shape, layout=None).laid_out())


def _mixes_layouts(value: Instruction) -> bool:
    """Whether an array, written element by element in some other layout, has an operand that lies row by row, or none
    that does not, and only readers that take elements by index. Frameworks give it the layout of its first operand,
    which may be a transpose, that may have become a product of broadcasts since; products then find no matrix in it,
    and XLA gives all such arrays rows."""
    if not value.shape.is_array or value.shape.is_row_major or value.is_root or not is_elementwise(value):
        return False
    if keeps_values(value, COPIES):  # the program asks for this layout
        return False
    if fused(value) is not None:  # its computation says in which layout it writes
        return False
    suits = any(_lies_in_rows(o) for o in value.operands) or all(o.shape.is_row_major for o in value.operands)
    return suits and all(_reads_by_index(u, value) for u in value.users)


def _lies_in_rows(value: Instruction) -> bool:
    """Whether an array of more than one dimension lies in rows, and is not made by repeating or counting, which suits
    any layout."""
    is_made = bool(value.operands) or value.parameter_number is not None
    spec = find(value.opcode)
    is_repeated = spec is not None and spec.kind is OpKind.MOVEMENT and reuses_elements(value, 0)
    return is_made and not is_repeated and value.shape.is_array and value.shape.rank > 1 and value.shape.is_row_major


def _is_read_in_rows(value: Instruction) -> bool:
    """Whether operations that write row by row read it by element, and nothing else reads it."""
    return not value.is_root and all(u.shape.is_row_major and _reads_by_index(u, value) for u in value.users)


def _takable(loop: Instruction) -> list[int]:
    """The elements that no round changes, whose readers read by element, and that nothing reads after the loop: the
    loop may have them in any layout."""
    body, condition = loop.called_by("body"), loop.called_by("condition")
    start, ends = tuple_elements(loop.operands[0]), tuple_elements(body.root)
    if start is None or ends is None or loop.is_root or any(tuple_index(u) is None for u in loop.users):
        return []
    if sum(c.called.count(body) + c.called.count(condition) for c in _module(loop).computations) != 2:
        return []
    read_after = {tuple_index(u) for u in loop.users}
    elements: dict[int | None, list[Instruction]] = {}
    for user in (u for c in (body, condition) for u in c.parameters[0].users):
        elements.setdefault(tuple_index(user), []).append(user)
    if None in elements:
        return []
    numbers = []
    for n, (value, end) in enumerate(zip(start, ends, strict=True)):
        if n in read_after or not value.shape.is_array or not _differs(value.shape, end.shape):
            continue
        if tuple_index(end) != n or end.operands[0] is not body.parameters[0]:
            continue
        readers = [(t, u) for t in elements.get(n, ()) for u in t.users if u is not body.root or ends.count(t) != 1]
        if all(_reads_by_index(user, value) for value, user in readers):
            numbers.append(n)
    return numbers


def _reads_by_index(user: Instruction, value: Instruction) -> bool:
    """Whether an operation reads elements by index, in any layout; for a call, whether its computation does."""
    if user.opcode == "call":
        inner = user.called_by("to_apply").parameters
        parameters = [p for p, operand in zip(inner, user.operands, strict=True) if operand is value]
        plain = not any(p.is_root for p in parameters)
        return plain and all(_reads_by_index(u, p) for p in parameters for u in p.users)
    spec = find(user.opcode)
    return spec is not None and spec.kind in _BY_INDEX and not spec.side_effects and not keeps_bytes(user.opcode)


_BY_INDEX = (OpKind.ELEMENTWISE, OpKind.MOVEMENT, OpKind.REDUCTION, OpKind.CONTRACTION, OpKind.INDEXING)


def _module(instruction: Instruction) -> Module:
    module = instruction.computation.module
    assert module is not None
    return module


def _take_layouts(loop: Instruction) -> None:
    """Give these elements of the loop the layout of their initial values."""
    start, wanted = tuple_elements(loop.operands[0]) or [], list(loop.shape.elements or ())
    for n in _takable(loop):
        wanted[n] = start[n].shape
    shape = Shape.tuple_of(*wanted)
    body, condition = loop.called_by("body"), loop.called_by("condition")
    for parameter in (body.parameters[0], condition.parameters[0]):
        edit.set_shape(parameter, shape)
        for element in parameter.users:
            number = tuple_index(element)
            if number is not None:
                edit.set_shape(element, wanted[number])
    ends = tuple_elements(body.root)
    assert ends is not None
    edit.set_shape(body.root, Shape.tuple_of(*(e.shape for e in ends)))
    edit.set_shape(loop, shape)


def _handed_on_otherwise(loop: Instruction) -> list[int]:
    """The elements that rounds read and write in one layout while the loop has another: each round would begin and end
    with a copy. The loop is read by its elements only, and its condition reads them by index."""
    body, condition = loop.called_by("body"), loop.called_by("condition")
    ends = body.root.shape.elements
    if loop.is_root or any(tuple_index(u) is None for u in loop.users) or ends is None or body is condition:
        return []
    if sum(c.called.count(body) + c.called.count(condition) for c in _module(loop).computations) != 2:
        return []
    if any(tuple_index(u) is None for u in condition.parameters[0].users):
        return []
    numbers = []
    own, asked = body.parameters[0].shape.elements or (), condition.parameters[0].shape.elements or ()
    for n, (before, after, here, there) in enumerate(zip(own, ends, loop.shape.elements or (), asked, strict=True)):
        if not before.is_array or not _differs(here, before) or not before.same_bytes(after):
            continue
        readers = [(t, u) for t in condition.parameters[0].users if tuple_index(t) == n for u in t.users]
        if before.same_bytes(there) or all(_reads_by_index(user, value) for value, user in readers):
            numbers.append(n)
    return numbers


def _hand_on_as_rounds_do(loop: Instruction) -> None:
    """Give these elements of the loop the layout that its rounds use; readers after the loop get a copy as before."""
    numbers = _handed_on_otherwise(loop)
    shapes = loop.called_by("body").parameters[0].shape.elements or ()
    before, wanted = loop.shape.elements or (), list(loop.shape.elements or ())
    for n in numbers:
        wanted[n] = shapes[n]
    state = loop.called_by("condition").parameters[0]
    asked = [wanted[n] if n in numbers else shape for n, shape in enumerate(state.shape.elements or ())]
    edit.set_shape(state, Shape.tuple_of(*asked))
    for element in state.users:
        edit.set_shape(element, asked[tuple_index(element) or 0])
    edit.set_shape(loop, Shape.tuple_of(*wanted))
    for element in [u for u in loop.users if tuple_index(u) in numbers]:
        number = tuple_index(element) or 0
        edit.set_shape(element, wanted[number])
        users = list(element.users)
        if element.is_root or not all(_reads_by_index(user, element) for user in users):
            copy = edit.create(element.computation, "copy", "copy", before[number], [element])
            edit.replace_all_uses(element, copy)
            edit.replace_operand(copy, 0, element)


def _fit_operand(loop: Instruction) -> None:
    edit.replace_operand(loop, 0, _fitted(loop.operands[0], loop.shape))


def _fit_root(end: Computation, wanted: Shape) -> None:
    edit.set_root(end, _fitted(end.root, wanted))


def _fitted(value: Instruction, wanted: Shape) -> Instruction:
    """The value in the wanted layouts: arrays with another layout are copied, tuples are built again."""
    if value.shape.same_bytes(wanted):
        return value
    if wanted.elements is None:
        return edit.create(value.computation, "copy", "copy", wanted, [value])
    own = tuple_elements(value)
    parts = [edit.create_element(value, n) for n in range(len(wanted.elements))] if own is None else own
    return edit.create_tuple(value.computation, [_fitted(p, w) for p, w in zip(parts, wanted.elements, strict=True)])
