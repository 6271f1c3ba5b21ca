"""Products, convolutions, sorting, transforms and solvers as calls of `library.functions`: what each instruction asks of CuPy, or None where CuPy cannot."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hlo_opt.ir import ElementType, Instruction, Shape
from hlo_opt.ops.collective.module_devices import counts
from hlo_opt.ops.contraction.convolution import convolution_dimensions
from hlo_opt.ops.linalg.table import is_left
from hlo_opt.ops.ordering.table import sorted_dimension
from hlo_opt.ops.shapes import flag, integer
from hlo_opt.ops.spec import ShapeError
from hlo_opt.runtime.calls.cudnn import convolution_steps
from hlo_opt.runtime.calls.factorizations import factorization_call
from hlo_opt.runtime.calls.sort_keys import sort_keys
from hlo_opt.runtime.calls.sorting import ordering_call
from hlo_opt.runtime.memory import raw_dtype

Call = tuple[str, tuple[Any, ...], str]
"""(function of `library.functions`, arguments after the shapes, what does the work)"""

_MOST = 2**31 - 1
"""cuBLAS counts rows and columns in 32 bits."""


def plain(shape: Shape) -> bool:
    """Whether CuPy holds the type, bf16 as raw bits."""
    return shape.is_array and (
        shape.type.name in ("pred", "bf16", "f16", "f32", "f64", "c64", "c128")
        or (shape.type.is_integer and shape.type.bits >= 8)
    )


def dot(instruction: Instruction) -> Call | None:
    """cuBLAS where it has the types, else CuPy's own product; operands of one byte are read through a table."""
    if len(instruction.operands) != 2 or not instruction.shape.is_array:
        return None
    lhs, rhs, result = (*(o.shape for o in instruction.operands), instruction.shape)
    if not (lhs.is_array and rhs.is_array):
        return None
    batch = (instruction.ints("lhs_batch_dims"), instruction.ints("rhs_batch_dims"))
    contracting = (instruction.ints("lhs_contracting_dims"), instruction.ints("rhs_contracting_dims"))
    small = all(s.element_count <= _MOST for s in (lhs, rhs, result))
    if _multiplied(lhs.type, rhs.type, result.type) and small:
        return "gemm_call", (batch, contracting), "cublasGemmStridedBatchedEx"
    accumulator, tables = _accumulator(lhs.type, rhs.type, result.type), _tables(lhs, rhs, result)
    if accumulator is None or tables is None:
        return None
    return "dot_call", (batch, contracting, accumulator, *tables), "cupy.matmul"


def _tables(lhs: Shape, rhs: Shape, result: Shape) -> tuple[Any, ...] | None:
    """How `dot_call` and `convolution_call` read and write the types that CuPy lacks, in a tuple; an empty one where it lacks none. None where they cannot."""
    read = tuple("" if plain(s) else table(s.type) for s in (lhs, rhs))
    written: Any = "" if plain(result) else rounding_table(result.type)
    if None in read or written is None or (written and "f64" in (lhs.type.name, rhs.type.name)):
        return None
    return ((*read, written),) if any(read) or written else ()


def _multiplied(lhs: ElementType, rhs: ElementType, result: ElementType) -> bool:
    """Whether cuBLAS multiplies the types as they are (the table of cublasGemmStridedBatchedEx in its manual)."""
    if lhs != rhs:
        return False
    known = lhs.name in ("bf16", "f16", "f32", "f64", "c64", "c128")
    return known and (result == lhs or (lhs.is_narrow_float and result.name == "f32"))


def _accumulator(lhs: ElementType, rhs: ElementType, result: ElementType) -> str | None:
    """The NumPy name of the type that products are added in."""
    if result.is_float:
        return "float64" if "f64" in (lhs.name, rhs.name, result.name) else "float32"
    if result.kind == "pred":
        return "int32"
    if result.is_complex or result.is_integer:
        return result.numpy_name
    return None


def table(element_type: ElementType) -> str | None:
    """The float32 values of all bytes, in hexadecimal, for a type of one byte that CuPy lacks: f8, f4, int4. None for others."""
    if element_type.bytes != 1 or not element_type.numpy_name or not (element_type.is_float or element_type.is_integer):
        return None
    every = np.arange(256, dtype=np.uint8).view(element_type.dtype)
    return every.astype(np.float32).tobytes().hex()


@functools.cache
def rounding_table(element_type: ElementType) -> tuple[str, str] | None:
    """How float32 is rounded to a float of one byte that CuPy lacks: the first float32 of each byte as its place in the order of all float32 (32 bits,
    -NaN first), but for the first byte; and the bytes. Both in hexadecimal. None for other types."""
    if element_type.bytes != 1 or not element_type.is_float or not element_type.numpy_name:
        return None

    def code(order: Any) -> Any:
        bits = np.where(order < 0, order ^ 0x7FFFFFFF, order).astype(np.int32)
        with np.errstate(all="ignore"):
            return bits.view(np.float32).astype(element_type.dtype).view(np.uint8)

    every = np.arange(256, dtype=np.uint8).view(element_type.dtype).astype(np.float32)
    bits = np.unique(
        np.concatenate([every[np.isfinite(every)], np.array([np.inf, -np.inf, 0.0, -0.0], np.float32)]).view(np.int32)
    )
    order = np.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    edges = np.array([-(2**31), 2**31 - 1, order.min() - 1, order.max() + 1])  # NaN of either sign
    points = np.unique(np.concatenate([order.astype(np.int64), edges]))
    low, high = points[:-1].copy(), points[1:].copy()
    differs = code(low.astype(np.int32)) != code(high.astype(np.int32))
    low, high = low[differs], high[differs]
    first = code(low.astype(np.int32))
    while np.any(high - low > 1):  # what rounds to one byte is one stretch of float32
        middle = (low + high) // 2
        same = code(middle.astype(np.int32)) == first
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    codes = np.concatenate([first[:1], code(high.astype(np.int32))])
    return high.astype(np.int32).tobytes().hex(), codes.tobytes().hex()


def convolution(instruction: Instruction) -> Call | None:
    lhs, rhs, result = (*(o.shape for o in instruction.operands), instruction.shape)
    tables = _tables(lhs, rhs, result)
    arguments = convolution_arguments(instruction)
    if tables is None or arguments[-1] is None:
        return None
    return "convolution_call", (*arguments, *tables), "cupy.matmul of laid-out windows"


def convolution_arguments(instruction: Instruction) -> tuple[Any, ...]:
    """Positions, window, groups and the type to add in, as `library.functions.convolution` takes them."""
    c = convolution_dimensions(instruction)
    lhs, rhs = (o.shape.type for o in instruction.operands)
    wide = _accumulator(lhs, rhs, instruction.shape.type)
    window = tuple(
        (w.size, w.stride, w.pad_low, w.pad_high, w.lhs_dilate, w.rhs_dilate, w.rhs_reversal) for w in c.window
    )
    return (c.lhs, c.rhs, c.output), window, (c.feature_groups, c.batch_groups), wide


def sort(instruction: Instruction) -> Call | None:
    keys = sort_keys(instruction.called_by("to_apply"))
    if keys is None or not all(
        o.shape.is_array for o in instruction.operands
    ):  # what is not compared may be of any type
        return None
    return "sort_call", (sorted_dimension(instruction), keys), "cupy.argsort"


def sort_fusion(instruction: Instruction) -> Call | None:
    """A fusion that sorts its parameters and numbers that it counts up itself: how XLA writes a sort that also gives positions."""
    root = instruction.called_by("calls").root
    made = sort(root) if root.opcode == "sort" else None
    sources: list[Any] = []
    for o in root.operands:
        if o.parameter_number is not None:
            sources.append(o.parameter_number)
        elif o.opcode == "iota" and not o.shape.type.is_narrow_float:
            dimension = integer(o, "iota_dimension")
            sources.append((dimension, described(o.shape)))
        else:
            return None
    return None if made is None else ("sort_fusion_call", (tuple(sources), *made[1]), made[2])


def described(shape: Shape) -> tuple[str, str, tuple[int, ...], tuple[int, ...]]:
    """(type, stored dtype, dimensions, layout) of a buffer."""
    return shape.type.name, raw_dtype(shape.type.dtype).name, shape.dimensions, shape.minor_to_major


def topk(instruction: Instruction) -> Call | None:
    t = instruction.operands[0].shape
    if not plain(t) or t.type.is_complex:
        return None
    return "top_call", (integer(instruction, "k"), flag(instruction, "largest", True)), "cupy.argsort"


_TRANSFORMS = {"FFT": "fftn", "IFFT": "ifftn", "RFFT": "rfftn", "IRFFT": "irfftn"}


def fft(instruction: Instruction) -> Call | None:
    function = _TRANSFORMS.get(instruction.word("fft_type"))
    lengths = instruction.ints("fft_length")
    source = instruction.operands[0].shape
    if function is None or not plain(source) or source.type.bits < 32:
        return None
    if instruction.shape == source and source.dimensions[source.rank - len(lengths) :] != tuple(lengths):
        return None  # a complex transform of another length has no meaning
    return "fft_call", (function, lengths), f"cupy.fft.{function}"


def cholesky(instruction: Instruction) -> Call | None:
    t = instruction.shape.type
    return ("cholesky_call", (flag(instruction, "lower"),), "cupy.linalg.cholesky") if _solved(t) else None


def triangular_solve(instruction: Instruction) -> Call | None:
    if not _solved(instruction.shape.type):
        return None
    how = (
        is_left(instruction),
        flag(instruction, "lower"),
        instruction.word("transpose_a", "NO_TRANSPOSE"),
        flag(instruction, "unit_diagonal"),
    )
    return "triangular_solve_call", how, "cupyx.scipy.linalg.solve_triangular"


def _solved(t: ElementType) -> bool:
    return t.name in ("bf16", "f16", "f32", "f64", "c64", "c128")


def is_alone(instruction: Instruction) -> bool:
    """Whether the module runs on one device."""
    module = instruction.computation.module
    return module is not None and counts(module) == (1, 1)


CALLS = {
    "cholesky": cholesky,
    "convolution": convolution,
    "dot": dot,
    "fft": fft,
    "fusion": sort_fusion,
    "sort": sort,
    "topk": topk,
    "triangular-solve": triangular_solve,
}


def library_call(instruction: Instruction) -> Call | None:
    """The call of an instruction, or None. A malformed instruction has none: the verifier tells what is wrong with it."""
    try:
        make = CALLS.get(instruction.opcode)
        if make is not None:
            return make(instruction)
        if instruction.opcode == "custom-call":
            return convolution_steps(instruction) or ordering_call(instruction) or factorization_call(instruction)
        return None
    except ShapeError:
        return None
