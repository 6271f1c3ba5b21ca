"""A module's schedule for CuPy's GPU: where this has cuBLASLt, what follows a product is part of its call."""

from __future__ import annotations

from hlo_opt.analysis.targets import DeviceTarget, target_of
from hlo_opt.ir import Module
from hlo_opt.passes.for_kernels import AFTER_PRODUCTS, expanded
from hlo_opt.runtime.cupy.cublaslt import is_there
from hlo_opt.runtime.cupy.device import has_gpu, import_cupy
from hlo_opt.runtime.schedule import Schedule, build_schedule


def gpu_schedule(module: Module, target: str | DeviceTarget | None = None, *, precise: bool = False) -> Schedule:
    """The schedule of a module, fused or not. `precise`: activations are kernels, which round as they should. Raises
    what `build_schedule` raises."""
    is_concerned = not precise and any(p.concerns(module) for p in AFTER_PRODUCTS)
    if is_concerned and has_gpu() and is_there(import_cupy()):
        module = expanded(module, target_of(module, target), AFTER_PRODUCTS)
    return build_schedule(module, target)
