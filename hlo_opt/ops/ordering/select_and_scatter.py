"""The kernel text of select-and-scatter: each element asks the windows that reach it whether they selected it.

XLA:GPU selects with a reduce-window and scatters with atomics (xla/hlo/transforms/expanders/select_and_scatter_expander.cc). Asking from the other side
takes one kernel and gives the same bits each time: sources are combined in row-major order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from hlo_opt.ir import Instruction
from hlo_opt.ir.attribute import WindowDimension
from hlo_opt.ir.element_type import S32
from hlo_opt.ir.index_map import Condition, Expression, add, constant, divide, modulo, multiply
from hlo_opt.ops.code import Code, code
from hlo_opt.ops.guards import difference, guard
from hlo_opt.ops.lowering import Index, KernelBuilder
from hlo_opt.ops.reduction.accumulation import is_wide, running_types
from hlo_opt.ops.shapes import window


def lower_select_and_scatter(builder: KernelBuilder, instruction: Instruction, index: Index) -> Code:
    """The element at an index: the init value, with the sources of all windows combined into it that selected the element."""
    value, source, init = instruction.operands
    parts = window(instruction, value.shape.rank)
    made = builder.variable(running_types(instruction)[0], builder.value(init, ()))
    if not source.shape.element_count:
        return made
    scatter = instruction.called_by("scatter")
    with _reaching(builder, parts, index, source.shape.dimensions) as (place, offsets):
        selected = _selected(builder, instruction, parts, place)
        with builder.branch(code("{} == {}", selected, builder.text(_linear(offsets, [w.size for w in parts])))):
            builder.assign(
                made, builder.apply(scatter, [made, builder.value(source, place)], wide=is_wide(instruction))[0]
            )
    return builder.bind(instruction.shape.type, made) if is_wide(instruction) else made


@contextmanager
def _reaching(
    builder: KernelBuilder, parts: Sequence[WindowDimension], index: Index, counts: Sequence[int]
) -> Iterator[tuple[Index, Index]]:
    """A loop over the windows that an element is in, in row-major order: the window's number by dimension, and where in it the element is."""
    with ExitStack() as scopes:
        place: list[Expression] = []
        offsets: list[Expression] = []
        conditions: list[Condition] = []
        for at, w, count in zip(index, parts, counts, strict=True):
            most = -(-w.size // w.stride)  # windows that an element can be in
            ahead = max(0, -(-max(0, -w.pad_low) // w.stride))  # keeps what is divided from being negative
            shifted = add(at, constant(w.pad_low + ahead * w.stride))
            step = scopes.enter_context(builder.loop(most))
            back = difference(constant(most - 1), step)
            number = add(difference(divide(shifted, w.stride), back), constant(-ahead))
            offset = add(modulo(shifted, w.stride), multiply(back, w.stride))
            conditions += [Condition(number, 0, count - 1), Condition(offset, 0, w.size - 1)]
            place.append(number)
            offsets.append(offset)
        inside = guard(builder, conditions)
        if inside:
            scopes.enter_context(builder.branch(inside))
        yield tuple(place), tuple(offsets)


def _selected(builder: KernelBuilder, instruction: Instruction, parts: Sequence[WindowDimension], place: Index) -> Code:
    """The name of the selected position's number in a window; -1 where no position of the window lies inside the operand."""
    operand = instruction.operands[0]
    best = builder.variable(operand.shape.type, code("0"))
    where = builder.variable(S32, code("-1"))
    with ExitStack() as scopes:
        position = [scopes.enter_context(builder.loop(w.size)) for w in parts]
        at = [
            add(add(multiply(i, w.stride), k), constant(-w.pad_low))
            for i, k, w in zip(place, position, parts, strict=True)
        ]
        inside = guard(
            builder, [Condition(e, 0, size - 1) for e, size in zip(at, operand.shape.dimensions, strict=True)]
        )
        if inside:
            scopes.enter_context(builder.branch(inside))
        candidate = builder.value(operand, tuple(at))
        keeps = builder.apply(instruction.called_by("select"), [best, candidate])[0]
        with builder.branch(code("{} < 0 || !{}", where, keeps)):
            builder.assign(best, candidate)
            builder.assign(where, builder.text(_linear(tuple(position), [w.size for w in parts])))
    return where


def _linear(index: Index, sizes: Sequence[int]) -> Expression:
    """The number of a position among those of a box, in row-major order."""
    strides = [math.prod(sizes[k + 1 :]) for k in range(len(sizes))]
    total: Expression = constant(0)
    for e, stride in zip(index, strides, strict=True):
        total = add(total, multiply(e, stride))
    return total
