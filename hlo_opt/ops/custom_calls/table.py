"""The known custom calls: threefry, markers, allocations, CHLO functions, and library routines (products, sorts,
factorizations, solvers).

Convolutions are in `convolutions`.
Sources: xla/mlir_hlo/stablehlo_ext/transforms/chlo_recompose_ops.cpp (names of CHLO), xla/service/dynamic_padder.cc
(PadToStatic, SliceToDynamic); xla/service/gpu/cublas_cudnn.h (targets), xla/service/gpu/backend_configs.proto
(GemmBackendConfig), xla/service/gpu/transforms/gemm_rewriter.cc (operands),
xla/service/gpu/transforms/block_scaling_rewriter.h; xla/service/topk_rewriter.cc,
xla/hlo/builder/lib/approx_topk.cc, jax/_src/lax/ann.py, xla/backends/gpu/transforms/sort_rewriter.cc (targets and
`descending`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hlo_opt.ir import Computation, Instruction, Module, Shape
from hlo_opt.ir.element_type import U32
from hlo_opt.ops.call_config import configuration
from hlo_opt.ops.custom_calls.targets import CustomCallSpec, find_custom_call, register_custom_call
from hlo_opt.ops.faces import lazy
from hlo_opt.ops.random.table import threefry
from hlo_opt.ops.spec import Evaluator, ShapeError
from hlo_opt.ops.writer import Writer

if TYPE_CHECKING:
    from hlo_opt.ops.values import Value


def _infer_threefry(instruction: Instruction) -> Shape:
    shapes = [operand.shape for operand in instruction.operands]
    if len(shapes) != 4:
        raise ShapeError(f"a ThreeFry call takes two keys and two counts, not {len(shapes)} operands")
    for number, shape in enumerate(shapes):
        if shape.element_type != U32:
            raise ShapeError(f"operand {number} of a ThreeFry call must be u32, not {shape}")
        # keys may be scalars
        if shape.dimensions != shapes[2].dimensions and (number > 1 or shape.rank):
            raise ShapeError(f"operands of a ThreeFry call differ in dimensions: {shapes[2]} and {shape}")
    words = shapes[2].without_layout()
    return Shape.tuple_of(words, words)


def expand_threefry(module: Module | None, instruction: Instruction) -> Computation:
    """ThreeFry-2x32 on arrays: the four operands are parameters, the root is the pair of words.

    Source: jax/jaxlib/gpu/prng_kernels.cu.cc. Raises ShapeError for operands that do not fit.
    """
    _infer_threefry(instruction)
    writer = Writer("threefry2x32")
    key0, key1, count0, count1 = (writer.parameter(k, o.shape) for k, o in enumerate(instruction.operands))
    shapes = instruction.shape.elements
    if shapes is None or len(shapes) != 2 or any(s.dimensions != count0.shape.dimensions for s in shapes):
        raise ShapeError(f"a ThreeFry call returns two words per count, not {instruction.shape}")
    return writer.finish(threefry(writer, (key0, key1), (count0, count1)), shapes)


for _target in ("threefry2x32", "cu_threefry2x32", "cu_threefry2x32_ffi", "hip_threefry2x32", "hip_threefry2x32_ffi"):
    _library = "jaxlib" if "_" in _target else ""
    register_custom_call(
        CustomCallSpec(_target, _infer_threefry, expand=expand_threefry, library=_library, elementwise=True)
    )


def _is_identity(instruction: Instruction) -> bool:
    return len(instruction.operands) > 0 and instruction.operands[0].shape.same_values(instruction.shape)


def hands_on(instruction: Instruction) -> bool:
    """Whether a custom call returns its one operand unchanged (a marker)."""
    spec = find_custom_call(instruction.word("custom_call_target"))
    return spec is not None and spec.expand is _expand_identity and _is_identity(instruction)


def _evaluate_identity(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    if not _is_identity(instruction):
        raise ValueError("operand and result differ in shape, which needs several devices")
    return values[0]


def _expand_identity(module: Module | None, instruction: Instruction) -> Computation:
    writer = Writer("identity")
    copy = writer.emit("copy", instruction.shape, writer.parameter(0, instruction.operands[0].shape))
    return writer.finish([copy], [instruction.shape])


for _target in (
    *("LayoutConstraint", "MoveToDevice", "MoveToHost", "SPMDFullToShardShape", "SPMDShardToFullShape", "SetBound"),
    *("ShardBarrierFrom", "ShardBarrierTo", "Sharding", "annotate_device_placement", "xla.sdy.FuncResultSharding"),
):
    register_custom_call(
        CustomCallSpec(
            _target,
            evaluate=_evaluate_identity,
            expand=_expand_identity,
            expands=lambda i: _is_identity(i) and i.shape.is_array and len(i.operands) == 1,
            aliasing=lambda instruction: {(): 0} if _is_identity(instruction) else {},
            elementwise=True,
        )
    )


def _expand_allocation(module: Module | None, instruction: Instruction) -> Computation:
    """Uninitialised memory. Zeros make runs reproducible."""
    writer = Writer("allocation")
    zeros = writer.emit("broadcast", instruction.shape, writer.constant(instruction.shape.type, 0), dimensions=())
    return writer.finish([zeros], [instruction.shape])


register_custom_call(
    CustomCallSpec(
        "AllocateBuffer",
        expand=_expand_allocation,
        expands=lambda instruction: instruction.shape.is_array,
    )
)

# ---- CHLO functions left in a module as `mhlo.NAME`, and conversions between static and dynamic sizes

FUNCTIONS = ("acos", "acosh", "asin", "asinh", "atanh", "cosh", "erf", "sinh", "tan")


def _infer_function(instruction: Instruction) -> Shape:
    if len(instruction.operands) != 1 or not instruction.operands[0].shape.is_array:
        raise ShapeError("an elementwise function takes one array")
    return instruction.operands[0].shape.without_layout()


for _name in FUNCTIONS:
    register_custom_call(
        CustomCallSpec(f"mhlo.{_name}", _infer_function, lazy("custom_calls.meaning", "elementwise"), elementwise=True)
    )
register_custom_call(CustomCallSpec("PadToStatic", evaluate=lazy("custom_calls.meaning", "pad_to_static")))
register_custom_call(CustomCallSpec("SliceToDynamic", evaluate=lazy("custom_calls.meaning", "slice_to_dynamic")))


# ---- what libraries compute


def gemm_flops(instruction: Instruction) -> float:
    """Two per product (xla/service/gpu/model/gpu_hlo_cost_analysis.cc, HandleCustomCall)."""
    lhs = instruction.operands[0].shape
    numbers = configuration(instruction, "gemm_backend_config").get("dot_dimension_numbers", {})
    contracted = [int(d) for d in numbers.get("lhs_contracting_dimensions", (lhs.rank - 1,))]
    result = (instruction.shape.elements or (instruction.shape,))[0]
    return 2.0 * result.element_count * math.prod(lhs.dimensions[d] for d in contracted)


_CALLS = {"top_k": "calls.order", "radix_sort": "calls.order", "gemm": "calls.products"}
"""The modules of library calls."""
for _target, _function, _library in (
    ("__cublas$gemm", "gemm", "cuBLAS"),
    ("__cublas$lt$matmul", "gemm", "cuBLAS"),
    ("__cublas$lt$matmul$f8", "gemm", "cuBLAS"),
    ("__cublas$triangularSolve", "triangular_solve_call", "cuBLAS"),
    ("__op$block_scaled_dot", "block_scaled_dot", "cuDNN"),
    ("__op$dequantize", "dequantize", "xla"),
    ("TopK", "top_k", "xla"),
    ("__gpu$TopK", "top_k", "xla"),
    ("mhlo.topk", "top_k", ""),
    ("ApproxTopK", "best", ""),
    ("PartialReduce", "best", ""),
    ("xla.gpu.ext.cub_sort_keys", "radix_sort", "CUB"),
    ("xla.gpu.ext.cub_sort_pairs", "radix_sort", "CUB"),
    ("xla.gpu.ext.cub_sort_unassigned_scratch_size", "radix_sort", "CUB"),
):
    register_custom_call(
        CustomCallSpec(
            _target,
            evaluate=lazy("custom_calls.meaning", _function),
            flops=gemm_flops if _function == "gemm" else None,
            call=lazy(_CALLS[_function], _function) if _function in _CALLS else None,
            library=_library,
        )
    )

# ---- factorizations of (batches of) matrices, and systems of equations
#
# Results are those of jaxlib's kernels (jaxlib/cpu/lapack_kernels.h, jaxlib/gpu/solver_kernels_ffi.h); `Qr` and
# `ProductOfElementaryHouseholderReflectors` come from XLA's builder (xla/hlo/builder/lib/qr.cc), `__cusolver$cholesky`
# from XLA:GPU's `cholesky`. Where a factorization is unique up to signs only, the signs are LAPACK's. Calls from before
# jaxlib's FFI are included where no opaque descriptor hides their meaning.

_MEANINGS = frozenset({"geev", "gehrd", "geqp3", "gtsv", "gtsv2", "sytrd", "syrk", "trsm"})
"""Routines with a NumPy evaluator of their own; the others run their CuPy call over NumPy."""
_LAPACK = {
    **dict.fromkeys(("potrf", "getrf", "geqrf", "geqp3", "gehrd", "geev", "gesdd", "gesvd", "gtsv", "trsm"), "sdcz"),
    **dict.fromkeys(("orgqr", "ormqr", "syevd", "sytrd"), "sd"),
    **dict.fromkeys(("ungqr", "unmqr", "heevd", "hetrd"), "cz"),
}
_SOLVER = ("potrf", "getrf", "geqrf", "orgqr", "ormqr", "syevd", "sytrd", "syrk", "gesvd", "gesdd", "gesvdj", "gesvdp")
_SAME = {"ungqr": "orgqr", "unmqr": "ormqr", "heevd": "syevd", "hetrd": "sytrd", "gesvd": "gesdd", "gesvdp": "gesvdj"}
_OTHERS = {
    "Qr": ("geqrf", "LAPACK"),
    "ProductOfElementaryHouseholderReflectors": ("orgqr", "LAPACK"),
    "__cusolver$cholesky": ("cusolver_cholesky", "cuSOLVER"),
    "cu_lu_pivots_to_permutation": ("lu_pivots_to_permutation", "jaxlib"),
    "hip_lu_pivots_to_permutation": ("lu_pivots_to_permutation", "jaxlib"),
    "cusparse_gtsv2_ffi": ("gtsv2", "cuSPARSE"),
    "hipsparse_gtsv2_ffi": ("gtsv2", "hipSPARSE"),
    "cublas_getrf_batched": ("getrf", "cuBLAS"),
    "cublas_geqrf_batched": ("geqrf", "cuBLAS"),
    "cusolver_getrf": ("getrf", "cuSOLVER"),
    "cusolver_geqrf": ("geqrf", "cuSOLVER"),
    "cusolver_orgqr": ("orgqr", "cuSOLVER"),
}


_FACTORIZATIONS = {
    **{f"lapack_{x}{name}_ffi": (_SAME.get(name, name), "LAPACK") for name, types in _LAPACK.items() for x in types},
    **{f"cusolver_{name}_ffi": (_SAME.get(name, name), "cuSOLVER") for name in _SOLVER},
    **{f"hipsolver_{name}_ffi": (_SAME.get(name, name), "hipSOLVER") for name in _SOLVER},
    **_OTHERS,
}
"""Target to (routine, library). Routines have LAPACK's names without the type letter."""


def routine(target: str) -> str | None:
    """The routine behind a custom call's target (LAPACK's name without the type letter); None for other targets."""
    return _FACTORIZATIONS.get(target, (None,))[0]


for _target, (_routine, _library) in _FACTORIZATIONS.items():
    _evaluate = (
        ("custom_calls.factorizations_meaning", _routine) if _routine in _MEANINGS else ("calls.call", "over_numpy")
    )
    register_custom_call(
        CustomCallSpec(
            _target,
            evaluate=lazy(*_evaluate),
            call=lazy("calls.factorizations", "factorization_call"),
            library=_library,
        )
    )
