"""What the cost model and the plans know of a GPU.

Source of the field names: stream_executor/device_description.h.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DeviceTarget:
    """A GPU as the cost model and the plans see it. Sizes are bytes, the bandwidth is bytes per second."""

    name: str
    title: str
    compute_capability: int
    memory_bandwidth: float
    core_count: int
    fpus_per_core: int
    clock_rate_ghz: float
    l2_cache_size: int
    threads_per_core_limit: int
    shared_memory_per_core: int
    shared_memory_per_block_optin: int
    device_memory_size: int
    shared_memory_per_block: int = 49152
    threads_per_block_limit: int = 1024
    threads_per_warp: int = 32
    registers_per_block_limit: int = 65536
    l1_cache_size_per_core: int = 2048
    """Deliberately tiny: what surely stays in the first-level cache (xla/stream_executor/device_description.h)."""
    dram_transaction_bytes: int = 64
    bytes_per_core_and_clock: int = 32
    kernel_launch_us: float = 1.0

    @property
    def resident_threads(self) -> int:
        """How many threads the device runs at a time."""
        return self.core_count * self.threads_per_core_limit

    @property
    def architecture(self) -> str:
        """What NVRTC calls it: `sm_90`."""
        return f"sm_{self.compute_capability}"
