"""The NVRTC options of kernels: the single source for compilers, manifest and cache keys.

By default f32 divides within 2 ULP and takes square roots within 1, as in XLA:GPU
(xla/service/gpu/llvm_gpu_backend/nvptx_backend.cc: `-nvptx-prec-divf32=1`, which is `div.full.f32`; its square roots
are `sqrt.approx.f32`). Denormals are kept (xla/debug_options_flags.cc: `xla_gpu_ftz` is false), and nothing is
contracted. Helpers test `HLO_PRECISE` for everything else that depends on precision.
"""

from __future__ import annotations

ALWAYS = ("-fmad=false", "--std=c++17")
"""No contraction to fused multiply-adds: a product plus a sum rounds twice on every backend, as in XLA's evaluator."""

_AS_XLA = ("-prec-div=false", "-prec-sqrt=false")
_PRECISE = ("-DHLO_PRECISE",)


def compile_options(*, precise: bool = False) -> tuple[str, ...]:
    """The options for XLA:GPU's accuracy, or with `precise` for the host's: IEEE 754 division and square root, narrow
    types computed as f32."""
    return (*ALWAYS, *(_PRECISE if precise else _AS_XLA))
