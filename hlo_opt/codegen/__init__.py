"""Emitters and printers of kernels: CUDA text for NVRTC and, after `host_shim.h`, for a C++ compiler."""

from hlo_opt.codegen.emit import emit_kernel
from hlo_opt.codegen.kernel import Kernel

__all__ = ["Kernel", "emit_kernel"]
