"""Throughput of a GPU's arithmetic units: multiply-adds per cycle, by type and compute capability.

Source: NVIDIA's architecture whitepapers (P100, V100, A100, GA102, H100) and the Blackwell data sheet; "Arithmetic
Instructions" in the CUDA C++ Programming Guide. Dense products.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from hlo_opt.analysis.targets.spec_file import DeviceTarget

T = TypeVar("T")

_TENSOR: dict[int, dict[str, int]] = {
    60: {},
    70: {"f16": 512},
    75: {"f16": 512, "s8": 1024},
    80: {"f16": 1024, "bf16": 1024, "s8": 2048, "f64": 64, "tf32": 512},
    86: {"f16": 512, "bf16": 512, "s8": 1024, "tf32": 256},
    89: {"f16": 512, "bf16": 512, "s8": 1024, "f8": 1024, "tf32": 256},
    90: {"f16": 2048, "bf16": 2048, "s8": 4096, "f8": 4096, "f64": 128, "tf32": 1024},
    100: {"f16": 4096, "bf16": 4096, "s8": 8192, "f8": 8192, "f64": 64, "tf32": 2048},
    103: {"f16": 4096, "bf16": 4096, "f8": 8192, "tf32": 2048},
}
"""Multiply-adds per cycle of a multiprocessor's tensor cores, from a compute capability on. f32 itself has none:
`tf32` is f32 that may be rounded to 10 bits of mantissa."""
_PLAIN: dict[int, dict[str, float]] = {
    60: {"f64": 0.5, "f16": 2.0},
    70: {"f64": 0.5, "f16": 2.0},
    75: {"f64": 1 / 32, "f16": 2.0},
    80: {"f64": 0.5, "f16": 4.0},
    86: {"f64": 1 / 64, "f16": 1.0},
    90: {"f64": 0.5, "f16": 2.0},
    103: {"f64": 1 / 64, "f16": 2.0},
}
"""Multiply-adds of the other units relative to f32, from a compute capability on."""


def products_per_cycle(target: DeviceTarget, name: str, *, tensor_cores: bool) -> float:
    """Multiply-adds per cycle of a multiprocessor, by operand type; complex ones take four each. Unlisted types run at
    the f32 rate."""
    if name.startswith("c"):
        return products_per_cycle(target, "f64" if name == "c128" else "f32", tensor_cores=tensor_cores) / 4
    plain = target.fpus_per_core * _since(_PLAIN, target).get(name, 1.0)
    key = "f8" if name.startswith("f8") else "s8" if name == "u8" else name
    return max(plain, _since(_TENSOR, target).get(key, 0)) if tensor_cores else plain


def _since(table: Mapping[int, T], target: DeviceTarget) -> T:
    capabilities = [capability for capability in table if capability <= target.compute_capability]
    return table[max(capabilities, default=min(table))]
