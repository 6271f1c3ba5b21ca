"""What scatters ask of CuPy, or None where it cannot."""

from __future__ import annotations

from hlo_opt.ir import ElementType, Instruction
from hlo_opt.ops.calls.call import plain
from hlo_opt.ops.indexing.gather_dimensions import scatter_dimensions
from hlo_opt.ops.reduction.reducers import monoid, picks
from hlo_opt.ops.spec import LibraryCall

_COMBINERS = {"add": "add", "maximum": "maximum", "minimum": "minimum"}


def scatter(instruction: Instruction) -> LibraryCall | None:
    if len(instruction.operands) != 3 or not instruction.shape.is_array:
        return None
    source, indices, _ = (o.shape for o in instruction.operands)
    combiner = instruction.called_by("to_apply")
    combine = "assign" if picks(combiner) == 1 else _COMBINERS.get(monoid(combiner) or "")
    wide = _scattered_in(source.type) if combine != "add" or not source.type.is_narrow_float else None
    if combine is None or wide is None or not plain(source) or not indices.type.is_integer:
        return None
    s = scatter_dimensions(instruction)
    window = iter(s.offset_dims)
    by_dimension = []
    for d in range(source.rank):
        component = s.start_index_map.index(d) if d in s.start_index_map else None
        along = None
        if d in s.batching.operand_dims:
            indices_dim = s.batching.indices_dims[s.batching.operand_dims.index(d)]
            along = indices_dim - (indices_dim > s.index_vector_dim)
        by_dimension.append((component, along, None if d in s.removed else next(window)))
    does = "assignment by index" if combine == "assign" else f"cupy.{combine}.at"
    return "scatter_call", ((tuple(by_dimension), s.index_vector_dim), combine, wide), does


def _scattered_in(element_type: ElementType) -> str | None:
    """A type that CuPy's atomic updates know, wide enough for the element type; sums wrap as they do in the type itself. Sums of narrow floats it does not round on the way."""
    if element_type.is_narrow_float or element_type.name == "f32":
        return "float32"
    if element_type.name == "f64":
        return "float64"
    if element_type.is_integer:
        if element_type.bits <= 32:
            return "int32" if element_type.kind == "signed" else "uint32"
        return "uint64" if element_type.kind == "unsigned" else None
    return None
