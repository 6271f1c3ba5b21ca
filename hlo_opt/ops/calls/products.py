"""Library calls of products and convolutions; None where CuPy has none."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hlo_opt.ir import ElementType, Instruction, Shape
from hlo_opt.ops.call_config import configuration, number
from hlo_opt.ops.calls.call import TF32, plain
from hlo_opt.ops.contraction.table import convolution_dimensions
from hlo_opt.ops.spec import LibraryCall

LT_MATMUL = "__cublas$lt$matmul"
"""The custom-call target of XLA:GPU's products by cuBLASLt."""
_MATMULS = ("__cublas$gemm", LT_MATMUL)
EPILOGUES = ("DEFAULT", "RELU", "GELU", "BIAS", "BIAS_RELU", "BIAS_GELU")
"""What may follow a product in the same call, as XLA:GPU names it; DEFAULT is nothing."""
CUDNN = "__cudnn$conv"
"""The prefix of the custom-call targets of XLA:GPU's convolutions."""
_MOST = 2**31 - 1
"""cuBLAS counts rows and columns in 32 bits."""


def dot(instruction: Instruction) -> LibraryCall | None:
    """cuBLAS where it has the types, else CuPy's product; one-byte operands are decoded through a table."""
    if len(instruction.operands) != 2 or not instruction.shape.is_array:
        return None
    lhs, rhs, result = (*(o.shape for o in instruction.operands), instruction.shape)
    if not (lhs.is_array and rhs.is_array):
        return None
    batch = (instruction.ints("lhs_batch_dims"), instruction.ints("rhs_batch_dims"))
    contracting = (instruction.ints("lhs_contracting_dims"), instruction.ints("rhs_contracting_dims"))
    small = all(s.element_count <= _MOST for s in (lhs, rhs, result))
    if _multiplied(lhs.type, rhs.type, result.type) and small:
        rounded = (TF32,) if multiplies_tf32(instruction) else ()
        return "gemm_call", (batch, contracting, *rounded), "cublasGemmStridedBatchedEx"
    accumulator, tables = _accumulator(lhs.type, rhs.type, result.type), _tables(lhs, rhs, result)
    if accumulator is None or tables is None:
        return None
    return "dot_call", (batch, contracting, accumulator, *tables), "cupy.matmul"


def gemm(instruction: Instruction) -> LibraryCall | None:
    """The call of a product as XLA:GPU wrote it, with the bias and the activation that follow; None for scaled products
    and sums with a matrix."""
    config = configuration(instruction, "gemm_backend_config")
    epilogue = str(config.get("epilogue", "DEFAULT"))
    is_plain = number(config, "alpha_real", 1.0) == 1 and not number(config, "alpha_imag", 0.0)
    numbers, operands = config.get("dot_dimension_numbers"), _operands(instruction)
    if not is_plain or number(config, "beta", 0.0) or epilogue not in EPILOGUES or not isinstance(numbers, dict):
        return None
    result = next(iter(instruction.shape.leaves()))
    if len(operands) != 2 + epilogue.startswith("BIAS") or any(o.type != result.type for o in operands[2:]):
        return None
    if not _multiplied(operands[0].type, operands[1].type, result.type):
        return None
    batch, contracting = (
        tuple(tuple(map(int, numbers.get(f"{side}_{kind}_dimensions", ()))) for side in ("lhs", "rhs"))
        for kind in ("batch", "contracting")
    )
    rounded = TF32 if multiplies_tf32(instruction) else ""
    return "gemm_call", (batch, contracting, rounded, epilogue.replace("DEFAULT", "")), "cublasLtMatmul"


def multiplies_tf32(instruction: Instruction) -> bool:
    """Whether a GPU may round the operands of a product or convolution of f32 to TF32, with 10 bits of mantissa: unless
    the dump asks for the highest precision, or for another algorithm (xla/stream_executor/cuda/cuda_blas.cc and
    xla/service/gpu/matmul_utils.cc: `compute_precision <= 1`; cuda_dnn.cc: `RequireMath`)."""
    opcode = instruction.opcode
    target = instruction.word("custom_call_target") if opcode == "custom-call" else ""
    if opcode not in ("dot", "convolution") and not target.startswith(CUDNN) and target not in _MATMULS:
        return False
    shapes = (*_operands(instruction), *list(instruction.shape.leaves())[:1])
    if any(s.type.name != "f32" for s in shapes):
        return False
    algorithm = instruction.word("algorithm") or "dot_unset"
    precision = str(instruction.value("operand_precision", "")).lower()
    if target in _MATMULS:
        own = configuration(instruction, "gemm_backend_config").get("precision_config", {})
        precision += str(own.get("operand_precision", "")).lower()
        named = str(own.get("algorithm", "ALG_UNSET")).lower().removeprefix("alg_")
        algorithm = "dot_unset" if named == "unset" else named
    return algorithm in ("dot_unset", "dot_tf32_tf32_f32") and "highest" not in precision


def _operands(instruction: Instruction) -> list[Shape]:
    return [o.shape for o in instruction.operands if o.shape.is_array]


def _tables(lhs: Shape, rhs: Shape, result: Shape) -> tuple[Any, ...] | None:
    """The arguments of `dot_call` and `convolution_call` that decode and encode types CuPy lacks; () where it has all.
    None where impossible."""
    read = tuple("" if plain(s) else table(s.type) for s in (lhs, rhs))
    written: Any = "" if plain(result) else rounding_table(result.type)
    if None in read or written is None or (written and "f64" in (lhs.type.name, rhs.type.name)):
        return None
    return ((*read, written),) if any(read) or written else ()


def _multiplied(lhs: ElementType, rhs: ElementType, result: ElementType) -> bool:
    """Whether cuBLAS multiplies the types directly (table of cublasGemmStridedBatchedEx in its manual)."""
    if lhs != rhs:
        return False
    known = lhs.name in ("bf16", "f16", "f32", "f64", "c64", "c128")
    return known and (result == lhs or (lhs.is_narrow_float and result.name == "f32"))


def _accumulator(lhs: ElementType, rhs: ElementType, result: ElementType) -> str | None:
    """The NumPy name of the accumulator type."""
    if result.is_float:
        return "float64" if "f64" in (lhs.name, rhs.name, result.name) else "float32"
    if result.kind == "pred":
        return "int32"
    if result.is_complex or result.is_integer:
        return result.numpy_name
    return None


def table(element_type: ElementType) -> str | None:
    """The float32 values of all 256 bytes of a one-byte type that CuPy lacks (f8, f4, int4), in hexadecimal; None for
    others."""
    if element_type.bytes != 1 or not element_type.numpy_name or not (element_type.is_float or element_type.is_integer):
        return None
    every = np.arange(256, dtype=np.uint8).view(element_type.dtype)
    return every.astype(np.float32).tobytes().hex()


@functools.cache
def rounding_table(element_type: ElementType) -> tuple[str, str] | None:
    """How float32 rounds to a one-byte float type that CuPy lacks; None for others.

    Two hexadecimal strings: thresholds in the total order of float32 bits (int32, -NaN first), and the bytes, one more.
    """
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
    while np.any(high - low > 1):  # the float32 values that round to one byte are contiguous
        middle = (low + high) // 2
        same = code(middle.astype(np.int32)) == first
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    codes = np.concatenate([first[:1], code(high.astype(np.int32))])
    return high.astype(np.int32).tobytes().hex(), codes.tobytes().hex()


def convolution(instruction: Instruction) -> LibraryCall | None:
    lhs, rhs, result = (*(o.shape for o in instruction.operands), instruction.shape)
    tables = _tables(lhs, rhs, result)
    arguments = convolution_arguments(instruction)
    if tables is None or arguments[-1] is None:
        return None
    rounded = (*(tables or (("", "", ""),)), TF32) if multiplies_tf32(instruction) else tables
    return "convolution_call", (*arguments, *rounded), "cupy.matmul of laid-out windows"


def convolution_arguments(instruction: Instruction) -> tuple[Any, ...]:
    """Positions, window, groups and accumulator type, the arguments of `hlo_opt.library`'s `convolution`."""
    lhs, rhs = (o.shape.type for o in instruction.operands)
    return *convolution_dimensions(instruction).described, _accumulator(lhs, rhs, instruction.shape.type)
