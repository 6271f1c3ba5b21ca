"""Custom calls to cuBLAS and cuDNN that XLA:GPU writes in place of `dot` and `triangular-solve`, and the block-scaled products of JAX.

Source: xla/service/gpu/cublas_cudnn.h (targets), xla/service/gpu/backend_configs.proto (GemmBackendConfig), xla/service/gpu/transforms/gemm_rewriter.cc (operands),
xla/service/gpu/transforms/block_scaling_rewriter.h.
"""

from __future__ import annotations

import math

from hlo_opt.ir import Instruction
from hlo_opt.ops.call_config import configuration
from hlo_opt.ops.custom_calls.targets import CustomCallSpec, register_custom_call
from hlo_opt.ops.lazy import lazy


def gemm_flops(instruction: Instruction) -> float:
    """Two per product (xla/service/gpu/model/gpu_hlo_cost_analysis.cc, HandleCustomCall)."""
    lhs = instruction.operands[0].shape
    numbers = configuration(instruction, "gemm_backend_config").get("dot_dimension_numbers", {})
    contracted = [int(d) for d in numbers.get("lhs_contracting_dimensions", (lhs.rank - 1,))]
    result = (instruction.shape.elements or (instruction.shape,))[0]
    return 2.0 * result.element_count * math.prod(lhs.dimensions[d] for d in contracted)


for _target in ("__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$f8"):
    _evaluate = lazy("custom_calls.products_meaning", "gemm")
    register_custom_call(CustomCallSpec(_target, evaluate=_evaluate, flops=gemm_flops, library="cuBLAS"))
for _target, _function, _library in (
    ("__cublas$triangularSolve", "triangular_solve_call", "cuBLAS"),
    ("__op$block_scaled_dot", "block_scaled_dot", "cuDNN"),
    ("__op$dequantize", "dequantize", "xla"),
):
    register_custom_call(
        CustomCallSpec(_target, evaluate=lazy("custom_calls.products_meaning", _function), library=_library)
    )
