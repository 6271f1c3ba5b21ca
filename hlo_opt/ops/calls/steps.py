"""Library calls of several CuPy operations each: scatters, complex functions, sort keys, and XLA:GPU's cuDNN
convolutions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hlo_opt.ir import ElementType, Instruction
from hlo_opt.library.steps import CallStep
from hlo_opt.ops.calls.call import TF32, plain
from hlo_opt.ops.calls.products import convolution_arguments, multiplies_tf32
from hlo_opt.ops.custom_calls.convolutions import as_hlo
from hlo_opt.ops.elementwise.functions import FUNCTIONS, NOT_COMPLEX
from hlo_opt.ops.indexing.gather_dimensions import scatter_dimensions
from hlo_opt.ops.numeric import COMPARISONS
from hlo_opt.ops.reduction.reducers import monoid, picks
from hlo_opt.ops.spec import LibraryCall

_CONVOLVED = frozenset({"pred", "bf16", "f16", "f32", "f64", "s8", "u8", "s32"})


def steps_of(
    roots: Sequence[Instruction],
    inputs: Mapping[Instruction, int],
    count: int,
    allowed: Callable[[Instruction], bool],
) -> tuple[tuple[CallStep, ...], tuple[int, ...]] | None:
    """Steps that compute `roots`, and the roots' numbers. `inputs` numbers the `count` inputs.

    None where an operation has no steps or is not `allowed`.
    """
    numbers = dict(inputs)
    steps: list[CallStep] = []
    todo = [(root, False) for root in reversed(roots)]
    while todo:
        i, ready = todo.pop()
        if i in numbers:
            continue
        if not ready:
            todo.append((i, True))
            todo.extend((o, False) for o in reversed(i.operands))
            continue
        own = _steps(i) if allowed(i) else None
        if own is None:
            return None
        sources = tuple(numbers[o] for o in i.operands)
        for operation, arguments in own:
            steps.append((operation, arguments, sources))
            sources = (count + len(steps) - 1,)
        numbers[i] = sources[0]
    return tuple(steps), tuple(numbers[root] for root in roots)


def _steps(i: Instruction) -> list[tuple[str, tuple[Any, ...]]] | None:
    """The steps of one operation: several where a bf16 result, computed in f32, must be rounded."""
    t = i.shape.type
    name = "float32" if t.name == "bf16" else t.numpy_name
    rounding: list[tuple[str, tuple[Any, ...]]] = [("narrow", ())] if t.name == "bf16" else []
    match i.opcode:
        case "constant":
            if i.literal is None or i.shape.rank or isinstance(i.literal.value, tuple):
                return None
            value = i.literal.value[()]
            # repr of NaN or infinity is not Python source, so floats go as text
            return [("constant", (name, str(float(value)) if t.is_float else int(value)))]
        case "broadcast":
            return [("broadcast", (i.ints("dimensions"), i.shape.dimensions))]
        case "reshape":
            return [("reshape", (i.shape.dimensions,))]
        case "transpose":
            return [("transpose", (i.ints("dimensions"),))]
        case "copy":
            return []
        case "convert":
            return [("astype", (name,)), *rounding]
        case "bitcast" | "bitcast-convert":
            kinds = (i.operands[0].shape.type, t)
            fits = kinds[0].bits == t.bits and all(k.kind != "pred" and k.name != "bf16" for k in kinds)
            return [("view", (name,))] if fits else None
        case "convolution":
            return [("convolution", (i.shape.dimensions, *convolution_arguments(i))), ("astype", (name,)), *rounding]
        case "compare":
            return [(COMPARISONS[i.word("direction")], ())] if i.word("type") != "TOTALORDER" else None
        case "clamp":
            return [("clamp", ())]
    return [(FUNCTIONS[i.opcode], ()), *rounding] if i.opcode in FUNCTIONS else None


def convolution(instruction: Instruction) -> LibraryCall | None:
    """cuDNN's convolution; None for types that CuPy lacks. Raises what `as_hlo` raises."""
    computation = as_hlo(instruction)
    root, parameters = computation.root, computation.parameters
    if not all(leaf.type.name in _CONVOLVED for p in parameters for leaf in p.shape.leaves()):
        return None
    steps = steps_of(
        root.operands if root.shape.is_tuple else [root],
        {p: number for number, p in enumerate(parameters)},
        len(parameters),
        lambda i: i.shape.is_array and i.shape.type.name in _CONVOLVED,
    )
    rounded = (TF32,) if multiplies_tf32(instruction) else ()
    return None if steps is None else ("steps_call", (*steps, *rounded), "cupy.matmul of laid-out windows")


def of_complex(instruction: Instruction) -> LibraryCall | None:
    """An elementwise operation on complex numbers, where it has no kernel."""
    function = FUNCTIONS.get(instruction.opcode)
    shapes = [*(o.shape for o in instruction.operands), instruction.shape]
    if function is None or instruction.opcode in NOT_COMPLEX:
        return None
    if not any(s.is_array and s.type.is_complex for s in shapes):
        return None
    return "complex_call", (function,), "cupy" if function == "pair" else f"cupy.{function}"


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
    """The type of CuPy's atomic update for an element type. Integer sums wrap alike. Sums of narrow floats are not
    rounded on the way."""
    if element_type.is_narrow_float or element_type.name == "f32":
        return "float32"
    if element_type.name == "f64":
        return "float64"
    if element_type.is_integer:
        if element_type.bits <= 32:
            return "int32" if element_type.kind == "signed" else "uint32"
        return "uint64" if element_type.kind == "unsigned" else None
    return None
