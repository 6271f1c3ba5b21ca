"""Which inputs of a computation a result is an update of, as new weights are of the old ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from hlo_opt.ir import Computation, Instruction
from hlo_opt.ops.sets import looped, tuple_elements, tuple_index


def updated(root: Instruction, result: int) -> Iterator[tuple[Instruction, int]]:
    """The arrays of parameters that a result is an update of, the nearest first: each as the parameter and the number
    of the array in it. `result` is the number of an array of `root`.

    An update is the array plus or minus something, times a number or not, or what a loop makes of it, but not what a
    loop only reads and returns.
    """
    todo = deque([(root, result, False)])
    seen = set(todo)
    while todo:
        value, number, is_changed = todo.popleft()
        if value.parameter_number is not None:
            if is_changed:
                yield value, number
            continue
        for step in _steps(value, number, is_changed):
            if step not in seen:
                seen.add(step)
                todo.append(step)


def _steps(value: Instruction, number: int, is_changed: bool) -> Iterator[tuple[Instruction, int, bool]]:
    """The arrays that one is made of element by element, by sums and by factors that are one number."""
    elements, index = tuple_elements(value), tuple_index(value)
    if elements is not None:
        for element in elements:
            leaves = len(list(element.shape.leaves()))
            if 0 <= number < leaves:
                yield element, number, is_changed
            number -= leaves
    elif index is not None:
        (source,) = value.operands
        skipped = sum(len(list(e.leaves())) for e in (source.shape.elements or ())[:index])
        yield source, number + skipped, is_changed
    elif (body := looped(value)) is not None:
        yield value.operands[0], number, is_changed or not _keeps(body, number)
    elif value.opcode in ("copy", "convert", "opt-barrier"):
        yield value.operands[0], number, is_changed
    elif value.opcode in ("add", "subtract"):
        yield from ((operand, 0, True) for operand in value.operands)
    elif value.opcode == "select":
        yield from ((operand, 0, is_changed) for operand in value.operands[1:])
    elif value.opcode in ("multiply", "divide"):
        left, right = value.operands
        if _is_one_number(right):
            yield left, 0, is_changed
        elif _is_one_number(left) and value.opcode == "multiply":
            yield right, 0, is_changed


def _keeps(body: Computation, number: int) -> bool:
    """Whether a round of a loop leaves an array of the state as it is: weights, for example, that each round reads."""
    value, place = body.root, number
    while value.parameter_number is None:
        if tuple_elements(value) is None and tuple_index(value) is None:
            return False
        ((value, place, _),) = _steps(value, place, False)
    return place == number


def _is_one_number(value: Instruction) -> bool:
    """Whether all elements are the same scalar."""
    return value.opcode == "broadcast" and value.operands[0].shape.rank == 0
