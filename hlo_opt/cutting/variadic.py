"""Cuts of operations over several arrays at once: a `reduce`, `reduce-window`, `scatter` or `sort` of fewer arrays.

Each has a computation with two parameters for each array. A sort compares: its computation returns one flag, and the
two parameters of an array are next to each other. The others combine: their computation returns a value for each array,
and all first parameters come before all second ones. Source: the operation semantics of XLA.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hlo_opt.cutting.changes import Change
from hlo_opt.cutting.parts import callers
from hlo_opt.ir import Computation, Instruction, Shape, edit
from hlo_opt.ops.sets import body_of, tuple_elements, tuple_index

APPLIED_TO = "to_apply"
"""The attribute of the computation."""


def variadic_changes(i: Instruction) -> Iterator[Change]:
    """What can be tried with an operation whose result is a tuple of arrays; nothing for any other instruction."""
    count = len(i.shape.elements or ())
    if count < 2 or APPLIED_TO not in i.attributes or body_of(i) is not None:
        return
    if len(i.called_by(APPLIED_TO).parameters) == 2 * count:
        for number in range(count):
            yield partial(drop_array, number=number)


def drop_array(i: Instruction, number: int) -> None:
    """One array less. Raises ValueError where the others depend on it, or something reads it. The root of the entry may
    return less."""
    shapes, computation, callee = i.shape.elements or (), i.computation, i.called_by(APPLIED_TO)
    module = computation.module
    assert module is not None
    if any(tuple_index(user) in (None, number) for user in i.users):
        raise ValueError("it is read")
    if (i.is_root and computation is not module.entry) or len(callers(module)[callee]) > 1:
        raise ValueError("something else needs it")
    count = len(shapes)
    is_sort = callee.root.shape.is_array
    gone = {2 * number, 2 * number + 1} if is_sort else {number, number + count}
    operands = {number} if is_sort else {number, len(i.operands) - count + number}
    if not is_sort:
        _drop_result(callee, number)
    for parameter in sorted(callee.parameters, key=lambda p: -(p.parameter_number or 0)):
        if parameter.parameter_number in gone:
            _drop_parameter(callee, parameter)
    left = [s for n, s in enumerate(shapes) if n != number]
    kept = [o for n, o in enumerate(i.operands) if n not in operands]
    shape = Shape.tuple_of(*left) if len(left) > 1 else left[0]
    fewer = edit.create(computation, i.name, i.opcode, shape, kept, i.attributes)
    for user in list(i.users):
        place = tuple_index(user)
        assert place is not None
        new = fewer if len(left) == 1 else edit.create_element(fewer, place - (place > number))
        edit.replace_all_uses(user, new)
        edit.remove(user)
    if i.is_root:
        edit.set_root(computation, fewer)
    edit.remove(i)
    edit.sort(callee)
    edit.sort(computation)


def _drop_result(callee: Computation, number: int) -> None:
    """One value less that a computation returns; what only it needs goes, too."""
    results = tuple_elements(callee.root)
    if results is None:
        raise ValueError("the results are not put together in the computation")
    before, left = callee.root, [r for n, r in enumerate(results) if n != number]
    if len(left) == 1:
        edit.set_root(callee, left[0])
    else:
        edit.create_tuple(callee, left, root=True)
    unused = [before]
    while unused:
        i = unused.pop()
        if i.users or i.is_root or i.parameter_number is not None:
            continue
        edit.remove(i)
        unused += i.operands


def _drop_parameter(callee: Computation, parameter: Instruction) -> None:
    """Remove a parameter; the numbers of the others close up. Raises ValueError where something reads it."""
    number = parameter.parameter_number or 0
    edit.remove(parameter)
    for other in callee.parameters:
        if (other.parameter_number or 0) > number:
            other.parameter_number = (other.parameter_number or 0) - 1
