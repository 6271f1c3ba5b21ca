"""sort, topk and select-and-scatter.

Semantics: xla/hlo/evaluator/hlo_evaluator.cc (HandleSort, always stable), xla/service/topk_rewriter.cc,
xla/hlo/evaluator (HandleSelectAndScatter).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from hlo_opt.ir import IndexMap, Instruction, Shape
from hlo_opt.ir.attribute import WindowDimension
from hlo_opt.ir.element_type import PRED, S32
from hlo_opt.ir.index_map import Condition, Expression, add, constant, dimensions, divide, modulo, multiply, variable
from hlo_opt.ops import faces, omitted
from hlo_opt.ops.code import NOTHING, Code, code, negated
from hlo_opt.ops.elementwise.declare import check_kind
from hlo_opt.ops.faces import lazy
from hlo_opt.ops.lowering import Index, KernelBuilder, difference, guard
from hlo_opt.ops.reduction.reducers import is_wide, running_types
from hlo_opt.ops.shapes import (
    applied,
    called_flops,
    check_parameters,
    distinct,
    integer,
    need,
    operand,
    result,
    results,
    window,
    windowed,
)
from hlo_opt.ops.spec import Arity, OpKind, declare

# ---- kernels for select-and-scatter: each element checks the windows that contain it for having selected it
#
# XLA:GPU selects with a reduce-window and scatters with atomics
# (xla/hlo/transforms/expanders/select_and_scatter_expander.cc). This gather form takes one kernel and is deterministic:
# sources are combined in row-major order.


MOST_UNROLLED = 16
"""Windows that do not overlap are unrolled in a kernel if they have at most this many elements."""


def lower_select_and_scatter(builder: KernelBuilder, instruction: Instruction, index: Index) -> Code:
    """The init value combined with the sources of all windows that selected this element."""
    value, source, init = instruction.operands
    parts = window(instruction, value.shape.rank)
    total = builder.variable(running_types(instruction)[0], builder.value(init, ()))
    if not source.shape.element_count:
        return total
    scatter, sizes = instruction.called_by("scatter"), [w.size for w in parts]
    own = tuple(divide(at, w.stride) for at, w in zip(index, parts, strict=True))
    if math.prod(sizes) <= MOST_UNROLLED and _are_apart(parts, own, source.shape.dimensions):
        offsets = tuple(modulo(at, w.stride) for at, w in zip(index, parts, strict=True))
        selected = _selected_of_all(builder, instruction, parts, own)
        here = builder.value(source, own)  # read with the others, before it is known whether it is needed
        with builder.branch(code("{} == {}", selected, builder.text(_linear(offsets, sizes)))):
            builder.assign(total, builder.apply(scatter, [total, here], wide=is_wide(instruction))[0])
    else:
        with _reaching(builder, parts, index, source.shape.dimensions) as (place, offsets):
            selected = _selected(builder, instruction, parts, place)
            with builder.branch(code("{} == {}", selected, builder.text(_linear(offsets, sizes)))):
                builder.assign(
                    total, builder.apply(scatter, [total, builder.value(source, place)], wide=is_wide(instruction))[0]
                )
    return builder.bind(instruction.shape.type, total) if is_wide(instruction) else total


def _are_apart(parts: Sequence[WindowDimension], place: Index, counts: Sequence[int]) -> bool:
    """Whether each element is in exactly one window, at `place`, and windows lie inside the operand."""
    fit = all(w.size == w.stride and not (w.pad_low or w.pad_high) for w in parts)
    return fit and all(at.low >= 0 and at.high < count for at, count in zip(place, counts, strict=True))


def _selected_of_all(
    builder: KernelBuilder, instruction: Instruction, parts: Sequence[WindowDimension], place: Index
) -> Code:
    """A variable with the row-major position selected in a window inside the operand: without loops, so that
    neighbours' reads can be combined."""
    operand, sizes = instruction.operands[0], [w.size for w in parts]
    best = where = NOTHING
    for number in itertools.product(*map(range, sizes)):
        at = [add(multiply(i, w.stride), constant(k)) for i, k, w in zip(place, number, parts, strict=True)]
        candidate = builder.value(operand, tuple(at))
        if not where:
            best, where = builder.variable(operand.shape.type, candidate), builder.variable(S32, code("0"))
            continue
        keeps = builder.apply(instruction.called_by("select"), [best, candidate])[0]
        with builder.branch(negated(keeps)):
            builder.assign(best, candidate)
            builder.assign(where, builder.text(_linear(tuple(map(constant, number)), sizes)))
    return where


def _reaching_count(w: WindowDimension) -> int:
    """The most windows that contain an element."""
    return -(-w.size // w.stride)


def _shifted(at: Expression, w: WindowDimension) -> Expression:
    """A coordinate in the padded operand, moved by whole strides so that it is not negative."""
    return add(at, constant(w.pad_low + _ahead(w) * w.stride))


def _ahead(w: WindowDimension) -> int:
    return max(0, -(-max(0, -w.pad_low) // w.stride))


def _place(at: Expression, w: WindowDimension, step: Expression) -> Expression:
    """The number of window `step` of those that may contain an element, in ascending order."""
    back = difference(constant(_reaching_count(w) - 1), step)
    return add(difference(divide(_shifted(at, w), w.stride), back), constant(-_ahead(w)))


@contextmanager
def _reaching(
    builder: KernelBuilder, parts: Sequence[WindowDimension], index: Index, counts: Sequence[int]
) -> Iterator[tuple[Index, Index]]:
    """A loop over the windows that contain an element, row-major. Yields the window's index, and the element's position
    in it."""
    with ExitStack() as scopes:
        place: list[Expression] = []
        offsets: list[Expression] = []
        conditions: list[Condition] = []
        for at, w, count in zip(index, parts, counts, strict=True):
            step = scopes.enter_context(builder.loop(_reaching_count(w)))
            number = _place(at, w, step)
            back = difference(constant(_reaching_count(w) - 1), step)
            offset = add(modulo(_shifted(at, w), w.stride), multiply(back, w.stride))
            conditions += [Condition(number, 0, count - 1), Condition(offset, 0, w.size - 1)]
            place.append(number)
            offsets.append(offset)
        inside = guard(builder, conditions)
        if inside:
            scopes.enter_context(builder.branch(inside))
        yield tuple(place), tuple(offsets)


def _selected(builder: KernelBuilder, instruction: Instruction, parts: Sequence[WindowDimension], place: Index) -> Code:
    """A variable with the row-major position selected in a window; -1 where the window is outside the operand."""
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
        with builder.branch(code("{} < 0 || {}", where, negated(keeps))):
            builder.assign(best, candidate)
            builder.assign(where, builder.text(_linear(tuple(position), [w.size for w in parts])))
    return where


def _linear(index: Index, sizes: Sequence[int]) -> Expression:
    """The row-major position of an index in a box."""
    strides = [math.prod(sizes[k + 1 :]) for k in range(len(sizes))]
    total: Expression = constant(0)
    for e, stride in zip(index, strides, strict=True):
        total = add(total, multiply(e, stride))
    return total


def sorted_dimension(instruction: Instruction) -> int:
    """The dimension that a sort orders."""
    return instruction.ints("dimensions")[0] if instruction.ints("dimensions") else 0


def infer_sort(instruction: Instruction) -> Shape:
    shapes = [operand(instruction, k) for k in range(len(instruction.operands))]
    first = shapes[0]
    for k, shape in enumerate(shapes):
        need(shape.dimensions == first.dimensions, f"operand {k} is {shape}, operand 0 {first}: sizes must be the same")
    need(len(distinct(instruction.ints("dimensions"), first.rank, "dimensions")) == 1, "sort names one dimension")
    comparator = applied(instruction)
    check_parameters(comparator, [Shape(s.type) for s in shapes for _ in range(2)], "comparator")
    need(comparator.root.shape.same_values(Shape(PRED)), f"comparator {comparator.name} must return pred[]")
    return results(instruction, [(s.type, s.dimensions) for s in shapes])


def _whole_line(instruction: Instruction, number: int, along: int) -> IndexMap:
    """Reads every element along one dimension."""
    sizes = instruction.operands[number].shape.dimensions
    coordinates: list[Expression] = list(dimensions(sizes))
    coordinates[along] = variable("s0", sizes[along])
    return IndexMap(tuple(coordinates), (sizes[along],))


_RANKED = ("pred", "signed", "unsigned", "float")


def infer_topk(instruction: Instruction) -> Shape:
    shape = operand(instruction, 0)
    check_kind("topk", shape.type, _RANKED)
    count = integer(instruction, "k")
    need(
        shape.rank >= 1 and 0 <= count <= shape.dimensions[-1], f"k={count} is more than the last dimension of {shape}"
    )
    kept = (*shape.dimensions[:-1], count)
    return results(instruction, [(shape.type, kept), (S32, kept)])


def infer_select_and_scatter(instruction: Instruction) -> Shape:
    shape, source, init = (operand(instruction, k) for k in range(3))
    need(init.rank == 0, f"the init value is not a scalar but {init}")
    parts = window(instruction, shape.rank)
    need(all(w.lhs_dilate == 1 and w.rhs_dilate == 1 for w in parts), "select-and-scatter takes no dilation")
    expected = tuple(windowed(size, w) for size, w in zip(shape.dimensions, parts, strict=True))
    need(source.dimensions == expected, f"the source is {source}, the window needs {list(expected)}")
    scalar = Shape(shape.type)
    check_parameters(applied(instruction, "select"), [scalar, scalar], "select")
    check_parameters(applied(instruction, "scatter"), [Shape(source.type), scalar], "scatter")
    return result(instruction, shape.type, shape.dimensions)


def index_select_and_scatter(instruction: Instruction, number: int) -> IndexMap:
    """Reads the windows that contain an element, and their sources."""
    if number == 2:
        return IndexMap(())
    value, source = instruction.operands[0].shape, instruction.operands[1].shape
    parts = window(instruction, value.rank)
    coordinates, conditions, symbols = [], [], [_reaching_count(w) for w in parts]
    for k, (at, w, count) in enumerate(zip(dimensions(value.dimensions), parts, source.dimensions, strict=True)):
        place = _place(at, w, variable(f"s{k}", symbols[k]))
        conditions.append(Condition(place, 0, count - 1))
        coordinates.append(place)
    if number == 0:
        for k, (w, size) in enumerate(zip(parts, value.dimensions, strict=True)):
            step = variable(f"s{value.rank + k}", w.size)
            coordinates[k] = add(add(multiply(coordinates[k], w.stride), step), constant(-w.pad_low))
            conditions.append(Condition(coordinates[k], 0, size - 1))
        symbols += [w.size for w in parts]
    return IndexMap(tuple(coordinates), tuple(symbols), tuple(c for c in conditions if not c.always))


def flops_sort(instruction: Instruction) -> float:
    """n log2 n comparisons along the sorted dimension (xla/service/hlo_cost_analysis.cc, HandleSort)."""
    count = instruction.operands[0].shape.element_count
    return count * max(math.ceil(math.log2(count)), 1) if count > 1 else 0.0


def flops_select_and_scatter(instruction: Instruction) -> float:
    """xla/service/hlo_cost_analysis.cc, HandleSelectAndScatter."""
    parts = window(instruction, instruction.operands[0].shape.rank)
    select, scatter = applied(instruction, "select"), applied(instruction, "scatter")
    per_source = (math.prod(w.size for w in parts) - 1) * called_flops(select) + called_flops(scatter)
    return instruction.operands[1].shape.element_count * per_source


declare(
    "sort",
    OpKind.REDUCTION,
    Arity(1, None),
    {"dimensions": True, "is_stable": False, "to_apply": True},
    infer=infer_sort,
    evaluate=lazy("ordering.meaning", "sort"),
    index=lambda i, number: _whole_line(i, number, sorted_dimension(i)),
    flops=flops_sort,
    tolerance=faces.bit_exact,
    call=lazy("calls.order", "sort"),
    routine="numpy.argsort",
    is_library=True,
    own_kernel=True,
    is_slow=True,
    omitted=omitted.as_operand(every=True),
    scratch=lazy("scratch", "sort"),
)
declare(
    "topk",
    OpKind.REDUCTION,
    Arity(1, 1),
    {"k": True, "largest": False},
    _RANKED,
    infer=infer_topk,
    evaluate=lazy("ordering.meaning", "topk"),
    index=lambda i, number: _whole_line(i, number, i.operands[0].shape.rank - 1),
    flops=flops_sort,
    tolerance=faces.bit_exact,
    call=lazy("calls.order", "topk"),
    routine="numpy.argsort",
    is_library=True,
    own_kernel=True,
    scratch=lazy("scratch", "sort"),
)
declare(
    "select-and-scatter",
    OpKind.REDUCTION,
    Arity(3, 3),
    {"window": False, "select": True, "scatter": True},
    infer=infer_select_and_scatter,
    evaluate=lazy("ordering.meaning", "select_and_scatter"),
    index=index_select_and_scatter,
    cuda=lower_select_and_scatter,
    flops=flops_select_and_scatter,
    tolerance=faces.rounded(64),
    omitted=omitted.as_operand(),
    scratch=lazy("scratch", "scatter"),
)
