"""reduce, reduce-window and scan.

Semantics: xla/hlo/evaluator/hlo_evaluator.cc (HandleReduce, HandleReduceWindow, HandleScan). A fold starts from the
init value and visits elements in row-major order; window positions outside the operand are skipped.
"""

from __future__ import annotations

import itertools
import math
from contextlib import ExitStack

from hlo_opt.ir import Computation, IndexMap, Instruction, Shape
from hlo_opt.ir.index_map import (
    Condition,
    Expression,
    add,
    constant,
    dimensions,
    divide,
    modulo,
    multiply,
    variable,
    variables_of,
)
from hlo_opt.ops import faces, omitted
from hlo_opt.ops.code import Code
from hlo_opt.ops.faces import lazy
from hlo_opt.ops.lowering import Index, KernelBuilder, guard, never
from hlo_opt.ops.reduction.beside import folds_beside
from hlo_opt.ops.reduction.reducers import is_wide, running_types
from hlo_opt.ops.shapes import (
    applied,
    called_flops,
    check_parameters,
    compatible,
    distinct,
    flag,
    integer,
    need,
    operand,
    results,
    window,
    windowed,
)
from hlo_opt.ops.spec import Arity, OpKind, attributes, declare


def _pairs(instruction: Instruction) -> list[tuple[Shape, Shape]]:
    """(operand, init value) pairs of a variadic fold. Raises ShapeError when they do not pair up."""
    count = len(instruction.operands)
    need(count >= 2 and count % 2 == 0, f"{count} operands: there must be as many init values as operands")
    half = count // 2
    pairs = [(operand(instruction, k), operand(instruction, half + k)) for k in range(half)]
    first = pairs[0][0]
    for k, (value, init) in enumerate(pairs):
        need(init.rank == 0, f"init value {k} is not a scalar but {init}")
        need(
            value.dimensions == first.dimensions,
            f"operand {k} is {value}, operand 0 {first}: the dimensions must be the same",
        )
    return pairs


def _check_reducer(instruction: Instruction, pairs: list[tuple[Shape, Shape]]) -> Computation:
    """Check that the reducer maps accumulators and values to accumulators. Raises ShapeError."""
    reducer = applied(instruction)
    scalars = [Shape(init.type) for _, init in pairs]
    check_parameters(reducer, [*scalars, *(Shape(value.type) for value, _ in pairs)], "reducer")
    leaves = list(reducer.root.shape.leaves())
    need(
        len(leaves) == len(scalars) and all(g.rank == 0 and g.is_array for g in leaves),
        f"reducer {reducer.name} returns {reducer.root.shape}, expected {len(scalars)} scalars",
    )
    return reducer


def reduced(instruction: Instruction) -> tuple[int, ...]:
    """The dimensions that a reduce folds, ascending."""
    return tuple(sorted(instruction.ints("dimensions")))


def infer_reduce(instruction: Instruction) -> Shape:
    pairs = _pairs(instruction)
    reducer = _check_reducer(instruction, pairs)
    sizes = pairs[0][0].dimensions
    gone = distinct(instruction.ints("dimensions"), len(sizes), "dimensions")
    kept = [size for d, size in enumerate(sizes) if d not in gone]
    return results(instruction, [(leaf.type, kept) for leaf in reducer.root.shape.leaves()])


def index_reduce(instruction: Instruction, number: int) -> IndexMap:
    if number >= len(instruction.operands) // 2:
        return IndexMap(())
    sizes = instruction.operands[0].shape.dimensions
    gone = reduced(instruction)
    kept = iter(dimensions([size for d, size in enumerate(sizes) if d not in gone]))
    loops = iter([variable(f"s{k}", sizes[d]) for k, d in enumerate(gone)])
    return IndexMap(
        tuple(next(loops) if d in gone else next(kept) for d in range(len(sizes))), tuple(sizes[d] for d in gone)
    )


def _start(builder: KernelBuilder, instruction: Instruction) -> list[Code]:
    """One accumulator per init value."""
    inits = instruction.operands[len(instruction.operands) // 2 :]
    types = running_types(instruction)
    return [builder.variable(t, builder.value(init, ())) for t, init in zip(types, inits, strict=True)]


def _fold(builder: KernelBuilder, instruction: Instruction, accumulators: list[Code], values: list[Code]) -> None:
    """One step: accumulators = reducer(accumulators, values)."""
    next_values = builder.apply(instruction.called_by("to_apply"), [*accumulators, *values], wide=is_wide(instruction))
    if len(next_values) > 1:  # compute all before the first accumulator changes
        next_values = [builder.bind(t, value) for t, value in zip(running_types(instruction), next_values, strict=True)]
    for name, value in zip(accumulators, next_values, strict=True):
        builder.assign(name, value)


def _finish(builder: KernelBuilder, instruction: Instruction, accumulators: list[Code]) -> Code | list[Code]:
    totals = accumulators
    if is_wide(instruction):
        totals = [builder.bind(leaf.type, name) for leaf, name in zip(instruction.shape.leaves(), totals, strict=True)]
    return totals if instruction.shape.is_tuple else totals[0]


def lower_reduce(builder: KernelBuilder, instruction: Instruction, index: Index) -> Code | list[Code]:
    half = len(instruction.operands) // 2
    index_map = index_reduce(instruction, 0)
    if not all(index_map.symbols):  # nothing is read: a plan may have no place for it
        return _finish(builder, instruction, _start(builder, instruction))
    counters = [variable(f"round{k}", size) for k, size in enumerate(index_map.symbols)]
    elements = [(o, index_map.apply(index, counters)) for o in instruction.operands[:half]]
    for fold, at in folds_beside(elements, {name for c in counters for name in variables_of(c)}):
        builder.value(fold, at)
    accumulators = _start(builder, instruction)
    with ExitStack() as loops:
        position = [loops.enter_context(builder.loop(size)) for size in index_map.symbols]
        at = index_map.apply(index, position)
        values = [builder.value(o, at) for o in instruction.operands[:half]]
        _fold(builder, instruction, accumulators, values)
    return _finish(builder, instruction, accumulators)


def flops_reduce(instruction: Instruction) -> float:
    """(elements in - elements out) runs of the reducer (xla/service/hlo_cost_analysis.cc, HandleReduce)."""
    inputs = instruction.operands[0].shape.element_count
    outputs = next(instruction.shape.leaves()).element_count
    return max(inputs - outputs, 0) * called_flops(instruction.called_by("to_apply"))


def infer_reduce_window(instruction: Instruction) -> Shape:
    pairs = _pairs(instruction)
    reducer = _check_reducer(instruction, pairs)
    sizes = pairs[0][0].dimensions
    out = [windowed(size, w) for size, w in zip(sizes, window(instruction, len(sizes)), strict=True)]
    return results(instruction, [(leaf.type, out) for leaf in reducer.root.shape.leaves()])


def index_reduce_window(instruction: Instruction, number: int) -> IndexMap:
    if number >= len(instruction.operands) // 2:
        return IndexMap(())
    sizes = instruction.operands[0].shape.dimensions
    parts = window(instruction, len(sizes))
    out = dimensions(next(instruction.shape.leaves()).dimensions)
    coordinates: list[Expression] = []
    conditions = []
    for k, (d, size, w) in enumerate(zip(out, sizes, parts, strict=True)):
        loop = variable(f"s{k}", w.size)
        dilated = add(add(multiply(d, w.stride), multiply(loop, w.rhs_dilate)), constant(-w.pad_low))
        conditions.append(Condition(dilated, 0, max((size - 1) * w.lhs_dilate, 0) if size else -1))
        if w.lhs_dilate > 1:
            conditions.append(Condition(modulo(dilated, w.lhs_dilate), 0, 0))
        coordinates.append(divide(dilated, w.lhs_dilate))
    return IndexMap(tuple(coordinates), tuple(w.size for w in parts), tuple(c for c in conditions if not c.always))


MOST_UNROLLED = 16
"""Windows with at most this many elements are unrolled in a kernel."""


def lower_reduce_window(builder: KernelBuilder, instruction: Instruction, index: Index) -> Code | list[Code]:
    half = len(instruction.operands) // 2
    index_map = index_reduce_window(instruction, 0)
    accumulators = _start(builder, instruction)
    if math.prod(index_map.symbols) <= MOST_UNROLLED:  # unrolled, so that neighbours' reads can be combined
        for numbers in itertools.product(*map(range, index_map.symbols)):
            at_once = [constant(number) for number in numbers]
            conditions = index_map.conditions_at(index, at_once)
            if never(conditions):
                continue
            with builder.likely(guard(builder, conditions)) as still:
                at = index_map.apply(index, at_once)
                values = [builder.value(o, at) for o in instruction.operands[:half]]
                with builder.branch(still):
                    _fold(builder, instruction, accumulators, values)
        return _finish(builder, instruction, accumulators)
    with ExitStack() as scopes:
        position = [scopes.enter_context(builder.loop(size)) for size in index_map.symbols]
        conditions = index_map.conditions_at(index, position)
        inside = guard(builder, conditions)
        if inside:
            scopes.enter_context(builder.branch(inside))
        if not never(conditions):
            at = index_map.apply(index, position)
            values = [builder.value(o, at) for o in instruction.operands[:half]]
            _fold(builder, instruction, accumulators, values)
    return _finish(builder, instruction, accumulators)


def flops_reduce_window(instruction: Instruction) -> float:
    """(window size - 1) runs of the reducer per result (xla/service/hlo_cost_analysis.cc, HandleReduceWindow)."""
    parts = window(instruction, instruction.operands[0].shape.rank)
    outputs = next(instruction.shape.leaves()).element_count
    return outputs * (math.prod(w.size for w in parts) - 1) * called_flops(instruction.called_by("to_apply"))


def infer_scan(instruction: Instruction) -> Shape:
    carries = integer(instruction, "num_carries")
    count = len(instruction.operands) - carries
    need(0 <= carries <= len(instruction.operands), "num_carries exceeds the number of operands")
    scanned = distinct(instruction.ints("dimensions"), operand(instruction, 0).rank, "dimensions")
    need(len(scanned) == 1, "scan names one dimension")
    body = applied(instruction)
    leaves = list(body.root.shape.leaves())
    shapes = [operand(instruction, number) for number in range(len(instruction.operands))]
    at = scanned[0]
    need(len({s.dimensions[at : at + 1] for s in shapes[:count]}) < 2, "scanned arrays have one length")
    steps = [Shape(s.type, (*s.dimensions[:at], *s.dimensions[at + 1 :])) for s in shapes[:count]]
    check_parameters(body, [*steps, *shapes[count:]], "body")
    need(len(leaves) >= carries, f"{body.name} returns fewer values than there are carries")
    for leaf, carry in zip(leaves[len(leaves) - carries :], shapes[count:], strict=True):
        need(compatible(leaf, carry, any_float=True), f"{body.name} takes a carry {carry} and returns {leaf}")
    size = shapes[0].dimensions[at] if count else None
    elements = list(instruction.shape.leaves())
    need(len(elements) == len(leaves), f"scan returns {len(leaves)} values")
    made = []
    for number, (leaf, element) in enumerate(zip(leaves, elements, strict=True)):
        if number >= len(leaves) - carries:
            made.append((leaf.type, leaf.dimensions))
            continue
        length = size if size is not None else element.dimensions[at]
        made.append((leaf.type, (*leaf.dimensions[:at], length, *leaf.dimensions[at:])))
    return results(instruction, made)


def is_reversed(instruction: Instruction) -> bool:
    """Whether a scan runs from the end to the start."""
    return flag(instruction, "is_reverse")


declare(
    "reduce",
    OpKind.REDUCTION,
    Arity(2, None),
    {"dimensions": True, "to_apply": True},
    infer=infer_reduce,
    evaluate=lazy("reduction.meaning", "reduce"),
    index=index_reduce,
    cuda=lower_reduce,
    flops=flops_reduce,
    tolerance=faces.rounded(64),
    scratch=lazy("scratch", "reduce"),
    reuses=faces.second_half,
)
declare(
    "reduce-window",
    OpKind.REDUCTION,
    Arity(2, None),
    {"window": False, "to_apply": True},
    infer=infer_reduce_window,
    evaluate=lazy("reduction.meaning", "reduce_window"),
    index=index_reduce_window,
    cuda=lower_reduce_window,
    flops=flops_reduce_window,
    tolerance=faces.rounded(64),
    omitted=omitted.of_initial_value,
    scratch=lazy("scratch", "reduce_window"),
)
declare(
    "scan",
    OpKind.REDUCTION,
    Arity(1, None),
    attributes("dimensions! num_carries! is_reverse is_associative to_apply!"),
    infer=infer_scan,
    evaluate=lazy("reduction.meaning", "scan"),
    tolerance=faces.rounded(64),
    is_library=True,
    own_kernel=True,
)
