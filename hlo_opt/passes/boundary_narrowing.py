"""What lies between two kernels becomes narrower: a kernel writes what its last operations are computed from, and its
readers compute these, where this takes less time.

Fusion puts elementwise operations into the kernel before them as often as into the one after them, and where they widen
elements (a sort key of 64 bits, a convert to f32) that kernel writes more than it needs to, and the next one reads it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from hlo_opt.fusion.choices import is_expensive
from hlo_opt.ir import Called, Computation, Instruction, Shape, edit
from hlo_opt.ops.sets import fused, is_elementwise, results_of, tuple_elements, tuple_index
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.dce import sweep
from hlo_opt.plans import Plan, plan, region_of
from hlo_opt.plans.price import price

WORTH = 0.98
"""The most that the kernels may take afterwards, relative to before."""
_MOST = 16
"""Operations that move; more take a kernel longer than it saves."""


@dataclass(frozen=True)
class Boundary:
    """A result of a kernel and the kernels that read it.

    producer  a fusion
    number    of the result
    value     what holds it: the fusion, or its element
    readers   fusions
    """

    producer: Instruction
    number: int
    value: Instruction
    readers: tuple[Instruction, ...]


@dataclass(frozen=True)
class BoundaryNarrowing(RewritingPass):
    """Move elementwise operations that widen elements from the end of a kernel to the kernels that read it, where this
    takes less time."""

    name: ClassVar[str] = "boundary-narrowing"
    preserves: ClassVar[Literal["graph", "meaning"]] = "graph"

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        for producer in list(computation.instructions):
            body = fused(producer)
            if body is None:
                continue
            order = _order(body)
            for number, result in enumerate(results_of(body)):
                boundary = _boundary(producer, number) if _tail(result, order) else None
                if boundary is not None and _pays(boundary, context):
                    yield partial(_move, boundary)
                    break  # the computation is another one now


def _is_plain(instruction: Instruction) -> bool:
    """Whether it is a fusion that nothing but its computation describes."""
    body = fused(instruction)
    if body is None or instruction.word("kind") == "kCustom" or "output_to_operand_aliasing" in instruction.attributes:
        return False
    assert body.module is not None
    return sum(c.called.count(body) for c in body.module.computations) == 1


def _boundary(producer: Instruction, number: int) -> Boundary | None:
    """A result that fusions alone read; None for others."""
    values = [producer]
    if producer.shape.is_tuple:
        if producer.is_root or any(tuple_index(user) is None for user in producer.users):
            return None
        values = [user for user in producer.users if tuple_index(user) == number]
    if len(values) != 1 or values[0].is_root or not values[0].users:
        return None
    readers = tuple(values[0].users)
    waits = any(i.control_predecessors for i in (producer, *values, *readers))
    plain = not waits and all(map(_is_plain, (producer, *readers)))
    return Boundary(producer, number, values[0], readers) if plain else None


def _order(body: Computation) -> dict[Instruction, int]:
    return {i: number for number, i in enumerate(body.instructions)}


def _tail(result: Instruction, order: dict[Instruction, int]) -> list[Instruction]:
    """The operations from the narrowest value that a result is computed from, which comes first, to the result; empty
    where no value is narrower, or where what lies between takes long."""
    frontier, tail, free = {result}, list[Instruction](), list[Instruction]()
    while len(tail) < _MOST:
        last = max(frontier, key=order.__getitem__)
        if len(frontier) == 1 and last is not result and _width(last) < _width(result):
            return [last, *sorted((*tail, *free), key=order.__getitem__)]
        if last.parameter_number is not None or not is_elementwise(last) or is_expensive(last):
            break
        if last.shape.dimensions != result.shape.dimensions or last.control_predecessors:
            break
        frontier.remove(last)
        tail.append(last)
        for operand in dict.fromkeys(last.operands):
            made = _made_anywhere(operand)
            if made:
                free += [m for m in made if m not in free]
            else:
                frontier.add(operand)
        if not frontier:
            break
    return []


def _made_anywhere(value: Instruction) -> list[Instruction]:
    """The operations that make a value of nothing; empty for other values."""
    if value.opcode == "iota" or (value.opcode == "constant" and value.shape.element_count == 1):
        return [value]
    if value.opcode == "broadcast" and (made := _made_anywhere(value.operands[0])):
        return [*made, value]
    return []


def _width(value: Instruction) -> int:
    return value.shape.type.bits if value.shape.is_array else 1 << 30


def _pays(boundary: Boundary, context: PassContext) -> bool:
    producer, readers = boundary.producer, boundary.readers
    module = producer.computation.module
    assert module is not None
    made = [_shortened(boundary), *(_lengthened(boundary, reader) for reader in readers)]
    shape = _shape(producer, made[0])
    narrow = Instruction("narrow", "parameter", results_of(made[0])[boundary.number].shape)
    candidates = [_like(producer, shape, producer.operands, made[0])]
    for reader, body in zip(readers, made[1:], strict=True):
        operands = [narrow if o is boundary.value else o for o in reader.operands]
        candidates.append(_like(reader, reader.shape, operands, body))

    def us(kernels: list[Instruction]) -> float:
        target, total = context.options.target, 0.0
        for kernel in kernels:
            kernel_plan = plan(region_of(module, kernel), target)
            total += price(kernel_plan, target).us if isinstance(kernel_plan, Plan) else math.inf
        return total

    pays = us(candidates) < WORTH * us([producer, *readers])
    for body in made:
        edit.remove_computation(body)
    return pays


def _like(kernel: Instruction, shape: Shape, operands: list[Instruction], body: Computation) -> Instruction:
    return Instruction(kernel.name, "fusion", shape, list(operands), {**kernel.attributes, "calls": Called(body)})


def _shape(producer: Instruction, body: Computation) -> Shape:
    """The shape of a kernel whose computation returns something else now."""
    results = [r.shape for r in results_of(body)]
    return Shape.tuple_of(*results) if producer.shape.is_tuple else results[0]


def _shortened(boundary: Boundary) -> Computation:
    """The producer's computation without the tail."""
    clone = edit.clone_computation(boundary.producer.called_by("calls"))
    results = results_of(clone)
    results[boundary.number] = _tail(results[boundary.number], _order(clone))[0]
    if tuple_elements(clone.root) is None:
        edit.set_root(clone, results[0])
    else:
        edit.create_tuple(clone, results, root=True)
    sweep(clone, set())
    return clone


def _lengthened(boundary: Boundary, reader: Instruction) -> Computation:
    """A reader's computation, which begins with the tail."""
    body = boundary.producer.called_by("calls")
    narrow, *tail = _tail(results_of(body)[boundary.number], _order(body))
    clone = edit.clone_computation(reader.called_by("calls"))
    parameters = clone.parameters
    for number in (n for n, operand in enumerate(reader.operands) if operand is boundary.value):
        wide = parameters[number]
        values = {narrow: edit.create(clone, wide.name, "parameter", narrow.shape, parameter_number=number)}
        for member in tail:
            values[member] = edit.clone_into(clone, member, [values[o] for o in member.operands])
        edit.replace_all_uses(wide, values[tail[-1]])
        edit.remove(wide)
    edit.sort(clone)
    return clone


def _move(boundary: Boundary) -> None:
    producer = boundary.producer
    bodies = [_shortened(boundary), *(_lengthened(boundary, reader) for reader in boundary.readers)]
    for kernel, body in zip((producer, *boundary.readers), bodies, strict=True):
        old = kernel.called_by("calls")
        edit.set_attribute(kernel, "calls", Called(body))
        edit.remove_computation(old)
    edit.set_shape(producer, _shape(producer, bodies[0]))
    if boundary.value is not producer:
        edit.set_shape(boundary.value, results_of(bodies[0])[boundary.number].shape)
