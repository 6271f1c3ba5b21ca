"""A kernel: CUDA text with everything a backend needs to launch it."""

from __future__ import annotations

from dataclasses import dataclass

from hlo_opt.ir import Shape
from hlo_opt.plans.plan import Launch


@dataclass(frozen=True)
class Kernel:
    """`extern "C" __global__ void symbol(const T0* in0, ..., U0* out0, ...)`: one pointer per input, then one per output array.

    Pointers are to physical memory: an array lies as its shape's layout says, and starts at a multiple of 16 bytes on a GPU. `source` stands alone (prelude included) and is what CuPy, NVRTC
    and the C++ compiler (after the host shim) read. Structurally equal fusions give equal sources and so share a kernel.
    """

    symbol: str
    source: str
    launch: Launch
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    kind: str
