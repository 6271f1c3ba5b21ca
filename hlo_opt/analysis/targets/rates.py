"""What the arithmetic units of a GPU do in a cycle: products that are added, by type and compute capability.

Source: NVIDIA's architecture whitepapers (P100, V100, A100, GA102, H100) and the data sheet of Blackwell; "Arithmetic Instructions" in the CUDA C++ Programming Guide. Dense products.
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
    80: {"f16": 1024, "bf16": 1024, "s8": 2048, "f64": 64},
    86: {"f16": 512, "bf16": 512, "s8": 1024},
    89: {"f16": 512, "bf16": 512, "s8": 1024, "f8": 1024},
    90: {"f16": 2048, "bf16": 2048, "s8": 4096, "f8": 4096, "f64": 128},
    100: {"f16": 4096, "bf16": 4096, "s8": 8192, "f8": 8192, "f64": 64},
    103: {"f16": 4096, "bf16": 4096, "f8": 8192},
}
"""Of the tensor cores of a multiprocessor, since a compute capability. Those of f32 would round to TF32 first, which nothing here does."""
_PLAIN: dict[int, dict[str, float]] = {
    60: {"f64": 0.5, "f16": 2.0},
    70: {"f64": 0.5, "f16": 2.0},
    75: {"f64": 1 / 32, "f16": 2.0},
    80: {"f64": 0.5, "f16": 4.0},
    86: {"f64": 1 / 64, "f16": 1.0},
    90: {"f64": 0.5, "f16": 2.0},
    103: {"f64": 1 / 64, "f16": 2.0},
}
"""Of its other units, as a multiple of those for f32, since a compute capability."""


def products_per_cycle(target: DeviceTarget, name: str, *, tensor_cores: bool) -> float:
    """Of a multiprocessor, for operands of a type of that name; complex ones take four each. Types without a rate of their own are computed as f32."""
    if name.startswith("c"):
        return products_per_cycle(target, "f64" if name == "c128" else "f32", tensor_cores=tensor_cores) / 4
    plain = target.fpus_per_core * _since(_PLAIN, target).get(name, 1.0)
    key = "f8" if name.startswith("f8") else "s8" if name == "u8" else name
    return max(plain, _since(_TENSOR, target).get(key, 0)) if tensor_cores else plain


def _since(table: Mapping[int, T], target: DeviceTarget) -> T:
    found = [capability for capability in table if capability <= target.compute_capability]
    return table[max(found, default=min(table))]
