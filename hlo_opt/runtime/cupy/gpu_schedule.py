"""A module's schedule for CuPy's GPU: where this has cuBLASLt, what follows a product is part of its call."""

from __future__ import annotations

from hlo_opt.analysis.targets import DeviceTarget, target_of
from hlo_opt.ir import Module
from hlo_opt.ops.calls.strided import StridedProduct
from hlo_opt.passes.for_kernels import expanded
from hlo_opt.passes.product_epilogues import MeasuredEpilogues, ProductEpilogues
from hlo_opt.runtime.cupy.device import has_gpu, import_cupy
from hlo_opt.runtime.cupy.products import Cublas
from hlo_opt.runtime.schedule import Schedule, build_schedule


def gpu_schedule(module: Module, target: str | DeviceTarget | None = None, *, precise: bool = False) -> Schedule:
    """The schedule of a module, fused or not. `precise`: activations are kernels, which round as they should. Raises
    what `build_schedule` raises."""
    if not precise and ProductEpilogues().concerns(module) and has_gpu():
        module = _with_epilogues(module, target)
    return build_schedule(module, target)


def _with_epilogues(module: Module, target: str | DeviceTarget | None) -> Module:
    """The module with epilogues in library calls, where the library takes less time than the least that a kernel after
    the product could take: such a kernel reads and writes the product."""
    try:
        cublas = Cublas(import_cupy())
    except (OSError, AttributeError, RuntimeError):  # of the loader and the library
        return module
    if cublas.lt is None:
        return module
    device = target_of(module, target)

    def pays(product: StridedProduct) -> bool:
        copied_us = 2 * product.bytes[2] / device.copied_per_second * 1e6
        try:
            return cublas.saves(product, copied_us + device.kernel_launch_us)
        except RuntimeError:  # of the library: the module runs without it
            return False

    return expanded(module, device, (MeasuredEpilogues(pays),))
