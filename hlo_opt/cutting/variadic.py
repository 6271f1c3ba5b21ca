"""Cuts of operations with a computation for scalars: what it does in their place; a `reduce`, `reduce-window`,
`scatter` or `sort` of fewer arrays, and a fusion or call that returns fewer.

Each of the latter has a computation with two parameters for each array. A sort compares: its computation returns one
flag, and the two parameters of an array are next to each other. The others combine: their computation returns a value
for each array, and all first parameters come before all second ones. Source: the operation semantics of XLA.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from hlo_opt.cutting.changes import InstructionChange, take
from hlo_opt.cutting.parts import callers
from hlo_opt.ir import Computation, Instruction, Shape, edit
from hlo_opt.ops.sets import body_of, tuple_elements, tuple_index
from hlo_opt.ops.writer import Writer

APPLIED_TO = "to_apply"
"""The attribute of the computation."""


def variadic_changes(i: Instruction) -> Iterator[InstructionChange]:
    """What can be tried with an operation that combines scalars, or whose result is a tuple of arrays; nothing for any
    other instruction."""
    if i.shape.is_array and APPLIED_TO in i.attributes and body_of(i) is None:
        yield combine_once
    count = len(i.shape.elements or ())
    if count < 2:
        return
    if body_of(i) is not None:
        yield from (partial(keep_results, kept=(number,)) for number in range(count))
        if count > 2:
            for number in range(count):
                yield partial(keep_results, kept=tuple(n for n in range(count) if n != number))
    elif APPLIED_TO in i.attributes and len(i.called_by(APPLIED_TO).parameters) == 2 * count:
        for number in range(count):
            yield partial(drop_array, number=number)


def combine_once(i: Instruction) -> None:
    """What the computation of a `reduce` or `reduce-window` does to two scalars, its start both times."""
    callee, start = i.called_by(APPLIED_TO), i.operands[-1]
    if len(callee.parameters) != 2 or any(p.shape != start.shape for p in callee.parameters):
        raise ValueError("it combines several arrays")
    values = dict.fromkeys(callee.parameters, start)
    for member in callee.instructions:
        if member not in values:
            values[member] = edit.clone_into(i.computation, member, [values[o] for o in member.operands])
    take(i, Writer("once", i.computation).spread(values[callee.root], i.shape.dimensions))


def keep_results(i: Instruction, kept: Sequence[int]) -> None:
    """A fusion or call that returns only these arrays. Raises ValueError where something reads another one. The root of
    the entry may return less."""
    callee, computation = body_of(i), i.computation
    assert callee is not None
    gone = [n for n in range(len(i.shape.elements or ())) if n not in kept]
    _check(i, callee, gone)
    _keep_results(callee, kept)
    _put_fewer(i, kept, list(i.operands))
    edit.sort(callee)
    edit.sort(computation)


def drop_array(i: Instruction, number: int) -> None:
    """One array less. Raises ValueError where the others depend on it, or something reads it. The root of the entry may
    return less."""
    computation, callee = i.computation, i.called_by(APPLIED_TO)
    _check(i, callee, [number])
    count = len(i.shape.elements or ())
    kept = [n for n in range(count) if n != number]
    is_sort = callee.root.shape.is_array
    gone = {2 * number, 2 * number + 1} if is_sort else {number, number + count}
    operands = {number} if is_sort else {number, len(i.operands) - count + number}
    if not is_sort:
        _keep_results(callee, kept)
    for parameter in sorted(callee.parameters, key=lambda p: -(p.parameter_number or 0)):
        if parameter.parameter_number in gone:
            _drop_parameter(callee, parameter)
    _put_fewer(i, kept, [o for n, o in enumerate(i.operands) if n not in operands])
    edit.sort(callee)
    edit.sort(computation)


def _check(i: Instruction, callee: Computation, gone: Sequence[int]) -> None:
    """Raises ValueError where something reads one of these results or all of them, or calls the computation, too."""
    module = i.computation.module
    assert module is not None
    if any(tuple_index(user) in (None, *gone) for user in i.users):
        raise ValueError("it is read")
    if (i.is_root and i.computation is not module.entry) or len(callers(module)[callee]) > 1:
        raise ValueError("something else needs it")


def _put_fewer(i: Instruction, kept: Sequence[int], operands: Sequence[Instruction]) -> None:
    """The operation with these operands and only these of its results in its place."""
    computation, shapes = i.computation, i.shape.elements or ()
    left = [shapes[n] for n in kept]
    shape = Shape.tuple_of(*left) if len(left) > 1 else left[0]
    fewer = edit.create(computation, i.name, i.opcode, shape, operands, i.attributes)
    for user in list(i.users):
        place = tuple_index(user)
        assert place is not None
        new = fewer if len(left) == 1 else edit.create_element(fewer, kept.index(place))
        edit.replace_all_uses(user, new)
        edit.remove(user)
    if i.is_root:
        edit.set_root(computation, fewer)
    edit.remove(i)


def _keep_results(callee: Computation, kept: Sequence[int]) -> None:
    """Only these values that a computation returns; what only the others need goes, too."""
    results = tuple_elements(callee.root)
    if results is None:
        raise ValueError("the results are not put together in the computation")
    before, left = callee.root, [results[n] for n in kept]
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
