"""Custom calls to cuBLAS that XLA:GPU writes in place of `dot`, and the block-scaled dot of JAX.

Source: xla/service/gpu/cublas_cudnn.h (targets), xla/service/gpu/backend_configs.proto (GemmBackendConfig), xla/service/gpu/transforms/block_scaling_rewriter.h.
"""

from __future__ import annotations

from hlo_opt.ops.custom_calls import CustomCallSpec, register_custom_call
from hlo_opt.ops.lazy import lazy

for _target in ("__cublas$gemm", "__cublas$lt$matmul"):
    register_custom_call(CustomCallSpec(_target, evaluate=lazy("library_calls_numpy", "gemm"), library="cuBLAS"))
register_custom_call(
    CustomCallSpec("__op$block_scaled_dot", evaluate=lazy("library_calls_numpy", "block_scaled_dot"), library="cuDNN")
)
