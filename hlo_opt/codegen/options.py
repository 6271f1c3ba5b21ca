"""The options that NVRTC compiles kernels with: everybody who compiles, the manifest and the cache's keys have them from here.

By default f32 divides within 2 ULP and takes square roots within 1, as XLA:GPU does (xla/service/gpu/llvm_gpu_backend/nvptx_backend.cc: `-nvptx-prec-divf32=1`, which is `div.full.f32`; its
square roots are `sqrt.approx.f32`). Denormal numbers stay numbers (xla/debug_options_flags.cc: `xla_gpu_ftz` is false), and nothing is contracted. What else differs by these options is
asked for in the texts under `HLO_PRECISE`.
"""

from __future__ import annotations

ALWAYS = ("-fmad=false", "--std=c++17")
"""No contraction into fused multiply-adds: a sum of a product rounds twice on every backend, as in XLA's evaluator."""

_AS_XLA = ("-prec-div=false", "-prec-sqrt=false")
_PRECISE = ("-DHLO_PRECISE",)


def compile_options(*, precise: bool = False) -> tuple[str, ...]:
    """For kernels that are as accurate as XLA:GPU's; or, `precise`, as the host's: division and square root as IEEE 754 says, functions for narrow types as for f32."""
    return (*ALWAYS, *(_PRECISE if precise else _AS_XLA))
