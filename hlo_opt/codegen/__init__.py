"""Kernels as CUDA text that NVRTC and, after `host_shim.h`, a C++ compiler read."""

from hlo_opt.codegen.emit import emit_kernel
from hlo_opt.codegen.kernel import Kernel

__all__ = ["Kernel", "emit_kernel"]
