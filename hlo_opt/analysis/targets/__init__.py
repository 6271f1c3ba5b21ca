"""Device targets: one TOML file each, read on demand.

Source of the field names: stream_executor/device_description.h.
"""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, dataclass, fields
from functools import cache
from importlib import resources
from pathlib import Path

from hlo_opt.diag import UsageError, nearest


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
    def architecture(self) -> str:
        """What NVRTC calls it: `sm_90`."""
        return f"sm_{self.compute_capability}"


def target_names() -> list[str]:
    """The names of the devices that come with the program."""
    return sorted(f.name.removesuffix(".toml") for f in resources.files(__name__).iterdir() if f.name.endswith(".toml"))


@cache
def target(name: str) -> DeviceTarget:
    """The device of a name, or the one that a TOML file (a path ending in `.toml`) describes.

    Raises UsageError, naming the nearest name, for an unknown device and for a file that does not describe one.
    """
    if name.endswith(".toml"):
        path = Path(name)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError, ValueError) as fault:
            raise UsageError("the device file cannot be read", filename=name) from fault
        return _read(path.stem, text, name)
    known = target_names()
    if name not in known:
        close = nearest(name, known)
        hint = f"did you mean {close}?" if close else f"known: {', '.join(known)}; or the path of a .toml file"
        raise UsageError(f"there is no target {name!r}", hint=hint)
    return _read(name, (resources.files(__name__) / f"{name}.toml").read_text(encoding="utf-8"), name)


_KINDS: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float)}


def _read(name: str, text: str, filename: str) -> DeviceTarget:
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise UsageError(f"not TOML: {fault}", filename=filename) from fault
    known = {f.name: f for f in fields(DeviceTarget) if f.name != "name"}
    for key, value in values.items():
        if key not in known:
            close = nearest(key, known)
            raise UsageError(
                f"a device has no {key!r}", filename=filename, hint=f"did you mean {close}?" if close else None
            )
        wanted = _KINDS[str(known[key].type)]
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise UsageError(f"{key} must be {known[key].type}, not {value!r}", filename=filename)
        if isinstance(value, (int, float)) and value <= 0:
            raise UsageError(f"{key} must be positive, not {value!r}", filename=filename)
    missing = [n for n, f in known.items() if f.default is MISSING and n not in values]
    if missing:
        raise UsageError(f"the device lacks {', '.join(missing)}", filename=filename)
    return DeviceTarget(name, **values)
