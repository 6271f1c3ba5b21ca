"""dynamic-slice, dynamic-update-slice, gather, scatter, and operations on dynamic dimensions.

Semantics: xla/hlo/evaluator/hlo_evaluator.cc. Start indices of slices and gathers are clamped so that the window fits;
a scatter's window that is partly out of bounds is skipped.
"""

from __future__ import annotations

from hlo_opt.ir import IndexMap, Instruction, Shape
from hlo_opt.ir.element_type import S32
from hlo_opt.ir.index_map import Condition, Expression, Variable, add, constant, dimensions, identity, variable
from hlo_opt.ops import faces, omitted
from hlo_opt.ops.code import Code, atom
from hlo_opt.ops.faces import lazy
from hlo_opt.ops.indexing.gather_dimensions import Batching, gather_dimensions, scatter_dimensions
from hlo_opt.ops.lowering import Index, KernelBuilder, difference, guard, never, zero
from hlo_opt.ops.movement.table import index_reshape, lower_moved
from hlo_opt.ops.shapes import (
    applied,
    called_flops,
    check_parameters,
    declared,
    distinct,
    need,
    operand,
    result,
    results,
    similar,
)
from hlo_opt.ops.spec import Arity, OpKind, attributes, declare
from hlo_opt.ops.strides import dynamic_slice


def _check_starts(instruction: Instruction, first: int, rank: int) -> None:
    """Check for one scalar integer start index per dimension, or one vector of them (older form). Raises ShapeError."""
    starts = [operand(instruction, k) for k in range(first, len(instruction.operands))]
    if len(starts) == 1 and starts[0].rank == 1:
        need(starts[0].dimensions[0] == rank, f"{starts[0]} must have {rank} start indices")
    else:
        need(len(starts) == rank, f"{len(starts)} start indices for {rank} dimensions")
        need(all(s.rank == 0 for s in starts), "start indices are scalars")
    need(all(s.type.is_integer for s in starts), "start indices are integers")
    need(all(s.type == starts[0].type for s in starts), "start indices are all of one type")


def infer_slice(instruction: Instruction) -> Shape:
    source = operand(instruction, 0)
    _check_starts(instruction, 1, source.rank)
    sizes = instruction.ints("dynamic_slice_sizes")
    need(len(sizes) == source.rank, f"dynamic_slice_sizes has {len(sizes)} sizes for {source.rank} dimensions")
    for k, (size, room) in enumerate(zip(sizes, source.dimensions, strict=True)):
        need(size >= 0 and (size <= room or room < 0), f"a slice of {size} does not fit dimension {k} of {source}")
    return result(instruction, source.type, sizes)


def infer_update(instruction: Instruction) -> Shape:
    source, update = operand(instruction, 0), operand(instruction, 1)
    _check_starts(instruction, 2, source.rank)
    need(similar(update.type, source.type), f"the update is {update.type}, the operand {source.type}")
    need(
        update.rank == source.rank
        and all(0 <= a <= b or b < 0 for a, b in zip(update.dimensions, source.dimensions, strict=True)),
        f"the update {update} does not fit {source}",
    )
    return result(instruction, source.type, source.dimensions)


def _start_variables(instruction: Instruction, sizes: tuple[int, ...]) -> tuple[Expression, ...]:
    """The clamped start indices as run-time variables `r0..`."""
    source = instruction.operands[0].shape.dimensions
    return tuple(
        variable(f"r{k}", max(room - size, 0) + 1) for k, (room, size) in enumerate(zip(source, sizes, strict=True))
    )


def index_slice(instruction: Instruction, number: int) -> IndexMap | None:
    if number > 0:
        return IndexMap(()) if instruction.operands[number].shape.rank == 0 else None
    sizes = instruction.shape.dimensions
    starts = _start_variables(instruction, sizes)
    coordinates = tuple(add(d, r) for d, r in zip(dimensions(sizes), starts, strict=True))
    return IndexMap(coordinates, runtime=tuple(range(1, len(instruction.operands))))


def index_update(instruction: Instruction, number: int) -> IndexMap | None:
    """Operand 0 is read at the same index; the update at the index minus the start, where that is in bounds."""
    if number == 0:
        return identity(instruction.shape.dimensions)
    if number > 1:
        return IndexMap(()) if instruction.operands[number].shape.rank == 0 else None
    update = instruction.operands[1].shape.dimensions
    starts = _start_variables(instruction, update)
    update_index = tuple(
        difference(d, r) for d, r in zip(dimensions(instruction.shape.dimensions), starts, strict=True)
    )
    conditions = tuple(Condition(e, 0, size - 1) for e, size in zip(update_index, update, strict=True))
    runtime = tuple(range(2, len(instruction.operands)))
    return IndexMap(update_index, conditions=tuple(c for c in conditions if not c.always), runtime=runtime)


def clamped_starts(
    builder: KernelBuilder, instruction: Instruction, first: int, sizes: tuple[int, ...]
) -> list[Expression]:
    """The clamped start indices as kernel variables."""
    starts: list[Expression] = []
    vector = len(instruction.operands) == first + 1 and instruction.operands[first].shape.rank == 1
    for k, (room, size) in enumerate(zip(instruction.operands[0].shape.dimensions, sizes, strict=True)):
        if room <= size:
            starts.append(constant(0))
            continue
        start, at = (instruction.operands[first], (constant(k),)) if vector else (instruction.operands[first + k], ())
        starts.append(builder.start(start, at, room - size))
    return starts


def lower_slice(builder: KernelBuilder, instruction: Instruction, index: Index) -> Code:
    starts = clamped_starts(builder, instruction, 1, instruction.shape.dimensions)
    return builder.value(instruction.operands[0], tuple(add(r, d) for r, d in zip(starts, index, strict=True)))


def lower_update(builder: KernelBuilder, instruction: Instruction, index: Index) -> Code:
    source, update = instruction.operands[:2]
    sizes = update.shape.dimensions
    starts = clamped_starts(builder, instruction, 2, sizes)
    inside = tuple(difference(d, r) for r, d in zip(starts, index, strict=True))
    conditions = [Condition(e, 0, size - 1) for e, size in zip(inside, sizes, strict=True)]
    if never(conditions) or not update.shape.element_count:
        return builder.value(source, index)
    updated = guard(builder, conditions)
    if not updated:
        return builder.value(update, inside)
    element = builder.variable(instruction.shape.type, zero(instruction.shape.type))
    with builder.branch(updated):
        builder.assign(element, builder.value(update, inside))
    with builder.otherwise():
        builder.assign(element, builder.value(source, index))
    return element


def infer_gather(instruction: Instruction) -> Shape:
    source, indices = operand(instruction, 0), operand(instruction, 1)
    need(indices.type.is_integer, f"the indices are {indices.type}, not integers")
    return result(instruction, source.type, gather_dimensions(instruction).check_gather(source, indices))


def gathered_index(instruction: Instruction, index: Index, starts: dict[int, Expression]) -> Index:
    """The operand index of a gather's element, given start indices by operand dimension."""
    g = gather_dimensions(instruction)
    window = iter([index[d] for d in g.offset_dims])
    operand_index: list[Expression] = []
    for d in range(instruction.operands[0].shape.rank):
        inside = constant(0) if d in g.removed else next(window)
        operand_index.append(add(inside, starts.get(d, constant(0))))
    return tuple(operand_index)


def _batching_starts(batching: Batching, batch: Index, index_vector_dim: int) -> dict[int, Expression]:
    """Start indices of the operand's batching dimensions: the position in the matching dimension of the indices."""
    starts = {}
    for operand_dim, indices_dim in zip(batching.operand_dims, batching.indices_dims, strict=True):
        starts[operand_dim] = batch[indices_dim - (indices_dim > index_vector_dim)]
    return starts


def index_gather(instruction: Instruction, number: int) -> IndexMap:
    """Start indices are run-time variables: `r0..` are the components of the index vector, all read from operand 1."""
    g = gather_dimensions(instruction)
    out = dimensions(instruction.shape.dimensions)
    source, indices = (o.shape for o in instruction.operands)
    batch = tuple(e for d, e in enumerate(out) if d not in g.offset_dims)
    if number == 1:
        if g.index_vector_dim == indices.rank:
            return IndexMap(batch)
        loop = variable("s0", indices.dimensions[g.index_vector_dim])
        coordinates = (*batch[: g.index_vector_dim], loop, *batch[g.index_vector_dim :])
        return IndexMap(coordinates, (indices.dimensions[g.index_vector_dim],))
    starts = _batching_starts(g.batching, batch, g.index_vector_dim)
    for k, d in enumerate(g.start_index_map):
        room = source.dimensions[d] - g.slice_sizes[d]
        starts[d] = Variable(0, room, f"r{k}") if room > 0 else constant(0)
    return IndexMap(gathered_index(instruction, out, starts), runtime=(1,) * len(g.start_index_map))


def gather_starts(builder: KernelBuilder, instruction: Instruction, batch: Index) -> dict[int, Expression]:
    """The start index, by operand dimension, of the slice for a position in the batch dimensions."""
    g = gather_dimensions(instruction)
    source, indices = instruction.operands
    starts = _batching_starts(g.batching, batch, g.index_vector_dim)
    for k, d in enumerate(g.start_index_map):
        room = source.shape.dimensions[d] - g.slice_sizes[d]
        if room <= 0:
            starts[d] = constant(0)
            continue
        at = batch
        if g.index_vector_dim < indices.shape.rank:
            at = (*batch[: g.index_vector_dim], constant(k), *batch[g.index_vector_dim :])
        starts[d] = builder.start(indices, at, room)
    return starts


def lower_gather(builder: KernelBuilder, instruction: Instruction, index: Index) -> Code:
    offsets = gather_dimensions(instruction).offset_dims
    batch = tuple(e for d, e in enumerate(index) if d not in offsets)
    starts = gather_starts(builder, instruction, batch)
    return builder.value(instruction.operands[0], gathered_index(instruction, index, starts))


def infer_scatter(instruction: Instruction) -> Shape:
    count = len(instruction.operands)
    need(count % 2 == 1, f"{count} operands: scatter takes n operands, the indices and n updates")
    half = count // 2
    indices = operand(instruction, half)
    need(indices.type.is_integer, f"the indices are {indices.type}, not integers")
    s = scatter_dimensions(instruction)
    pairs = [(operand(instruction, k), operand(instruction, half + 1 + k)) for k in range(half)]
    for k, (source, update) in enumerate(pairs):
        need(similar(source.type, update.type), f"update {k} is {update.type}, its operand {source.type}")
        s.check_scatter(source, indices, update)
    scalars = [Shape(source.type) for source, _ in pairs]
    check_parameters(applied(instruction), [*scalars, *scalars], "combiner")
    return results(instruction, [(source.type, source.dimensions) for source, _ in pairs])


def index_scatter(instruction: Instruction, number: int) -> IndexMap | None:
    """The operands are read at the same index; which updates apply depends on the data."""
    half = len(instruction.operands) // 2
    return identity(instruction.operands[0].shape.dimensions) if number < half else None


def flops_scatter(instruction: Instruction) -> float:
    """One run of the combiner per update (xla/service/hlo_cost_analysis.cc, HandleScatter)."""
    half = len(instruction.operands) // 2
    return instruction.operands[half + 1].shape.element_count * called_flops(instruction.called_by("to_apply"))


def _infer_named(instruction: Instruction) -> Shape:
    """The operand's shape. Raises ShapeError unless `dimensions` names exactly one dimension."""
    source = operand(instruction, 0)
    need(len(distinct(instruction.ints("dimensions"), source.rank, "dimensions")) == 1, "one dimension is named")
    return result(instruction, source.type, source.dimensions)


def _infer_size(instruction: Instruction) -> Shape:
    _infer_named(instruction)
    return Shape(S32)


def _index_same(instruction: Instruction, number: int) -> IndexMap:
    return identity(instruction.shape.dimensions) if number == 0 else IndexMap(())


def lower_identity(builder: KernelBuilder, instruction: Instruction, index: Index) -> Code:
    return builder.value(instruction.operands[0], index)


def lower_get_dimension_size(builder: KernelBuilder, instruction: Instruction, index: Index) -> Code:
    """The static size: dynamic dimensions are padded before kernels are planned."""
    return atom(str(instruction.operands[0].shape.dimensions[instruction.ints("dimensions")[0]]))


def infer_dynamic_reshape(instruction: Instruction) -> Shape:
    source, shape = operand(instruction, 0), declared(instruction)
    need(
        len(instruction.operands) == 1 + shape.rank,
        f"{len(instruction.operands) - 1} sizes for a result of {shape.rank} dimensions",
    )
    need(source.element_count == shape.element_count or -1 in source.dimensions, "the number of elements changes")
    return result(instruction, source.type, shape.dimensions)


_INDICES = lazy("ways", "INDICES")
for _opcode, _least, _most, _attributes, _infer, _index, _cuda in (
    ("dynamic-slice", 1, None, "dynamic_slice_sizes!", infer_slice, index_slice, lower_slice),
    ("dynamic-update-slice", 2, None, "", infer_update, index_update, lower_update),
    ("set-dimension-size", 2, 2, "dimensions!", _infer_named, _index_same, lower_identity),
    ("get-dimension-size", 1, 1, "dimensions!", _infer_size, None, lower_get_dimension_size),
    ("dynamic-reshape", 1, None, "", infer_dynamic_reshape, index_reshape, lower_moved),
):
    declare(
        _opcode,
        OpKind.INDEXING,
        Arity(_least, _most),
        attributes(_attributes),
        infer=_infer,
        evaluate=lazy("indexing.meaning", _opcode.replace("-", "_")),
        index=_index,
        cuda=_cuda,
        tolerance=faces.bit_exact,
        expensive=faces.never,
        view=dynamic_slice if _opcode == "dynamic-slice" else None,
        ways=_INDICES if _opcode.endswith("slice") else None,
        omitted=omitted.set_dimension_size if _opcode == "set-dimension-size" else omitted.anew,
        is_free=_opcode == "get-dimension-size",
        moves_data=_opcode != "get-dimension-size",
        aligned=faces.first if _opcode == "dynamic-update-slice" else None,
        reads_part=_opcode == "dynamic-slice",
        first_index={"dynamic-slice": 1, "dynamic-update-slice": 2}.get(_opcode),
        reuses={"dynamic-slice": faces.behind_first, "dynamic-update-slice": faces.behind_second}.get(_opcode),
    )
declare(
    "gather",
    OpKind.INDEXING,
    Arity(2, 2),
    attributes(
        "offset_dims! collapsed_slice_dims! start_index_map! operand_batching_dims "
        "start_indices_batching_dims index_vector_dim! slice_sizes! indices_are_sorted"
    ),
    infer=infer_gather,
    evaluate=lazy("indexing.meaning", "gather"),
    index=index_gather,
    cuda=lower_gather,
    tolerance=faces.bit_exact,
    scratch=lazy("scratch", "gather"),
    ways=_INDICES,
    moves_data=True,
    reads_part=True,
    first_index=1,
    reuses=faces.behind_first,
)
declare(
    "scatter",
    OpKind.INDEXING,
    Arity(3, None),
    attributes(
        "update_window_dims! inserted_window_dims! scatter_dims_to_operand_dims! input_batching_dims "
        "scatter_indices_batching_dims index_vector_dim! indices_are_sorted unique_indices to_apply!"
    ),
    infer=infer_scatter,
    evaluate=lazy("indexing.meaning", "scatter"),
    index=index_scatter,
    flops=flops_scatter,
    tolerance=faces.rounded(64),
    call=lazy("calls.steps", "scatter"),
    is_planned=True,
    omitted=omitted.as_operand(every=True),
    scratch=lazy("scratch", "scatter"),
    ways=_INDICES,
    reuses=faces.never,
)
